#include "rendezvous/restoring.h"

#include "rendezvous/admission.h"
#include "rendezvous/record_msg.h"

#include "common/mem.h"
#include "common/table.h"

#include <string.h>

enum {
    MAX_EXIT_CODE = 255,
    MAX_WAIT_MS = 60 * 1000, /* no flapping node waits so long */
};

/* --- the job --- */

/* Without a generation a job waits for its first one, or was cancelled while it did. */
static bool is_sane_job(const struct record_job *f)
{
    bool has_begun =
        f->state != JOB_FORMING && !(f->state == JOB_FAILED && f->is_cancelled != 0);

    return f->state <= JOB_FAILED && f->generation <= f->highest &&
           f->highest <= UINT64_MAX / 2 + 1 && (!has_begun || f->generation > 0) &&
           f->min_nodes > 0 && f->min_nodes <= f->max_nodes &&
           f->max_nodes <= MSG_MAX_NODES && f->n_members <= MSG_MAX_NODES &&
           f->left_for < RESTART_CAUSE_COUNT && f->exit_code <= MAX_EXIT_CODE &&
           f->refusal_code <= MAX_EXIT_CODE && f->on_hang <= ON_HANG_REPORT &&
           f->hung <= MSG_MAX_WORLD; /* a rank, and 1 */
}

static void take_ending(struct ending *e, const struct record_job *f)
{
    e->is_aborting = f->is_aborting != 0;
    e->is_cancelled = f->is_cancelled != 0;
    e->has_refused = f->has_refused != 0;
    e->has_failed = f->has_failed != 0;
    e->has_lost = f->ended_by_loss != 0;
    e->loss_counts = f->loss_counts != 0;
    e->lost_ms = e->has_lost ? f->lost_ms : 0;
    e->was_unseen = !e->has_lost && f->lost_ms != 0;
    e->has_left = f->ended_by_leave != 0;
    e->left_ms = f->left_ms;
    e->left_for = (enum restart_cause)f->left_for;
    e->hung = f->hung;
    e->n_undone = f->n_undone;
    e->refusal_code = f->refusal_code;
    e->max_world = f->max_world;
    memcpy(e->text, f->text, sizeof(e->text));
    memcpy(e->stop_text, f->stop_text, sizeof(e->stop_text));
}

static void take_commits(struct job *j, const struct record_job *f)
{
    j->fence.has_resumed = f->has_resumed != 0;
    j->fence.resumed_run = f->resumed_run;
    j->fence.resumed_step = f->resumed_step;
    j->fence.own = (struct commit){.run = f->own_run, .step = f->own_step};
    memcpy(j->fence.own.hash, f->own_hash, sizeof(f->own_hash));
    j->fence.last = (struct commit){.run = f->last_run, .step = f->last_step};
    memcpy(j->fence.last.hash, f->last_hash, sizeof(f->last_hash));
    j->told_failures = f->told_failures;
    j->told = (struct commit){.run = f->told_run, .step = f->told_step};
    memcpy(j->told.hash, f->told_hash, sizeof(f->told_hash));
    memcpy(j->owner, f->owner, sizeof(f->owner));
}

static void take_shape(struct job *j, const struct record_job *f)
{
    memcpy(j->shape.job, j->id, sizeof(j->shape.job));
    memcpy(j->shape.host, f->host, sizeof(j->shape.host));
    j->shape.version = MSG_VERSION;
    j->shape.min_nodes = f->min_nodes;
    j->shape.max_nodes = f->max_nodes;
    j->shape.max_restarts = f->max_restarts;
    j->shape.last_call_ms = f->last_call_ms;
    j->shape.on_hang = f->on_hang;
    j->shape.node_rank = -1;
    j->shape.group_rank = -1;
}

