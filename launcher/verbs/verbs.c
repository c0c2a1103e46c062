/* Happy path: 1. the command line; 2. where servers may be (places.c); 3. the question,
 * to all of them or to the one that has the job (asking.c); 4. what they answered, put
 * together, as a table or as JSON. */

#include "launcher/verbs/verbs.h"

#include "launcher/verbs/verbs_core.h"

#include "common/log.h"
#include "common/mem.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { MAX_TEXT = 256 * 1024 * 1024, MAX_LINE = 4 * 1024 * 1024 };

/* ---- all servers: lists put together ---- */

struct merging {
    const char *key; /* of the list; NULL: lines of the answers */
    json_t *list;    /* owned */
};

static void merge(void *arg, const struct place *place, json_t *root)
{
    const struct merging *m = arg;

    for (size_t i = 0; i < json_array_size(json_object_get(root, m->key)); i++) {
        json_t *item = json_array_get(json_object_get(root, m->key), i);

        (void)json_object_set_new(item, "server", json_string(place->name));
        (void)json_array_append(m->list, item);
    }
    json_decref(root);
}

static bool print_view(const struct verb_options *o, const json_t *root)
{
    struct show_style style = printing_style(o);
    const json_t *jobs = json_object_get(root, "jobs");
    struct buf text;
    bool is_put;

    if (o->json) {
        return printing_put_json(root);
    }
    buf_init(&text, MAX_TEXT);
    if (o->kind == VERB_PS) {
        show_ranks(root, &style, &text);
    } else if (o->kind == VERB_HISTORY) {
        show_history(root, o->job, &style, &text);
    } else if (o->job[0] != '\0' && json_array_size(jobs) == 1) {
        show_job(json_array_get(jobs, 0), &style, &text);
    } else {
        show_jobs(root, &style, &text);
    }
    is_put = printing_put(&text);
    buf_release(&text);
    return is_put;
}

/* Of the one job that was asked for. */
static int exit_code_of(const struct verb_options *o, const json_t *list)
{
    const char *state =
        json_string_value(json_object_get(json_array_get(list, 0), "state"));

    return o->kind == VERB_STATUS && o->job[0] != '\0' && state &&
                   (strcmp(state, "failed") == 0 || strcmp(state, "cancelled") == 0 ||
                    strcmp(state, "stopped") == 0)
               ? EXIT_HAS_FAILED
               : EXIT_SUCCESS;
}

static int run_view(struct inquiry *q)
{
    const struct verb_options *o = &q->options;
    const char *key = asking_list(o->kind);
    struct merging m = {key, json_array()};
    json_t *root = json_pack("{s:o}", key, m.list);
    struct asked asked;
    int exit_code;

    asking_all(q, merge, &m, &asked);
    exit_code = asking_judge(&asked);
    if (exit_code == 0) {
        exit_code = print_view(o, root) ? exit_code_of(o, m.list) : EXIT_VERB_FAILED;
    }
    json_decref(root);
    return exit_code;
}

/* ---- events of all servers ---- */

static int compare_numbers(const json_t *left, const json_t *right, const char *key)
{
    int64_t l = value_number(left, key);
    int64_t r = value_number(right, key);

    return (l > r) - (l < r);
}

/* Of a server's events of one moment the number tells which was first: qsort does not. */
static int compare_events(const void *a, const void *b)
{
    const json_t *left = *(json_t *const *)a;
    const json_t *right = *(json_t *const *)b;
    int order = compare_numbers(left, right, "wall_ms");

    return order != 0 ? order : compare_numbers(left, right, "number");
}

struct event_list {
    json_t **event; /* owned */
    size_t n;
};

static void take_events(void *arg, const struct place *place, json_t *root)
{
    struct event_list *list = arg;

    for (size_t i = 0; i < json_array_size(root); i++) {
        json_t *event = json_array_get(root, i);

        (void)json_object_set_new(event, "server", json_string(place->name));
        list->event = mem_grow(list->event, list->n + 1, sizeof(json_t *));
        list->event[list->n++] = json_incref(event);
    }
    json_decref(root);
}

