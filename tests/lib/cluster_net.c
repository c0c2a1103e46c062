/* Connections: frames in order, late, held while a node is cut off or a process is
 * stopped; their ends. */

#include "tests/lib/cluster.h"

#include "common/err.h"
#include "common/mem.h"

#include <inttypes.h>
#include <string.h>

enum {
    SILENCE_MS = 15000, /* then the kernel gives a connection up */
    FRAME_MAX = 1024 * 1024,
};

struct frame {
    struct conn *conn;
    struct buf bytes;
};

uint64_t net_latency(struct cluster *c)
{
    uint64_t ms = sim_between(&c->sim, 1, 20);

    return c->is_slow && sim_chance(&c->sim, 20) ? ms + sim_between(&c->sim, 200, 2000)
                                                 : ms;
}

/* When something sent now arrives, behind what was sent before. */
static uint64_t arrival(struct conn *conn, uint64_t *last_ms)
{
    struct cluster *c = conn->cluster;
    uint64_t at = MAX(c->sim.now_ms, conn->node->cut_until_ms) + net_latency(c);

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

/* It goes, and is started again, after an hour of work on it, say. */
static void note_drain(struct node *n)
{
    if (!n->is_drained) {
        n->is_drained = true;
        n->cluster->result->n_drained++;
        watch_told(n);
        faults_start_after(n, CLUSTER_AWAY_MS);
    }
}

static void dispatch(const struct conn *conn, const struct msg *m)
{
    struct node *n = conn->node;

    copy_heard(conn, m);
    if (m->type == MSG_DRAIN) {
        note_drain(n);
    }
    if (m->type != MSG_STORE_REPLY) {
        if (agent_message(n->agent, m, n->cluster->sim.now_ms) < 0) {
            cluster_violate(n->cluster, "node %u does not accept %s", n->index,
                            msg_name(m->type));
        }
        return;
    }
    agent_keeps(n->agent, m->u.store_reply.kept);
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
        dispatch(conn, &m);
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
    if (!is_at_server(conn) || is_held(conn, serving_busy_until(conn->cluster))) {
        return;
    }
    conn->server_open = false;
    service_closed(conn->cluster->service, conn->number, conn->cluster->sim.now_ms);
    serving_after_call(conn->cluster);
}

static void on_frame_at_server(void *arg, uint64_t tag)
{
    struct frame *f = arg;
    struct conn *conn = f->conn;
    struct cluster *c = conn->cluster;
    struct msg m;

    (void)tag;
    if (is_at_server(conn) && is_held(conn, serving_busy_until(c))) {
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
        conn->heard_ms = conn->is_closing ? conn->heard_ms : c->sim.now_ms;
        c->at_hand = &m;
        c->at_hand_conn = conn;
        if (service_message(c->service, conn->number, &m, c->sim.now_ms) < 0) {
            cluster_violate(c, "the service does not accept %s of node %u",
                            msg_name(m.type), conn->node->index);
        }
        c->at_hand = NULL;
        serving_after_call(c);
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
                          .is_of_copy = c->is_copy,
                          .heard_ms = c->sim.now_ms};
    c->conns = mem_grow(c->conns, c->n_conns + 1, sizeof(struct conn *));
    c->conns[c->n_conns++] = conn;
    n->conn = conn;
    service_opened(c->service, conn->number, "10.0.0.1", c->sim.now_ms);
    serving_after_call(c);
    agent_connected(n->agent, "", c->sim.now_ms);
    node_after_call(n);
}

void net_dial(struct node *n)
{
    sim_after(&n->cluster->sim, net_latency(n->cluster), on_dialled, n, ++n->dials);
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

void net_deliver(struct conn *conn, const struct msg *m)
{
    sim_at(&conn->cluster->sim, arrival(conn, &conn->to_agent_ms), on_frame_at_agent,
           frame_new(conn, m), 0);
}

void net_end(struct conn *conn)
{
    conn->server_open = false;
    sim_at(&conn->cluster->sim, arrival(conn, &conn->to_agent_ms), on_end_at_agent,
           conn, 0);
}
