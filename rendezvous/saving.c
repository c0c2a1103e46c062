#include "rendezvous/saving.h"

#include "rendezvous/job.h"
#include "rendezvous/record_msg.h"

#include "common/mem.h"
#include "common/table.h"
#include "common/wire.h"

#include <stdio.h>
#include <string.h>

enum {
    HASH_SEED = 1, /* what is hashed is our own */
    PACE_MS = 50,  /* and a quarter: of a step, no news */
};

static void save(struct job *j, struct record r)
{
    r.job = j->id;
    j->sink.save(j->sink.arg, &r);
}

uint64_t saving_hash(struct bytes value)
{
    return MAX(table_hash(value.data, value.size, HASH_SEED), 1);
}

/* True when it is news. */
static bool update(uint64_t *hash, const struct buf *value)
{
    uint64_t now = saving_hash(record_bytes(value));

    if (now == *hash) {
        return false;
    }
    *hash = now;
    return true;
}

static void check(int rv)
{
    ASSERT(rv == 0); /* every value has its bound below the buffer's */
}

/* --- the job --- */

static void describe_ending(const struct ending *e, struct record_job *ret)
{
    ret->is_aborting = e->is_aborting;
    ret->is_cancelled = e->is_cancelled;
    ret->has_refused = e->has_refused;
    ret->has_failed = e->has_failed;
    ret->ended_by_loss = e->has_lost;
    ret->loss_counts = e->loss_counts;
    ret->lost_ms = e->has_lost ? e->lost_ms : e->was_unseen;
    ret->ended_by_leave = e->has_left;
    ret->left_ms = e->left_ms;
    ret->left_for = (uint8_t)e->left_for;
    ret->hung = e->hung;
    ret->n_undone = (uint32_t)e->n_undone;
    ret->refusal_code = e->refusal_code;
    ret->max_world = e->max_world;
    memcpy(ret->text, e->text, sizeof(ret->text));
    memcpy(ret->stop_text, e->stop_text, sizeof(ret->stop_text));
}

static void describe_commits(const struct job *j, struct record_job *ret)
{
    const struct fence *f = &j->fence;

    ret->has_resumed = f->has_resumed;
    ret->resumed_run = f->resumed_run;
    ret->resumed_step = f->resumed_step;
    ret->own_run = f->own.run;
    ret->own_step = f->own.step;
    memcpy(ret->own_hash, f->own.hash, sizeof(ret->own_hash));
    ret->last_run = f->last.run;
    ret->last_step = f->last.step;
    memcpy(ret->last_hash, f->last.hash, sizeof(ret->last_hash));
    ret->told_failures = j->told_failures;
    ret->told_run = j->told.run;
    ret->told_step = j->told.step;
    memcpy(ret->told_hash, j->told.hash, sizeof(ret->told_hash));
    memcpy(ret->owner, j->owner, sizeof(ret->owner));
}

static void describe_job(const struct job *j, struct record_job *ret)
{
    *ret = (struct record_job){.state = (uint8_t)j->state,
                               .generation = j->generation,
                               .highest = j->highest,
                               .known_world = j->known_world,
                               .n_members = (uint32_t)j->n_members,
                               .failures = j->failures,
                               .exit_code = j->exit_code,
                               .knows_living = j->knows_living,
                               .has_lost = j->has_lost,
                               .has_enough = j->has_enough,
                               .join_ms = j->join_ms,
                               .enough_ms = j->enough_ms,
                               .n_arrivals = j->n_arrivals,
                               .min_nodes = j->shape.min_nodes,
                               .max_nodes = j->shape.max_nodes,
                               .max_restarts = j->shape.max_restarts,
                               .last_call_ms = j->shape.last_call_ms,
                               .on_hang = j->shape.on_hang};
    memcpy(ret->host, j->shape.host, sizeof(ret->host));
    describe_ending(&j->ending, ret);
    describe_commits(j, ret);
}

