#include "worker/comm/tcp.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/str.h"
#include "common/wire.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    HELLO_SIZE = 8 + TCP_GROUP_MAX + SHM_TOKEN_SIZE + 4 + 4,
    HELLO_LIMIT_MS = 5000, /* for a stranger to say hello */
    RETRY_MS = 100,
    SPARE_STRANGERS = 16,
};

#define HELLO_MAGIC UINT64_C(0x31306d6d6f637463) /* "ctcomm01" */

/* A connection that is not made yet. */
struct half {
    enum { HALF_FREE, HALF_PAUSE, HALF_CONNECTING, HALF_READING } state;
    int fd;
    int rank;          /* the peer of a connector; -1: not known yet */
    uint64_t until_ms; /* end of the pause; of a stranger's patience */
    size_t got;
    uint8_t hello[HELLO_SIZE];
};

struct meeting {
    struct tcp_mesh *m;
    struct half *half; /* [0, rank) connectors, then the strangers */
    int n_halves;
    struct pollfd *fds; /* listener, then one for each half */
    int n_missing;
};

/* ---- addresses ------------------------------------------------------------------- */

static int resolve(const char *address, uint16_t port, struct addrinfo **ret)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    char service[8];

    (void)snprintf(service, sizeof(service), "%u", port);
    return getaddrinfo(address, service, &hints, ret) == 0 ? 0 : ERR_INVALID;
}

static int bind_and_listen(int fd, const struct addrinfo *ai, uint16_t *ret_port)
{
    struct sockaddr_storage bound = {0};
    socklen_t size = sizeof(bound);
    uint64_t port = 0;
    char service[8];

    if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, SOMAXCONN) < 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &size) < 0) {
        return -errno;
    }
    if (getnameinfo((struct sockaddr *)&bound, size, NULL, 0, service, sizeof(service),
                    NI_NUMERICSERV) != 0 ||
        str_parse_u64(service, &port) < 0) {
        return ERR_INVALID;
    }
    *ret_port = (uint16_t)port;
    return 0;
}

int tcp_listen(const char *address, int *ret_fd, uint16_t *ret_port, struct errmsg *msg)
{
    struct addrinfo *ai = NULL;
    int rv = resolve(address, 0, &ai), fd = -1;

    if (rv == 0) {
        fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        rv = fd < 0 ? -errno : bind_and_listen(fd, ai, ret_port);
        freeaddrinfo(ai);
    }
    if (rv < 0) {
        if (fd >= 0) {
            close(fd);
        }
        return errmsg_set(msg, rv, "cannot listen for the other nodes on %s: %s",
                          address,
                          rv == ERR_INVALID ? "not a numeric address" : err_text(rv));
    }
    *ret_fd = fd;
    return 0;
}

/* ---- hello ----------------------------------------------------------------------- */

static void hello_encode(const struct tcp_mesh *m, int to, uint8_t out[HELLO_SIZE])
{
    struct buf b;
    int rv;

    buf_init(&b, HELLO_SIZE);
    rv = wire_put_u64(&b, HELLO_MAGIC);
    rv = rv < 0 ? rv : buf_append(&b, m->group, TCP_GROUP_MAX);
    rv = rv < 0 ? rv : buf_append(&b, m->peer[to].token, SHM_TOKEN_SIZE);
    rv = rv < 0 ? rv : wire_put_u32(&b, (uint32_t)m->rank);
    rv = rv < 0 ? rv : wire_put_u32(&b, (uint32_t)to);
    ASSERT(rv == 0 && buf_len(&b) == HELLO_SIZE);
    memcpy(out, buf_bytes(&b), HELLO_SIZE);
    buf_release(&b);
}

/* The rank that sent it, or ERR_PROTOCOL. */
static int hello_check(const struct tcp_mesh *m, const uint8_t in[HELLO_SIZE])
{
    const uint8_t *group, *token;
    struct wire_reader r;
    uint32_t from, to;
    uint64_t magic;

    wire_reader_init(&r, in, HELLO_SIZE);
    magic = wire_get_u64(&r);
    group = wire_get_raw(&r, TCP_GROUP_MAX);
    token = wire_get_raw(&r, SHM_TOKEN_SIZE);
    from = wire_get_u32(&r);
    to = wire_get_u32(&r);
    if (!wire_reader_done(&r) || magic != HELLO_MAGIC ||
        memcmp(group, m->group, TCP_GROUP_MAX) != 0 ||
        memcmp(token, m->token, SHM_TOKEN_SIZE) != 0 || to != (uint32_t)m->rank ||
        from >= (uint32_t)m->world_size || !m->peer[from].is_wanted) {
        return ERR_PROTOCOL;
    }
    return (int)from;
}

