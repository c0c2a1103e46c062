#include "rendezvous/job.h"

#include "rendezvous/admission.h"
#include "rendezvous/draining.h"
#include "rendezvous/forming.h"
#include "rendezvous/requests.h"
#include "rendezvous/resuming.h"
#include "rendezvous/round.h"
#include "rendezvous/store.h"
#include "rendezvous/tracking.h"

#include "common/exit_code.h"
#include "common/log.h"
#include "common/mem.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char *const state_names[] = {
    [JOB_FORMING] = "forming", [JOB_RUNNING] = "running", [JOB_DRAINING] = "draining",
    [JOB_DONE] = "done",       [JOB_FAILED] = "failed",
};

static const bool moves[][JOB_FAILED + 1] = {
    [JOB_FORMING] = {[JOB_RUNNING] = true, [JOB_FAILED] = true},
    [JOB_RUNNING] = {[JOB_DRAINING] = true, [JOB_DONE] = true},
    [JOB_DRAINING] = {[JOB_FORMING] = true, [JOB_FAILED] = true, [JOB_DONE] = true},
};

void job_move(struct job *j, enum job_state to)
{
    ASSERT(j->state <= JOB_DRAINING && moves[j->state][to]);
    log_trace("job", j->id, state_names[j->state], state_names[to]);
    j->state = to;
}

void job_move_node(struct job *j, struct job_node *node, enum node_state to)
{
    j->count[node->state]--;
    j->count[to]++;
    if (node->is_away && to == NODE_LEFT) {
        j->n_away--; /* nobody waits for it */
        node->is_away = false;
    }
    node->state = to;
    saving_touch(j, node);
}

size_t job_members(const struct job *j)
{
    return j->count[NODE_RUNNING] + j->count[NODE_DONE];
}

struct job *job_new(const char *id, uint64_t cluster, uint64_t seed,
                    struct store_budget *budget, struct rank_budget *ranks,
                    const struct job_sink *sink)
{
    struct job *j = mem_zalloc(sizeof(*j));

    (void)snprintf(j->id, sizeof(j->id), "%s", id);
    j->cluster = cluster;
    j->seed = seed;
    store_budget_init_part(&j->budget, budget);
    j->ranks = ranks;
    j->sink = *sink;
    j->needs_keys = true;
    table_init(&j->node_ranks);
    return j;
}

void job_free(struct job *j)
{
    if (!j) {
        return;
    }
    for (size_t i = 0; i < j->n_nodes; i++) {
        mem_free(j->node[i]);
    }
    keyspace_free(j->keys);
    cause_release(&j->cause);
    tracking_release(j);
    drained_release(&j->drained);
    mem_free(j->report);
    table_release(&j->node_ranks);
    mem_free(j->node);
    mem_free(j);
}

bool job_is_over(const struct job *j)
{
    return j->state == JOB_DONE || j->state == JOB_FAILED;
}

bool job_is_stopped(const struct job *j)
{
    return j->n_nodes == 0 && j->generation > 0 && !j->has_lost && !job_is_over(j);
}

/* Who starts it again shall not pay for what was before. */
static void forget_failures(struct job *j)
{
    j->failures = 0;
    j->n_flappers = 0;
    cause_release(&j->cause);
}

/* After every event: what follows from the counts. */
static void go_on(struct job *j)
{
    if (j->state == JOB_RUNNING) {
        forming_admit_waiting(j);
    }
    if (j->state == JOB_DRAINING) {
        draining_settle(j);
    }
    if (j->state == JOB_FORMING) {
        forming_try(j);
    }
    if (j->state != JOB_RUNNING && j->state != JOB_DRAINING) {
        tracking_end(j); /* as large as the world: not for a job that waits */
        cause_fold(&j->cause);
    }
    ASSERT(j->state != JOB_FORMING || job_members(j) == 0);
    ASSERT(j->state != JOB_RUNNING || j->count[NODE_RUNNING] > 0);
    ASSERT(j->state != JOB_DRAINING || job_members(j) > 0);
    saving_end_of_event(j);
}

/* --- hello --- */