static void save_job(struct job *j, struct buf *value)
{
    struct record_job job;

    describe_job(j, &job);
    buf_clear(value);
    check(record_put_job(&job, value));
    if (update(&j->saving.job, value)) {
        save(j, (struct record){.kind = RECORD_JOB, .value = record_bytes(value)});
    }
}

static uint64_t count_members(const struct job *j)
{
    return 1 + (uint64_t)j->members.n + (j->members.has_more ? 1 : 0);
}

void saving_restored_members(struct job *j)
{
    j->saving.members = count_members(j);
}

static void save_members(struct job *j, struct buf *value)
{
    uint64_t count = count_members(j);
    struct buf keys;
    int rv = 0;

    if (j->saving.members == count || count == 1) {
        return; /* they only become more */
    }
    j->saving.members = count;
    buf_init(&keys, sizeof(j->members.key));
    for (uint32_t i = 0; i < j->members.n && rv == 0; i++) {
        rv = wire_put_u64(&keys, j->members.key[i]);
    }
    check(rv);
    buf_clear(value);
    check(record_put_members(&(struct record_members){.has_more = j->members.has_more,
                                                      .keys = record_bytes(&keys)},
                             value));
    save(j, (struct record){.kind = RECORD_MEMBERS, .value = record_bytes(value)});
    buf_release(&keys);
}

static int put_flapper(const struct flapper *f, struct buf *list)
{
    struct record_flapper flapper = {.losses = f->losses};
    struct buf one;
    int rv;

    (void)snprintf(flapper.name, sizeof(flapper.name), "%s", f->key);
    buf_init(&one, RECORD_VALUE_MAX);
    rv = record_put_flapper(&flapper, &one);
    rv = rv < 0 ? rv : wire_put_bytes(list, buf_bytes(&one), buf_len(&one));
    buf_release(&one);
    return rv;
}

static void save_flappers(struct job *j, struct buf *value)
{
    struct buf list;
    int rv = 0;

    if (j->n_flappers == 0 && j->saving.flappers == 0) {
        return;
    }
    buf_init(&list, RECORD_VALUE_MAX);
    for (size_t i = 0; i < j->n_flappers && rv == 0; i++) {
        rv = put_flapper(&j->flapper[i], &list);
    }
    check(rv);
    buf_clear(value);
    check(record_put_flappers(&(struct record_flappers){record_bytes(&list)}, value));
    if (update(&j->saving.flappers, value)) {
        save(j, (struct record){.kind = RECORD_FLAPPERS, .value = record_bytes(value)});
    }
    buf_release(&list);
}

/* --- its nodes --- */

void saving_touch(struct job *j, struct job_node *node)
{
    if (j->sink.save && !node->saving.is_touched) {
        node->saving.is_touched = true;
        node->saving.next = j->saving.touched;
        j->saving.touched = node;
    }
}

static struct record_key node_key(const struct job_node *node)
{
    struct record_key key = {.size = 0};

    record_key_u64(&key, node->session);
    return key;
}

void saving_drop_node(struct job *j, struct job_node *node)
{
    struct record_key key = node_key(node);
    struct job_node **at = &j->saving.touched;

    if (node->saving.is_touched) {
        while (*at != node) {
            at = &(*at)->saving.next;
        }
        *at = node->saving.next;
    }
    if (node->saving.hash != 0) {
        save(j, (struct record){.act = RECORD_DROP,
                                .kind = RECORD_NODE,
                                .key = record_key_bytes(&key)});
    }
}

