/* Connections: frames in order, late, held while a node is cut off or a process is
 * stopped; their ends; the server behind them. */

#include "tests/lib/cluster.h"

#include "common/err.h"
#include "common/mem.h"

#include <inttypes.h>
#include <string.h>

enum {
    LEASE_MS = 3000,
    SILENCE_MS = 15000, /* then the kernel gives a connection up */
    FRAME_MAX = 1024 * 1024,
    BACK_MS = 2000,
};

struct frame {
    struct conn *conn;
    struct buf bytes;
};

static void server_call(struct cluster *c);

/* It is stopped, or waits for its disk, until then. */
static uint64_t server_busy_until(const struct cluster *c)
{
    return MAX(c->server_paused_until_ms, c->commit_until_ms);
}

static uint64_t latency(struct cluster *c)
{
    uint64_t ms = sim_between(&c->sim, 1, 20);

    return c->is_slow && sim_chance(&c->sim, 20) ? ms + sim_between(&c->sim, 200, 2000)
                                                 : ms;
}

/* When something sent now arrives, behind what was sent before. */
static uint64_t arrival(struct conn *conn, uint64_t *last_ms)
{
    struct cluster *c = conn->cluster;
    uint64_t at = MAX(c->sim.now_ms, conn->node->cut_until_ms) + latency(c);

    *last_ms = MAX(*last_ms, at);
    return *last_ms;
}

static struct frame *frame_new(struct conn *conn, const struct msg *m)
{
    struct frame *f = mem_zalloc(sizeof(*f));

    f->conn = conn;
    buf_init(&f->bytes, FRAME_MAX);
    if (msg_encode(m, &f->bytes) < 0) {
        UNREACHABLE();
    }
    return f;
}

static void frame_free(struct frame *f)
{
    buf_release(&f->bytes);
    mem_free(f);
}

/* True when the event has to wait for its process to run, or the line to be whole. */
static bool is_held(struct conn *conn, uint64_t process_until_ms)
{
    struct cluster *c = conn->cluster;
    uint64_t until = MAX(process_until_ms, conn->node->cut_until_ms);

    if (until <= c->sim.now_ms) {
        return false;
    }
    sim_put_off(&c->sim, &c->event, until);
    return true;
}

/* --- at the agent --- */

static void close_agent_end(struct conn *conn)
{
    conn->agent_open = false;
    if (conn->node->conn == conn) {
        conn->node->conn = NULL;
    }
}

/* `tag`: silent. */
static void on_end_at_agent(void *arg, uint64_t tag)
{
    struct conn *conn = arg;
    struct node *n = conn->node;

    if (!conn->agent_open || is_held(conn, n->paused_until_ms)) {
        return;
    }
    close_agent_end(conn);
    sim_note(&conn->cluster->sim, "node %u: connection %" PRIu64 " ended%s", n->index,
             conn->number, tag ? " in silence" : "");
    agent_disconnected(n->agent, tag != 0 ? LOSS_SILENT : LOSS_CLOSED,
                       conn->cluster->sim.now_ms);
    node_after_call(n);
}

static void dispatch(struct node *n, const struct msg *m)
{
    if (m->type != MSG_STORE_REPLY) {
        if (agent_message(n->agent, m, n->cluster->sim.now_ms) < 0) {
            cluster_violate(n->cluster, "node %u does not accept %s", n->index,
                            msg_name(m->type));
        }
        return;
    }
    for (uint32_t i = 0; i < n->cluster->config.nproc; i++) {
        worker_store_reply(&n->workers[i], &m->u.store_reply);
    }
}

static void on_frame_at_agent(void *arg, uint64_t tag)
{
    struct frame *f = arg;
    struct conn *conn = f->conn;
    struct msg m;

    (void)tag;
    if (conn->agent_open && is_held(conn, conn->node->paused_until_ms)) {
        return;
    }
    if (conn->agent_open) {
        if (msg_decode(buf_bytes(&f->bytes), buf_len(&f->bytes), &m) <= 0) {
            UNREACHABLE();
        }
        sim_note(&conn->cluster->sim, "node %u: %s", conn->node->index,
                 msg_name(m.type));
        dispatch(conn->node, &m);
        node_after_call(conn->node);
    }
    frame_free(f);
}

/* --- at the server --- */

static bool is_at_server(const struct conn *conn)
{
    return conn->server_open && conn->server_life == conn->cluster->server_life &&
           conn->cluster->service;
}

static void on_end_at_server(void *arg, uint64_t tag)
{
    struct conn *conn = arg;

    (void)tag;
    if (!is_at_server(conn) || is_held(conn, server_busy_until(conn->cluster))) {
        return;
    }
    conn->server_open = false;
    service_closed(conn->cluster->service, conn->number, conn->cluster->sim.now_ms);
    server_call(conn->cluster);
}

