/* Whom to ask: all servers that there are, or the one that has the job. */

#include "launcher/verbs/verbs_core.h"

#include "common/log.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

enum { MAX_ANSWER = 512 * 1024 * 1024 };

/* One server's whole answer. */
struct gathering {
    struct buf text;
    bool is_too_large;
};

static bool on_body(void *arg, struct bytes body)
{
    struct gathering *g = arg;

    g->is_too_large = buf_append(&g->text, body.data, body.size) < 0;
    return !g->is_too_large;
}

static const char *verb_of(const struct verb_options *o)
{
    return o->is_trial                        ? "drainable"
           : o->kind == VERB_DRAIN && !o->all ? "drain_one"
                                              : verb_table[o->kind].name;
}

struct msg_ask asking_question(const struct verb_options *o)
{
    struct msg_ask ask = {.request = 1,
                          .rank = o->rank,
                          .follow = o->follow,
                          .after = o->kind == VERB_LOGS ? o->last : o->after};

    (void)snprintf(ask.verb, sizeof(ask.verb), "%s", verb_of(o));
    memcpy(ask.job, o->job, sizeof(ask.job));
    memcpy(ask.arg, o->node, sizeof(ask.arg));
    return ask;
}

/* It has what was asked for, and could not say it to its end. */
static void note_broken(struct asked *asked, const struct place *place,
                        const struct talk_result *result)
{
    (void)snprintf(asked->broken, sizeof(asked->broken), "%.560s: %.*s", place->name,
                   MSG_TEXT_MAX - 1, result->text);
}

static void note_end(struct asked *asked, const struct place *place,
                     const struct talk_result *result)
{
    switch (result->end) {
    case TALK_ANSWERED:
        asked->n_answered++;
        break;
    case TALK_SEEN:
        break;
    case TALK_SAID_NO:
        asked->n_said_no++;
        asked->exit_code = result->exit_code;
        memcpy(asked->text, result->text, sizeof(asked->text));
        if (result->exit_code == EXIT_RENDEZVOUS) {
            note_broken(asked, place, result);
        }
        break;
    case TALK_UNREAD: /* of what is followed alone */
    case TALK_OTHER:  /* … too */
    case TALK_REFUSED:
        asked->n_refused++;
        memcpy(asked->trouble, result->text, sizeof(asked->trouble));
        break;
    case TALK_BROKEN:
        asked->n_refused++;
        memcpy(asked->trouble, result->text, sizeof(asked->trouble));
        memcpy(asked->broken, result->text, sizeof(asked->broken));
        break;
    case TALK_NOBODY:
        if (!place->is_guess) {
            asked->n_silent++;
            memcpy(asked->trouble, result->text, sizeof(asked->trouble));
        }
        break;
    }
}

/* An object a line, as an array. */
static json_t *parse_lines(const uint8_t *text, size_t size)
{
    json_t *list = json_array();

    while (list && size > 0) {
        const uint8_t *end = memchr(text, '\n', size);
        size_t len = end ? (size_t)(end - text) : size;
        json_t *line = json_loadb((const char *)text, len, 0, NULL);

        if (!json_is_object(line)) {
            json_decref(line);
            json_decref(list);
            return NULL;
        }
        (void)json_array_append_new(list, line);
        len += end != NULL;
        text += len;
        size -= len;
    }
    return list;
}

const char *asking_list(enum verb_kind kind)
{
    return kind == VERB_STATUS || kind == VERB_HISTORY ? "jobs"
           : kind == VERB_PS                           ? "ranks"
                                                       : NULL;
}

/* An object, with the list that was asked for. */
static json_t *parse_object(const char *list, const uint8_t *text, size_t size)
{
    json_t *root = json_loadb((const char *)text, size, 0, NULL);

    if (json_is_object(root) && (!list || json_is_array(json_object_get(root, list)))) {
        return root;
    }
    json_decref(root);
    return NULL;
}

/* The answer, or NULL: it was none. */
static json_t *parse(enum verb_kind kind, const struct gathering *g)
{
    const uint8_t *text = buf_bytes(&g->text);
    size_t size = buf_len(&g->text);

    if (g->is_too_large) {
        return NULL;
    }
    return kind == VERB_EVENTS ? parse_lines(text, size)
                               : parse_object(asking_list(kind), text, size);
}

/* One server's answer, whole; NULL where there is none. What nobody can read is none. */
static json_t *ask_one(const struct inquiry *q, struct place *place,
                       struct question *question, struct talk_result *result)
{
    struct gathering g = {0};
    json_t *root = NULL;

    buf_init(&g.text, MAX_ANSWER);
    question->arg = &g;
    talk_run(place, question, result);
    if (result->end == TALK_ANSWERED) {
        root = parse(q->options.kind, &g);
    }
    if (result->end == TALK_ANSWERED && !root) {
        result->end = TALK_BROKEN;
        result->exit_code = EXIT_RENDEZVOUS;
        (void)snprintf(result->text, sizeof(result->text), "%.560s: %s", place->name,
                       ASKING_UNREADABLE);
    }
    buf_release(&g.text);
    return root;
}

