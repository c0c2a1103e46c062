/* A node: its agent with actions made of events. */

#include "tests/lib/cluster.h"

#include "common/err.h"
#include "common/exit_code.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    JOIN_TIMEOUT_MS = 600000,
    MANY_RESTARTS = 1000000,
    SPACE_MS = 5000, /* until who has no space for a job may have it again */
};

static void act_connect(void *arg)
{
    net_dial(arg);
}

static void act_disconnect(void *arg)
{
    net_hang_up(arg);
}

static void act_look(void *arg, struct agent_route *ret)
{
    (void)arg;
    (void)ret; /* for people, of whom there are none */
}

static void act_send(void *arg, const struct msg *m)
{
    net_send(arg, m);
}

static void close_stores(struct node *n)
{
    for (uint32_t i = 0; i < n->cluster->config.nproc; i++) {
        worker_store_close(&n->workers[i]);
    }
}

static int act_relay_open(void *arg, struct agent_relay *ret, struct errmsg *msg)
{
    struct node *n = arg;

    (void)msg;
    close_stores(n);
    *ret = (struct agent_relay){.port = (uint16_t)(1000 + n->index)};
    (void)snprintf(ret->addr, sizeof(ret->addr), "10.0.0.%u", n->index);
    return 0;
}

static void act_relay_close(void *arg)
{
    close_stores(arg);
}

static void act_relay_resend(void *arg)
{
    struct node *n = arg;

    for (uint32_t i = 0; i < n->cluster->config.nproc; i++) {
        struct relay_flow *flow = n->workers[i].flow;

        if (flow && relay_flow_resend(flow) < 0) {
            worker_store_close(&n->workers[i]);
        }
    }
}

/* What is the same on all nodes. */
static uint64_t hash_round(const struct agent_round *round)
{
    uint64_t h = 14695981039346656037U;

    h = (h ^ round->topology.group_world) * 1099511628211U;
    h = (h ^ round->topology.world_size) * 1099511628211U;
    h = (h ^ round->nodes[0].nproc) * 1099511628211U;
    return (h ^ round->nodes[0].port) * 1099511628211U;
}

static const char *cluster_role(const struct node *n)
{
    return n->index % 2 == 0 ? "even" : "odd";
}

/* Nor within its role, whose size all its nodes know. */
static void check_role(struct node *n, struct sealed *s,
                       const struct agent_round *round)
{
    unsigned role = n->index % 2;

    if (s->role_size[role] != 0 &&
        s->role_size[role] != round->topology.role_world_size) {
        cluster_violate(n->cluster, "two sizes of a role in generation %" PRIu64,
                        round->generation);
    }
    s->role_size[role] = round->topology.role_world_size;
    for (uint32_t i = 0; i < round->topology.nproc; i++) {
        uint32_t rank = round->topology.role_first_rank + i;

        if (rank >= s->role_size[role] || s->rank[rank].is_role_taken[role]) {
            cluster_violate(n->cluster, "role rank %u of generation %" PRIu64 " twice",
                            rank, round->generation);
            return;
        }
        s->rank[rank].is_role_taken[role] = true;
    }
}

/* Every member holds the same map, and nobody has another's rank. */
static void check_map(struct node *n, const struct agent_round *round)
{
    struct cluster *c = n->cluster;
    struct sealed *s = cluster_sealed(c, n->conn->job_life, round->generation);
    uint64_t hash = hash_round(round);

    if (round->generation <= n->last_generation) {
        cluster_violate(c, "node %u: generation %" PRIu64 " after %" PRIu64, n->index,
                        round->generation, n->last_generation);
    }
    n->last_generation = round->generation;
    if (s->table_hash != 0 && s->table_hash != hash) {
        cluster_violate(c, "two maps of generation %" PRIu64, round->generation);
    }
    s->table_hash = hash;
    for (uint32_t i = 0; i < round->topology.nproc; i++) {
        uint32_t rank = round->topology.first_rank + i;

        if (rank >= round->topology.world_size || s->rank[rank].is_taken) {
            cluster_violate(c, "rank %u of generation %" PRIu64 " twice", rank,
                            round->generation);
            return;
        }
        s->rank[rank].is_taken = true;
    }
    check_role(n, s, round);
}

static void act_spawn(void *arg, const struct agent_round *round)
{
    struct node *n = arg;

    sim_note(&n->cluster->sim, "node %u: runs generation %" PRIu64, n->index,
             round->generation);
    if (n->is_drained) {
        cluster_violate(n->cluster, "node %u begins anew, and was drained", n->index);
    }
    check_map(n, round);
    for (uint32_t i = 0; i < n->cluster->config.nproc; i++) {
        worker_spawn(&n->workers[i], round);
    }
}

static void act_control(void *arg, uint32_t slot, const struct control *c)
{
    struct node *n = arg;

    worker_control(&n->workers[slot], c);
}

static void act_engine(void *arg, uint32_t slot, const char *folder)
{
    (void)arg;
    (void)slot;
    (void)folder;
}

static void act_kill(void *arg, uint32_t slot, int signal)
{
    struct node *n = arg;

    worker_signal(&n->workers[slot], signal);
}

