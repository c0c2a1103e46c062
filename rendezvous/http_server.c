/* Happy path: 1. a listener hands over a descriptor: a client, that is read; 2. its
 * request is whole: the answer is written, nothing is read meanwhile; 3. it is written:
 * the next request, or our end of the connection and, within a second, the client's.
 * Failures and deadlines close the one connection. */

#include "rendezvous/http_server.h"

#include "common/clock.h"
#include "common/closer.h"
#include "common/listener.h"
#include "common/mem.h"

#include <string.h>
#include <unistd.h>
#include <uv.h>

enum {
    READ_SIZE = 4096,
    SWEEP_MS = 250,
    LINGER_MS = 1000, /* for the client's end, once ours is said */
    MIN_REST_US = 1000,
};

enum client_state { CLIENT_ASKS, CLIENT_IS_ANSWERED, CLIENT_ENDS, CLIENT_CLOSING };

struct http_client {
    struct http_server *server; /* borrowed: outlives it */
    struct http_client *prev, *next;
    enum client_state state;
    bool keeps_alive;
    uint64_t deadline_ms;
    struct buf in;  /* of the request that is not whole yet, and what came behind it */
    struct buf out; /* being written */
    uint8_t scratch[READ_SIZE];
    uv_tcp_t tcp;
    uv_write_t write;
    uv_shutdown_t shutdown;
};

