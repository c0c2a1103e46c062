#include "rendezvous/view.h"

#include "rendezvous/draining.h"
#include "rendezvous/event_json.h"
#include "rendezvous/permit.h"
#include "rendezvous/tracking.h"
#include "rendezvous/view_core.h"

#include "common/mem.h"

#include <math.h>
#include <string.h>

/* ---- putting values in ---- */

void view_put_integer(json_t *json, const char *key, uint64_t value)
{
    (void)json_object_set_new(json, key, json_integer((json_int_t)value));
}

void view_put_some(json_t *json, const char *key, uint64_t value)
{
    if (value != 0) {
        view_put_integer(json, key, value);
    }
}

void view_put_text(json_t *json, const char *key, const char *text)
{
    (void)json_object_set_new(json, key, event_json_text(text));
}

void view_put_some_text(json_t *json, const char *key, const char *text)
{
    if (text[0] != '\0') {
        view_put_text(json, key, text);
    }
}

json_t *view_make_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* ---- jobs ---- */

const char *view_job_state(const struct job *j)
{
    switch (j->state) {
    case JOB_FORMING:
        return job_is_stopped(j) ? "stopped" : "forming";
    case JOB_RUNNING:
        return "running";
    case JOB_DRAINING:
        return "draining";
    case JOB_DONE:
        return "done";
    case JOB_FAILED:
        return draining_was_cancelled(j) ? "cancelled" : "failed";
    }
    UNREACHABLE();
}

static const char *state_of_record(const struct history_job *h)
{
    switch (h->state) {
    case HISTORY_LIVES:
        return "idle"; /* all its nodes are gone; they may come back */
    case HISTORY_DONE:
        return "done";
    case HISTORY_FAILED:
        return "failed";
    case HISTORY_CANCELLED:
        return "cancelled";
    case HISTORY_STOPPED:
        return "stopped";
    }
    UNREACHABLE();
}

bool view_has_generation(const struct job *j)
{
    return j->state == JOB_RUNNING || j->state == JOB_DRAINING;
}

bool view_is_member(const struct job *j, const struct job_node *node)
{
    return node->ranked_in == j->generation && node->group_rank >= 0 &&
           node_is_member(node->state);
}

const struct progress *view_progress(const struct job *j)
{
    const struct progress *p = &j->progress;

    return p->generation == j->generation && (p->rank || p->is_over) ? p : NULL;
}

uint32_t view_job_ranks(const struct job *j)
{
    const struct progress *p = view_progress(j);
    uint32_t n = 0;

    if (!view_has_generation(j)) {
        return 0;
    }
    if (p && p->n_nodes == j->n_members) {
        return p->world; /* of nodes that have gone, too */
    }
    for (size_t i = 0; i < j->n_nodes; i++) {
        n += view_is_member(j, j->node[i]) ? j->node[i]->hello.nproc : 0;
    }
    return n;
}

/* What has been saved was reached, though it was reported later or never. While a job
 * lives its ranks tell where they are: their last loss may be of long ago. */
static uint64_t step_of_record(const struct history_job *h)
{
    uint64_t step = h->curve.n > 0 ? h->curve.point[h->curve.n - 1].step : 0;

    return MAX(h->end_step > 0 ? h->end_step : step, h->commit_step);
}

uint64_t view_job_step(const struct job *j, const struct history_job *record)
{
    const struct progress *p = view_progress(j);

    if (p && p->front_step > 0) {
        return MAX(p->front_step, j->fence.own.step); /* may be back from the last */
    }
    return MAX(record ? step_of_record(record) : 0, j->fence.last.step);
}

uint32_t view_job_tok_s(const struct job *j)
{
    const struct progress *p = view_progress(j);

    return p ? progress_tok_s(p) : 0;
}

static json_t *make_cause(const struct history_job *h)
{
    json_t *json = json_object();

    view_put_text(json, "text", h->cause);
    view_put_some_text(json, "node", h->node);
    if (h->has_rank) {
        view_put_integer(json, "rank", h->rank);
    }
    return json;
}

