#include "rendezvous/stream.h"

#include "rendezvous/connection_internal.h"

#include "common/err.h"
#include "common/mem.h"
#include "common/tls.h"

/* ---- tcp ---- */

static int tcp_received(struct connection *c, const uint8_t *data, size_t size)
{
    const struct pool_config *config = &c->pool->config;
    bool is_first = c->kind == CONN_NEW && buf_len(&c->in) == 0;

    if (is_first && data[0] == TLS_FIRST_BYTE) {
        config->on_tls(config->arg, c);
        return c->ops == &stream_tcp ? 0 : c->ops->received(c, data, size);
    }
    return connection_take(c, data, size);
}

static struct buf *tcp_ready(struct connection *c)
{
    return &c->out;
}

const struct conn_ops stream_tcp = {tcp_received, tcp_ready};

/* ---- TLS ---- */

/* Until the peer is let in, what goes wrong is its being refused: the owner writes that
 * down, and the peer reads why in an alert. */
static int tls_failed(struct connection *c, int error, bool was_open)
{
    const struct pool_config *config = &c->pool->config;

    if (error == ERR_CLOSED) {
        return UV_EOF;
    }
    if (was_open) {
        return ERR_PROTOCOL;
    }
    config->on_refused(config->arg, c, tls_pump_trouble(c->tls));
    connection_refuse(c);
    return 0;
}

static int tls_received(struct connection *c, const uint8_t *data, size_t size)
{
    struct connection_pool *p = c->pool;
    struct bytes from = {data, size};
    bool was_open = tls_pump_is_open(c->tls);
    int n = 1;

    if (!p->plain) {
        p->plain = mem_alloc(STREAM_SEAL_AT_ONCE);
    }
    while (n > 0 && c->why == 0 && c->state == CONN_OPEN) {
        int rv = 0;

        n = tls_pump_read(c->tls, &from, p->plain, STREAM_SEAL_AT_ONCE);
        rv = n > 0 ? connection_take(c, p->plain, (size_t)n) : 0;
        if (rv < 0) {
            return rv;
        }
    }
    return n < 0 ? tls_failed(c, n, was_open || tls_pump_is_open(c->tls)) : 0;
}

/* A piece at a time: what is in `out` may be overtaken, what is sealed may not. */
static struct buf *tls_ready(struct connection *c)
{
    size_t n = MIN(buf_len(&c->out), (size_t)STREAM_SEAL_AT_ONCE);

    if (n > 0 && buf_len(&c->wire) < STREAM_SEAL_AT_ONCE && tls_pump_is_open(c->tls)) {
        if (tls_pump_write(c->tls, buf_bytes(&c->out), n) < 0) {
            connection_fail(c, ERR_TOO_LARGE);
        }
        buf_consume(&c->out, n);
    }
    connection_shrink(&c->out);
    return &c->wire;
}

static const struct conn_ops stream_tls = {tls_received, tls_ready};

void stream_secure(struct connection *c, struct tls_context *tls)
{
    ASSERT(!c->tls && buf_len(&c->out) == 0);
    buf_init(&c->wire, STREAM_WIRE_MAX);
    c->tls = tls_pump_new(tls, &c->wire);
    c->ops = &stream_tls;
}

const struct identity *stream_peer(const struct connection *c)
{
    return c->tls && tls_pump_is_open(c->tls) ? tls_pump_peer(c->tls) : NULL;
}

void stream_release(struct connection *c)
{
    tls_pump_free(c->tls);
    c->tls = NULL;
    buf_release(&c->wire);
}