int restoring_job(struct job *j, const struct record *r)
{
    struct record_job f;
    int rv = record_get_job(r->value, &f);

    if (rv < 0 || !is_sane_job(&f)) {
        return rv < 0 ? rv : ERR_CORRUPT;
    }
    j->state = (enum job_state)f.state;
    j->generation = f.generation;
    j->highest = f.highest;
    j->known_world = f.known_world;
    j->n_members = f.n_members;
    j->failures = f.failures;
    j->exit_code = f.exit_code;
    j->knows_living = f.knows_living != 0;
    j->has_lost = f.has_lost != 0;
    j->has_enough = f.has_enough != 0;
    j->join_ms = f.join_ms;
    j->enough_ms = f.enough_ms;
    j->n_arrivals = f.n_arrivals;
    take_shape(j, &f);
    take_ending(&j->ending, &f);
    take_commits(j, &f);
    j->saving.job = saving_hash(r->value);
    if (j->state == JOB_RUNNING || j->state == JOB_DRAINING) {
        j->keys = job_new_keys(j, true);
    }
    return 0;
}

/* --- a node --- */

static bool is_sane_node(const struct job *j, const struct record_node *f)
{
    bool was_member = node_is_member((enum node_state)f->state);

    return f->state < NODE_STATE_COUNT && f->nproc > 0 &&
           (uint64_t)f->nproc * j->shape.max_nodes <= MSG_MAX_WORLD &&
           f->node_rank >= -1 && f->node_rank < (int32_t)j->shape.max_nodes &&
           f->group_rank >= -1 && f->group_rank < MSG_MAX_NODES &&
           f->arrival < UINT64_MAX &&
           (!was_member || (f->ranked_in == j->generation && f->group_rank >= 0 &&
                            (uint32_t)f->group_rank < j->n_members));
}

static void take_node(const struct job *j, struct job_node *node,
                      const struct record_node *f)
{
    node->state = (enum node_state)f->state;
    node->is_leaving = f->is_leaving != 0;
    node->is_admitted = f->is_admitted != 0;
    node->is_flapping = f->is_flapping != 0;
    node->standby_told = f->standby_told != 0;
    node->waits_done = f->waits_done != 0;
    node->is_away = node->state != NODE_LEFT;
    node->not_before_ms = f->not_before_ms;
    node->ranked_in = f->ranked_in;
    node->group_rank = f->group_rank;
    node->arrival = f->arrival;
    memcpy(node->peer_addr, f->peer_addr, sizeof(node->peer_addr));
    memcpy(node->drained, f->drained, sizeof(node->drained));
    node->hello = j->shape;
    node->hello.agent_id = f->agent_id;
    node->hello.session = node->session;
    node->hello.nproc = f->nproc;
    node->hello.node_rank = f->node_rank;
    memcpy(node->hello.host, f->host, sizeof(node->hello.host));
    node->join = (struct msg_join){
        .after = f->after, .port = f->port, .max_world = f->max_world};
    memcpy(node->join.addr, f->addr, sizeof(node->join.addr));
    memcpy(node->join.role, f->role, sizeof(node->join.role));
}

int restoring_node(struct job *j, const struct record *r, struct job_node **ret)
{
    struct job_node *node;
    struct bytes key = r->key;
    struct record_node f;
    uint64_t session;
    int rv = record_get_node(r->value, &f);

    rv = rv < 0 ? rv : record_take_number(&key, sizeof(session), &session);
    if (rv < 0 || key.size > 0 || session == 0 || !is_sane_node(j, &f)) {
        return rv < 0 ? rv : ERR_CORRUPT;
    }
    node = mem_zalloc(sizeof(*node));
    node->session = session;
    take_node(j, node, &f);
    rv = admission_take_room(
        j, node, f.addr[0] != '\0' ? node->join.addr : node->peer_addr, NULL);
    if (rv < 0) {
        mem_free(node);
        return ERR_CORRUPT;
    }
    node->saving.hash = saving_hash(r->value);
    job_add_node(j, node);
    j->n_flapping += node->is_flapping;
    j->n_away += node->is_away;
    j->n_arrivals = MAX(j->n_arrivals, node->arrival + 1);
    *ret = node;
    return 0;
}

/* --- why its generation ends --- */

static int restore_end(struct job *j, const struct record *r)
{
    struct bytes key = r->key;
    uint64_t rank;

    if (record_take_number(&key, sizeof(uint32_t), &rank) < 0 || key.size > 0 ||
        r->value.size != 1) {
        return ERR_CORRUPT;
    }
    return others_restore(&j->cause.others, (uint32_t)rank, r->value.data[0]);
}