struct http_server {
    struct http_server_config config;
    struct listener *listener; /* owned */
    int port;
    struct http_client *first, *last; /* owned; who was answered last comes last */
    size_t n_clients;
    size_t pending; /* bytes of answers that are being written */
    uint64_t n_requests;
    bool has_waiting; /* for http_server_go_on */
    uint64_t rests_until_us;
    uv_timer_t
        timer; /* deadlines, and the end of a rest; runs while there are clients */
    struct closer closer;
    bool is_closing;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* ---- the list ---- */

static void link_client(struct http_server *s, struct http_client *c)
{
    c->prev = s->last;
    c->next = NULL;
    *(s->last ? &s->last->next : &s->first) = c;
    s->last = c;
}

static void unlink_client(struct http_server *s, struct http_client *c)
{
    *(c->prev ? &c->prev->next : &s->first) = c->next;
    *(c->next ? &c->next->prev : &s->last) = c->prev;
}

/* ---- closing ---- */

static void on_tcp_closed(uv_handle_t *handle)
{
    struct http_client *c = handle->data;
    struct closer *closer = &c->server->closer;

    buf_release(&c->in);
    buf_release(&c->out);
    mem_free(c);
    closer_closed(closer);
}

static void close_client(struct http_client *c)
{
    struct http_server *s = c->server;

    if (c->state == CLIENT_CLOSING) {
        return;
    }
    if (c->state == CLIENT_IS_ANSWERED) {
        s->pending -= buf_len(&c->out);
    }
    c->state = CLIENT_CLOSING;
    unlink_client(s, c);
    s->n_clients--;
    uv_close((uv_handle_t *)&c->tcp, on_tcp_closed);
}

/* ---- time ---- */

static void take_request(struct http_client *c);

static void set_timer(struct http_server *s);

static bool is_resting(const struct http_server *s)
{
    return clock_us() < s->rests_until_us;
}

/* One after the other: each may be the reason for the next rest. */
static void take_requests(struct http_server *s)
{
    struct http_client *next;
    size_t left = s->n_clients;

    for (struct http_client *c = s->first; c && left > 0; c = next, left--) {
        next = c->next;
        if (c->state == CLIENT_ASKS && !is_resting(s)) {
            take_request(c);
        }
    }
}

/* Goes on with who had to wait; closes who is late. */
static void on_timer(uv_timer_t *timer)
{
    struct http_server *s = timer->data;
    uint64_t now_ms = clock_ms();
    struct http_client *next;

    take_requests(s);
    for (struct http_client *c = s->first; c; c = next) {
        next = c->next;
        if (now_ms >= c->deadline_ms) {
            close_client(c);
        }
    }
    set_timer(s);
}

void http_server_go_on(struct http_server *s)
{
    if (s->has_waiting) {
        s->has_waiting = false;
        take_requests(s);
        set_timer(s);
    }
}

static void set_timer(struct http_server *s)
{
    uint64_t now_us = clock_us();
    uint64_t wait_ms = SWEEP_MS;
    int rv;

    if (s->is_closing || s->n_clients == 0) {
        (void)uv_timer_stop(&s->timer); /* returns 0 always */
        return;
    }
    if (s->rests_until_us > now_us) {
        wait_ms = MIN(wait_ms, (s->rests_until_us - now_us) / 1000 + 1);
    }
    rv = uv_timer_start(&s->timer, on_timer, wait_ms, 0);
    ASSERT(rv == 0);
}

/* ---- answering ---- */

static void on_shutdown(uv_shutdown_t *req, int status)
{
    (void)req;
    (void)status; /* the client's end, or the deadline, comes next */
}

/* Says our end, and waits for the client's: closed at once, with input unread, the
 * kernel would take back what the client has not read yet. */
static void end_client(struct http_client *c)
{
    c->state = CLIENT_ENDS;
    c->deadline_ms = clock_ms() + LINGER_MS;
    if (uv_shutdown(&c->shutdown, (uv_stream_t *)&c->tcp, on_shutdown) < 0) {
        close_client(c);
    }
}

static int start_reading(struct http_client *c);

static void on_written(uv_write_t *req, int status)
{
    struct http_client *c = req->data;
    struct http_server *s = c->server;

    if (c->state == CLIENT_CLOSING) {
        return;
    }
    s->pending -= buf_len(&c->out);
    buf_release(&c->out);
    buf_init(&c->out, HTTP_MAX_ANSWER);
    if (status < 0) {
        c->state = CLIENT_ENDS;
        close_client(c);
        return;
    }
    if (!c->keeps_alive) {
        end_client(c);
    } else {
        c->state = CLIENT_ASKS;
        c->deadline_ms = clock_ms() + HTTP_PATIENCE_MS;
        take_request(c);
    }
    if ((c->state == CLIENT_ASKS || c->state == CLIENT_ENDS) && start_reading(c) < 0) {
        close_client(c);
    }
    set_timer(s);
}

static void write_answer(struct http_client *c)
{
    uv_buf_t bytes =
        uv_buf_init((char *)(uintptr_t)buf_bytes(&c->out), (unsigned)buf_len(&c->out));

    c->server->pending += buf_len(&c->out);
    c->state = CLIENT_IS_ANSWERED;
    c->deadline_ms = clock_ms() + HTTP_PATIENCE_MS;
    (void)uv_read_stop((uv_stream_t *)&c->tcp); /* returns 0 always */
    c->write.data = c;
    if (uv_write(&c->write, (uv_stream_t *)&c->tcp, &bytes, 1, on_written) < 0) {
        close_client(c);
    }
}

static void answer(struct http_client *c, const struct http_request *q, int status)
{
    struct http_server *s = c->server;
    uint64_t begun_us = clock_us();
    uint64_t took_us;

    s->n_requests++;
    s->config.answer(s->config.arg, q, status, &c->out);
    took_us = clock_us() - begun_us;
    if (took_us >= MIN_REST_US) {
        s->rests_until_us = begun_us + took_us * (1 + HTTP_REST);
    }
}

/* That it waits is not its own doing. */
static bool must_wait(struct http_client *c, const struct http_request *q, int status)
{
    struct http_server *s = c->server;

    if (status != 0 || !s->config.may_answer ||
        s->config.may_answer(s->config.arg, q)) {
        return false;
    }
    s->has_waiting = true;
    c->deadline_ms = clock_ms() + HTTP_PATIENCE_MS;
    return true;
}

/* The request at the front, if it is whole and its turn. */
static void take_request(struct http_client *c)
{
    struct http_server *s = c->server;
    struct http_request q;
    int status = 0;
    size_t n;

    if (c->state != CLIENT_ASKS || buf_len(&c->in) == 0 || is_resting(s)) {
        return;
    }
    n = http_parse(buf_bytes(&c->in), buf_len(&c->in), &q, &status);
    if (n == 0 || must_wait(c, &q, status)) {
        return;
    }
    if (status == 0 && s->pending > HTTP_MAX_PENDING) {
        status = 503;
        q.keeps_alive = false;
    }
    buf_consume(&c->in, n);
    c->keeps_alive = q.keeps_alive;
    answer(c, &q, status);
    unlink_client(s, c);
    link_client(s, c);
    write_answer(c);
}

/* ---- reading ---- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    struct http_client *c = handle->data;

    (void)suggested;
    *ret = uv_buf_init((char *)c->scratch, READ_SIZE);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *bytes)
{
    struct http_client *c = stream->data;
    struct http_server *s = c->server;

    if (n < 0) { /* its end, or an error */
        close_client(c);
    } else if (n > 0 && c->state == CLIENT_ASKS) {
        int rv = buf_append(&c->in, bytes->base, (size_t)n);

        ASSERT(rv == 0); /* it was read with less than a head there */
        if (buf_len(&c->in) >= HTTP_MAX_HEAD) {
            (void)uv_read_stop(stream); /* enough for a request: its turn will come */
        }
        take_request(c);
    }
    set_timer(s);
}

