#include "rendezvous/forming.h"

#include "rendezvous/admission.h"
#include "rendezvous/draining.h"
#include "rendezvous/roles.h"
#include "rendezvous/round.h"
#include "rendezvous/tracking.h"

#include "common/mem.h"
#include "common/table.h"

#include <stdio.h>
#include <string.h>

enum { STORE_MAX_CLIENTS = 65536 };

static int encode_node(const struct job_node *from, struct buf *table)
{
    struct msg_node node = {.nproc = from->hello.nproc, .port = from->join.port};

    memcpy(node.addr, from->join.addr, sizeof(node.addr));
    memcpy(node.host, from->hello.host, sizeof(node.host));
    return msg_node_encode(&node, table);
}

/* ROUND's `nodes`: for group rank 0, and for the others. */
struct node_table {
    struct bytes all;
    struct bytes first; /* the beginning of `all` */
};

/* Borrows from `storage`. */
static struct node_table encode_nodes(const struct round *r, struct buf *storage)
{
    int rv = encode_node(r->node[0], storage);
    size_t first = buf_len(storage);

    for (size_t i = 1; i < r->n && rv == 0; i++) {
        rv = encode_node(r->node[i], storage);
    }
    if (rv < 0) {
        UNREACHABLE(); /* admission_take_room keeps the table small enough */
    }
    return (struct node_table){.all = {buf_bytes(storage), buf_len(storage)},
                               .first = {buf_bytes(storage), first}};
}

static void on_store_reply(void *arg, uint64_t session,
                           const struct msg_store_reply *reply)
{
    struct job *j = arg;
    struct msg m = {.type = MSG_STORE_REPLY, .u.store_reply = *reply};

    m.u.store_reply.kept = j->sink.kept ? j->sink.kept(j->sink.arg) : 0;
    j->sink.send(j->sink.arg, session, &m);
}

static void on_store_save(void *arg, struct record *r)
{
    struct job *j = arg;

    r->job = j->id;
    j->sink.save(j->sink.arg, r);
}

struct keyspace *job_new_keys(struct job *j, bool is_restored)
{
    return keyspace_new(&(struct keyspace_config){
        .generation = j->generation,
        .budget = &j->budget,
        .max_clients = STORE_MAX_CLIENTS,
        .seed = table_hash(&j->generation, sizeof(j->generation), j->seed),
        .reply = on_store_reply,
        .reply_arg = j,
        .save = j->sink.save ? on_store_save : NULL,
        .save_arg = j,
        .is_restored = is_restored,
    });
}

void job_end_keys(struct job *j)
{
    if (j->keys) {
        j->needs_keys = keyspace_is_used(j->keys);
        keyspace_free(j->keys);
        j->keys = NULL;
        saving_end_of_generation(j);
    }
}

static void begin_generation(struct job *j, uint64_t largest_world)
{
    j->generation = MAX(j->generation, j->highest) + 1;
    j->highest = j->generation;
    ASSERT(!j->keys);
    j->keys = job_new_keys(j, false);
    j->told_failures = j->failures;
    j->told = j->fence.last;
    j->known_world = largest_world;
    j->knows_living = true;
    j->has_lost = false;
    j->has_enough = false;
    j->ending = (struct ending){0};
    fence_begin(&j->fence);
    cause_clear(&j->cause);
}

static void admit(struct job *j, struct job_node *node, uint32_t group_rank)
{
    job_move_node(j, node, NODE_RUNNING);
    j->n_flapping -= node->is_flapping;
    node->is_flapping = false;
    node->is_admitted = true;
    node->standby_told = false;
    node->ranked_in = j->generation;
    node->group_rank = (int32_t)group_rank;
    members_add(&j->members, members_key(&node->hello, node->peer_addr, j->cluster));
}

