#include "rendezvous/view.h"

#include "rendezvous/draining.h"
#include "rendezvous/event_json.h"
#include "rendezvous/permit.h"
#include "rendezvous/seats.h"
#include "rendezvous/tracking.h"

#include "common/mem.h"
#include "common/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOK_S_RANKS = 64 }; /* of those that are asked for the throughput */

/* ---- putting values in ---- */

static void put_integer(json_t *json, const char *key, uint64_t value)
{
    (void)json_object_set_new(json, key, json_integer((json_int_t)value));
}

static void put_some(json_t *json, const char *key, uint64_t value)
{
    if (value != 0) {
        put_integer(json, key, value);
    }
}

static void put_text(json_t *json, const char *key, const char *text)
{
    (void)json_object_set_new(json, key, event_json_text(text));
}

static void put_some_text(json_t *json, const char *key, const char *text)
{
    if (text[0] != '\0') {
        put_text(json, key, text);
    }
}

/* A diverged loss is no number: null. */
static json_t *make_real(double value)
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

static bool has_generation(const struct job *j)
{
    return j->state == JOB_RUNNING || j->state == JOB_DRAINING;
}

static bool is_member(const struct job *j, const struct job_node *node)
{
    return node->ranked_in == j->generation && node->group_rank >= 0 &&
           (node->state == NODE_RUNNING || node->state == NODE_DONE);
}

/* What the ranks of the generation say; NULL: nothing that is known. */
static const struct progress *progress_of(const struct job *j)
{
    return j->progress.generation == j->generation && j->progress.rank ? &j->progress
                                                                       : NULL;
}

uint32_t view_job_ranks(const struct job *j)
{
    const struct progress *p = progress_of(j);
    uint32_t n = 0;

    if (!has_generation(j)) {
        return 0;
    }
    if (p && p->n_nodes == j->n_members) {
        return p->world; /* of nodes that have gone, too */
    }
    for (size_t i = 0; i < j->n_nodes; i++) {
        n += is_member(j, j->node[i]) ? j->node[i]->hello.nproc : 0;
    }
    return n;
}

uint64_t view_job_step(const struct job *j, const struct history_job *record)
{
    const struct progress *p = progress_of(j);
    const struct loss_curve *c = record ? &record->curve : NULL;

    if (p && p->front_step > 0) {
        return p->front_step;
    }
    return c && c->n > 0 ? c->point[c->n - 1].step : 0;
}

uint32_t view_job_tok_s(const struct job *j)
{
    const struct progress *p = progress_of(j);
    uint32_t tok_s = 0;

    for (uint32_t i = 0; p && i < MIN(p->world, TOK_S_RANKS) && tok_s == 0; i++) {
        tok_s = p->rank[i].tok_s;
    }
    return tok_s;
}

static json_t *make_cause(const struct history_job *h)
{
    json_t *json = json_object();

    put_text(json, "text", h->cause);
    put_some_text(json, "node", h->node);
    if (h->has_rank) {
        put_integer(json, "rank", h->rank);
    }
    return json;
}

static void put_last_loss(json_t *json, const struct loss_curve *c)
{
    if (c->n > 0) {
        const struct loss_point *last = &c->point[c->n - 1];

        (void)json_object_set_new(json, "loss", make_real(last->loss));
        put_integer(json, "loss_ms", last->wall_ms);
    }
}

/* What is known of a job beside how it is now. */
static void put_record(json_t *json, const struct history_job *h)
{
    put_integer(json, "began_ms", h->began_ms);
    put_some(json, "formed_ms", h->formed_ms);
    (void)json_object_set_new(json, "restarts", event_json_restarts(h->restarts));
    if (h->cause[0] != '\0') {
        (void)json_object_set_new(json, "cause", make_cause(h));
    }
    put_some(json, "committed_ms", h->commit_ms);
    put_last_loss(json, &h->curve);
}

const struct history_job *view_record(const struct view *v, const char *id)
{
    const struct history_job *h = history_find(v->history, id);

    return h && h->state == HISTORY_LIVES ? h : NULL;
}

static void put_progress(json_t *json, const struct view *v, const struct job *j,
                         const struct history_job *h)
{
    const struct progress *p = progress_of(j);

    put_some(json, "step", view_job_step(j, h));
    put_some(json, "tok_s", view_job_tok_s(j));
    if (p) {
        put_some(json, "step_ms", p->median_ms);
    }
    if (p && p->moved_ms > 0) {
        put_integer(json, "progress_age_ms", v->now_ms - MIN(p->moved_ms, v->now_ms));
    }
}