static int restore_first(struct cause *c, struct bytes value)
{
    struct record_rank *f = mem_alloc(sizeof(*f));
    int rv = record_get_rank(value, f);

    if (rv == 0 && (f->rank >= MSG_MAX_WORLD || !msg_is_end(f->exit_code, f->signal))) {
        rv = ERR_CORRUPT;
    }
    if (rv == 0) {
        record_to_rank_ended(f, &c->first);
    }
    mem_free(f);
    return rv;
}

static int restore_failed(struct outcome *out, struct bytes value)
{
    struct failed_rank *to = &out->first[out->n_first];
    struct record_first f;
    int rv = record_get_first(value, &f);

    if (rv < 0 || f.rank >= MSG_MAX_WORLD) {
        return rv < 0 ? rv : ERR_CORRUPT;
    }
    *to = (struct failed_rank){.rank = f.rank,
                               .local_rank = f.local_rank,
                               .pid = f.pid,
                               .ended_ms = f.ended_ms};
    memcpy(to->host, f.host, sizeof(to->host));
    out->n_first++;
    return 0;
}

static int restore_outcome(struct others *o, struct bytes value)
{
    struct outcome *out = &o->outcome[o->n_outcomes];
    struct record_outcome f;
    struct bytes one;
    int rv = record_get_outcome(value, &f);

    if (rv < 0 || !msg_is_end(f.code, f.signal)) {
        return rv < 0 ? rv : ERR_CORRUPT;
    }
    *out = (struct outcome){.code = f.code, .signal = f.signal};
    memcpy(out->error, f.error, sizeof(out->error));
    while (rv == 0 && out->n_first < OTHERS_FIRSTS &&
           record_list_next(&f.firsts, &one)) {
        rv = restore_failed(out, one);
    }
    o->n_outcomes++;
    return rv < 0 || f.firsts.size == 0 ? rv : ERR_CORRUPT;
}

static int restore_cause(struct job *j, const struct record *r)
{
    struct cause *c = &j->cause;
    struct record_cause f;
    struct bytes one;
    int rv = record_get_cause(r->value, &f);

    if (rv < 0 || f.hung_rank >= MSG_MAX_WORLD || f.loop_rank >= MSG_MAX_WORLD) {
        return rv < 0 ? rv : ERR_CORRUPT;
    }
    while (rv == 0 && c->others.n_outcomes < OTHERS_OUTCOMES &&
           record_list_next(&f.outcomes, &one)) {
        rv = restore_outcome(&c->others, one);
    }
    if (rv == 0 && f.has_rank != 0) {
        rv = restore_first(c, f.first);
    }
    c->has_rank = f.has_rank != 0;
    c->is_hang = f.is_hang != 0;
    c->hung_rank = f.hung_rank;
    memcpy(c->host, f.host, sizeof(c->host));
    c->loop_rank = f.loop_rank;
    c->loops = f.loops;
    c->loop_code = f.loop_code;
    c->loop_signal = f.loop_signal;
    c->loop_step = f.loop_step;
    return rv < 0 || f.outcomes.size == 0 ? rv : ERR_CORRUPT;
}

/* --- what else there is --- */

static int restore_members(struct job *j, const struct record *r)
{
    struct record_members f;
    int rv = record_get_members(r->value, &f);

    rv = rv < 0 ? rv : members_restore(&j->members, f.keys, f.has_more != 0);
    saving_restored_members(j);
    return rv;
}

static int restore_flappers(struct job *j, const struct record *r)
{
    struct record_flappers f;
    struct record_flapper one;
    struct bytes value;
    int rv = record_get_flappers(r->value, &f);

    if (rv < 0) {
        return rv;
    }
    while (rv == 0 && j->n_flappers < JOB_MAX_FLAPPERS &&
           record_list_next(&f.flappers, &value)) {
        rv = record_get_flapper(value, &one);
        if (rv == 0) {
            struct flapper *to = &j->flapper[j->n_flappers++];

            to->losses = one.losses;
            memcpy(to->key, one.name, sizeof(to->key));
        }
    }
    j->saving.flappers = saving_hash(r->value);
    return rv < 0 || f.flappers.size == 0 ? rv : ERR_CORRUPT;
}