static int run_events(struct inquiry *q)
{
    struct show_style style = printing_style(&q->options);
    struct event_list list = {0};
    struct asked asked;
    int exit_code;
    bool is_put = true;

    if (q->options.follow) {
        exit_code = q->options.job[0] != '\0' ? asking_find(q) : asking_find_server(q);
        return exit_code == 0 ? lines_run(q) : exit_code;
    }
    asking_all(q, take_events, &list, &asked);
    exit_code = asking_judge(&asked);
    if (list.n > 0) {
        qsort(list.event, list.n, sizeof(json_t *), compare_events);
    }
    for (size_t i = 0; i < list.n; i++) {
        is_put = is_put && lines_print(&q->options, &style, list.event[i]);
        json_decref(list.event[i]);
    }
    mem_free(list.event);
    return exit_code == 0 && !is_put ? EXIT_VERB_FAILED : exit_code;
}

/* ---- the verb ---- */

static int run_logs(struct inquiry *q)
{
    int exit_code = asking_find(q);

    return exit_code == 0 ? lines_run(q) : exit_code;
}

static int run(struct inquiry *q)
{
    switch (q->options.kind) {
    case VERB_STATUS:
    case VERB_PS:
    case VERB_HISTORY:
        return run_view(q);
    case VERB_EVENTS:
        return run_events(q);
    case VERB_LOGS:
        return run_logs(q);
    case VERB_CANCEL:
    case VERB_DRAIN:
        return steer_run(q);
    case VERB_COUNT:
        break;
    }
    UNREACHABLE();
}

static void take_environment(struct verb_options *o)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets the environment */
    const char *endpoint = getenv("CTRUN_ENDPOINT");

    if (o->endpoint[0] == '\0' && endpoint) {
        (void)snprintf(o->endpoint, sizeof(o->endpoint), "%s", endpoint);
    }
}

static int print_help(const struct verb *verb)
{
    char *text = verb_options_help(verb);
    struct buf out;
    bool is_put;

    buf_init(&out, MAX_LINE);
    is_put = buf_append(&out, text, strlen(text)) == 0 && printing_put(&out);
    buf_release(&out);
    mem_free(text);
    return is_put ? EXIT_SUCCESS : EXIT_VERB_FAILED;
}

/* 0, or an exit code: it was told. */
static int prepare(struct inquiry *q, struct errmsg *msg)
{
    uint64_t agent_id;
    int rv;

    take_environment(&q->options);
    rv = keys_find(&q->options.keys, &q->keys, msg);
    if (rv < 0) {
        log_error(msg->text, "%s", "");
        return EXIT_MISTAKE;
    }
    if (getrandom(&agent_id, sizeof(agent_id), 0) != (ssize_t)sizeof(agent_id)) {
        UNREACHABLE(); /* so few bytes always come, once the kernel is up */
    }
    keys_set_agent(&q->keys, agent_id, "");
    rv = places_find(q->options.endpoint, &q->places, msg);
    if (rv < 0) {
        log_error(msg->text, "%s", "");
        return rv == ERR_INVALID ? EXIT_MISTAKE : EXIT_RENDEZVOUS;
    }
    return 0;
}

int verbs_run(const struct verb *verb, int argc, char *const *argv)
{
    struct inquiry q = {0};
    struct errmsg msg = {""};
    int exit_code;

    (void)signal(SIGPIPE, SIG_IGN); /* write tells */
    if (verb_options_parse(verb, argc, argv, &q.options, &msg) < 0) {
        log_error(msg.text, "%s", "");
        return EXIT_MISTAKE;
    }
    if (q.options.help) {
        return print_help(verb);
    }
    exit_code = prepare(&q, &msg);
    if (exit_code == 0) {
        exit_code = run(&q);
        places_release(&q.places);
    }
    keys_release(&q.keys);
    return exit_code;
}