static void on_frame_at_server(void *arg, uint64_t tag)
{
    struct frame *f = arg;
    struct conn *conn = f->conn;
    struct cluster *c = conn->cluster;
    struct msg m;

    (void)tag;
    if (is_at_server(conn) && is_held(conn, server_busy_until(c))) {
        return;
    }
    if (is_at_server(conn)) {
        if (msg_decode(buf_bytes(&f->bytes), buf_len(&f->bytes), &m) <= 0) {
            UNREACHABLE();
        }
        sim_note(&c->sim, "server: %s of node %u", msg_name(m.type), conn->node->index);
        if (m.type == MSG_STORE) {
            sim_note(&c->sim, "  client %x request %" PRIu64, m.u.store.client,
                     m.u.store.seq);
        }
        conn->heard_ms = c->sim.now_ms;
        c->at_hand = &m;
        c->at_hand_conn = conn;
        if (service_message(c->service, conn->number, &m, c->sim.now_ms) < 0) {
            cluster_violate(c, "the service does not accept %s of node %u",
                            msg_name(m.type), conn->node->index);
        }
        c->at_hand = NULL;
        server_call(c);
    }
    frame_free(f);
}

/* --- dialling --- */

static void on_dialled(void *arg, uint64_t tag)
{
    struct node *n = arg;
    struct cluster *c = n->cluster;
    struct conn *conn;

    if (!n->agent || n->dials != tag) {
        return;
    }
    if (n->cut_until_ms > c->sim.now_ms || n->paused_until_ms > c->sim.now_ms) {
        sim_put_off(&c->sim, &c->event, MAX(n->cut_until_ms, n->paused_until_ms));
        return;
    }
    if (!c->service) {
        agent_connect_failed(n->agent, "connection refused", c->sim.now_ms);
        node_after_call(n);
        return;
    }
    conn = mem_zalloc(sizeof(*conn));
    *conn = (struct conn){.cluster = c,
                          .number = c->n_conns + 1,
                          .server_life = c->server_life,
                          .node = n,
                          .agent_open = true,
                          .server_open = true,
                          .heard_ms = c->sim.now_ms};
    c->conns = mem_grow(c->conns, c->n_conns + 1, sizeof(struct conn *));
    c->conns[c->n_conns++] = conn;
    n->conn = conn;
    service_opened(c->service, conn->number, "10.0.0.1", c->sim.now_ms);
    server_call(c);
    agent_connected(n->agent, "", c->sim.now_ms);
    node_after_call(n);
}

void net_dial(struct node *n)
{
    sim_after(&n->cluster->sim, latency(n->cluster), on_dialled, n, ++n->dials);
}

void net_hang_up(struct node *n)
{
    struct conn *conn = n->conn;

    n->dials++; /* an attempt under way is void */
    if (!conn) {
        return;
    }
    close_agent_end(conn);
    sim_at(&n->cluster->sim, arrival(conn, &conn->to_server_ms), on_end_at_server, conn,
           0);
}

void net_break(struct conn *conn)
{
    struct cluster *c = conn->cluster;

    sim_at(&c->sim, arrival(conn, &conn->to_agent_ms), on_end_at_agent, conn, 0);
    sim_at(&c->sim, arrival(conn, &conn->to_server_ms), on_end_at_server, conn, 0);
}

void net_send(struct node *n, const struct msg *m)
{
    struct conn *conn = n->conn;

    if (conn) {
        sim_at(&n->cluster->sim, arrival(conn, &conn->to_server_ms), on_frame_at_server,
               frame_new(conn, m), 0);
    }
}

/* `tag`: the connection's number; the line is still cut. */
static void on_silence(void *arg, uint64_t tag)
{
    struct node *n = arg;
    struct conn *conn = n->conn;

    if (!n->agent || !conn || conn->number != tag ||
        n->cut_until_ms <= n->cluster->sim.now_ms) {
        return;
    }
    close_agent_end(conn);
    sim_at(&n->cluster->sim, arrival(conn, &conn->to_server_ms), on_end_at_server, conn,
           0);
    agent_disconnected(n->agent, LOSS_SILENT, n->cluster->sim.now_ms);
    node_after_call(n);
}

void net_cut(struct node *n, uint64_t until_ms)
{
    n->cut_until_ms = MAX(n->cut_until_ms, until_ms);
    if (n->conn) {
        sim_after(&n->cluster->sim, SILENCE_MS, on_silence, n, n->conn->number);
    }
}

/* --- the server --- */

static struct conn *find_conn(struct cluster *c, uint64_t number)
{
    ASSERT(number >= 1 && number <= c->n_conns);
    return c->conns[number - 1];
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
    c->resumed_step = 0;
    c->commit_generation = 0;
    c->result->n_rounds++;
}

void net_check_decision(struct cluster *c, const struct msg_decision *decision)
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

