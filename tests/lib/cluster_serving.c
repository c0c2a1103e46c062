/* The server around the service: what it says leaves, when it wants to be called, its
 * ends and starts; and whether what it says may be said. */

#include "rendezvous/service_core.h"
#include "tests/lib/cluster.h"

#include "common/err.h"
#include "common/mem.h"

#include <inttypes.h>
#include <string.h>

enum { BACK_MS = 2000 };

uint64_t serving_busy_until(const struct cluster *c)
{
    return MAX(c->server_paused_until_ms, c->commit_until_ms);
}

static struct conn *find_conn(struct cluster *c, uint64_t number)
{
    ASSERT(number >= 1 && number <= c->n_conns);
    return c->conns[number - 1];
}

/* Nobody who was in it begins a job again that was cancelled, and the operator told
 * so. */
static void check_cancel(struct cluster *c, const struct node *n, uint64_t generation)
{
    if (c->is_cancelled && n->agent && n->last_generation > 0 &&
        n->last_generation <= c->cancelled_at && c->cancelled_at < generation &&
        (c->config.is_durable || c->cancelled_by == c->server_life)) {
        cluster_violate(
            c, "node %u begins generation %" PRIu64 ", and the job is cancelled",
            n->index, generation);
    }
}

/* At most one generation after the other, and commits only into the current one. */
static void check_round(struct cluster *c, const struct msg_round *round)
{
    if (round->generation == c->generation) {
        return; /* to the next member */
    }
    if (round->generation < c->generation) {
        cluster_violate(c, "generation %" PRIu64 " after %" PRIu64, round->generation,
                        c->generation);
    }
    c->generation = round->generation;
    c->highest = MAX(c->highest, round->generation);
    c->resumed_step = 0;
    c->commit_generation = 0;
    c->result->n_rounds++;
    c->result->failures = round->failures;
}

void serving_check_decision(struct cluster *c, const struct msg_decision *decision)
{
    const struct msg *asked = c->at_hand;

    if (!decision->accepted || !asked) {
        return;
    }
    if (asked->type == MSG_RESUMED) {
        c->resumed_step = asked->u.resumed.step;
    } else if (asked->type == MSG_COMMIT) {
        const struct msg_commit *commit = &asked->u.commit;
        bool is_first = c->commit_generation != c->generation;
        bool is_repeat = !is_first && commit->step == c->commit_step &&
                         strcmp(commit->hash, c->commit_hash) == 0;

        if (commit->generation != c->generation) {
            cluster_violate(c, "commit of generation %" PRIu64 " accepted in %" PRIu64,
                            commit->generation, c->generation);
        }
        if (!is_repeat &&
            commit->step <= (is_first ? c->resumed_step : c->commit_step)) {
            cluster_violate(c, "step %" PRIu64 " committed again", commit->step);
        }
        c->commit_generation = c->generation;
        c->commit_step = commit->step;
        memcpy(c->commit_hash, commit->hash, sizeof(c->commit_hash));
        c->result->n_commits += !is_repeat;
        c->result->last_step = MAX(c->result->last_step, commit->step);
    }
}

void serving_sends(void *arg, uint64_t number, const struct msg *m)
{
    struct cluster *c = arg;
    struct conn *conn;

    if (number >= OPERATOR_CONN) {
        operator_hears(c, number, m);
        return;
    }
    conn = find_conn(c, number);
    if (m->type == MSG_DECISION) { /* it is made, whether it is heard or not */
        serving_check_decision(c, &m->u.decision);
    }
    if (!conn->server_open) {
        return;
    }
    if (m->type == MSG_ROUND) {
        conn->job_life = c->job_life;
        check_cancel(c, conn->node, m->u.round.generation);
        check_round(c, &m->u.round);
    }
    if (m->type == MSG_CLOSED) { /* who comes now begins another job of that name */
        c->job_life++;
        c->generation = 0;
        c->seen_generation = 0;
        c->seen_step = 0;
    }
    if (m->type == MSG_DRAIN) {
        watch_drain(conn->node);
    }
    conn->is_refused = conn->is_refused || m->type == MSG_REFUSED;
    net_deliver(conn, m);
}

/* A lease must not end while its node is heard in time. */
void serving_closes(void *arg, uint64_t number)
{
    struct cluster *c = arg;
    struct conn *conn;
    bool is_replaced;

    if (number >= OPERATOR_CONN) {
        operator_loses(c, number);
        return;
    }
    conn = find_conn(c, number);
    is_replaced = c->at_hand && c->at_hand->type == MSG_HELLO &&
                  c->at_hand_conn->node == conn->node;
    if (!conn->server_open) {
        return;
    }
    if (!conn->is_refused && !is_replaced &&
        conn->heard_ms + CLUSTER_LEASE_MS > c->sim.now_ms) {
        cluster_violate(c, "lease of node %u ended %" PRIu64 " ms after it was heard",
                        conn->node->index, c->sim.now_ms - conn->heard_ms);
    }
    net_end(conn);
}