void asking_all(struct inquiry *q,
                void (*on_answer)(void *arg, const struct place *place, json_t *root),
                void *arg, struct asked *ret)
{
    uint64_t *seen = mem_array(q->places.n, sizeof(*seen));
    struct talk_result result;
    struct question question = {.ask = asking_question(&q->options),
                                .keys = &q->keys,
                                .seen = seen,
                                .on_body = on_body};

    *ret = (struct asked){0};
    for (size_t i = 0; i < q->places.n; i++) {
        struct place *place = &q->places.place[i];
        json_t *root = ask_one(q, place, &question, &result);

        note_end(ret, place, &result);
        if (root) {
            on_answer(arg, place, root);
        }
        if (result.cluster != 0) {
            seen[question.n_seen++] = result.cluster;
        }
    }
    mem_free(seen);
}

int asking_judge(const struct asked *asked)
{
    if (asked->n_answered > 0) {
        if (asked->broken[0] != '\0') {
            log_warn(asked->broken, "%s", "");
        }
        return 0;
    }
    if (asked->n_said_no > 0) {
        log_error(asked->text, "%s", "");
        return asked->exit_code;
    }
    if (asked->n_refused + asked->n_silent > 0) {
        log_error(asked->trouble, "%s", "");
    } else {
        log_error("no server of yours runs on this host, and none answers at "
                  "127.0.0.1:29400; one on another host is named by --endpoint or "
                  "CTRUN_ENDPOINT",
                  "%s", "");
    }
    return EXIT_RENDEZVOUS;
}

/* ---- the one that has the job ---- */

struct search {
    const struct verb_options *options;
    const struct place *place; /* borrowed; of the last job that was found */
    char job[MSG_ID_MAX];
    size_t n;
    const struct place *server; /* borrowed; the last that answered */
    size_t n_servers;
};

static bool is_live(const json_t *job)
{
    static const char *const over[] = {"done", "failed", "cancelled", "stopped",
                                       "idle"};
    const char *state = json_string_value(json_object_get(job, "state"));

    for (size_t i = 0; state && i < ARRAY_LEN(over); i++) {
        if (strcmp(state, over[i]) == 0) {
            return false;
        }
    }
    return state != NULL;
}

static void on_status(void *arg, const struct place *place, json_t *root)
{
    const json_t *jobs = json_object_get(root, "jobs");
    struct search *s = arg;

    s->server = place;
    s->n_servers++;
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        const json_t *job = json_array_get(jobs, i);
        const char *id = json_string_value(json_object_get(job, "id"));

        if (id && (is_live(job) || s->options->job[0] != '\0') &&
            strlen(id) < sizeof(s->job)) {
            (void)snprintf(s->job, sizeof(s->job), "%s", id);
            s->place = place;
            s->n++;
        }
    }
    json_decref(root);
}

/* Its socket was used up by the question. */
static int connect_again(struct place *place)
{
    if (place->host[0] == '\0') {
        place->fd = sockdir_connect_path(place->name);
    }
    if (place->host[0] == '\0' && place->fd < 0) {
        log_error(err_text(place->fd), "server=%s", place->name);
        return EXIT_RENDEZVOUS;
    }
    return 0;
}

static int refuse_choice(const struct inquiry *q, const struct search *s)
{
    if (s->n == 0) {
        log_error("no job runs: nothing to do", "%s", "");
        return EXIT_NO_SUCH;
    }
    log_error(
        q->options.job[0] == '\0'
            ? "several jobs run (ctrun status lists them): name one"
            : "several servers have a job of that name (ctrun status --json tells "
              "which): name one by --endpoint",
        "%s", "");
    return EXIT_MISTAKE;
}

/* Who has which jobs. An exit code other than 0: it was told. */
static int search(struct inquiry *q, struct search *s)
{
    const struct verb_options before = q->options;
    struct asked asked;

    s->options = &before;
    q->options.kind = VERB_STATUS;
    q->options.follow = false;
    asking_all(q, on_status, s, &asked);
    q->options = before;
    s->options = NULL;
    return asking_judge(&asked);
}

/* The others' sockets are used up, too. */
int asking_keep(struct inquiry *q, const struct place *place)
{
    q->places.place[0] = *place;
    q->places.n = 1;
    return connect_again(&q->places.place[0]);
}

int asking_find(struct inquiry *q)
{
    struct search s = {0};
    int exit_code = search(q, &s);

    if (exit_code == 0 && s.n != 1) {
        exit_code = refuse_choice(q, &s);
    }
    if (exit_code != 0) {
        return exit_code;
    }
    memcpy(q->options.job, s.job, sizeof(s.job));
    return asking_keep(q, s.place);
}

int asking_find_server(struct inquiry *q)
{
    struct search s = {0};
    int exit_code = search(q, &s);

    if (exit_code == 0 && s.n_servers != 1) {
        log_error("several servers are there: name one by --endpoint, or a job", "%s",
                  "");
        exit_code = EXIT_MISTAKE;
    }
    return exit_code == 0 ? asking_keep(q, s.server) : exit_code;
}