static void put_last_loss(json_t *json, const struct loss_curve *c)
{
    if (c->n > 0) {
        const struct loss_point *last = &c->point[c->n - 1];

        (void)json_object_set_new(json, "loss", view_make_real(last->loss));
        view_put_integer(json, "loss_step", last->step);
        view_put_integer(json, "loss_ms", last->wall_ms);
    }
}

/* What is known of a job beside how it is now. */
static void put_record(json_t *json, const struct history_job *h)
{
    view_put_integer(json, "began_ms", h->began_ms);
    view_put_some(json, "formed_ms", h->formed_ms);
    view_put_some(json, "ended_ms", h->ended_ms);
    (void)json_object_set_new(json, "restarts", event_json_restarts(h->restarts));
    if (h->cause[0] != '\0') {
        (void)json_object_set_new(json, "cause", make_cause(h));
    }
    view_put_some(json, "committed_ms", h->commit_ms);
    put_last_loss(json, &h->curve);
}

const struct history_job *view_record(const struct view *v, const struct job *j)
{
    const struct history_job *h = history_find(v->history, j->id);
    bool has_ended = job_is_over(j) || job_is_stopped(j);

    return h && (h->state != HISTORY_LIVES) == has_ended ? h : NULL;
}

static void put_progress(json_t *json, const struct view *v, const struct job *j,
                         const struct history_job *h)
{
    const struct progress *p = view_progress(j);

    view_put_some(json, "step", view_job_step(j, h));
    view_put_some(json, "tok_s", view_job_tok_s(j));
    if (p) {
        view_put_some(json, "step_ms", p->median_ms);
    }
    if (p && p->moved_ms > 0) {
        view_put_integer(json, "progress_age_ms",
                         v->now_ms - MIN(p->moved_ms, v->now_ms));
    }
}

/* Which rank it is may not be clear. */
static json_t *make_hang(const struct view *v, const struct job *j,
                         const struct hung *hung)
{
    json_t *json = json_object();
    char text[MSG_TEXT_MAX];

    tracking_describe(j, v->now_ms, text, sizeof(text));
    view_put_text(json, "text", text);
    view_put_integer(json, "age_ms", v->now_ms - MIN(hung->moved_ms, v->now_ms));
    if (hung->has_rank) {
        const struct progress_rank *r = &j->progress.rank[hung->verdict.rank];

        view_put_text(json, "node",
                      progress_node_of(&j->progress, hung->verdict.rank)->host);
        view_put_integer(json, "rank", hung->verdict.rank);
        view_put_integer(json, "step", r->step);
        view_put_some_text(json, "phase", r->phase);
    }
    return json;
}

static json_t *make_summary(const struct view *v, const struct job *j)
{
    const struct history_job *h = view_record(v, j);
    const struct hung *hung = tracking_hung(j);
    json_t *json = json_object();

    view_put_text(json, "id", j->id);
    (void)json_object_set_new(json, "state", json_string(view_job_state(j)));
    view_put_integer(json, "generation", j->generation);
    view_put_integer(json, "nodes", job_members(j));
    view_put_integer(json, "waiting", j->count[NODE_JOINED]);
    view_put_integer(json, "min_nodes", j->shape.min_nodes);
    view_put_integer(json, "max_nodes", j->shape.max_nodes);
    view_put_integer(json, "ranks", view_job_ranks(j));
    view_put_integer(json, "failures", j->failures);
    view_put_integer(json, "max_restarts", j->shape.max_restarts);
    if (j->fence.last.hash[0] != '\0') {
        view_put_integer(json, "committed_step", j->fence.last.step);
    }
    if (job_is_over(j)) {
        view_put_integer(json, "exit_code", j->exit_code);
    }
    put_progress(json, v, j, h);
    if (j->state == JOB_DRAINING) {
        view_put_some_text(json, "draining", j->ending.stop_text);
    }
    if (hung) {
        (void)json_object_set_new(json, "hang", make_hang(v, j, hung));
    }
    if (h) {
        put_record(json, h);
    }
    return json;
}