/* A fresh connection has room for a hello: less than all of it is a broken one. */
static int hello_send(const struct tcp_mesh *m, int fd, int to)
{
    uint8_t hello[HELLO_SIZE];
    ssize_t n;

    hello_encode(m, to, hello);
    n = send(fd, hello, sizeof(hello), MSG_NOSIGNAL | MSG_DONTWAIT);
    return n == (ssize_t)sizeof(hello) ? 0 : ERR_CLOSED;
}

/* ---- one connection -------------------------------------------------------------- */

static void half_drop(struct half *h)
{
    if (h->fd >= 0) {
        close(h->fd);
    }
    h->fd = -1;
    h->state = HALF_FREE;
}

static void half_retry(struct half *h)
{
    half_drop(h);
    h->state = HALF_PAUSE;
    h->until_ms = clock_ms() + RETRY_MS;
}

static void half_read(struct half *h, uint64_t until_ms)
{
    h->state = HALF_READING;
    h->until_ms = until_ms;
    h->got = 0;
}

/* A route may appear a moment later; a refusal comes from a process that is gone. */
static int connect_failed(struct meeting *t, struct half *h, int err,
                          struct errmsg *msg)
{
    const struct tcp_peer *p = &t->m->peer[h->rank];

    if (err == -EHOSTUNREACH || err == -ENETUNREACH || err == -ETIMEDOUT) {
        half_retry(h);
        return 0;
    }
    return errmsg_set(msg, ERR_PEER_LOST, "rank %d at %s port %u cannot be reached: %s",
                      h->rank, p->address, p->port, err_text(err));
}

static int half_connect(struct meeting *t, struct half *h, struct errmsg *msg)
{
    const struct tcp_peer *p = &t->m->peer[h->rank];
    struct addrinfo *ai = NULL;
    int rv = resolve(p->address, p->port, &ai);

    if (rv < 0) {
        return errmsg_set(msg, rv, "rank %d published a bad address: \"%s\"", h->rank,
                          p->address);
    }
    h->fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    rv = h->fd < 0 ? -errno : 0;
    if (rv == 0 && connect(h->fd, ai->ai_addr, ai->ai_addrlen) < 0 &&
        errno != EINPROGRESS) {
        rv = -errno;
    }
    freeaddrinfo(ai);
    h->state = HALF_CONNECTING;
    return rv < 0 ? connect_failed(t, h, rv, msg) : 0;
}

static int on_connected(struct meeting *t, struct half *h, struct errmsg *msg)
{
    socklen_t size = sizeof(int);
    int err = 0;

    if (getsockopt(h->fd, SOL_SOCKET, SO_ERROR, &err, &size) < 0) {
        err = errno;
    }
    if (err != 0) {
        return connect_failed(t, h, -err, msg);
    }
    if (hello_send(t->m, h->fd, h->rank) < 0) {
        half_retry(h);
    } else {
        half_read(h, UINT64_MAX);
    }
    return 0;
}

static void half_done(struct meeting *t, struct half *h, int rank)
{
    struct tcp_peer *p = &t->m->peer[rank];

    if (p->fd >= 0) {
        close(p->fd); /* it came again, so the first one broke */
    } else {
        t->n_missing--;
    }
    p->fd = h->fd;
    h->fd = -1;
    half_drop(h);
}

static void on_hello(struct meeting *t, struct half *h)
{
    int from = hello_check(t->m, h->hello);

    if (h->rank >= 0) {
        if (from == h->rank) {
            half_done(t, h, from);
        } else {
            half_retry(h); /* not who we called */
        }
        return;
    }
    if (from > t->m->rank && hello_send(t->m, h->fd, from) == 0) {
        half_done(t, h, from);
    } else {
        half_drop(h);
    }
}

static void on_readable(struct meeting *t, struct half *h)
{
    ssize_t n = recv(h->fd, h->hello + h->got, HELLO_SIZE - h->got, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n <= 0) {
        if (h->rank >= 0) {
            half_retry(h);
        } else {
            half_drop(h);
        }
        return;
    }
    h->got += (size_t)n;
    if (h->got == HELLO_SIZE) {
        on_hello(t, h);
    }
}