/* An embedded server knows no more than its agents do: it takes the maxima. A number
 * above the running generation's raises the next one. */
static void take_maxima(struct job *j, const struct msg_hello *hello)
{
    j->highest = MAX(j->highest, hello->generation);
    j->failures = MAX(j->failures, MIN(hello->failures, j->shape.max_restarts));
    fence_learn(&j->fence, hello->commit_run, hello->commit_step, hello->commit_hash);
}

static struct job_node *new_node(struct job *j, const struct job_guest *guest)
{
    struct job_node *node = mem_zalloc(sizeof(*node));

    node->session = guest->session;
    node->hello = *guest->hello;
    node->group_rank = guest->hello->group_rank;
    node->ranked_in = node->group_rank >= 0 ? guest->hello->generation : 0;
    node->arrival = j->n_arrivals++;
    drained_take(&j->drained, guest->hello->agent_id, node->drained);
    (void)snprintf(node->peer_addr, sizeof(node->peer_addr), "%s", guest->peer_addr);
    return node;
}

static uint64_t hash_node_rank(const struct job *j, int32_t node_rank)
{
    return table_hash(&node_rank, sizeof(node_rank), j->seed);
}

void job_add_node(struct job *j, struct job_node *node)
{
    if ((j->n_nodes & (j->n_nodes - 1)) == 0) { /* full: 0, 1, 2, 4 … */
        j->node = mem_grow(j->node, MAX(2 * j->n_nodes, 1), sizeof(struct job_node *));
    }
    node->index = j->n_nodes;
    j->node[j->n_nodes++] = node;
    j->count[node->state]++;
    tracking_take_room(j, node);
    saving_touch(j, node);
    if (node->hello.node_rank >= 0) {
        table_insert(&j->node_ranks, &node->by_node_rank,
                     hash_node_rank(j, node->hello.node_rank));
    }
}

static void remove_node(struct job *j, struct job_node *node)
{
    struct job_node *last = j->node[--j->n_nodes];

    last->index = node->index;
    j->node[node->index] = last;
    j->count[node->state]--;
    j->n_flapping -= node->is_flapping;
    j->n_away -= node->is_away;
    admission_return_room(j, node);
    tracking_return_room(j, node);
    saving_drop_node(j, node);
    if (node->hello.node_rank >= 0) {
        table_remove(&j->node_ranks, &node->by_node_rank);
    }
    mem_free(node);
}

struct job_node *job_of_node_rank(const struct job *j, int32_t node_rank,
                                  const struct job_node *after)
{
    struct table_node *n =
        after ? after->by_node_rank.next
              : table_bucket(&j->node_ranks, hash_node_rank(j, node_rank));

    for (; n; n = n->next) {
        struct job_node *node = CONTAINER_OF(n, struct job_node, by_node_rank);

        if (node->hello.node_rank == node_rank && node->state != NODE_LEFT) {
            return node;
        }
    }
    return NULL;
}

int job_hello(struct job *j, const struct job_guest *guest, struct job_node **ret,
              uint32_t *ret_exit_code, struct errmsg *msg)
{
    struct job_node *node;
    int rv;

    if (job_is_over(j)) {
        *ret_exit_code = j->exit_code;
        return errmsg_set(msg, ERR_REFUSED,
                          "job %s is over: it ended with exit code %u", j->id,
                          j->exit_code);
    }
    rv = admission_check(j, guest->hello, msg);
    if (rv < 0) {
        *ret_exit_code = EXIT_MISTAKE;
        return rv;
    }
    rv = admission_check_ranks(j, guest->hello, msg);
    if (rv < 0) {
        *ret_exit_code = EXIT_RENDEZVOUS;
        return rv;
    }
    node = new_node(j, guest);
    rv = admission_take_room(j, node, guest->peer_addr, msg);
    if (rv < 0) {
        *ret_exit_code = EXIT_MISTAKE;
        mem_free(node);
        return rv;
    }
    if (job_is_stopped(j)) {
        forget_failures(j);
    }
    if (j->n_nodes == 0) {
        j->shape = *guest->hello;
    }
    job_add_node(j, node);
    take_maxima(j, guest->hello);
    saving_end_of_event(j);
    *ret = node;
    return 0;
}