static uint32_t count_ranks(const struct round *r)
{
    uint32_t n = 0; /* admission_check: at most MSG_MAX_WORLD */

    for (size_t i = 0; i < r->n; i++) {
        n += r->node[i]->hello.nproc;
    }
    return n;
}

/* To one of its nodes, or (`to` is NULL) to all. */
static void send_round(struct job *j, const struct round *r, const struct job_node *to)
{
    const struct commit *last = &j->told;
    struct role_place *roles = roles_make(r);
    struct node_table table;
    struct buf storage;
    struct msg m = {.type = MSG_ROUND,
                    .u.round = {
                        .generation = j->generation,
                        .failures = j->told_failures,
                        .group_world = (uint32_t)r->n,
                        .world_size = count_ranks(r),
                        .cluster = j->cluster,
                        .commit_run = last->run,
                        .commit_step = last->step,
                    }};

    buf_init(&storage, ADMISSION_MAX_TABLE);
    table = encode_nodes(r, &storage);
    memcpy(m.u.round.commit_hash, last->hash, sizeof(last->hash));
    for (uint32_t i = 0; i < r->n; i++) {
        m.u.round.group_rank = i;
        m.u.round.nodes = i == 0 ? table.all : table.first;
        m.u.round.role_first_rank = roles[i].first_rank;
        m.u.round.role_world_size = roles[i].world_size;
        if (!to || to == r->node[i]) {
            j->sink.send(j->sink.arg, r->node[i]->session, &m);
        }
        m.u.round.first_rank += r->node[i]->hello.nproc;
    }
    buf_release(&storage);
    mem_free(roles);
}

/* The members of the generation that runs, all of which are there. */
static void collect_members(const struct job *j, struct round *ret)
{
    *ret = (struct round){.node = mem_array(j->n_members, sizeof(struct job_node *)),
                          .n = j->n_members};
    for (size_t i = 0; i < j->n_nodes; i++) {
        struct job_node *node = j->node[i];

        if (node_is_member(node->state)) {
            ASSERT((size_t)node->group_rank < j->n_members);
            ret->node[node->group_rank] = node;
        }
    }
}

void forming_tell_round(struct job *j, const struct job_node *node)
{
    struct round r;

    ASSERT(j->state == JOB_RUNNING && job_members(j) == j->n_members);
    collect_members(j, &r);
    send_round(j, &r, node);
    round_release(&r);
}

/* Where not MAX nodes are the reason, but what the workers can use. */
static void tell_use(const struct job *j, char *text, size_t size)
{
    if (job_members(j) < j->shape.max_nodes && j->count[NODE_DONE] == 0 &&
        j->known_world < UINT64_MAX) {
        (void)snprintf(text, size, " (at most %llu rank%s)",
                       (unsigned long long)j->known_world,
                       j->known_world == 1 ? "" : "s");
    }
}

static void tell_why(const struct job *j, const struct job_node *node, char *text,
                     size_t size)
{
    char limit[64] = "";

    if (node->is_flapping) {
        (void)snprintf(
            text, size,
            "this node was lost again and again without a checkpoint "
            "between: it stands by, to be taken in %llu ms at the earliest, "
            "and only if the job needs it",
            (unsigned long long)(MAX(node->not_before_ms, j->now_ms) - j->now_ms));
    } else if (j->waits_for_space) {
        (void)snprintf(
            text, size,
            "the disk on which this service keeps its state is full, and the "
            "job stores keys: the next generation begins when there is space");
    } else {
        tell_use(j, limit, sizeof(limit));
        (void)snprintf(text, size,
                       "generation %llu runs with %zu node%s and can use no more%s; "
                       "standing by to take over",
                       (unsigned long long)j->generation, job_members(j),
                       job_members(j) == 1 ? "" : "s", limit);
    }
}

