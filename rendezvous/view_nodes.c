/* Nodes and ranks of a job, in pages (view.h). */

#include "rendezvous/seats.h"
#include "rendezvous/tracking.h"
#include "rendezvous/view.h"
#include "rendezvous/view_core.h"

#include "common/mem.h"
#include "common/str.h"

#include <math.h>
#include <stdlib.h>

/* Members by group rank, then the others as they came. */
static int compare_nodes(const void *a, const void *b)
{
    const struct job_node *left = *(const struct job_node *const *)a;
    const struct job_node *right = *(const struct job_node *const *)b;
    bool left_in = node_is_member(left->state);
    bool right_in = node_is_member(right->state);

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
    const struct seat *seat = view_is_member(j, node) ? seats_of(seats, j, node) : NULL;
    json_t *json = json_object();

    view_put_text(json, "host", node->hello.host);
    view_put_text(json, "address", node->peer_addr);
    (void)json_object_set_new(json, "state", json_string(node_state(node)));
    view_put_integer(json, "ranks", node->hello.nproc);
    view_put_some_text(json, "role", node->join.role);
    if (view_is_member(j, node)) {
        view_put_integer(json, "group_rank", (uint64_t)node->group_rank);
    }
    if (seat) {
        view_put_integer(json, "first_rank", seat->first_rank);
    }
    if (node->hello.node_rank >= 0) {
        view_put_integer(json, "node_rank", (uint64_t)node->hello.node_rank);
    }
    return json;
}

static json_t *make_page(const char *key, json_t *list, size_t next, size_t total)
{
    json_t *root = json_object();

    (void)json_object_set_new(root, key, list);
    view_put_integer(root, "total", total);
    if (next < total) {
        view_put_integer(root, "next", next);
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
            json, "loss",
            view_make_real(str_parse_double(text, &loss) < 0 ? NAN : loss));
    }
}

static void put_report(json_t *json, const struct progress_rank *r, uint64_t now_ms)
{
    view_put_some(json, "pid", r->pid);
    if (r->said_ms > 0) {
        view_put_integer(json, "step", r->step);
        view_put_some_text(json, "phase", r->phase);
        view_put_some(json, "tok_s", r->tok_s);
        put_said_loss(json, r->loss);
        view_put_integer(json, "age_ms", now_ms - MIN(r->said_ms, now_ms));
    }
    if (r->waits_for >= 0) {
        view_put_integer(json, "waits_for", (uint64_t)r->waits_for);
    }
    if (r->has_ended) {
        (void)json_object_set_new(json, "ended", json_true());
    }
}

static json_t *make_rank(const struct view *v, const struct job *j,
                         const struct seat *seat, uint32_t rank)
{
    const struct progress *p = view_progress(j);
    const struct hung *hung = tracking_hung(j);
    json_t *json = json_object();

    view_put_integer(json, "rank", rank);
    view_put_integer(json, "local_rank", rank - seat->first_rank);
    view_put_text(json, "host", seat->host);
    view_put_integer(json, "group_rank", seat->group_rank);
    if (p && p->rank && rank < p->world) {
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
    if (view_has_generation(entry->job)) {
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