/* --- joining --- */

/* It has said so, or it is. */
void job_leave_generation(struct job *j, struct job_node *node, bool done,
                          const char *what)
{
    char name[JOB_NODE_NAME_MAX];
    char text[MSG_TEXT_MAX];

    j->ending.n_undone += !done && node->state == NODE_RUNNING;
    job_move_node(j, node, node->is_leaving ? NODE_LEFT : NODE_PRESENT);
    if (j->state == JOB_RUNNING) { /* and nobody has told us why */
        job_name_node(j, node, name, sizeof(name));
        (void)snprintf(text, sizeof(text), "node %s %s", name, what);
        draining_leave(j, RESTART_NODE_LEFT, text);
    }
}

/* No place for it in any round: it goes home. */
static void turn_away(struct job *j, struct job_node *node, const char *text)
{
    struct msg m = {.type = MSG_REFUSED, .u.refused = {.exit_code = EXIT_MISTAKE}};

    (void)snprintf(m.u.refused.text, sizeof(m.u.refused.text), "%s", text);
    job_move_node(j, node, NODE_LEFT);
    j->sink.send(j->sink.arg, node->session, &m);
}

static void on_join(struct job *j, struct job_node *node, const struct msg_join *join)
{
    struct errmsg msg = {""};

    if (node->is_leaving || node->state == NODE_JOINED || node->state == NODE_LEFT ||
        (node_is_member(node->state) && join->after != j->generation)) {
        return;
    }
    if (node_is_member(node->state)) {
        job_leave_generation(j, node, false, "starts over");
    }
    if (admission_take_room(j, node, join->addr, &msg) < 0) {
        turn_away(j, node, msg.text);
        return;
    }
    if (!node->is_admitted) { /* a member joins again after each generation */
        job_note_node(j, NODE_HAS_JOINED, node, NULL);
    }
    node->join = *join;
    node->waits_done = false;
    job_move_node(j, node, NODE_JOINED);
    admission_join(j, node);
    forming_admit(j, node);
    if (j->state == JOB_RUNNING || node->is_flapping) {
        forming_tell_standby(j, node);
    }
}

/* --- messages --- */

static void on_rank_ended(struct job *j, const struct job_node *node,
                          const struct msg_rank_ended *m)
{
    bool has_left = m->engine && m->signal == 0 && m->exit_code == EXIT_LEFT;
    struct msg_rank_ended end = *m;

    if (!tracking_ended(j, node, m->rank)) {
        return;
    }
    if (!msg_is_end(end.exit_code, end.signal) ||
        (end.exit_code == 0 && end.signal == 0)) {
        return;
    }
    if (end.ended_ms == 0 || end.ended_ms > j->now_ms) {
        end.ended_ms = j->now_ms; /* the agent does not know our clock yet */
    }
    draining_add_end(j, &end, node->hello.host);
    saving_end_of_rank(j, end.rank);
    if (end.stopped) {
        return; /* the agent had its reasons, which it has told */
    }
    if (has_left) {
        draining_leave(j, RESTART_PREEMPTION, "the workers were asked to leave");
    } else {
        draining_fail(j, &end, node->hello.host);
    }
}

static void on_stopped(struct job *j, struct job_node *node, bool done)
{
    if (done && node->state == NODE_DONE) {
        return; /* said again: it will join, as it was told */
    }
    if (!done || j->state == JOB_DRAINING) {
        node->waits_done = done;
        job_leave_generation(j, node, done, "stopped its workers");
        return;
    }
    job_move_node(j, node, NODE_DONE);
    if (j->count[NODE_RUNNING] == 0) {
        draining_close(j, JOB_DONE, 0, "");
    }
}