static void on_server_tick(void *arg, uint64_t tag)
{
    struct cluster *c = arg;

    if (!c->service || tag != c->server_tick_ms) {
        return;
    }
    if (serving_busy_until(c) > c->sim.now_ms) {
        /* one later: what has come meanwhile is read first */
        c->server_tick_ms = serving_busy_until(c) + 1;
        sim_at(&c->sim, c->server_tick_ms, on_server_tick, c, c->server_tick_ms);
        return;
    }
    c->server_tick_ms = 0;
    service_tick(c->service, c->sim.now_ms);
    if (service_deadline(c->service) <= c->sim.now_ms) {
        cluster_violate(c, "the service wants to be called again at once");
    }
    serving_after_call(c);
}

/* After every call into the service: its next deadline. */
void serving_after_call(struct cluster *c)
{
    uint64_t next;

    operators_after_call(c);
    if (c->config.is_durable) {
        disk_take_turn(c);
    }
    if (!c->service) {
        return; /* it was killed */
    }
    next = service_deadline(c->service);
    next = next == UINT64_MAX ? next : MAX(next, c->sim.now_ms);
    if (next != UINT64_MAX && (c->server_tick_ms == 0 || next < c->server_tick_ms)) {
        c->server_tick_ms = next;
        sim_at(&c->sim, next, on_server_tick, c, next);
    }
}

/* A durable one is the same again, with another secret. */
static struct service_config make_config(struct cluster *c)
{
    struct service_config config = {
        .cluster = sim_between(&c->sim, 1, UINT32_MAX),
        .boot = 1,
        .ephemeral = true,
        .lease_ms = CLUSTER_LEASE_MS,
        .seed = sim_between(&c->sim, 1, UINT32_MAX),
        .sink = {.arg = c, .send = serving_sends, .close = serving_closes},
    };

    if (c->config.is_durable) {
        c->cluster_id = c->cluster_id ? c->cluster_id : config.cluster;
        config.cluster = c->cluster_id;
        config.boot = ++c->boot;
        config.ephemeral = false;
        config.sink.send = disk_send;
        config.sink.close = disk_close;
        config.sink.save = disk_save;
        config.sink.kept = disk_kept;
        config.start = c->server_life + 1; /* no other's */
        config.found = c->shelf.n_commits;
    }
    return config;
}

static bool are_all_alive(const struct cluster *c)
{
    for (uint32_t i = 0; i < c->config.n_nodes; i++) {
        if (!c->nodes[i].agent) {
            return false;
        }
    }
    return true;
}

/* Where nothing else goes wrong all agents are back in time. `tag`: the server's life. */
static void on_back_in_time(void *arg, uint64_t tag)
{
    struct cluster *c = arg;

    if (c->service && tag == c->server_life &&
        (c->config.faults & FAULT_BLIND) == FAULT_SERVER && are_all_alive(c) &&
        c->service->n_away > 0) {
        cluster_violate(c, "%zu agents are not back after %d ms", c->service->n_away,
                        BACK_MS);
    }
}

void serving_start(struct cluster *c)
{
    struct service_config config = make_config(c);
    struct errmsg msg = {""};

    ASSERT(!c->service);
    c->server_life++;
    c->server_since_ms = c->sim.now_ms;
    c->server_tick_ms = 0;
    c->server_paused_until_ms = 0;
    if (!c->config.is_durable) {
        c->job_life++;
        c->generation = 0;
    }
    c->result->n_boots++;
    operators_start(c, &config);
    c->service = service_new(&config);
    operators_open_to(c);
    sim_note(&c->sim, "server %" PRIu64 " starts", c->server_life);
    if (c->config.is_durable) {
        if (shelf_restore(&c->shelf, c->service, &c->history, c->sim.now_ms, &msg) <
            0) {
            cluster_violate(c, "%s", msg.text);
        }
        shelf_begin(&c->shelf,
                    &(struct start){config.boot, config.start, config.found});
    }
    sim_after(&c->sim, BACK_MS, on_back_in_time, c, c->server_life);
    serving_after_call(c);
}

static void on_server_back(void *arg, uint64_t tag)
{
    struct cluster *c = arg;

    (void)tag;
    if (!c->service && !c->is_ending) {
        serving_start(c);
    }
}

void serving_kill(struct cluster *c)
{
    serving_stop(c);
    sim_after(&c->sim, sim_between(&c->sim, 100, 3000), on_server_back, c, 0);
}

void serving_stop(struct cluster *c)
{
    for (size_t i = 0; i < c->n_conns; i++) {
        struct conn *conn = c->conns[i];

        if (conn->server_open && conn->server_life == c->server_life) {
            net_end(conn);
        }
    }
    operators_end(c);
    service_free(c->service);
    c->service = NULL;
    sim_note(&c->sim, "server %" PRIu64 " is gone", c->server_life);
    if (c->config.is_durable) {
        disk_kill(c);
    }
}
