#include "launcher/rdzv/link_conn.h"

#include "launcher/rdzv/netaddr.h"

#include "common/closer.h"
#include "common/err.h"
#include "common/fairq.h"
#include "common/lease.h"
#include "common/mem.h"
#include "common/tls.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

enum {
    READ_SIZE = 64 * 1024,
    OUT_MAX = 1024 * 1024 * 1024, /* the relay's limits keep it far below */
    STORE_AT_ONCE = 256 * 1024,   /* between other messages and the socket */
    SEAL_AT_ONCE = 256 * 1024,
    PAUSE_ABOVE = 8 * 1024 * 1024,
    RESUME_BELOW = 2 * 1024 * 1024,
    SILENCE_MS = 15000, /* unacknowledged for so long: the kernel gives up (lease.h) */
    KEEPALIVE_S = 5,
    MAX_UNSENT = 128 * 1024, /* bytes … */
    MAX_UNREAD = 512 * 1024, /* … in the kernel, where nothing overtakes */
    FINISH_MS = 1000,
};

struct link_conn {
    uv_tcp_t tcp;
    uv_timer_t timer; /* bounds link_conn_finish */
    uv_connect_t connect;
    uv_write_t write;
    struct link_conn_config config;
    struct buf in;
    struct buf out;       /* to be sent */
    struct fairq store;   /* … after that: the workers' requests, in turns */
    struct buf sending;   /* being sent */
    struct tls_pump *tls; /* owned; NULL: plain, or not connected yet */
    struct buf wire;      /* … sealed, to be sent */
    uint8_t *sealed;      /* owned: … where reads go */
    bool is_connected;    /* … and then there is a greeting */
    struct msg *msg;      /* owned: the frame at hand */
    struct closer closer;
    bool is_open;
    bool is_writing;
    bool is_paused;
    bool is_finishing; /* close once everything is sent */
};

static void on_handle_closed(uv_handle_t *handle)
{
    struct link_conn *c = handle->data;

    closer_closed(&c->closer);
}

static void on_all_closed(void *arg)
{
    struct link_conn *c = arg;

    c->config.on_closed(c->config.arg);
    buf_release(&c->in);
    buf_release(&c->out);
    fairq_release(&c->store);
    buf_release(&c->sending);
    tls_pump_free(c->tls);
    buf_release(&c->wire);
    mem_free(c->sealed);
    mem_free(c->msg);
    mem_free(c);
}

void link_conn_close(struct link_conn *c)
{
    if (!c->closer.is_closing) {
        closer_finish(&c->closer, on_all_closed, c);
        uv_close((uv_handle_t *)&c->tcp, on_handle_closed);
        uv_close((uv_handle_t *)&c->timer, on_handle_closed);
    }
}

/* The owner closes; one that has said goodbye does not hear of it. */
static void end(struct link_conn *c, int status)
{
    if (c->closer.is_closing) {
        return;
    }
    if (c->is_finishing) {
        link_conn_close(c);
    } else {
        c->config.on_end(c->config.arg, status);
    }
}

bool link_conn_is_open(const struct link_conn *c)
{
    return c->is_open;
}

/* --- sending --- */

static void flush(struct link_conn *c);

static void update_pause(struct link_conn *c)
{
    size_t queued =
        buf_len(&c->out) + c->store.size + buf_len(&c->wire) + buf_len(&c->sending);
    bool wanted = queued > (c->is_paused ? RESUME_BELOW : PAUSE_ABOVE);

    if (wanted != c->is_paused && !c->is_finishing && !c->closer.is_closing) {
        c->is_paused = wanted;
        c->config.on_pause(c->config.arg, wanted);
    }
}

static void on_written(uv_write_t *req, int status)
{
    struct link_conn *c = req->data;

    c->is_writing = false;
    buf_clear(&c->sending);
    if (status < 0) {
        end(c, status);
        return;
    }
    flush(c);
    update_pause(c);
}

/* A piece at a time: what is in `out` may be overtaken, what is sealed may not. */
static void seal(struct link_conn *c)
{
    size_t n = MIN(buf_len(&c->out), (size_t)SEAL_AT_ONCE);

    if (n > 0 && buf_len(&c->wire) == 0 && tls_pump_is_open(c->tls)) {
        int rv = tls_pump_write(c->tls, buf_bytes(&c->out), n);

        ASSERT(rv == 0); /* `wire` has room, and the reader ends what has failed */
        buf_consume(&c->out, n);
    }
}

/* What the socket gets next. */
static struct buf *ready(struct link_conn *c)
{
    int rv = 0;

    if (c->is_open) {
        rv = fairq_move(&c->store, &c->out, STORE_AT_ONCE);
        ASSERT(rv == 0); /* see link_conn_send */
    }
    if (!c->config.tls) {
        return &c->out;
    }
    seal(c);
    return &c->wire;
}