static void describe_node(const struct job_node *n, struct record_node *ret)
{
    *ret = (struct record_node){.state = (uint8_t)n->state,
                                .is_leaving = n->is_leaving,
                                .is_admitted = n->is_admitted,
                                .is_flapping = n->is_flapping,
                                .standby_told = n->standby_told,
                                .waits_done = n->waits_done,
                                .not_before_ms = n->not_before_ms,
                                .ranked_in = n->ranked_in,
                                .group_rank = n->group_rank,
                                .arrival = n->arrival,
                                .agent_id = n->hello.agent_id,
                                .nproc = n->hello.nproc,
                                .node_rank = n->hello.node_rank,
                                .after = n->join.after,
                                .port = n->join.port,
                                .max_world = n->join.max_world};
    memcpy(ret->peer_addr, n->peer_addr, sizeof(ret->peer_addr));
    memcpy(ret->drained, n->drained, sizeof(ret->drained));
    memcpy(ret->host, n->hello.host, sizeof(ret->host));
    memcpy(ret->addr, n->join.addr, sizeof(ret->addr));
    memcpy(ret->role, n->join.role, sizeof(ret->role));
}

static void save_nodes(struct job *j, struct buf *value)
{
    while (j->saving.touched) {
        struct job_node *node = j->saving.touched;
        struct record_key key = node_key(node);
        struct record_node fields;

        j->saving.touched = node->saving.next;
        node->saving.is_touched = false;
        describe_node(node, &fields);
        buf_clear(value);
        check(record_put_node(&fields, value));
        if (update(&node->saving.hash, value)) {
            save(j, (struct record){.kind = RECORD_NODE,
                                    .key = record_key_bytes(&key),
                                    .value = record_bytes(value)});
        }
    }
}

/* --- why a generation ends --- */

static int put_first(const struct failed_rank *f, struct buf *list)
{
    struct record_first first = {.rank = f->rank,
                                 .local_rank = f->local_rank,
                                 .pid = f->pid,
                                 .ended_ms = f->ended_ms};
    struct buf one;
    int rv;

    memcpy(first.host, f->host, sizeof(first.host));
    buf_init(&one, RECORD_VALUE_MAX);
    rv = record_put_first(&first, &one);
    rv = rv < 0 ? rv : wire_put_bytes(list, buf_bytes(&one), buf_len(&one));
    buf_release(&one);
    return rv;
}

static int put_outcome(const struct outcome *out, struct buf *list)
{
    struct record_outcome outcome = {.code = out->code, .signal = out->signal};
    struct buf firsts;
    struct buf one;
    int rv = 0;

    memcpy(outcome.error, out->error, sizeof(outcome.error));
    buf_init(&firsts, RECORD_VALUE_MAX);
    buf_init(&one, RECORD_VALUE_MAX);
    for (size_t i = 0; i < out->n_first && rv == 0; i++) {
        rv = put_first(&out->first[i], &firsts);
    }
    outcome.firsts = record_bytes(&firsts);
    rv = rv < 0 ? rv : record_put_outcome(&outcome, &one);
    rv = rv < 0 ? rv : wire_put_bytes(list, buf_bytes(&one), buf_len(&one));
    buf_release(&one);
    buf_release(&firsts);
    return rv;
}

static int put_rank(const struct msg_rank_ended *end, struct buf *out)
{
    struct record_rank *rank = mem_alloc(sizeof(*rank));
    int rv;

    record_of_rank_ended(end, rank);
    rv = record_put_rank(rank, out);
    mem_free(rank);
    return rv;
}

static void save_cause(struct job *j, struct buf *value)
{
    struct cause *c = &j->cause;
    struct record_cause cause = {.has_rank = c->has_rank,
                                 .is_hang = c->is_hang,
                                 .hung_rank = c->hung_rank,
                                 .loop_rank = c->loop_rank,
                                 .loops = c->loops,
                                 .loop_code = c->loop_code,
                                 .loop_signal = c->loop_signal,
                                 .loop_step = c->loop_step};
    struct buf outcomes;
    struct buf first;
    int rv = 0;

    if (!c->has_changed) {
        return;
    }
    c->has_changed = false;
    memcpy(cause.host, c->host, sizeof(cause.host));
    buf_init(&outcomes, RECORD_VALUE_MAX);
    buf_init(&first, RECORD_VALUE_MAX);
    for (size_t i = 0; i < c->others.n_outcomes && rv == 0; i++) {
        rv = put_outcome(&c->others.outcome[i], &outcomes);
    }
    if (rv == 0 && c->has_rank) {
        rv = put_rank(&c->first, &first);
    }
    cause.first = record_bytes(&first);
    cause.outcomes = record_bytes(&outcomes);
    buf_clear(value);
    rv = rv < 0 ? rv : record_put_cause(&cause, value);
    check(rv);
    save(j, (struct record){.kind = RECORD_CAUSE, .value = record_bytes(value)});
    buf_release(&outcomes);
    buf_release(&first);
}

