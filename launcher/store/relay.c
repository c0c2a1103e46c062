/* Happy path: accept → admit → bytes in → relay_flow → STORE; STORE_REPLY → bytes out.
 * Failures: a stranger or a broken request → its connection is closed; a worker that
 * sends faster than the service answers, or does not read → is not read, but those
 * that hold little are, as long as it goes; one that lets too many replies lie → is
 * closed, the service is read in any case. A connection that has ended stays in the list
 * until the service has acknowledged its writes. */

#include "launcher/store/relay.h"

#include "launcher/rdzv/netaddr.h"
#include "launcher/store/relay_admission.h"
#include "launcher/store/relay_closed.h"
#include "launcher/store/relay_crowd.h"
#include "launcher/store/relay_flow.h"
#include "launcher/store/relay_listen.h"
#include "launcher/store/relay_words.h"

#include "common/closer.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/tcpstore.h"

#include <string.h>
#include <unistd.h>
#include <uv.h>

enum {
    MAX_HELD = 4 * 1024 * 1024,         /* unacknowledged, of a connection */
    MAX_QUEUED = 16 * 1024 * 1024,      /* replies that the worker has not read: … */
    MAX_UNREAD = 64 * 1024 * 1024,      /* … then it is closed, … */
    MAX_UNREAD_ALL = 256 * 1024 * 1024, /* … or the one with most of all together */
    MAX_CONNS = 65536,
    READ_SIZE = 64 * 1024,
};

struct relay_conn {
    uv_tcp_t tcp;
    struct relay *relay;
    struct relay_conn *next;
    struct relay_flow *flow; /* owned */
    struct buf in;
    uint32_t client;
    size_t queued; /* bytes on their way to the worker */
    bool is_reading;
    bool is_closing; /* uv_close was called */
    bool is_closed;  /* … and is through; the flow may live on */
};

struct relay {
    struct relay_config config;
    int fds[RELAY_LISTENERS]; /* until they are served; -1 */
    uv_tcp_t listeners[RELAY_LISTENERS];
    int n_listeners;
    int port;
    uint64_t generation;
    struct relay_admission *admission; /* owned; NULL until it serves */
    struct relay_conn *conns;          /* owned; in the order of their turns */
    uint32_t n_conns;
    uint32_t last_client;
    struct relay_closed closed;
    size_t held;            /* unacknowledged bytes of all connections */
    enum relay_crowd crowd; /* what they came to; falls when all have had their turn */
    size_t queued;          /* … and those on their way to the workers */
    struct relay_words words;
    struct closer closer;
    bool is_served;
    bool is_paused;
};

struct relay_write {
    uv_write_t req;
    struct relay_conn *conn;
    size_t size;
    uint8_t bytes[];
};

/* --- listening --- */

int relay_new(const struct relay_config *config, struct relay **ret, struct errmsg *msg)
{
    struct relay *r = mem_zalloc(sizeof(*r));
    int rv;

    r->config = *config;
    closer_init(&r->closer);
    closer_opened(&r->closer); /* the relay itself, until all of it has been stopped */
    r->fds[0] = -1;
    r->fds[1] = -1;
    rv = relay_listen(config->addr, r->fds, &r->n_listeners, &r->port);
    if (rv < 0) {
        rv = errmsg_set(msg, rv,
                        "cannot listen on %s for this node's workers: %s; is "
                        "--local-addr an address of this host?",
                        config->addr[0] == '\0' ? "127.0.0.1" : config->addr,
                        err_text(rv));
        mem_free(r);
        return rv;
    }
    r->config.addr = NULL; /* the caller's */
    *ret = r;
    return 0;
}

int relay_port(const struct relay *r)
{
    return r->port;
}

static void on_all_closed(void *arg)
{
    struct relay *r = arg;

    ASSERT(!r->conns && r->held == 0);
    relay_admission_free(r->admission);
    mem_free(r);
}

/* --- connections --- */

static void remove_conn(struct relay_conn *c)
{
    struct relay_conn **at = &c->relay->conns;

    while (*at != c) {
        at = &(*at)->next;
    }
    *at = c->next;
    if (relay_flow_is_known(c->flow)) {
        relay_closed_add(&c->relay->closed, c->client);
    }
    c->relay->n_conns--;
    c->relay->held -= relay_flow_held(c->flow);
    relay_flow_free(c->flow);
    buf_release(&c->in);
    mem_free(c);
}