static void flush(struct link_conn *c)
{
    struct buf empty = c->sending;
    struct buf *next;
    uv_buf_t part;
    int rv;

    if (c->closer.is_closing || c->is_writing || !c->is_connected) {
        return;
    }
    next = ready(c);
    if (buf_len(next) == 0) {
        if (c->is_finishing) {
            link_conn_close(c);
        }
        return;
    }
    c->sending = *next;
    *next = empty;
    part = uv_buf_init((char *)c->sending.data + c->sending.start,
                       (unsigned)buf_len(&c->sending));
    c->write.data = c;
    rv = uv_write(&c->write, (uv_stream_t *)&c->tcp, &part, 1, on_written);
    c->is_writing = rv == 0; /* else the reader sees the end, too */
}

/* A worker's request that would have to wait lets all else go first. */
static bool is_for_later(const struct link_conn *c, const struct msg *m)
{
    bool is_store = m->type == MSG_STORE || m->type == MSG_STORE_CLOSE;

    return is_store &&
           (!fairq_is_empty(&c->store) || buf_len(&c->out) >= STORE_AT_ONCE);
}

void link_conn_send(struct link_conn *c, const struct msg *m)
{
    int rv;

    if (!c->is_open || c->closer.is_closing || c->is_finishing) {
        return; /* nothing goes before the magic */
    }
    rv = is_for_later(c, m) ? fairq_push(&c->store, m) : msg_encode(m, &c->out);
    ASSERT(rv == 0); /* frames of ours fit; the queues are bounded by the relay */
    flush(c);
    update_pause(c);
}

/* --- receiving --- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct link_conn *c = handle->data;
    uint8_t *at = c->sealed;

    (void)suggested;
    if (!at && buf_reserve(&c->in, READ_SIZE, &at) < 0) {
        *buf = uv_buf_init(NULL, 0);
        return;
    }
    *buf = uv_buf_init((char *)at, READ_SIZE);
}

/* Frames of what has come; < 0: they broke the protocol. */
static int take_frames(struct link_conn *c)
{
    int took = 1;

    while (!c->closer.is_closing && !c->is_finishing && took > 0) {
        took = msg_decode(buf_bytes(&c->in), buf_len(&c->in), c->msg);
        if (took <= 0) {
            break;
        }
        if (c->config.on_message(c->config.arg, c->msg) < 0) {
            return ERR_PROTOCOL;
        }
        buf_consume(&c->in, (size_t)took);
    }
    return MIN(took, 0);
}

static void open_link(struct link_conn *c)
{
    c->is_open = true;
    c->config.on_open(c->config.arg);
}

/* Over TLS: the service's magic comes first. */
static int take_magic(struct link_conn *c)
{
    if (buf_len(&c->in) < MSG_MAGIC_SIZE) {
        return 0;
    }
    if (memcmp(buf_bytes(&c->in), MSG_MAGIC, MSG_MAGIC_SIZE) != 0) {
        return ERR_PROTOCOL;
    }
    buf_consume(&c->in, MSG_MAGIC_SIZE);
    open_link(c);
    return 0;
}

static int take(struct link_conn *c)
{
    int rv = c->is_open ? 0 : take_magic(c);

    return rv == 0 && c->is_open ? take_frames(c) : rv;
}

static int take_sealed(struct link_conn *c, size_t size)
{
    struct bytes from = {c->sealed, size};
    int n = 1;
    int rv = 0;

    while (rv == 0 && n > 0 && !c->closer.is_closing) {
        uint8_t *at;

        if (buf_reserve(&c->in, READ_SIZE, &at) < 0) {
            return ERR_TOO_LARGE;
        }
        n = tls_pump_read(c->tls, &from, at, READ_SIZE);
        buf_commit(&c->in, (size_t)MAX(n, 0));
        rv = n > 0 ? take(c) : 0;
    }
    if (n < 0) {
        return n == ERR_CLOSED ? UV_EOF : c->is_open ? ERR_PROTOCOL : ERR_REFUSED;
    }
    return rv;
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct link_conn *c = stream->data;
    int rv;

    (void)buf;
    if (n < 0) {
        end(c, (int)n);
        return;
    }
    if (c->tls) {
        rv = take_sealed(c, (size_t)n);
    } else {
        buf_commit(&c->in, (size_t)n);
        rv = take(c);
    }
    flush(c); /* also an alert that says why it ends */
    if (rv < 0) {
        end(c, rv);
    }
}

/* --- opening --- */

/* They only make a dead peer known sooner, or what is urgent wait less. */
static void set_options(struct link_conn *c)
{
    const unsigned silence = SILENCE_MS;
    const int unsent = MAX_UNSENT;
    const int unread = MAX_UNREAD;
    uv_os_fd_t fd;

    (void)uv_tcp_nodelay(&c->tcp, 1);
    (void)uv_tcp_keepalive(&c->tcp, 1, KEEPALIVE_S);
    if (uv_fileno((uv_handle_t *)&c->tcp, &fd) == 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof(silence));
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &unread, sizeof(unread));
    }
}

