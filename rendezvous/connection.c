/* Happy path: 1. the socket is readable: its bytes go into the pool's scratch buffer
 * and from there straight to on_input; 2. replies gather in `out` of whichever
 * connections they are for; 3. pool_flush writes them, mostly at once (uv_try_write),
 * else by a write request. Failures: peer's end, read or write error, broken rule,
 * deadline → connection_fail. */

#include "rendezvous/connection_internal.h"
#include "rendezvous/output.h"
#include "rendezvous/peer.h"
#include "rendezvous/store.h"
#include "rendezvous/stream.h"

#include "common/clock.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/tls.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    READ_SIZE = 256 * 1024,  /* of one connection and turn */
    KEEP_BUFFER = 64 * 1024, /* smaller ones are kept when they are empty */
    MAX_IN = 1 + TCPSTORE_MAX_REQUEST + READ_SIZE + TLS_RECORD_MAX,
    MAX_OUT = STORE_MAX_REPLY + 2 * CONNECTION_CHOKED_AT,
    SWEEP_MS = 500,
    PAUSE_MS = 2000, /* between two sweeps: we have been asleep, not they */
    DRAIN_MS = 5000,
};

/* ---- the pool ---- */

static void on_sweep(uv_timer_t *timer);
static void set_choked(struct connection *c, bool is_choked);