void net_service_send(void *arg, uint64_t number, const struct msg *m)
{
    struct cluster *c = arg;
    struct conn *conn = find_conn(c, number);

    if (m->type == MSG_DECISION) { /* it is made, whether it is heard or not */
        net_check_decision(c, &m->u.decision);
    }
    if (!conn->server_open) {
        return;
    }
    if (m->type == MSG_ROUND) {
        conn->job_life = c->job_life;
        check_round(c, &m->u.round);
    }
    if (m->type == MSG_CLOSED) { /* who comes now begins another job of that name */
        c->job_life++;
        c->generation = 0;
    }
    conn->is_refused = conn->is_refused || m->type == MSG_REFUSED;
    sim_at(&c->sim, arrival(conn, &conn->to_agent_ms), on_frame_at_agent,
           frame_new(conn, m), 0);
}

/* A lease must not end while its node is heard in time. */
void net_service_close(void *arg, uint64_t number)
{
    struct cluster *c = arg;
    struct conn *conn = find_conn(c, number);
    bool is_replaced = c->at_hand && c->at_hand->type == MSG_HELLO &&
                       c->at_hand_conn->node == conn->node;

    if (!conn->server_open) {
        return;
    }
    if (!conn->is_refused && !is_replaced &&
        conn->heard_ms + LEASE_MS > c->sim.now_ms) {
        cluster_violate(c, "lease of node %u ended %" PRIu64 " ms after it was heard",
                        conn->node->index, c->sim.now_ms - conn->heard_ms);
    }
    conn->server_open = false;
    sim_at(&c->sim, arrival(conn, &conn->to_agent_ms), on_end_at_agent, conn, 0);
}

static void on_server_tick(void *arg, uint64_t tag)
{
    struct cluster *c = arg;

    if (!c->service || tag != c->server_tick_ms) {
        return;
    }
    if (server_busy_until(c) > c->sim.now_ms) {
        /* one later: what has come meanwhile is read first */
        c->server_tick_ms = server_busy_until(c) + 1;
        sim_at(&c->sim, c->server_tick_ms, on_server_tick, c, c->server_tick_ms);
        return;
    }
    c->server_tick_ms = 0;
    service_tick(c->service, c->sim.now_ms);
    if (service_deadline(c->service) <= c->sim.now_ms) {
        cluster_violate(c, "the service wants to be called again at once");
    }
    server_call(c);
}

/* After every call into the service: its next deadline. */
static void server_call(struct cluster *c)
{
    uint64_t next;

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
        .lease_ms = LEASE_MS,
        .seed = sim_between(&c->sim, 1, UINT32_MAX),
        .sink = {.arg = c, .send = net_service_send, .close = net_service_close},
    };

    if (c->config.is_durable) {
        c->cluster_id = c->cluster_id ? c->cluster_id : config.cluster;
        config.cluster = c->cluster_id;
        config.boot = ++c->boot;
        config.ephemeral = false;
        config.sink.send = disk_send;
        config.sink.close = disk_close;
        config.sink.save = disk_save;
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

    if (c->service && tag == c->server_life && c->config.faults == FAULT_SERVER &&
        are_all_alive(c) && service_away(c->service) > 0) {
        cluster_violate(c, "%zu agents are not back after %d ms",
                        service_away(c->service), BACK_MS);
    }
}

void net_start_server(struct cluster *c)
{
    struct service_config config = make_config(c);
    struct errmsg msg = {""};

    ASSERT(!c->service);
    c->server_life++;
    c->server_tick_ms = 0;
    c->server_paused_until_ms = 0;
    if (!c->config.is_durable) {
        c->job_life++;
        c->generation = 0;
    }
    c->result->n_boots++;
    c->service = service_new(&config);
    sim_note(&c->sim, "server %" PRIu64 " starts", c->server_life);
    if (c->config.is_durable &&
        shelf_restore(&c->shelf, c->service, NULL, c->sim.now_ms, &msg) < 0) {
        cluster_violate(c, "%s", msg.text);
    }
    sim_after(&c->sim, BACK_MS, on_back_in_time, c, c->server_life);
    server_call(c);
}

static void on_server_back(void *arg, uint64_t tag)
{
    struct cluster *c = arg;

    (void)tag;
    if (!c->service && !c->is_ending) {
        net_start_server(c);
    }
}

void net_kill_server(struct cluster *c)
{
    net_stop_server(c);
    sim_after(&c->sim, sim_between(&c->sim, 100, 3000), on_server_back, c, 0);
}

void net_stop_server(struct cluster *c)
{
    for (size_t i = 0; i < c->n_conns; i++) {
        struct conn *conn = c->conns[i];

        if (conn->server_open && conn->server_life == c->server_life) {
            conn->server_open = false;
            sim_at(&c->sim, arrival(conn, &conn->to_agent_ms), on_end_at_agent, conn,
                   0);
        }
    }
    service_free(c->service);
    c->service = NULL;
    sim_note(&c->sim, "server %" PRIu64 " is gone", c->server_life);
    if (c->config.is_durable) {
        disk_kill(c);
    }
}