static void on_conn_closed(uv_handle_t *handle)
{
    struct relay_conn *c = handle->data;
    struct relay *r = c->relay;

    c->is_closed = true;
    if (r->closer.is_closing || relay_flow_is_idle(c->flow)) {
        remove_conn(c);
    }
    closer_closed(&r->closer);
}

static void close_conn(struct relay_conn *c)
{
    struct relay *r = c->relay;

    if (c->is_closing) {
        return;
    }
    c->is_closing = true;
    c->is_reading = false;
    r->queued -= c->queued;
    buf_release(&c->in);
    r->held -= relay_flow_held(c->flow);
    if (!r->closer.is_closing) {
        relay_flow_end(c->flow);
    }
    r->held += relay_flow_held(c->flow);
    uv_close((uv_handle_t *)&c->tcp, on_conn_closed);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct relay_conn *c = handle->data;
    uint8_t *at;

    (void)suggested;
    if (buf_reserve(&c->in, READ_SIZE, &at) < 0) {
        *buf = uv_buf_init(NULL, 0); /* ENOBUFS closes it */
        return;
    }
    *buf = uv_buf_init((char *)at, READ_SIZE);
}

static bool must_wait(const struct relay_conn *c)
{
    const struct relay *r = c->relay;
    size_t held = relay_flow_held(c->flow) + buf_len(&c->in);

    return relay_flow_is_full(c->flow) || c->queued > MAX_QUEUED ||
           relay_crowd_must_wait(relay_crowd_of(r->held), r->is_paused, held);
}

/* Relays what has been read, as far as it may. */
static void relay_bytes(struct relay_conn *c)
{
    struct relay *r = c->relay;
    int rv = 0;

    if (!must_wait(c)) {
        r->held -= relay_flow_held(c->flow);
        rv = relay_flow_input(c->flow, &c->in);
        r->held += relay_flow_held(c->flow);
        r->crowd = MAX(r->crowd, relay_crowd_of(r->held));
    }
    if (rv < 0) {
        log_debug("a worker's store connection broke the protocol", "error=%s",
                  err_name(rv));
        close_conn(c);
    }
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf);

/* Reads on, or stops to, as the limits say. */
static void update_reading(struct relay_conn *c)
{
    bool wanted = !c->is_closing && !must_wait(c);

    if (wanted == c->is_reading) {
        return;
    }
    c->is_reading = wanted;
    if (!wanted) {
        (void)uv_read_stop((uv_stream_t *)&c->tcp); /* always 0 */
    } else if (uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read) < 0) {
        close_conn(c);
    }
}

static void advance(struct relay_conn *c)
{
    if (c->is_closing) {
        return;
    }
    relay_bytes(c);
    if (!c->is_closing) {
        update_reading(c);
    }
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct relay_conn *c = stream->data;

    (void)buf;
    if (n < 0) {
        close_conn(c);
        return;
    }
    buf_commit(&c->in, (size_t)n);
    advance(c);
}

/* Who was first is last the next time: what becomes free is not always the same one's.
 */
static void advance_all(struct relay *r)
{
    struct relay_conn *first = r->conns;
    struct relay_conn *last = NULL;

    for (struct relay_conn *c = first; c; c = c->next) {
        advance(c);
        last = c;
    }
    if (last != first) {
        r->conns = first->next;
        first->next = NULL;
        last->next = first;
    }
}

static void on_written(uv_write_t *req, int status)
{
    struct relay_write *w = CONTAINER_OF(req, struct relay_write, req);
    struct relay_conn *c = w->conn;

    c->queued -= w->size;
    c->relay->queued -= c->is_closing ? 0 : w->size;
    mem_free(w);
    if (status < 0) {
        close_conn(c);
    } else {
        advance(c);
    }
}