static int start_reading(struct http_client *c)
{
    if (c->state == CLIENT_ASKS && buf_len(&c->in) >= HTTP_MAX_HEAD) {
        return 0; /* what is there comes first */
    }
    return uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
}

/* The one that has asked for nothing for longest. */
static void make_room(struct http_server *s)
{
    struct http_client *c = s->first;

    while (c && c->state != CLIENT_ASKS) {
        c = c->next;
    }
    if (c && s->n_clients == HTTP_MAX_CONNECTIONS) {
        close_client(c);
    }
}

static void on_accept(void *arg, int fd, const struct sockaddr *peer)
{
    struct http_server *s = arg;
    struct http_client *c;
    int rv;

    (void)peer;
    make_room(s);
    if (s->is_closing || s->n_clients == HTTP_MAX_CONNECTIONS) {
        (void)close(fd); /* nothing was said on it */
        return;
    }
    c = mem_zalloc(sizeof(*c));
    c->server = s;
    c->deadline_ms = clock_ms() + HTTP_PATIENCE_MS;
    buf_init(&c->in, HTTP_MAX_HEAD + READ_SIZE);
    buf_init(&c->out, HTTP_MAX_ANSWER);
    rv = uv_tcp_init(s->config.loop, &c->tcp);
    ASSERT(rv == 0); /* without a socket there is nothing to fail */
    c->tcp.data = c;
    closer_opened(&s->closer);
    link_client(s, c);
    s->n_clients++;
    rv = uv_tcp_open(&c->tcp, fd);
    if (rv < 0) {
        (void)close(fd); /* libuv did not take it */
    }
    if (rv < 0 || start_reading(c) < 0) {
        close_client(c);
    }
    set_timer(s);
}

/* ---- life ---- */

int http_server_open(const struct http_server_config *config, const char *addr,
                     int port, struct http_server **ret, struct errmsg *msg)
{
    struct http_server *s = mem_zalloc(sizeof(*s));
    int rv;

    s->config = *config;
    rv = listener_open(&(struct listener_config){config->loop, on_accept, s}, addr,
                       port, &s->listener, msg);
    if (rv < 0) {
        mem_free(s);
        return rv;
    }
    s->port = listener_port(s->listener);
    closer_init(&s->closer);
    rv = uv_timer_init(config->loop, &s->timer);
    ASSERT(rv == 0); /* documented never to fail */
    s->timer.data = s;
    closer_opened(&s->closer); /* the timer … */
    closer_opened(&s->closer); /* … and the listener */
    *ret = s;
    return 0;
}

int http_server_port(const struct http_server *s)
{
    return s->port;
}

uint64_t http_server_requests(const struct http_server *s)
{
    return s->n_requests;
}

static void on_all_closed(void *arg)
{
    struct http_server *s = arg;
    void (*on_closed)(void *arg) = s->on_closed;
    void *on_closed_arg = s->on_closed_arg;

    mem_free(s);
    on_closed(on_closed_arg);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct http_server *s = handle->data;

    closer_closed(&s->closer);
}

static void on_listener_closed(void *arg)
{
    struct http_server *s = arg;

    closer_closed(&s->closer);
}

void http_server_close(struct http_server *s, void (*on_closed)(void *arg), void *arg)
{
    ASSERT(!s->is_closing);
    s->is_closing = true;
    s->on_closed = on_closed;
    s->on_closed_arg = arg;
    while (s->first) {
        close_client(s->first);
    }
    listener_close(s->listener, on_listener_closed, s);
    uv_close((uv_handle_t *)&s->timer, on_handle_closed);
    closer_finish(&s->closer, on_all_closed, s);
}