void pool_init(struct connection_pool *p, const struct pool_config *config)
{
    int rv;

    *p = (struct connection_pool){.config = *config};
    table_init(&p->connections);
    p->scratch = mem_alloc(READ_SIZE);
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

/* … by its socket: what has come before is heard first. */
static void fail_socket(struct connection *c, int why)
{
    if (c->has_held) {
        c->held_end = c->held_end != 0 ? c->held_end : why;
        connection_mark_dirty(c);
    } else {
        connection_fail(c, why);
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
        set_choked(c, false);
        c->state = CONN_DRAINING;
        set_deadline(c, clock_ms() + DRAIN_MS);
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

/* ---- writing ---- */

static void on_written(uv_write_t *write, int status);

static void shrink(struct buf *b)
{
    if (buf_len(b) == 0 && b->capacity > KEEP_BUFFER) {
        buf_release(b);
    }
}

static uv_buf_t unread(struct buf *b)
{
    return uv_buf_init((char *)b->data + b->start,
                       (unsigned)MIN(buf_len(b), (size_t)INT32_MAX));
}

/* By send and not by uv_try_write, whose write(2) takes the longer way through the
 * kernel's files. */
static void write_at_once(struct connection *c, struct buf *ready)
{
    ssize_t n;
    uv_os_fd_t fd;
    int rv = uv_fileno((uv_handle_t *)&c->tcp, &fd);

    if (rv < 0) {
        connection_fail(c, rv);
        return;
    }
    n = send(fd, buf_bytes(ready), buf_len(ready), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        fail_socket(c, -errno);
        return;
    }
    buf_consume(ready, (size_t)MAX(n, 0));
    shrink(ready);
}

static void write_later(struct connection *c, struct buf *ready)
{
    uv_buf_t bytes;
    int rv;

    c->sent = *ready;
    buf_init(ready, c->sent.max);
    bytes = unread(&c->sent);
    c->write.data = c;
    rv = uv_write(&c->write, (uv_stream_t *)&c->tcp, &bytes, 1, on_written);
    c->is_writing = rv == 0;
    if (rv < 0) {
        fail_socket(c, rv);
    }
}

/* `out` begins with a frame here, and bulk may follow: whatever the socket did not take
 * of it went to `sent` as a whole. */
static void add_bulk(struct connection *c)
{
    if (fairq_move(&c->bulk, &c->out, OUTPUT_BULK_AT_ONCE) < 0) {
        connection_fail(c, ERR_TOO_LARGE);
    }
}

/* Who is behind always goes on in a later turn, so that the others get theirs. */
void connection_write_out(struct connection *c)
{
    bool is_behind = connection_is_behind(c);
    struct buf *ready;

    add_bulk(c);
    ready = c->ops->ready(c);
    if (!is_behind && c->why == 0 && buf_len(ready) > 0) {
        write_at_once(c, ready);
    }
    if (c->why == 0 && c->held_end == 0 && buf_len(&c->out) == 0) {
        add_bulk(c);
    }
    ready = c->ops->ready(c);
    if (c->why == 0 && c->held_end == 0 && buf_len(ready) > 0) {
        write_later(c, ready);
    }
}

/* ---- reading ---- */

static void start_reading(struct connection *c);

static void set_choked(struct connection *c, bool is_choked)
{
    if (c->is_choked == is_choked || c->state != CONN_OPEN) {
        return;
    }
    c->is_choked = is_choked;
    if (is_choked) {
        (void)uv_read_stop((uv_stream_t *)&c->tcp); /* returns 0 always */
    } else {
        start_reading(c);
    }
}

static int take_input(struct connection *c, const uint8_t *data, size_t size)
{
    struct pool_config *config = &c->pool->config;

    return config->on_input(config->arg, c, data, size);
}

/* Until input may be handed over again. Of one connection not much: the rest waits in
 * its socket. */
static int hold_input(struct connection *c, const uint8_t *data, size_t size)
{
    int rv = buf_append(&c->in, data, size);

    c->has_held = true;
    if (rv == 0 && buf_len(&c->in) > READ_SIZE) {
        set_choked(c, true);
    }
    return rv;
}

/* New bytes: those that on_input does not take now are kept. */
int connection_take(struct connection *c, const uint8_t *data, size_t size)
{
    int n;

    if (c->pool->hold == HOLD_ALL) {
        return hold_input(c, data, size);
    }
    if (buf_len(&c->in) > 0) {
        n = buf_append(&c->in, data, size);
        if (n < 0) {
            return n;
        }
        n = take_input(c, buf_bytes(&c->in), buf_len(&c->in));
        if (n > 0) {
            buf_consume(&c->in, (size_t)n);
            shrink(&c->in);
        }
        return n;
    }
    n = take_input(c, data, size);
    return n < 0 ? n : buf_append(&c->in, data + n, size - (size_t)n);
}

/* What was left when the connection was choked, or put aside while it was behind. */
void connection_take_kept(struct connection *c)
{
    static const uint8_t nothing;
    size_t size = buf_len(&c->in);
    int n = 0;

    if (size > 0 || !fairq_is_empty(&c->later)) {
        n = take_input(c, size > 0 ? buf_bytes(&c->in) : &nothing, size);
    }
    c->has_held = false;
    n = n < 0 ? n : c->held_end < 0 ? c->held_end : n;
    if (n < 0) {
        connection_fail(c, n);
        return;
    }
    buf_consume(&c->in, (size_t)n);
    shrink(&c->in);
    set_choked(c, connection_is_choked(c));
}

static void on_alloc(uv_handle_t *handle, size_t wanted, uv_buf_t *ret)
{
    struct connection *c = handle->data;

    (void)wanted;
    *ret = uv_buf_init((char *)c->pool->scratch, READ_SIZE);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *bytes)
{
    struct connection *c = stream->data;
    struct connection_pool *p = c->pool;
    int rv = (int)n;

    if (n > 0 && c->state == CONN_OPEN) {
        rv = c->ops->received(c, (const uint8_t *)bytes->base, (size_t)n);
    }
    if (rv < 0) {
        fail_socket(c, rv);
    } else if (n > 0 && !c->has_held) {
        set_choked(c, connection_is_choked(c));
    }
    connection_mark_dirty(c);
    pool_flush(p);
}

static void start_reading(struct connection *c)
{
    int rv = uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);

    if (rv < 0) {
        connection_fail(c, rv);
    }
}

static void on_written(uv_write_t *write, int status)
{
    struct connection *c = write->data;
    struct connection_pool *p = c->pool;

    if (c->state == CONN_CLOSING) {
        return; /* cancelled by uv_close; on_handle_closed releases */
    }
    c->is_writing = false;
    if (!c->out.data && !fairq_is_empty(&c->bulk)) {
        buf_clear(&c->sent); /* more of its kind follow */
        c->sent.max = c->out.max;
        c->out = c->sent;
        buf_init(&c->sent, 0);
    }
    buf_release(&c->sent);
    if (status < 0) {
        connection_fail(c, status);
    }
    connection_mark_dirty(c);
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
        rv = uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
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
