/* How connections come, are counted, bounded and closed; bytes move in connection_io.c.
 * Failures: whatever breaks a connection marks it (connection_fail), and pool_flush
 * closes it at the end of the turn. */

#include "rendezvous/connection_internal.h"
#include "rendezvous/peer.h"
#include "rendezvous/store.h"
#include "rendezvous/stream.h"

#include "common/clock.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/tls.h"

#include <sys/socket.h>
#include <unistd.h>

enum {
    MAX_IN = 1 + TCPSTORE_MAX_REQUEST + CONNECTION_READ_SIZE + TLS_RECORD_MAX,
    MAX_OUT = STORE_MAX_REPLY + 2 * CONNECTION_CHOKED_AT,
    SWEEP_MS = 500,
    PAUSE_MS = 2000, /* between two sweeps: we have been asleep, not they */
    DRAIN_MS = 5000,
};

/* ---- the pool ---- */

static void on_sweep(uv_timer_t *timer);

void pool_init(struct connection_pool *p, const struct pool_config *config)
{
    int rv;

    *p = (struct connection_pool){.config = *config};
    table_init(&p->connections);
    p->scratch = mem_alloc(CONNECTION_READ_SIZE);
    rv = uv_timer_init(config->loop, &p->sweep);
    ASSERT(rv == 0); /* documented never to fail */
    p->sweep.data = p;
    closer_opened(config->closer);
}

void pool_release(struct connection_pool *p)
{
    ASSERT(p->connections.count == 0 && p->buffered == 0);
    table_release(&p->connections);
    mem_free(p->scratch);
    mem_free(p->plain);
}

static uint64_t id_hash(uint64_t id)
{
    return id; /* counted by us: spread well enough */
}

struct connection *pool_find(const struct connection_pool *p, uint64_t id)
{
    struct table_node *n;

    for (n = table_bucket(&p->connections, id_hash(id)); n; n = n->next) {
        struct connection *c = CONTAINER_OF(n, struct connection, node);

        if (c->id == id) {
            return c;
        }
    }
    return NULL;
}

struct connection *pool_next(const struct connection_pool *p,
                             const struct connection *c)
{
    struct table_node *n = table_next(&p->connections, c ? &c->node : NULL);

    return n ? CONTAINER_OF(n, struct connection, node) : NULL;
}

void connection_mark_dirty(struct connection *c)
{
    if (!c->is_dirty) {
        c->is_dirty = true;
        c->next_dirty = c->pool->dirty;
        c->pool->dirty = c;
    }
}

/* ---- closing ---- */

void connection_fail(struct connection *c, int why)
{
    if (c->why == 0) {
        c->why = why;
        connection_mark_dirty(c);
    }
}

void connection_charge(struct connection *c)
{
    size_t holds = c->in.capacity + c->later.memory + c->out.capacity + c->bulk.memory +
                   c->sent.capacity + c->wire.capacity +
                   (c->tls ? STREAM_TLS_MEMORY : 0);

    c->pool->buffered += holds - c->charged;
    c->charged = holds;
}

void connection_free(struct connection *c)
{
    struct connection_pool *p = c->pool;

    buf_release(&c->sent);
    mem_free(c);
    pool_settle(p);
    closer_closed(p->config.closer);
}

/* One that is still listed is freed when its turn comes. */
static void on_handle_closed(uv_handle_t *handle)
{
    struct connection *c = handle->data;

    c->is_closed = true;
    if (!c->is_dirty) {
        connection_free(c);
    }
}

static void on_sweep_closed(uv_handle_t *handle)
{
    struct connection_pool *p = handle->data;

    closer_closed(p->config.closer);
}

static void stop_if_empty(struct connection_pool *p)
{
    uv_handle_t *sweep = (uv_handle_t *)&p->sweep;

    if (p->is_stopping && p->connections.count == 0 && !uv_is_closing(sweep)) {
        uv_close(sweep, on_sweep_closed);
    }
}

/* The end of a connection. `sent` stays until libuv lets go of it, in this turn; it
 * counts no more, or others would be closed in its stead. */
void connection_close_now(struct connection *c)
{
    struct connection_pool *p = c->pool;

    ASSERT(c->state != CONN_CLOSING);
    c->state = CONN_CLOSING;
    table_remove(&p->connections, &c->node);
    p->n_unknown -= !c->is_known;
    if (!c->is_dismissed) {
        p->config.on_gone(p->config.arg, c, c->why);
    }
    buf_release(&c->in);
    fairq_release(&c->later);
    buf_release(&c->out);
    fairq_release(&c->bulk);
    stream_release(c);
    p->buffered -= c->charged;
    c->charged = 0;
    uv_close((uv_handle_t *)&c->tcp, on_handle_closed);
    stop_if_empty(p);
}

static void start_sweep(struct connection_pool *p)
{
    if (!uv_is_active((uv_handle_t *)&p->sweep)) {
        int rv = uv_timer_start(&p->sweep, on_sweep, SWEEP_MS, SWEEP_MS);

        ASSERT(rv == 0);
        p->swept_ms = clock_ms();
    }
}

static void set_deadline(struct connection *c, uint64_t deadline_ms)
{
    c->deadline_ms = deadline_ms;
    if (deadline_ms != 0) {
        start_sweep(c->pool);
    }
}