/* From relay_flow: bytes for the worker. */
static void on_flow_reply(void *arg, const uint8_t *bytes, size_t size)
{
    struct relay_conn *c = arg;
    struct relay_write *w;
    uv_buf_t buf;

    if (c->is_closing || size == 0) {
        return;
    }
    w = mem_alloc(sizeof(*w) + size);
    w->conn = c;
    w->size = size;
    memcpy(w->bytes, bytes, size);
    buf = uv_buf_init((char *)w->bytes, (unsigned)size);
    if (uv_write(&w->req, (uv_stream_t *)&c->tcp, &buf, 1, on_written) < 0) {
        mem_free(w);
        close_conn(c);
        return;
    }
    c->queued += size;
    c->relay->queued += size;
}

static void on_flow_send(void *arg, const struct msg *m)
{
    const struct relay_conn *c = arg;

    c->relay->config.send(c->relay->config.arg, m);
}

static bool is_admitted(const struct relay *r, const uv_tcp_t *tcp)
{
    struct sockaddr_storage peer = {0};
    struct sockaddr_storage local = {0};
    int peer_size = sizeof(peer);
    int local_size = sizeof(local);

    return uv_tcp_getpeername(tcp, (struct sockaddr *)&peer, &peer_size) == 0 &&
           uv_tcp_getsockname(tcp, (struct sockaddr *)&local, &local_size) == 0 &&
           relay_admission_check(r->admission, (struct sockaddr *)&peer,
                                 (struct sockaddr *)&local);
}

/* In the list, without a connection yet; NULL: not even a handle. */
static struct relay_conn *new_conn(struct relay *r)
{
    struct relay_conn *c = mem_zalloc(sizeof(*c));

    if (uv_tcp_init(r->config.loop, &c->tcp) < 0) {
        mem_free(c);
        return NULL;
    }
    c->tcp.data = c;
    c->relay = r;
    c->client = ++r->last_client;
    buf_init(&c->in, TCPSTORE_MAX_REQUEST + 2 * READ_SIZE);
    c->flow = relay_flow_new(&(struct relay_flow_config){
        .generation = r->generation,
        .client = c->client,
        .max_held = MAX_HELD,
        .arg = c,
        .send = on_flow_send,
        .reply = on_flow_reply,
    });
    c->next = r->conns;
    r->conns = c;
    r->n_conns++;
    closer_opened(&r->closer);
    return c;
}

/* False: it is closed; the service has not heard of it. `status`: whether it is open. */
static bool admit(struct relay_conn *c, int status)
{
    struct relay *r = c->relay;

    if (status < 0 || r->n_conns > MAX_CONNS || !is_admitted(r, &c->tcp)) {
        c->is_closing = true;
        uv_close((uv_handle_t *)&c->tcp, on_conn_closed);
        return false;
    }
    (void)uv_tcp_nodelay(&c->tcp, 1); /* only slower without */
    return true;
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct relay *r = listener->data;
    struct relay_conn *c;

    if (status < 0 || r->closer.is_closing) {
        return;
    }
    c = new_conn(r);
    if (c && admit(c, uv_accept(listener, (uv_stream_t *)&c->tcp))) {
        update_reading(c);
    }
}

void relay_adopt(struct relay *r, int fd, const uint8_t *bytes, size_t size)
{
    struct relay_conn *c = r->is_served ? new_conn(r) : NULL;
    int rv = c ? uv_tcp_open(&c->tcp, fd) : ERR_CLOSED;

    if (rv < 0) {
        (void)close(fd); /* libuv did not take it */
    }
    if (!c || !admit(c, rv)) {
        return;
    }
    if (buf_append(&c->in, bytes, size) < 0) {
        close_conn(c);
        return;
    }
    advance(c);
}

/* --- serving --- */

static int serve_one(struct relay *r, int i)
{
    uv_tcp_t *tcp = &r->listeners[i];
    int rv = uv_tcp_init(r->config.loop, tcp);

    if (rv < 0) {
        return rv;
    }
    tcp->data = r;
    closer_opened(&r->closer);
    rv = uv_tcp_open(tcp, r->fds[i]);
    if (rv < 0) {
        return rv;
    }
    r->fds[i] = -1; /* the handle's */
    return uv_listen((uv_stream_t *)tcp, NETADDR_BACKLOG, on_connection);
}

