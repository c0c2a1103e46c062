/* cancel and drain. What is done the server decides at once: without --all none of
 * several nodes is drained. Where there may be several servers they are asked first who
 * has the node, since none of them knows of the others'. */

#include "launcher/verbs/verbs_core.h"

#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 4 * 1024 * 1024, MAX_NAMED = 6 };

/* What they answered. */
struct deeds {
    json_t *done;              /* owned: jobs, or nodes */
    json_t *meant;             /* owned: nodes that were not drained */
    const struct place *place; /* borrowed; of the last that answered */
};

static void take(void *arg, const struct place *place, json_t *root)
{
    json_t *meant = json_object_get(root, "meant");
    json_t *nodes = json_object_get(root, "nodes");
    struct deeds *deeds = arg;

    deeds->place = place;
    if (meant) {
        (void)json_array_extend(deeds->meant, meant);
    } else if (nodes) {
        (void)json_array_extend(deeds->done, nodes);
    } else {
        (void)json_array_append(deeds->done, root);
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

/* Asks all of them: more than so many nodes are not to be meant. An exit code other than
 * 0: it was told. */
static int ask(struct inquiry *q, struct deeds *deeds, size_t max_meant)
{
    struct asked asked;
    int exit_code;

    asking_all(q, take, deeds, &asked);
    exit_code = asking_judge(&asked);
    if (exit_code == 0 && json_array_size(deeds->meant) > max_meant) {
        exit_code = refuse_several(q->options.node, deeds->meant);
    }
    return exit_code;
}

/* Leaves of the places the one that has the node. */
static int find_server(struct inquiry *q)
{
    struct deeds deeds = {.done = json_array(), .meant = json_array()};
    int exit_code;

    q->options.is_trial = true;
    exit_code = ask(q, &deeds, 1);
    q->options.is_trial = false;
    json_decref(deeds.done);
    json_decref(deeds.meant);
    return exit_code == 0 ? asking_keep(q, deeds.place) : exit_code;
}

/* A node is drained wherever it is; a job is one server's. */
int steer_run(struct inquiry *q)
{
    struct deeds deeds = {.done = json_array(), .meant = json_array()};
    bool is_drain = q->options.kind == VERB_DRAIN;
    int exit_code = 0;

    if (!is_drain || q->options.job[0] != '\0') {
        exit_code = asking_find(q);
    } else if (!q->options.all && q->places.n > 1) {
        exit_code = find_server(q);
    }
    if (exit_code == 0) {
        exit_code = ask(q, &deeds, 0); /* else it was not done */
    }
    if (exit_code == 0 && !print_done(&q->options, deeds.done)) {
        exit_code = EXIT_VERB_FAILED;
    }
    json_decref(deeds.done);
    json_decref(deeds.meant);
    return exit_code;
}