/* A node with workers stops them first, and so do the others. */
static void on_leave(struct job *j, struct job_node *node, const struct msg_leave *m)
{
    if (node->is_leaving) {
        return;
    }
    node->is_leaving = true;
    job_note_node(j, NODE_HAS_LEFT, node,
                  m->signal == SIGTERM ? "it was told to, by SIGTERM"
                                       : "it was told to");
    if (node->state != NODE_RUNNING) {
        job_move_node(j, node, NODE_LEFT);
    } else {
        draining_preempt(j, node, m);
    }
}

/* Progress was made: nodes that stood by because they flapped are as good as others. */
static void forgive(struct job *j)
{
    j->n_flappers = 0;
    for (size_t i = 0; i < j->n_nodes && j->n_flapping > 0; i++) {
        struct job_node *node = j->node[i];

        if (node->is_flapping) {
            node->is_flapping = false;
            j->n_flapping--;
            saving_touch(j, node);
            forming_admit(j, node);
        }
    }
}

/* The generation a message is about; 0 for those that are about none. */
static uint64_t generation_of(const struct msg *m)
{
    switch (m->type) {
    case MSG_RANK_ENDED:
        return m->u.rank_ended.generation;
    case MSG_REFUSE:
        return m->u.refuse.generation;
    case MSG_STOPPED:
        return m->u.stopped.generation;
    case MSG_RESUMED:
        return m->u.resumed.generation;
    case MSG_COMMIT:
        return m->u.commit.generation;
    case MSG_PROGRESS:
        return m->u.progress.generation;
    case MSG_STORE:
        return m->u.store.generation;
    case MSG_STORE_CLOSE:
        return m->u.store_close.generation;
    case MSG_INSPECTED:
        return m->u.inspected.generation;
    case MSG_HELLO:
    case MSG_WELCOME:
    case MSG_REFUSED:
    case MSG_JOIN:
    case MSG_HEARTBEAT:
    case MSG_PONG:
    case MSG_ROUND:
    case MSG_STANDBY:
    case MSG_STOP:
    case MSG_LEAVE:
    case MSG_DECISION:
    case MSG_STORE_REPLY:
    case MSG_REPORT:
    case MSG_CLOSED:
    case MSG_OPERATOR:
    case MSG_ASK:
    case MSG_ANSWER:
    case MSG_DRAIN:
    case MSG_INSPECT:
    case MSG_NOTICE:
        break;
    }
    return 0;
}

/* Messages of a member about the generation that runs or drains. */
static void member_message(struct job *j, struct job_node *node, const struct msg *m)
{
    bool is_running = node->state == NODE_RUNNING;

    if (m->type == MSG_STORE) {
        keyspace_store(j->keys, node->session, &m->u.store);
    } else if (m->type == MSG_STORE_CLOSE) {
        keyspace_close_client(j->keys, node->session, &m->u.store_close);
    } else if (m->type == MSG_RANK_ENDED && is_running) {
        on_rank_ended(j, node, &m->u.rank_ended);
    } else if (m->type == MSG_REFUSE && is_running) {
        draining_refuse(j, &m->u.refuse);
    } else if (m->type == MSG_STOPPED && (is_running || j->state == JOB_DRAINING)) {
        on_stopped(j, node, m->u.stopped.done != 0);
    } else if (m->type == MSG_RESUMED) {
        requests_resumed(j, node, &m->u.resumed);
    } else if (m->type == MSG_COMMIT && requests_commit(j, node, &m->u.commit)) {
        forgive(j);
    } else if (m->type == MSG_PROGRESS && m->u.progress.step <= INT64_MAX) {
        job_note_loss(j, &m->u.progress);
        tracking_note(j, node, &m->u.progress);
    } else if (m->type == MSG_INSPECTED) {
        tracking_inspected(j, node, &m->u.inspected);
    }
}

void job_message(struct job *j, struct job_node *node, const struct msg *m,
                 uint64_t now_ms)
{
    bool is_ours = node_is_member(node->state) && generation_of(m) == j->generation;
    bool is_store = m->type == MSG_STORE || m->type == MSG_STORE_CLOSE;

    j->now_ms = now_ms;
    if (job_is_over(j)) {
        return;
    }
    if (is_store && is_ours) {
        member_message(j, node, m); /* nothing follows from it */
        return;
    }
    saving_touch(j, node);
    if (m->type == MSG_JOIN) {
        on_join(j, node, &m->u.join);
    } else if (m->type == MSG_LEAVE) {
        on_leave(j, node, &m->u.leave);
    } else if (is_ours) {
        member_message(j, node, m);
    } else {
        requests_refuse(j, node, m);
    }
    go_on(j);
}