void saving_end_of_rank(struct job *j, uint32_t rank)
{
    uint8_t how = (uint8_t)others_how(&j->cause.others, rank);
    struct record_key key = {.size = 0};

    if (j->sink.save && how != HOW_UNKNOWN) {
        record_key_u32(&key, rank);
        save(j, (struct record){.kind = RECORD_END,
                                .generation = j->generation,
                                .key = record_key_bytes(&key),
                                .value = {&how, sizeof(how)}});
    }
}

void saving_commit(struct job *j, const struct msg_commit *commit)
{
    struct record_key key = {.size = 0};

    if (j->sink.save) {
        record_key_u32(&key, commit->run);
        record_key_u64(&key, commit->step);
        save(j, (struct record){
                    .kind = RECORD_COMMIT,
                    .generation = j->generation,
                    .key = record_key_bytes(&key),
                    .value = {(const uint8_t *)commit->hash, strlen(commit->hash)}});
    }
}

void saving_report(struct job *j, const struct msg *m)
{
    struct record_report *report;
    struct buf value;

    if (!j->sink.save) {
        return;
    }
    mem_free(j->report);
    j->report = mem_dup(&m->u.report, sizeof(*j->report));
    j->report_arrivals = j->n_arrivals;
    report = mem_alloc(sizeof(*report));
    record_of_report(j->report, report);
    report->n_arrivals = j->n_arrivals;
    buf_init(&value, RECORD_VALUE_MAX);
    check(record_put_report(report, &value));
    save(j, (struct record){.kind = RECORD_REPORT, .value = record_bytes(&value)});
    buf_release(&value);
    mem_free(report);
}

/* Seldom: the judge of hangs needs to know about how long a step takes, no more. */
static void save_pace(struct job *j, struct buf *value)
{
    struct saving *s = &j->saving;
    uint32_t ms = j->progress.generation == j->generation ? j->progress.median_ms : 0;
    uint32_t saved_ms = s->pace_generation == j->generation ? s->pace_ms : 0;
    uint32_t tolerance_ms = PACE_MS + saved_ms / 4;

    if (ms == 0 || (saved_ms != 0 && ms <= saved_ms + tolerance_ms &&
                    saved_ms <= ms + tolerance_ms)) {
        return;
    }
    s->pace_generation = j->generation;
    s->pace_ms = ms;
    buf_clear(value);
    check(record_put_pace(&(struct record_pace){j->generation, ms}, value));
    save(j, (struct record){.kind = RECORD_PACE, .value = record_bytes(value)});
}

/* --- events --- */

void saving_end_of_generation(struct job *j)
{
    if (j->sink.save) {
        save(j, (struct record){.act = RECORD_DROP_GENERATION,
                                .generation = j->generation});
    }
}

void saving_end_of_event(struct job *j)
{
    struct buf value;

    if (!j->sink.save) {
        return;
    }
    buf_init(&value, RECORD_VALUE_MAX);
    save_nodes(j, &value);
    save_job(j, &value);
    save_members(j, &value);
    save_flappers(j, &value);
    save_cause(j, &value);
    save_pace(j, &value);
    buf_release(&value);
}

void saving_forget(struct job *j)
{
    if (j->sink.save && j->saving.job != 0) {
        save(j, (struct record){.act = RECORD_DROP_JOB});
    }
}