void connection_set_deadline(struct connection *c, uint64_t deadline_ms)
{
    if (c->state == CONN_OPEN) {
        set_deadline(c, deadline_ms);
    }
}

void connection_drain(struct connection *c)
{
    if (c->state == CONN_OPEN) {
        connection_set_choked(c, false);
        c->state = CONN_DRAINING;
        set_deadline(c, clock_ms() + (c->lingers ? CONNECTION_LINGER_MS : DRAIN_MS));
        connection_mark_dirty(c);
    }
}

void connection_refuse(struct connection *c)
{
    c->is_refused = true;
    c->is_dismissed = true;
    connection_drain(c);
}

/* Where we could not read for a while (SIGSTOP, a machine that was frozen), what came
 * meanwhile is heard first: everybody has that much longer. */
static uint64_t pause_of(struct connection_pool *p, uint64_t now_ms)
{
    uint64_t passed_ms = now_ms - p->swept_ms;

    p->swept_ms = now_ms;
    return passed_ms > PAUSE_MS ? passed_ms : 0;
}

static void on_sweep(uv_timer_t *timer)
{
    struct connection_pool *p = timer->data;
    uint64_t now_ms = clock_ms();
    uint64_t pause_ms = pause_of(p, now_ms);
    struct table_node *n;
    bool any = false;

    for (n = table_next(&p->connections, NULL); n; n = table_next(&p->connections, n)) {
        struct connection *c = CONTAINER_OF(n, struct connection, node);

        any = any || c->deadline_ms != 0;
        c->deadline_ms += c->deadline_ms != 0 ? pause_ms : 0;
        if (c->deadline_ms != 0 && now_ms >= c->deadline_ms) {
            connection_fail(c, ERR_TIMEOUT);
        }
    }
    if (!any) {
        (void)uv_timer_stop(timer); /* returns 0 always */
    }
    pool_flush(p);
}

void pool_stop(struct connection_pool *p, uint64_t ms)
{
    struct table_node *n;

    p->is_stopping = true;
    for (n = table_next(&p->connections, NULL); n; n = table_next(&p->connections, n)) {
        struct connection *c = CONTAINER_OF(n, struct connection, node);

        c->is_dismissed = true;
        connection_drain(c);
        set_deadline(c, clock_ms() + ms);
    }
    stop_if_empty(p);
    pool_flush(p);
}

/* ---- opening ---- */

static int open_tcp(struct connection *c, int fd)
{
    int rv = uv_tcp_open(&c->tcp, fd);

    if (rv < 0) {
        (void)close(fd); /* libuv did not take it */
        return rv;
    }
    rv = c->is_local ? 0 : uv_tcp_nodelay(&c->tcp, 1);
    if (rv == 0 && !c->is_local) {
        rv = connection_watch(c);
    }
    if (rv == 0) {
        rv = connection_start_reading(c);
    }
    return rv;
}

void connection_know(struct connection *c)
{
    if (!c->is_known) {
        c->is_known = true;
        c->pool->n_unknown--;
        connection_set_deadline(c, 0);
    }
}

/* Flushing may wait (pool_set_hold), this may not. */
static void close_at_once(struct connection *c, int why)
{
    connection_fail(c, why);
    pool_flush(c->pool);
    if (c->state != CONN_CLOSING) {
        connection_close_now(c);
    }
}

/* A connection that says nothing may be the second one of a store client (PyTorch 1.13
 * opens such), which must live: it is not closed for its silence alone, only to make
 * room. Ids are given in order, so that each is passed over once. */
static bool make_room(struct connection_pool *p)
{
    while (p->connections.count >= p->config.max_connections && p->n_unknown > 0) {
        struct connection *c = pool_find(p, ++p->heard_id);

        ASSERT(p->heard_id <= p->last_id);
        if (c && !c->is_known) {
            close_at_once(c, ERR_BUSY);
        }
    }
    return p->connections.count < p->config.max_connections;
}

int connection_accept(struct connection_pool *p, int fd, const struct sockaddr *peer)
{
    struct connection *c;
    int rv;

    if (!make_room(p)) {
        (void)close(fd); /* nothing was said on it */
        return ERR_BUSY;
    }
    c = mem_zalloc(sizeof(*c));
    c->pool = p;
    c->id = ++p->last_id;
    c->is_loopback = peer_is_loopback(peer);
    c->is_local = peer->sa_family == AF_UNIX;
    peer_name(peer, c->peer, sizeof(c->peer));
    buf_init(&c->in, MAX_IN);
    fairq_init(&c->later, SIZE_MAX, p->config.seed);
    buf_init(&c->out, MAX_OUT);
    fairq_init(&c->bulk, MAX_OUT, p->config.seed);
    c->ops = &stream_tcp;
    c->choke_at = CONNECTION_CHOKED_AT;
    rv = uv_tcp_init(p->config.loop, &c->tcp);
    ASSERT(rv == 0); /* without a socket there is nothing to fail */
    c->tcp.data = c;
    closer_opened(p->config.closer);
    table_insert(&p->connections, &c->node, id_hash(c->id));
    p->n_unknown++;
    rv = open_tcp(c, fd);
    if (rv < 0) { /* e.g. the peer is gone already */
        connection_fail(c, rv);
        pool_flush(p);
        return 0;
    }
    p->config.on_opened(p->config.arg, c);
    return 0;
}