int relay_serve(struct relay *r, uint64_t generation, const struct msg_node *nodes,
                uint32_t n, struct errmsg *msg)
{
    int rv = 0;

    ASSERT(!r->is_served);
    r->is_served = true;
    r->generation = generation;
    r->admission = relay_admission_new(nodes, n);
    for (int i = 0; i < r->n_listeners && rv == 0; i++) {
        rv = serve_one(r, i);
    }
    return rv < 0 ? errmsg_set(msg, rv, "cannot serve this node's workers: %s",
                               err_text(rv))
                  : 0;
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct relay *r = handle->data;

    closer_closed(&r->closer);
}

void relay_stop(struct relay *r)
{
    if (!r) {
        return;
    }
    closer_finish(&r->closer, on_all_closed, r);
    for (int i = 0; i < RELAY_LISTENERS; i++) {
        if (r->fds[i] >= 0) {
            (void)close(r->fds[i]); /* a listener holds no data */
        }
        if (r->listeners[i].data) {
            uv_close((uv_handle_t *)&r->listeners[i], on_listener_closed);
        }
    }
    for (struct relay_conn *c = r->conns, *next; c; c = next) {
        next = c->next;
        if (c->is_closed) {
            remove_conn(c);
        } else {
            close_conn(c);
        }
    }
    closer_closed(&r->closer); /* relay_new's */
}

/* --- the service's side --- */

/* The connection's turn after something of it was acknowledged. */
static void settle(struct relay_conn *c)
{
    if (c->is_closed && relay_flow_is_idle(c->flow)) {
        remove_conn(c);
    } else {
        advance(c);
    }
}

static void close_unread(struct relay_conn *c)
{
    struct sockaddr_storage peer = {0};
    int size = sizeof(peer);

    (void)uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&peer, &size); /* or nobody */
    relay_words_unread((struct sockaddr *)&peer, c->queued);
    close_conn(c);
}

static struct relay_conn *find_laziest(const struct relay *r)
{
    struct relay_conn *most = NULL;

    for (struct relay_conn *c = r->conns; c; c = c->next) {
        if (!c->is_closing && (!most || c->queued > most->queued)) {
            most = c;
        }
    }
    ASSERT(most); /* the bytes are those of open connections */
    return most;
}

/* A worker that does not read costs itself its connection, not the node its memory. */
static void limit_unread(struct relay *r, struct relay_conn *c)
{
    if (!c->is_closing && c->queued > MAX_UNREAD) {
        close_unread(c);
    }
    while (r->queued > MAX_UNREAD_ALL) {
        close_unread(find_laziest(r));
    }
}

void relay_reply(struct relay *r, const struct msg_store_reply *m)
{
    struct relay_conn *c = r->conns;
    int rv;

    if (m->generation != r->generation) {
        return;
    }
    while (c && c->client != m->client) {
        c = c->next;
    }
    if (!c) {
        return;
    }
    r->held -= relay_flow_held(c->flow);
    rv = relay_flow_reply(c->flow, m);
    r->held += relay_flow_held(c->flow);
    if (rv < 0) {
        if (m->close == MSG_CLOSE_FULL) {
            relay_words_full(&r->words, r->generation, uv_now(r->config.loop));
        }
        close_conn(c);
    }
    limit_unread(r, c);
    settle(c);
    if (relay_crowd_of(r->held) < r->crowd) {
        r->crowd = relay_crowd_of(r->held);
        advance_all(r);
    }
}

static void resend(struct relay_conn *c)
{
    struct relay *r = c->relay;
    int rv;

    r->held -= relay_flow_held(c->flow);
    rv = relay_flow_resend(c->flow);
    if (c->is_closing) {
        relay_flow_end(c->flow);
    }
    r->held += relay_flow_held(c->flow);
    if (rv < 0) {
        close_conn(c);
    }
    if (c->is_closed && relay_flow_is_idle(c->flow)) {
        remove_conn(c);
    }
}

void relay_resend(struct relay *r)
{
    r->is_paused = false; /* that was the connection before */
    relay_closed_tell(&r->closed, r->generation, r->config.send, r->config.arg);
    for (struct relay_conn *c = r->conns, *next; c; c = next) {
        next = c->next;
        resend(c);
    }
}

void relay_pause(struct relay *r, bool is_paused)
{
    r->is_paused = is_paused;
    if (!is_paused) {
        advance_all(r);
        return;
    }
    for (struct relay_conn *c = r->conns; c; c = c->next) {
        update_reading(c); /* no more: one of them may be in the midst of relaying */
    }
}