void job_forsake(struct job *j, const struct job_node *node,
                 const struct msg_store_close *m)
{
    if (j->keys) {
        keyspace_forsake(j->keys, node->session, m);
    }
}

/* One that has only said hello was not missed: maybe it takes this for another
 * service. */
static bool has_taken_part(const struct job_node *node)
{
    return node->state != NODE_PRESENT || node->is_admitted;
}

void job_lost(struct job *j, struct job_node *node, const char *why, uint64_t now_ms)
{
    bool had_workers = node->state == NODE_RUNNING && !job_is_over(j);
    bool is_leaving = node->is_leaving;
    bool is_first = had_workers && !j->ending.has_lost; /* of others nobody hears */
    bool counts = had_workers && !is_leaving && admission_count_loss(j, node);
    /* it may have gone before what we were told while it was not seen */
    uint64_t since_ms = node->is_away && j->ending.was_unseen ? 0 : now_ms;
    char text[MSG_TEXT_MAX];
    char name[JOB_NODE_NAME_MAX];

    j->now_ms = now_ms;
    (void)snprintf(name, sizeof(name), "%s", node->hello.host);
    if (is_first) {
        job_name_node(j, node, name, sizeof(name));
    }
    (void)snprintf(text, sizeof(text), "node %s %s: %s", name,
                   is_leaving ? "has left" : "was lost", why);
    if (j->keys) {
        keyspace_drop_session(j->keys, node->session);
    }
    j->has_lost = j->has_lost || (node->is_admitted && !is_leaving);
    if (has_taken_part(node) && !is_leaving && !job_is_over(j)) {
        job_note_node(j, NODE_IS_LOST, node, why);
        if (node->drained[0] != '\0') {
            drained_note(&j->drained, node->hello.agent_id, node->drained);
        }
    }
    remove_node(j, node);
    if (had_workers) {
        j->ending.n_undone++;
        draining_lose(j, counts, since_ms, text);
    }
    go_on(j);
    if (j->n_nodes == 0) {
        j->ending.max_world = 0; /* who comes next may want another configuration */
    }
    if (job_is_stopped(j)) {
        job_note(j, (struct job_event){.kind = JOB_IS_STOPPED, .why = j->ending.text});
    }
    saving_end_of_event(j);
}

void job_return(struct job *j, struct job_node *node, const struct msg_hello *hello,
                uint64_t now_ms)
{
    struct job_node *surplus = NULL;
    struct errmsg msg = {""};

    j->now_ms = now_ms;
    if (node->is_away) {
        j->n_away--;
        node->is_away = false;
        surplus = admission_find_surplus(j, node, &msg);
    }
    if (surplus) {
        turn_away(j, surplus, msg.text);
    }
    if (j->keys) {
        keyspace_reattach(j->keys, node->session);
    }
    resuming_tell(j, node, hello);
    if (!job_is_over(j)) {
        go_on(j);
    }
}

void job_cancel(struct job *j, const char *why, uint64_t now_ms)
{
    j->now_ms = now_ms;
    if (!job_is_over(j)) {
        draining_cancel(j, why);
        go_on(j);
    }
}

void job_tick(struct job *j, uint64_t now_ms)
{
    j->now_ms = now_ms;
    tracking_tick(j);
    go_on(j);
}

void job_excuse(struct job *j, uint64_t now_ms)
{
    hang_excuse(&j->hang, now_ms);
}

uint64_t job_deadline(const struct job *j)
{
    if (j->state == JOB_FORMING) {
        return forming_deadline(j);
    }
    return j->state == JOB_RUNNING && j->waits_for_space
               ? MIN(tracking_deadline(j), j->now_ms + FORMING_SPACE_MS)
               : tracking_deadline(j);
}