/* Which rank it is may not be clear. */
static json_t *make_hang(const struct view *v, const struct job *j,
                         const struct hung *hung)
{
    json_t *json = json_object();
    char text[MSG_TEXT_MAX];

    tracking_describe(j, v->now_ms, text, sizeof(text));
    put_text(json, "text", text);
    put_integer(json, "age_ms", v->now_ms - MIN(hung->moved_ms, v->now_ms));
    if (hung->has_rank) {
        const struct progress_rank *r = &j->progress.rank[hung->verdict.rank];

        put_text(json, "node",
                 progress_node_of(&j->progress, hung->verdict.rank)->host);
        put_integer(json, "rank", hung->verdict.rank);
        put_integer(json, "step", r->step);
        put_some_text(json, "phase", r->phase);
    }
    return json;
}

static json_t *make_summary(const struct view *v, const struct job *j)
{
    const struct history_job *h = view_record(v, j->id);
    const struct hung *hung = tracking_hung(j);
    json_t *json = json_object();

    put_text(json, "id", j->id);
    (void)json_object_set_new(json, "state", json_string(view_job_state(j)));
    put_integer(json, "generation", j->generation);
    put_integer(json, "nodes", job_members(j));
    put_integer(json, "waiting", j->count[NODE_JOINED]);
    put_integer(json, "min_nodes", j->shape.min_nodes);
    put_integer(json, "max_nodes", j->shape.max_nodes);
    put_integer(json, "ranks", view_job_ranks(j));
    put_integer(json, "failures", j->failures);
    put_integer(json, "max_restarts", j->shape.max_restarts);
    if (j->fence.last.hash[0] != '\0') {
        put_integer(json, "committed_step", j->fence.last.step);
    }
    if (job_is_over(j)) {
        put_integer(json, "exit_code", j->exit_code);
    }
    put_progress(json, v, j, h);
    if (j->state == JOB_DRAINING) {
        put_some_text(json, "draining", j->ending.stop_text);
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

    put_text(json, "id", h->id);
    (void)json_object_set_new(json, "state", json_string(state_of_record(h)));
    put_integer(json, "generation", h->generation);
    put_integer(json, "nodes", h->nodes);
    put_integer(json, "ranks", h->ranks);
    put_some(json, "committed_step", h->commit_step);
    if (h->state != HISTORY_LIVES && h->state != HISTORY_STOPPED) {
        put_integer(json, "exit_code", h->exit_code);
    }
    put_some(json, "ended_ms", h->ended_ms);
    put_some(json, "step", h->curve.n > 0 ? h->curve.point[h->curve.n - 1].step : 0);
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
        (void)json_array_append_new(point, make_real(p->loss));
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

json_t *view_job(const struct view *v, const char *id)
{
    const struct entry *entry = registry_find(service_jobs(v->service), id);
    const struct history_job *h =
        entry ? view_record(v, id) : history_find(v->history, id);
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

/* ---- nodes and ranks ---- */

/* Members by group rank, then the others as they came. */
static int compare_nodes(const void *a, const void *b)
{
    const struct job_node *left = *(const struct job_node *const *)a;
    const struct job_node *right = *(const struct job_node *const *)b;
    bool left_in = left->state == NODE_RUNNING || left->state == NODE_DONE;
    bool right_in = right->state == NODE_RUNNING || right->state == NODE_DONE;

    if (left_in != right_in) {
        return left_in ? -1 : 1;
    }
    if (left_in && left->group_rank != right->group_rank) {
        return left->group_rank < right->group_rank ? -1 : 1;
    }
    return (left->arrival > right->arrival) - (left->arrival < right->arrival);
}

/* mem_alloc'ed. */
static const struct job_node **sort_nodes(const struct job *j)
{
    const struct job_node **sorted =
        mem_array(MAX(j->n_nodes, 1), sizeof(struct job_node *));

    for (size_t i = 0; i < j->n_nodes; i++) {
        sorted[i] = j->node[i];
    }
    qsort(sorted, j->n_nodes, sizeof(struct job_node *), compare_nodes);
    return sorted;
}

static const char *node_state(const struct job_node *node)
{
    if (node->is_away) {
        return "away"; /* not seen since the service began */
    }
    switch (node->state) {
    case NODE_PRESENT:
        return "present";
    case NODE_JOINED:
        return node->is_flapping || node->standby_told ? "standby" : "joined";
    case NODE_RUNNING:
        return node->is_leaving ? "leaving" : "running";
    case NODE_DONE:
        return "done";
    case NODE_LEFT:
        return "left";
    case NODE_STATE_COUNT:
        break;
    }
    UNREACHABLE();
}

static json_t *make_node(const struct job *j, const struct job_node *node,
                         const struct seats *seats)
{
    const struct seat *seat = is_member(j, node) ? seats_of(seats, j, node) : NULL;
    json_t *json = json_object();

    put_text(json, "host", node->hello.host);
    put_text(json, "address", node->peer_addr);
    (void)json_object_set_new(json, "state", json_string(node_state(node)));
    put_integer(json, "ranks", node->hello.nproc);
    put_some_text(json, "role", node->join.role);
    if (is_member(j, node)) {
        put_integer(json, "group_rank", (uint64_t)node->group_rank);
    }
    if (seat) {
        put_integer(json, "first_rank", seat->first_rank);
    }
    if (node->hello.node_rank >= 0) {
        put_integer(json, "node_rank", (uint64_t)node->hello.node_rank);
    }
    return json;
}

static json_t *make_page(const char *key, json_t *list, size_t next, size_t total)
{
    json_t *root = json_object();

    (void)json_object_set_new(root, key, list);
    put_integer(root, "total", total);
    if (next < total) {
        put_integer(root, "next", next);
    }
    return root;
}

json_t *view_nodes(const struct view *v, const char *id, size_t first, size_t limit)
{
    const struct entry *entry = registry_find(service_jobs(v->service), id);
    const struct job_node **sorted;
    struct seats seats;
    json_t *list;
    size_t end;

    if (!entry) {
        return NULL;
    }
    sorted = sort_nodes(entry->job);
    seats_find(&seats, entry->job);
    first = MIN(first, entry->job->n_nodes);
    end = first + MIN(MIN(limit, VIEW_MAX_PAGE), entry->job->n_nodes - first);
    list = json_array();
    for (size_t i = first; i < end; i++) {
        (void)json_array_append_new(list, make_node(entry->job, sorted[i], &seats));
    }
    seats_release(&seats);
    mem_free(sorted);
    return make_page("nodes", list, end, entry->job->n_nodes);
}

/* As its last report has it: a number, or "nan", "inf". */
static void put_said_loss(json_t *json, const char *text)
{
    double loss = NAN;

    if (text[0] != '\0') {
        (void)json_object_set_new(
            json, "loss", make_real(str_parse_double(text, &loss) < 0 ? NAN : loss));
    }
}

static void put_report(json_t *json, const struct progress_rank *r, uint64_t now_ms)
{
    put_some(json, "pid", r->pid);
    if (r->said_ms > 0) {
        put_integer(json, "step", r->step);
        put_some_text(json, "phase", r->phase);
        put_some(json, "tok_s", r->tok_s);
        put_said_loss(json, r->loss);
        put_integer(json, "age_ms", now_ms - MIN(r->said_ms, now_ms));
    }
    if (r->waits_for >= 0) {
        put_integer(json, "waits_for", (uint64_t)r->waits_for);
    }
    if (r->has_ended) {
        (void)json_object_set_new(json, "ended", json_true());
    }
}

static json_t *make_rank(const struct view *v, const struct job *j,
                         const struct seat *seat, uint32_t rank)
{
    const struct progress *p = progress_of(j);
    const struct hung *hung = tracking_hung(j);
    json_t *json = json_object();

    put_integer(json, "rank", rank);
    put_integer(json, "local_rank", rank - seat->first_rank);
    put_text(json, "host", seat->host);
    put_integer(json, "group_rank", seat->group_rank);
    if (p && rank < p->world) {
        put_report(json, &p->rank[rank], v->now_ms);
    }
    if (hung && hung->has_rank && hung->verdict.rank == rank) {
        (void)json_object_set_new(json, "hangs", json_true());
    }
    if (!seat->node || seat->node->is_away) {
        (void)json_object_set_new(json, "away", json_true());
    }
    return json;
}

json_t *view_ranks(const struct view *v, const char *id, size_t first, size_t limit)
{
    const struct entry *entry = registry_find(service_jobs(v->service), id);
    struct seats seats = {0};
    json_t *list;
    size_t end;

    if (!entry) {
        return NULL;
    }
    if (has_generation(entry->job)) {
        seats_find(&seats, entry->job);
    }
    list = json_array();
    end = first + MIN(MIN(limit, VIEW_MAX_PAGE), SIZE_MAX - first);
    for (size_t i = 0; i < seats.n; i++) {
        const struct seat *seat = &seats.seat[i];
        size_t last = MIN((size_t)seat->first_rank + seat->nproc, end);

        for (size_t r = MAX(first, seat->first_rank); r < last; r++) {
            (void)json_array_append_new(list,
                                        make_rank(v, entry->job, seat, (uint32_t)r));
        }
    }
    end = MIN(end, seats.world);
    first = seats.world;
    seats_release(&seats);
    return make_page("ranks", list, end, first);
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
    put_integer(root, "last", v->history->last_number);
    if (e) {
        put_integer(root, "next", after);
    }
    return root;
}