static bool is_sane_report(const struct record_report *f)
{
    return f->rank >= -1 && f->rank < MSG_MAX_WORLD && msg_is_end(f->code, f->signal);
}

static int restore_report(struct job *j, const struct record *r)
{
    struct record_report *f = mem_alloc(sizeof(*f));
    int rv = record_get_report(r->value, f);

    if (rv == 0 && !is_sane_report(f)) {
        rv = ERR_CORRUPT;
    }
    if (rv == 0) {
        j->report = mem_alloc(sizeof(*j->report));
        record_to_report(f, j->report);
        j->report_arrivals = f->n_arrivals;
    }
    mem_free(f);
    return rv;
}

static int restore_pace(struct job *j, const struct record *r)
{
    struct record_pace f;
    int rv = record_get_pace(r->value, &f);

    if (rv < 0 || f.generation > j->generation || f.step_ms == 0) {
        return rv < 0 ? rv : ERR_CORRUPT;
    }
    j->saving.pace_generation = f.generation;
    j->saving.pace_ms = f.step_ms;
    return 0;
}

int restoring_rest(struct job *j, const struct record *r)
{
    bool is_current = j->keys && r->generation == j->generation;

    switch (r->kind) {
    case RECORD_END:
        return is_current ? restore_end(j, r) : ERR_CORRUPT;
    case RECORD_KEY:
    case RECORD_QUEUE:
    case RECORD_CLIENT:
        return is_current ? keyspace_restore(j->keys, r) : ERR_CORRUPT;
    case RECORD_CAUSE:
        return restore_cause(j, r);
    case RECORD_MEMBERS:
        return restore_members(j, r);
    case RECORD_FLAPPERS:
        return restore_flappers(j, r);
    case RECORD_REPORT:
        return restore_report(j, r);
    case RECORD_PACE:
        return restore_pace(j, r);
    case RECORD_JOB:
    case RECORD_NODE:
    case RECORD_FINISHED:
    case RECORD_COMMIT:
    case RECORD_EVENT:
    case RECORD_CURVE:
    case RECORD_START:
    case RECORD_KIND_COUNT:
        break;
    }
    return ERR_CORRUPT;
}

/* --- all of it --- */

/* No two members have the same. */
static bool has_one_of_each_rank(const struct job *j)
{
    bool *is_taken = mem_array(MAX(j->n_members, 1), sizeof(*is_taken));
    size_t n = 0;

    for (size_t i = 0; i < j->n_nodes; i++) {
        if (node_is_member(j->node[i]->state) && !is_taken[j->node[i]->group_rank]) {
            is_taken[j->node[i]->group_rank] = true;
            n++;
        }
    }
    mem_free(is_taken);
    return n == job_members(j);
}

static bool has_all_outcomes(const struct others *o)
{
    for (size_t rank = 0; rank < o->n_ranks; rank++) {
        if (o->how[rank] >= HOW_FAILED + o->n_outcomes) {
            return false;
        }
    }
    return true;
}

static bool fits_together(const struct job *j)
{
    if (!has_all_outcomes(&j->cause.others) || job_members(j) > j->shape.max_nodes) {
        return false;
    }
    switch (j->state) {
    case JOB_FORMING:
        return job_members(j) == 0;
    case JOB_RUNNING:
        return j->count[NODE_RUNNING] > 0 && has_one_of_each_rank(j);
    case JOB_DRAINING:
        return job_members(j) > 0;
    case JOB_DONE:
    case JOB_FAILED:
        break;
    }
    return true;
}

int restoring_end(struct job *j, uint64_t now_ms)
{
    if (!fits_together(j)) {
        return ERR_CORRUPT;
    }
    j->now_ms = now_ms;
    j->join_ms = MIN(j->join_ms, now_ms); /* nothing happened in the future */
    j->enough_ms = MIN(j->enough_ms, now_ms);
    j->ending.lost_ms = MIN(j->ending.lost_ms, now_ms);
    j->ending.left_ms = MIN(j->ending.left_ms, now_ms);
    j->ending.heard_ms = now_ms;
    for (size_t i = 0; i < j->n_nodes; i++) {
        struct job_node *node = j->node[i];

        node->not_before_ms = MIN(node->not_before_ms, now_ms + MAX_WAIT_MS);
    }
    return 0;
}