/* Of a job that has ended, or is idle. */
static json_t *make_past(const struct history_job *h)
{
    json_t *json = json_object();

    view_put_text(json, "id", h->id);
    (void)json_object_set_new(json, "state", json_string(state_of_record(h)));
    view_put_integer(json, "generation", h->generation);
    view_put_integer(json, "nodes", h->nodes);
    view_put_integer(json, "ranks", h->ranks);
    view_put_some(json, "committed_step", h->commit_step);
    if (h->state != HISTORY_LIVES && h->state != HISTORY_STOPPED) {
        view_put_integer(json, "exit_code", h->exit_code);
    }
    view_put_some(json, "step", step_of_record(h));
    put_record(json, h);
    return json;
}

static json_t *make_curve(const struct loss_curve *c)
{
    json_t *list = json_array();

    for (size_t i = 0; i < c->n; i++) {
        const struct loss_point *p = &c->point[i];
        json_t *point = json_array();

        (void)json_array_append_new(point, json_integer((json_int_t)p->step));
        (void)json_array_append_new(point, view_make_real(p->loss));
        (void)json_array_append_new(list, point);
    }
    return list;
}

static bool is_wanted(const char *id, const char *job)
{
    return !job || job[0] == '\0' || strcmp(id, job) == 0;
}

json_t *view_jobs(const struct view *v, const char *job)
{
    const struct registry *jobs = service_jobs(v->service);
    json_t *root = json_object();
    json_t *list = json_array();
    struct entry **sorted = registry_sorted(jobs);

    for (size_t i = 0; i < jobs->n; i++) {
        const struct job *j = sorted[i]->job;

        if (is_wanted(j->id, job) && permit_job(v->who, j->id, j->owner)) {
            (void)json_array_append_new(list, make_summary(v, j));
        }
    }
    mem_free(sorted);
    (void)json_object_set_new(root, "jobs", list);
    return root;
}

const struct history_job *view_find_past(const struct view *v, const char *id)
{
    const struct history *h = v->history;
    const struct history_job *past = history_find(h, id);
    bool is_shown = past && permit_job(v->who, past->id, past->owner);

    for (size_t i = past ? h->n_ended : 0; i > 0 && !is_shown; i--) {
        past = h->ended[i - 1];
        is_shown =
            strcmp(past->id, id) == 0 && permit_job(v->who, past->id, past->owner);
    }
    return is_shown ? past : NULL;
}

json_t *view_job(const struct view *v, const char *id)
{
    const struct entry *entry = registry_find(service_jobs(v->service), id);
    const struct history_job *h =
        entry ? view_record(v, entry->job) : view_find_past(v, id);
    json_t *json;

    if (!entry && !h) {
        return NULL;
    }
    json = entry ? make_summary(v, entry->job) : make_past(h);
    if (h) {
        (void)json_object_set_new(json, "curve", make_curve(&h->curve));
    }
    return json;
}

json_t *view_history(const struct view *v, const char *job)
{
    const struct history *h = v->history;
    json_t *root = json_object();
    json_t *list = json_array();

    for (size_t i = h->n_ended; i > 0; i--) {
        const struct history_job *past = h->ended[i - 1];

        if (is_wanted(past->id, job) && permit_job(v->who, past->id, past->owner)) {
            (void)json_array_append_new(list, make_past(past));
        }
    }
    (void)json_object_set_new(root, "jobs", list);
    return root;
}

/* ---- events ---- */

json_t *view_events(const struct view *v, const char *job, uint64_t after, size_t limit)
{
    const struct history_event *e = history_after(v->history, after);
    size_t left = MIN(limit, VIEW_MAX_PAGE);
    json_t *root = json_object();
    json_t *list = json_array();

    while (e && left > 0) {
        if (is_wanted(e->job, job) && permit_job(v->who, e->job, e->owner)) {
            (void)json_array_append_new(list, event_json_make(e));
            left--;
        }
        after = e->number;
        e = history_after(v->history, after);
    }
    (void)json_object_set_new(root, "events", list);
    view_put_integer(root, "last", v->history->last_number);
    if (e) {
        view_put_integer(root, "next", after);
    }
    return root;
}
