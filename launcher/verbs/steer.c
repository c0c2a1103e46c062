/* cancel and drain. Where `drain` is not told that all are meant, it is asked first which
 * nodes that would be: a host's name may stand for several, of several jobs and servers. */

#include "launcher/verbs/verbs_core.h"

#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 4 * 1024 * 1024, MAX_NAMED = 6 };

static void take_done(void *arg, const struct place *place, json_t *root)
{
    const json_t *nodes = json_object_get(root, "nodes");
    json_t *list = arg;

    (void)place;
    if (!nodes) {
        (void)json_array_append(list, root);
    }
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        json_t *node = json_array_get(nodes, i);

        (void)json_array_append(list, node);
    }
    json_decref(root);
}

static bool print_done(const struct verb_options *o, json_t *list)
{
    bool is_drain = o->kind == VERB_DRAIN;
    struct buf text;
    bool is_put;

    if (o->json) {
        json_t *root = json_pack("{s:O}", is_drain ? "nodes" : "jobs", list);

        is_put = printing_put_json(root);
        json_decref(root);
        return is_put;
    }
    buf_init(&text, MAX_LINE);
    for (size_t i = 0; i < json_array_size(list); i++) {
        show_done(json_array_get(list, i), is_drain, &text);
    }
    is_put = printing_put(&text);
    buf_release(&text);
    return is_put;
}

/* Asks all of them; an exit code other than 0: it was told. */
static int ask(struct inquiry *q, json_t *list)
{
    struct asked asked;

    asking_all(q, take_done, list, &asked);
    return asking_judge(&asked);
}

static int refuse_several(const char *name, const json_t *list)
{
    size_t n = json_array_size(list);
    struct buf text;

    buf_init(&text, MAX_LINE);
    for (size_t i = 0; i < MIN(n, (size_t)MAX_NAMED); i++) {
        value_put(&text, "%s", i > 0 ? ", " : "");
        show_node(json_array_get(list, i), &text);
    }
    if (n > MAX_NAMED) {
        value_put(&text, ", and %zu more", n - MAX_NAMED);
    }
    log_error("several nodes are meant: drain one by its number and job (ctrun drain 0 "
              "JOB), or all of them by --all",
              "host=%s nodes=\"%.*s\"", name, (int)buf_len(&text),
              (const char *)buf_bytes(&text));
    buf_release(&text);
    return EXIT_MISTAKE;
}

/* 0: one node is meant; else an exit code: it was told. */
static int find_one(struct inquiry *q)
{
    json_t *list = json_array();
    int exit_code;

    q->options.is_trial = true;
    exit_code = ask(q, list);
    q->options.is_trial = false;
    if (exit_code == 0 && json_array_size(list) > 1) {
        exit_code = refuse_several(q->options.node, list);
    }
    json_decref(list);
    return exit_code == 0 ? asking_again(q) : exit_code;
}

/* A node is drained wherever it is; a job is one server's. */
int steer_run(struct inquiry *q)
{
    json_t *list = json_array();
    int exit_code = 0;

    if (q->options.kind == VERB_CANCEL || q->options.job[0] != '\0') {
        exit_code = asking_find(q);
    }
    if (exit_code == 0 && q->options.kind == VERB_DRAIN && !q->options.all) {
        exit_code = find_one(q);
    }
    if (exit_code == 0) {
        exit_code = ask(q, list);
    }
    if (exit_code == 0 && !print_done(&q->options, list)) {
        exit_code = EXIT_VERB_FAILED;
    }
    json_decref(list);
    return exit_code;
}