void link_conn_bear_silence(struct link_conn *c, uint32_t lease_ms)
{
    const int silence = lease_silence_ms(lease_ms, SILENCE_MS);
    uv_os_fd_t fd;

    if (uv_fileno((uv_handle_t *)&c->tcp, &fd) == 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof(silence));
    }
}

static int begin_tls(struct link_conn *c)
{
    buf_init(&c->wire, OUT_MAX);
    c->sealed = mem_alloc(READ_SIZE);
    c->tls = tls_pump_new(c->config.tls, &c->wire);
    return tls_pump_start(c->tls);
}

static void on_connect(uv_connect_t *req, int status)
{
    struct link_conn *c = req->data;

    if (c->closer.is_closing) {
        return;
    }
    c->is_connected = status == 0;
    status = status == 0 && c->config.tls ? begin_tls(c) : status;
    status =
        status < 0 ? status : uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
    if (status < 0) {
        end(c, status);
        return;
    }
    set_options(c);
    status = buf_append(&c->out, MSG_MAGIC, MSG_MAGIC_SIZE);
    ASSERT(status == 0); /* the first bytes */
    if (!c->tls) {
        open_link(c);
    }
    if (!c->closer.is_closing) {
        flush(c);
    }
}

static void on_never_opened(void *arg)
{
    (void)arg;
}

static int make(const struct link_conn_config *config, struct link_conn **ret)
{
    struct link_conn *c = mem_zalloc(sizeof(*c));
    int rv;

    c->config = *config;
    buf_init(&c->in, 2 * (size_t)MSG_MAX_FRAME + READ_SIZE);
    buf_init(&c->out, OUT_MAX);
    fairq_init(&c->store, OUT_MAX, 0); /* the numbers in it are our own */
    buf_init(&c->sending, OUT_MAX);
    rv = uv_tcp_init(config->loop, &c->tcp);
    if (rv < 0) {
        mem_free(c);
        return rv;
    }
    rv = uv_timer_init(config->loop, &c->timer);
    ASSERT(rv == 0); /* it only sets fields */
    c->msg = mem_zalloc(sizeof(*c->msg));
    c->tcp.data = c;
    c->timer.data = c;
    c->connect.data = c;
    closer_init(&c->closer);
    closer_opened(&c->closer);
    closer_opened(&c->closer);
    *ret = c;
    return 0;
}

/* After a call that failed nothing is called back. */
static int give_up(struct link_conn *c, int rv)
{
    c->config.on_closed = on_never_opened;
    link_conn_close(c);
    return rv;
}

int link_conn_open(const struct link_conn_config *config, const struct sockaddr *addr,
                   struct link_conn **ret)
{
    struct link_conn *c;
    int rv = make(config, &c);

    if (rv < 0) {
        return rv;
    }
    rv = uv_tcp_connect(&c->connect, &c->tcp, addr, on_connect);
    if (rv < 0) {
        return give_up(c, rv);
    }
    *ret = c;
    return 0;
}

static void on_adopted(uv_timer_t *timer)
{
    struct link_conn *c = timer->data;

    on_connect(&c->connect, 0);
}

int link_conn_adopt(const struct link_conn_config *config, int fd,
                    struct link_conn **ret)
{
    struct link_conn *c;
    int rv = make(config, &c);

    if (rv == 0) {
        rv = uv_tcp_open(&c->tcp, fd);
        rv = rv < 0 ? give_up(c, rv) : 0;
    }
    if (rv < 0) {
        (void)close(fd); /* libuv did not take it */
        return rv;
    }
    (void)uv_timer_start(&c->timer, on_adopted, 0, 0); /* has a callback */
    *ret = c;
    return 0;
}

const char *link_conn_trouble(const struct link_conn *c)
{
    return c->tls ? tls_pump_trouble(c->tls) : "";
}

void link_conn_local_addr(const struct link_conn *c, char *ret, size_t size)
{
    struct sockaddr_storage addr = {0};
    int n = sizeof(addr);

    ret[0] = '\0';
    if (uv_tcp_getsockname(&c->tcp, (struct sockaddr *)&addr, &n) == 0) {
        netaddr_format((struct sockaddr *)&addr, ret, size);
    }
}

static void on_finish_timeout(uv_timer_t *timer)
{
    link_conn_close(timer->data);
}

void link_conn_finish(struct link_conn *c)
{
    c->is_finishing = true;
    if (!c->is_open) {
        link_conn_close(c);
        return;
    }
    (void)uv_timer_start(&c->timer, on_finish_timeout, FINISH_MS,
                         0); /* has a callback */
    flush(c);
}
