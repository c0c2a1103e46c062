/* Happy path: 1. the socket is readable: its bytes go into the pool's scratch buffer
 * and from there straight to on_input; 2. replies gather in `out` of whichever
 * connections they are for; 3. pool_flush writes them, mostly at once (send), else by a
 * write request. Failures: peer's end, read or write error, broken rule, deadline
 * → connection_fail. */

#include "rendezvous/connection_internal.h"
#include "rendezvous/output.h"
#include "rendezvous/stream.h"

#include "common/err.h"

#include <errno.h>
#include <sys/socket.h>

enum { KEEP_BUFFER = 64 * 1024 }; /* smaller ones are kept when they are empty */

/* By its socket: what has come before is heard first. */
static void fail_socket(struct connection *c, int why)
{
    if (c->has_held) {
        c->held_end = c->held_end != 0 ? c->held_end : why;
        connection_mark_dirty(c);
    } else {
        connection_fail(c, why);
    }
}

/* ---- writing ---- */

static void on_written(uv_write_t *write, int status);

void connection_shrink(struct buf *b)
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
    connection_shrink(ready);
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

void connection_set_choked(struct connection *c, bool is_choked)
{
    int rv;

    if (c->is_choked == is_choked || c->state != CONN_OPEN) {
        return;
    }
    c->is_choked = is_choked;
    if (is_choked) {
        (void)uv_read_stop((uv_stream_t *)&c->tcp); /* returns 0 always */
        return;
    }
    rv = connection_start_reading(c);
    if (rv < 0) {
        connection_fail(c, rv);
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
    if (rv == 0 && buf_len(&c->in) > CONNECTION_READ_SIZE) {
        connection_set_choked(c, true);
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
            connection_shrink(&c->in);
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
    connection_shrink(&c->in);
    connection_set_choked(c, connection_is_choked(c));
}

static void on_alloc(uv_handle_t *handle, size_t wanted, uv_buf_t *ret)
{
    struct connection *c = handle->data;

    (void)wanted;
    *ret = uv_buf_init((char *)c->pool->scratch, CONNECTION_READ_SIZE);
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
        connection_set_choked(c, connection_is_choked(c));
    }
    connection_mark_dirty(c);
    pool_flush(p);
}

int connection_start_reading(struct connection *c)
{
    return uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
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
