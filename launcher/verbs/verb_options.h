#ifndef LAUNCHER_VERBS_VERB_OPTIONS_H
#define LAUNCHER_VERBS_VERB_OPTIONS_H

/* PURE. The operator's verbs and their command lines: `ctrun status [options] [JOB]`.
 * One table each makes parsing, --help, completion and the man page's sections. */

#include "launcher/rdzv/keys.h"

#include "common/err.h"
#include "common/msg.h"
#include "common/options.h"

#include <stdbool.h>
#include <stdint.h>

enum verb_kind {
    VERB_STATUS,
    VERB_PS,
    VERB_EVENTS,
    VERB_LOGS,
    VERB_CANCEL,
    VERB_DRAIN,
    VERB_HISTORY,
    VERB_COUNT,
};

struct verb_options {
    enum verb_kind kind;
    bool help;
    bool json;
    bool follow;
    bool last;      /* logs: the last lines only */
    bool all;       /* drain: all nodes of that name */
    bool is_trial;  /* … nobody is sent home: who is meant? */
    int32_t rank;   /* -1: all */
    uint64_t after; /* events */
    struct keys_files keys;
    char endpoint[512];   /* "": not given */
    char job[MSG_ID_MAX]; /* "": not given */
    char node[MSG_ID_MAX];
};

struct verb {
    const char *name;
    const char *operands; /* "[JOB]" */
    const char *summary;  /* one sentence */
    const char *more;     /* what the man page says behind it */
    struct options options;
};

extern const struct verb verb_table[VERB_COUNT];

/* NULL: it is none of them. */
const struct verb *verb_find(const char *name);

/* The verb, of ctrun's others too, that somebody may have meant by that word, which is
 * no program; NULL: none. */
const char *verb_nearest(const char *word);

/* argv[0] is the verb. ERR_INVALID with one line. */
int verb_options_parse(const struct verb *verb, int argc, char *const *argv,
                       struct verb_options *ret, struct errmsg *msg) MUST_CHECK;

/* The text of --help, mem_alloc'ed. */
char *verb_options_help(const struct verb *verb);

#endif