void forming_tell_standby(struct job *j, struct job_node *node)
{
    struct msg m = {.type = MSG_STANDBY};
    struct msg_standby *standby = &m.u.standby;

    if (node->state != NODE_JOINED || node->standby_told) {
        return;
    }
    tell_why(j, node, standby->text, sizeof(standby->text));
    node->standby_told = true;
    job_note_node(j, NODE_STANDS_BY, node, standby->text);
    saving_touch(j, node);
    j->sink.send(j->sink.arg, node->session, &m);
}

static void seal(struct job *j)
{
    struct round r;

    round_choose(j, &r);
    job_move(j, JOB_RUNNING);
    begin_generation(j, r.largest_world);
    j->n_members = r.n;
    job_note(j, (struct job_event){
                    .kind = JOB_HAS_FORMED, .nodes = r.n, .ranks = count_ranks(&r)});
    for (uint32_t i = 0; i < r.n; i++) {
        admit(j, r.node[i], i);
    }
    send_round(j, &r, NULL);
    tracking_begin(j);
    for (size_t i = 0; i < j->n_nodes; i++) {
        forming_tell_standby(j, j->node[i]);
    }
    round_release(&r);
}

bool forming_lacks_space(const struct job *j)
{
    bool needs_keys = j->keys ? keyspace_is_used(j->keys) : j->needs_keys;

    return needs_keys && store_budget_space(&j->budget) >= SPACE_SCARCE;
}

static bool has_twin(const struct job *j, const struct job_node *node)
{
    int32_t node_rank = node->hello.node_rank;
    const struct job_node *first = job_of_node_rank(j, node_rank, NULL);

    return first && (first != node || job_of_node_rank(j, node_rank, first));
}

/* True when the running generation could use this node's ranks beside its own. Where a
 * member is done already the job is about to end. One with another's --node-rank is here
 * for when that does not come back. */
static bool can_use(const struct job *j, const struct job_node *node)
{
    uint64_t world = 0;

    if (has_twin(j, node) || j->count[NODE_DONE] > 0 ||
        j->count[NODE_RUNNING] >= j->shape.max_nodes) {
        return false;
    }
    for (size_t i = 0; i < j->n_nodes; i++) {
        const struct job_node *other = j->node[i];

        if (other->state == NODE_RUNNING || other == node) {
            world += other->hello.nproc;
        }
    }
    return world <= MIN(j->known_world, round_largest_world(j));
}

void forming_admit(struct job *j, const struct job_node *node)
{
    char text[MSG_TEXT_MAX];

    if (j->state != JOB_RUNNING || node->state != NODE_JOINED || node->is_flapping ||
        !can_use(j, node)) {
        return;
    }
    j->waits_for_space = forming_lacks_space(j);
    if (!j->waits_for_space) {
        (void)snprintf(text, sizeof(text), "node %s joined", node->hello.host);
        draining_leave(j, RESTART_NODE_JOINED, text);
    }
}

void forming_admit_waiting(struct job *j)
{
    if (j->waits_for_space && !forming_lacks_space(j)) {
        j->waits_for_space = false;
        for (size_t i = 0; i < j->n_nodes; i++) {
            forming_admit(j, j->node[i]);
        }
    }
}

uint64_t forming_deadline(const struct job *j)
{
    return j->waits_for_space ? j->now_ms + FORMING_SPACE_MS : round_deadline(j);
}

static void tell_waiting(struct job *j)
{
    for (size_t i = 0; i < j->n_nodes; i++) {
        forming_tell_standby(j, j->node[i]);
    }
}

void forming_try(struct job *j)
{
    size_t n = round_count(j);

    j->waits_for_space = false;
    if (n == 0 || n < j->shape.min_nodes || j->is_last) {
        j->has_enough = false;
        return;
    }
    if (!j->has_enough) {
        j->has_enough = true;
        j->enough_ms = j->now_ms;
    }
    if (!round_is_closed(j, n)) {
        return;
    }
    j->waits_for_space = forming_lacks_space(j);
    if (j->waits_for_space) {
        tell_waiting(j);
    } else {
        seal(j);
    }
}