static void act_inspect(void *arg, uint32_t slot, const struct msg_inspect *m)
{
    struct node *n = arg;

    train_inspect(&n->workers[slot], m);
}

static void act_report(void *arg, const struct msg_report *report)
{
    struct node *n = arg;

    sim_note(&n->cluster->sim, "node %u: report: rank %d: %s", n->index, report->rank,
             report->text);
    watch_report(n, report);
}

static void act_say(void *arg, enum log_level level, const char *text)
{
    struct node *n = arg;

    (void)level;
    sim_note(&n->cluster->sim, "node %u: says: %s", n->index, text);
}

static void act_end(void *arg, int exit_code)
{
    struct node *n = arg;

    n->exit_code = exit_code;
    n->wants_end = true;
}

static void on_tick(void *arg, uint64_t tag)
{
    struct node *n = arg;
    struct cluster *c = n->cluster;

    if (!n->agent || tag != n->tick_ms) {
        return;
    }
    if (n->paused_until_ms > c->sim.now_ms) {
        n->tick_ms = n->paused_until_ms + 1;
        sim_at(&c->sim, n->tick_ms, on_tick, n, n->tick_ms);
        return;
    }
    n->tick_ms = 0;
    agent_tick(n->agent, c->sim.now_ms);
    node_after_call(n);
}

static void bury(struct node *n)
{
    net_hang_up(n);
    for (uint32_t i = 0; i < n->cluster->config.nproc; i++) {
        if (n->workers[i].is_alive) {
            worker_die(&n->workers[i], 9);
        }
    }
    close_stores(n);
    agent_free(n->agent);
    n->agent = NULL;
    n->tick_ms = 0;
}

/* Its user tries again when there is space. */
static void come_back_if_refused(struct node *n)
{
    const struct cluster *c = n->cluster;

    if (n->exit_code == EXIT_RENDEZVOUS && c->full_until_ms > 0 &&
        c->sim.now_ms < c->full_until_ms + SPACE_MS) {
        n->has_ended = false;
        faults_start_after(n, SPACE_MS);
    }
}

/* The agent has said so; by then its workers are gone. */
static void end(struct node *n)
{
    struct cluster *c = n->cluster;

    sim_note(&c->sim, "node %u: ends with %d", n->index, n->exit_code);
    n->was_closed = agent_was_closed(n->agent);
    n->wants_end = false;
    n->has_ended = true;
    come_back_if_refused(n);
    for (uint32_t i = 0; i < c->config.nproc; i++) {
        if (n->workers[i].is_alive) {
            cluster_violate(c, "node %u ends, its worker %u does not", n->index, i);
        }
    }
    bury(n);
}

void node_after_call(struct node *n)
{
    struct cluster *c = n->cluster;
    uint64_t next;

    if (n->wants_end) {
        end(n);
        return;
    }
    next = agent_deadline(n->agent);
    next = next == UINT64_MAX ? next : MAX(next, c->sim.now_ms);
    if (next != UINT64_MAX && (n->tick_ms == 0 || next < n->tick_ms)) {
        n->tick_ms = next;
        sim_at(&c->sim, next, on_tick, n, next);
    }
}

void node_start(struct node *n)
{
    const struct cluster_config *config = &n->cluster->config;
    struct agent_config agent = {
        .job = "job",
        .host = n->host,
        .role = cluster_role(n),
        .program = "ctrun-worker",
        .endpoint = "here",
        .agent_id = sim_between(&n->cluster->sim, 1, UINT32_MAX),
        .min_nodes = config->min_nodes,
        .max_nodes = config->max_nodes,
        .nproc = config->nproc,
        .max_restarts = MANY_RESTARTS,
        .node_rank = -1,
        .join_timeout_ms = JOIN_TIMEOUT_MS,
        .last_call_ms = 30000,
        .shutdown_ms = 30000,
        .on_hang = config->reports_hangs ? ON_HANG_REPORT : ON_HANG_RESTART,
        .maybe_engine = true,
        .actions = {.arg = n,
                    .connect = act_connect,
                    .disconnect = act_disconnect,
                    .look = act_look,
                    .send = act_send,
                    .relay_open = act_relay_open,
                    .relay_close = act_relay_close,
                    .relay_resend = act_relay_resend,
                    .spawn = act_spawn,
                    .control = act_control,
                    .engine = act_engine,
                    .kill = act_kill,
                    .inspect = act_inspect,
                    .report = act_report,
                    .say = act_say,
                    .end = act_end},
    };

    if (n->agent) {
        return;
    }
    sim_note(&n->cluster->sim, "node %u: starts", n->index);
    n->life++;
    n->has_ended = false;
    n->is_drained = false;
    n->was_closed = false;
    n->told_ms = 0;
    n->heard = 0;
    n->last_generation = 0;
    n->paused_until_ms = 0;
    n->agent = agent_new(&agent);
    agent_start(n->agent, n->cluster->sim.now_ms);
    node_after_call(n);
}

void node_kill(struct node *n)
{
    if (n->agent) {
        sim_note(&n->cluster->sim, "node %u: killed", n->index);
        bury(n);
    }
}
