#ifndef LAUNCHER_VERBS_VERBS_CORE_H
#define LAUNCHER_VERBS_VERBS_CORE_H

/* What verbs.c, lines.c and steer.c (one question, and its answer shown), asking.c (all
 * servers, one, or the one that has the job) and printing.c (on the terminal, or as JSON)
 * share. */

#include "launcher/verbs/places.h"
#include "launcher/verbs/show.h"
#include "launcher/verbs/talk.h"
#include "launcher/verbs/value.h"
#include "launcher/verbs/verb_options.h"

#include "common/exit_code.h"

enum { EXIT_VERB_FAILED = 1 };

#define ASKING_UNREADABLE "cannot read what it answered"

/* What came of asking all of them. */
struct asked {
    size_t n_answered;
    size_t n_said_no;
    size_t n_refused;                 /* they were there … */
    size_t n_silent;                  /* … or were said to be */
    int exit_code;                    /* of the last that said no */
    char text[MSG_TEXT_MAX + 600];    /* … and its words */
    char trouble[MSG_TEXT_MAX + 600]; /* the last that did not answer, or refused */
    char broken[MSG_TEXT_MAX + 600];  /* … that answered in part, or nonsense */
};

/* The verb at work. */
struct inquiry {
    struct verb_options options;
    struct places places;
    struct keys keys;
};

struct msg_ask asking_question(const struct verb_options *o);

/* The list that an answer to it has; NULL: it has none. */
const char *asking_list(enum verb_kind kind);

/* Asks each server once. `on_answer` gets the whole answer of one, parsed; takes it
 * over. */
void asking_all(struct inquiry *q,
                void (*on_answer)(void *arg, const struct place *place, json_t *root),
                void *arg, struct asked *ret);

/* Leaves of the places the one server that has the job (or the only job), and puts the
 * job's name into the options. Else an exit code other than 0: it was told. */
int asking_find(struct inquiry *q) MUST_CHECK;

/* The same, of the only server that there is, for all its jobs. */
int asking_find_server(struct inquiry *q) MUST_CHECK;

/* Leaves that one of the places, to be asked again. */
int asking_keep(struct inquiry *q, const struct place *place) MUST_CHECK;

/* The exit code where no server had anything to say, 0: some had; told on stderr. */
int asking_judge(const struct asked *asked);

/* lines.c: of the one place that is left, events or lines of ranks as they come. */
int lines_run(struct inquiry *q) MUST_CHECK;
/* False: stdout takes no more. */
bool lines_print(const struct verb_options *o, const struct show_style *style,
                 const json_t *line);

/* steer.c */
int steer_run(struct inquiry *q) MUST_CHECK;

/* printing.c */
struct show_style printing_style(const struct verb_options *o);
/* False: stdout takes no more. */
bool printing_put(const struct buf *text);
bool printing_put_json(const json_t *json);

#endif