/* A free place for a stranger; the one who has been silent longest makes room. */
static struct half *stranger_place(struct meeting *t)
{
    struct half *oldest = NULL;

    for (int i = t->m->rank; i < t->n_halves; i++) {
        if (t->half[i].state == HALF_FREE) {
            return &t->half[i];
        }
        if (!oldest || t->half[i].until_ms < oldest->until_ms) {
            oldest = &t->half[i];
        }
    }
    ASSERT(oldest); /* there are places for strangers */
    half_drop(oldest);
    return oldest;
}

static void on_stranger(struct meeting *t)
{
    int fd = accept4(t->m->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct half *h;

    if (fd < 0) {
        return; /* gone again, or no descriptors: the deadline tells */
    }
    h = stranger_place(t);
    *h = (struct half){.fd = fd, .rank = -1};
    half_read(h, clock_ms() + HELLO_LIMIT_MS);
}

/* ---- all of them ----------------------------------------------------------------- */

static int half_turn(struct meeting *t, struct half *h, short revents,
                     struct errmsg *msg)
{
    bool is_late = clock_ms() >= h->until_ms;

    switch (h->state) {
    case HALF_FREE:
        return 0;
    case HALF_PAUSE:
        return is_late ? half_connect(t, h, msg) : 0;
    case HALF_CONNECTING:
        return revents ? on_connected(t, h, msg) : 0;
    case HALF_READING:
        if (revents) {
            on_readable(t, h);
        } else if (is_late) {
            half_drop(h);
        }
        return 0;
    }
    UNREACHABLE();
}

static void fill_pollfds(struct meeting *t)
{
    struct half *h;

    t->fds[0] = (struct pollfd){t->m->listener, POLLIN, 0};
    for (int i = 0; i < t->n_halves; i++) {
        h = &t->half[i];
        t->fds[i + 1] =
            (struct pollfd){h->state == HALF_FREE ? -1 : h->fd,
                            h->state == HALF_CONNECTING ? POLLOUT : POLLIN, 0};
    }
}

static int timed_out(const struct tcp_mesh *m, struct errmsg *msg)
{
    for (int r = 0; r < m->world_size; r++) {
        if (m->peer[r].is_wanted && m->peer[r].fd < 0) {
            return errmsg_set(msg, ERR_TIMEOUT,
                              "no connection with rank %d (%s port %u)", r,
                              m->peer[r].address, m->peer[r].port);
        }
    }
    UNREACHABLE();
}

static int turn_all(struct meeting *t, struct errmsg *msg)
{
    int rv = 0;

    for (int i = 0; i < t->n_halves && rv == 0; i++) {
        rv = half_turn(t, &t->half[i], t->fds[i + 1].revents, msg);
    }
    if (t->fds[0].revents) {
        on_stranger(t);
    }
    return rv;
}

static int meet(struct meeting *t, uint64_t deadline_ms, struct errmsg *msg)
{
    int rv = turn_all(t, msg); /* begins to connect */

    while (t->n_missing > 0 && rv == 0) {
        if (clock_ms() >= deadline_ms) {
            return timed_out(t->m, msg);
        }
        fill_pollfds(t);
        if (poll(t->fds, (nfds_t)t->n_halves + 1, RETRY_MS) < 0 && errno != EINTR) {
            return errmsg_set(msg, -errno, "poll: %s", err_text(-errno));
        }
        rv = turn_all(t, msg);
    }
    return rv;
}

int tcp_mesh_connect(struct tcp_mesh *m, uint64_t deadline_ms, struct errmsg *msg)
{
    struct meeting t = {.m = m, .n_halves = m->rank + m->world_size + SPARE_STRANGERS};
    int rv;

    t.half = mem_array((size_t)t.n_halves, sizeof(*t.half));
    t.fds = mem_array((size_t)t.n_halves + 1, sizeof(*t.fds));
    for (int i = 0; i < t.n_halves; i++) {
        t.half[i] = (struct half){.fd = -1, .rank = i < m->rank ? i : -1};
        if (i < m->rank && m->peer[i].is_wanted) {
            t.half[i].state = HALF_PAUSE; /* of no length */
        }
    }
    for (int r = 0; r < m->world_size; r++) {
        m->peer[r].fd = -1;
        t.n_missing += m->peer[r].is_wanted;
    }
    rv = meet(&t, deadline_ms, msg);
    for (int i = 0; i < t.n_halves; i++) {
        half_drop(&t.half[i]);
    }
    mem_free(t.half);
    mem_free(t.fds);
    return rv;
}
