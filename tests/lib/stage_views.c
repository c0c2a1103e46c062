/* What people see of the service, without what is not kept: reports of progress, and who
 * has come back. */

#include "rendezvous/view.h"
#include "tests/lib/stage_core.h"

#include <stdlib.h>
#include <string.h>

static void forget(json_t *object, const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        (void)json_object_del(object, keys[i]);
    }
}

static void forget_in(json_t *root, const char *list, const char *const *keys, size_t n)
{
    json_t *one;
    size_t i;

    json_array_foreach(json_object_get(root, list), i, one)
    {
        forget(one, keys, n);
    }
}

/* The curve is kept now and then (history.h). */
static json_t *without_progress(json_t *job)
{
    static const char *const keys[] = {
        "step", "tok_s",   "step_ms",   "progress_age_ms",
        "loss", "loss_ms", "loss_step", "curve"};

    if (json_object_get(job, "jobs")) {
        forget_in(job, "jobs", keys, ARRAY_LEN(keys));
    } else {
        forget(job, keys, ARRAY_LEN(keys));
    }
    return job;
}

static json_t *without_reports(json_t *root)
{
    static const char *const of_ranks[] = {"pid",       "step",  "phase",
                                           "tok_s",     "loss",  "age_ms",
                                           "waits_for", "ended", "away"};
    static const char *const of_nodes[] = {"state"};

    forget_in(root, "ranks", of_ranks, ARRAY_LEN(of_ranks));
    forget_in(root, "nodes", of_nodes, ARRAY_LEN(of_nodes));
    return root;
}

/* Ranks of nodes that have gone are not kept, nor where those after them begin. */
static bool has_all_members(const struct view *v, const char *id)
{
    const struct job *j = registry_find(service_jobs(v->service), id)->job;

    return job_members(j) == j->n_members;
}

/* `listed`: what view_jobs says of it. */
static void add_job(json_t *all, const struct view *v, json_t *listed)
{
    static const char *const first_rank[] = {"first_rank"};
    static const char *const ranks[] = {"ranks"};
    const char *id = json_string_value(json_object_get(listed, "id"));
    json_t *json = json_object();
    json_t *job = without_progress(view_job(v, id));
    json_t *nodes = without_reports(view_nodes(v, id, 0, VIEW_MAX_PAGE));

    (void)json_object_set_new(json, "job", job);
    (void)json_object_set_new(json, "nodes", nodes);
    if (has_all_members(v, id)) {
        (void)json_object_set_new(json, "ranks",
                                  without_reports(view_ranks(v, id, 0, VIEW_MAX_PAGE)));
    } else {
        forget(job, ranks, 1);
        forget(listed, ranks, 1);
        forget_in(nodes, "nodes", first_rank, 1);
    }
    (void)json_array_append_new(all, json);
}

char *stage_views(struct stage *st)
{
    const struct view v = {
        .service = st->service, .history = &st->history, .now_ms = st->now_ms};
    json_t *jobs = view_jobs(&v, NULL);
    json_t *each = json_array();
    json_t *root = json_object();
    json_t *job;
    char *text;
    size_t i;

    json_array_foreach(json_object_get(jobs, "jobs"), i, job)
    {
        add_job(each, &v, job);
    }
    (void)json_object_set_new(root, "jobs", without_progress(jobs));
    (void)json_object_set_new(root, "each", each);
    (void)json_object_set_new(root, "history",
                              without_progress(view_history(&v, NULL)));
    (void)json_object_set_new(root, "events", view_events(&v, NULL, 0, VIEW_MAX_PAGE));
    text = json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS);
    assert_non_null(text);
    json_decref(root);
    return text;
}

/* As far as they are alike, and on. */
void stage_expect_views(struct stage *st, const char *before)
{
    char *after = stage_views(st);
    size_t at = 0;

    while (before[at] != '\0' && before[at] == after[at]) {
        at++;
    }
    if (before[at] != after[at]) {
        size_t from = at > 200 ? at - 200 : 0;

        fail_msg("the service that was started anew shows something else\n--- before\n"
                 "%.500s\n--- after\n%.500s",
                 before + from, after + from);
    }
    free(after);
}
