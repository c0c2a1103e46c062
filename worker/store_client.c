/* The blocking store client. One socket, non-blocking underneath: every wait is a poll
 * on the socket and on an eventfd that store_client_abort writes, up to the call's
 * deadline.
 *
 * Happy path: connect, VALIDATE + PING, then SET | ADD | WAIT + GET.
 * Failures: a WAIT that times out is cancelled, and the connection stays usable;
 * anything that stops in the middle of a request leaves it broken, and the next call
 * opens a new one. So does one that finds it closed: a store that cannot keep a key (its
 * disk is full) says so by closing, behind a SET that was not answered. */

#include "worker/store_client.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/tcpstore.h"
#include "common/wire.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    FIRST_BACKOFF_MS = 20,
    MAX_BACKOFF_MS = 1000,
    CANCEL_MS = 5000, /* for the server to acknowledge CANCEL_WAIT */
};

struct store_client {
    int fd;                       /* -1: not connected */
    int abort_fd;                 /* readable for ever once aborted */
    int timeout_ms;               /* of each call */
    bool broken;                  /* a request stopped half-way */
    struct buf out;               /* the request being made */
    struct sockaddr_storage addr; /* where it was found */
    socklen_t addr_size;
};

/* Waits for `events` on the socket (or, with fd -1, only for the time to pass). */
static int wait_fd(struct store_client *s, int fd, short events, uint64_t deadline)
{
    struct pollfd fds[2] = {{s->abort_fd, POLLIN, 0}, {fd, events, 0}};
    uint64_t now;
    int rv;

    for (;;) {
        now = clock_ms();
        rv = poll(fds, 2, now >= deadline ? 0 : (int)MIN(deadline - now, 60000));
        if (rv < 0 && errno != EINTR) {
            return -errno;
        }
        if (rv > 0 && fds[0].revents) {
            return ERR_ABORTED;
        }
        if (rv > 0) {
            return 0;
        }
        if (now >= deadline) {
            return ERR_TIMEOUT;
        }
    }
}

/* 0: try again. */
static int wait_after(struct store_client *s, int err, short events, uint64_t deadline)
{
    if (err == EAGAIN) {
        return wait_fd(s, s->fd, events, deadline);
    }
    return err == EINTR ? 0 : -err;
}

static int send_all(struct store_client *s, const uint8_t *data, size_t size,
                    uint64_t deadline)
{
    ssize_t n;
    int rv = 0;

    while (size > 0 && rv == 0) {
        n = send(s->fd, data, size, MSG_NOSIGNAL);
        if (n < 0) {
            rv = wait_after(s, errno, POLLOUT, deadline);
            continue;
        }
        data += n;
        size -= (size_t)n;
    }
    return rv;
}

static int recv_all(struct store_client *s, void *data, size_t size, uint64_t deadline)
{
    uint8_t *to = data;
    ssize_t n;
    int rv = 0;

    while (size > 0 && rv == 0) {
        n = recv(s->fd, to, size, 0);
        if (n < 0) {
            rv = wait_after(s, errno, POLLIN, deadline);
            continue;
        }
        if (n == 0) {
            return ERR_CLOSED;
        }
        to += n;
        size -= (size_t)n;
    }
    return rv;
}

/* ---- their bytes ------------------------------------------------------------------ */

static void put_op(struct store_client *s, enum tcpstore_op op)
{
    int rv = wire_put_u8(&s->out, (uint8_t)op);

    ASSERT(rv == 0);
}

static void put_bytes(struct store_client *s, const char *prefix, const void *data,
                      size_t size)
{
    int rv = wire_put_u64(&s->out, strlen(prefix) + size);

    rv = rv < 0 ? rv : buf_append(&s->out, prefix, strlen(prefix));
    rv = rv < 0 ? rv : buf_append(&s->out, data, size);
    ASSERT(rv == 0); /* sizes were checked by begin() */
}

static void put_key(struct store_client *s, const char *key)
{
    put_bytes(s, "/ctrun/", key, strlen(key));
}

static int flush(struct store_client *s, uint64_t deadline)
{
    int rv = send_all(s, buf_bytes(&s->out), buf_len(&s->out), deadline);

    buf_clear(&s->out);
    return rv;
}

/* ---- a connection ---------------------------------------------------------------- */

static void disconnect(struct store_client *s)
{
    if (s->fd >= 0) {
        close(s->fd);
    }
    s->fd = -1;
}

/* VALIDATE and PING; the echo shows that a store is there and speaks our dialect. */
static int greet(struct store_client *s, uint64_t deadline)
{
    uint32_t nonce = (uint32_t)getpid(), echo = 0;
    uint8_t reply[4];
    struct wire_reader r;
    int rv;

    put_op(s, TCPSTORE_VALIDATE);
    rv = wire_put_u32(&s->out, TCPSTORE_MAGIC);
    put_op(s, TCPSTORE_PING);
    rv = rv < 0 ? rv : wire_put_u32(&s->out, nonce);
    ASSERT(rv == 0);
    rv = flush(s, deadline);
    rv = rv < 0 ? rv : recv_all(s, reply, sizeof(reply), deadline);
    if (rv == 0) {
        wire_reader_init(&r, reply, sizeof(reply));
        echo = wire_get_u32(&r);
    }
    return rv == 0 && echo != nonce ? ERR_PROTOCOL : rv;
}

static int connect_one(struct store_client *s, const struct addrinfo *ai,
                       uint64_t deadline)
{
    socklen_t size = sizeof(int);
    int one = 1, err = 0, rv = 0;

    s->fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->fd < 0) {
        return -errno;
    }
    if (connect(s->fd, ai->ai_addr, ai->ai_addrlen) < 0) {
        rv = errno == EINPROGRESS ? wait_fd(s, s->fd, POLLOUT, deadline) : -errno;
    }
    if (rv == 0 && getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &err, &size) == 0) {
        rv = -err;
    }
    if (rv == 0 && setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0) {
        rv = -errno;
    }
    rv = rv < 0 ? rv : greet(s, deadline);
    if (rv < 0) {
        disconnect(s);
    }
    return rv;
}

/* Between requests there is nothing to be read. */
static bool has_ended(const struct store_client *s)
{
    uint8_t byte;

    return recv(s->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

/* The agent is there as long as this process is to live: one try. */
static int ensure_connected(struct store_client *s, const char *key, struct errmsg *msg)
{
    const struct addrinfo found = {.ai_family = s->addr.ss_family,
                                   .ai_addr = (struct sockaddr *)&s->addr,
                                   .ai_addrlen = s->addr_size};
    int rv;

    if (!s->broken && !has_ended(s)) {
        return 0;
    }
    s->broken = true;
    disconnect(s);
    rv = connect_one(s, &found, clock_ms() + (uint64_t)s->timeout_ms);
    s->broken = rv < 0;
    return rv < 0 ? errmsg_set(msg, rv == ERR_ABORTED ? rv : ERR_CLOSED,
                               "store key \"%s\": the connection to the store broke, "
                               "and there is no new one: %s",
                               key, err_text(rv))
                  : 0;
}

/* ---- requests -------------------------------------------------------------------- */

static int begin(struct store_client *s, const char *key, size_t value_size,
                 struct errmsg *msg)
{
    ASSERT(strlen(key) + 8 <= TCPSTORE_MAX_KEY);
    if (value_size > TCPSTORE_MAX_VALUE) {
        return errmsg_set(msg, ERR_TOO_LARGE, "store key \"%s\": %zu bytes, at most %d",
                          key, value_size, TCPSTORE_MAX_VALUE);
    }
    buf_clear(&s->out);
    return ensure_connected(s, key, msg);
}

/* The end of a request that failed with `err` half-way. */
static int fail(struct store_client *s, int err, const char *key, struct errmsg *msg)
{
    s->broken = true;
    err = err == -EPIPE || err == -ECONNRESET ? ERR_CLOSED : err;
    if (err == ERR_TIMEOUT) {
        return errmsg_set(msg, err, "store key \"%s\": no answer within %d ms", key,
                          s->timeout_ms);
    }
    return errmsg_set(msg, err, "store key \"%s\": %s", key,
                      err == ERR_CLOSED ? "the store closed the connection (where it "
                                          "takes no new keys, ctrun has said so)"
                                        : err_text(err));
}

/* After a WAIT that timed out: the store answers 1, or a late 0 and then 1. */
static int cancel_wait(struct store_client *s, bool *ret_was_ready)
{
    uint64_t deadline = clock_ms() + CANCEL_MS;
    uint8_t reply = 1;
    int rv;

    *ret_was_ready = false;
    put_op(s, TCPSTORE_CANCEL_WAIT);
    rv = flush(s, deadline);
    rv = rv < 0 ? rv : recv_all(s, &reply, 1, deadline);
    if (rv == 0 && reply == 0) {
        *ret_was_ready = true;
        rv = recv_all(s, &reply, 1, deadline);
    }
    return rv == 0 && reply != 1 ? ERR_PROTOCOL : rv;
}

static int wait_key(struct store_client *s, const char *key, struct errmsg *msg)
{
    uint64_t deadline = clock_ms() + (uint64_t)s->timeout_ms;
    uint8_t reply = 0;
    bool was_ready;
    int rv;

    put_op(s, TCPSTORE_WAIT);
    rv = wire_put_u64(&s->out, 1);
    ASSERT(rv == 0);
    put_key(s, key);
    rv = flush(s, deadline);
    if (rv < 0) {
        return fail(s, rv, key, msg);
    }
    rv = recv_all(s, &reply, 1, deadline);
    if (rv == ERR_TIMEOUT) {
        rv = cancel_wait(s, &was_ready);
        if (rv == 0 && !was_ready) {
            return errmsg_set(msg, ERR_TIMEOUT,
                              "store key \"%s\" did not appear within %d ms", key,
                              s->timeout_ms);
        }
    }
    rv = rv == 0 && reply != 0 ? ERR_PROTOCOL : rv;
    return rv < 0 ? fail(s, rv, key, msg) : 0;
}

static int drain(struct store_client *s, uint64_t size, uint64_t deadline)
{
    uint8_t waste[4096];
    size_t n;
    int rv = 0;

    while (size > 0 && rv == 0) {
        n = (size_t)MIN(size, sizeof(waste));
        rv = recv_all(s, waste, n, deadline);
        size -= n;
    }
    return rv;
}

int store_client_get(struct store_client *s, const char *key, void *value, size_t size,
                     size_t *ret_size, struct errmsg *msg)
{
    uint64_t deadline, length = 0;
    uint8_t head[8];
    struct wire_reader r;
    int rv = begin(s, key, 0, msg);

    rv = rv < 0 ? rv : wait_key(s, key, msg);
    if (rv < 0) {
        return rv;
    }
    deadline = clock_ms() + (uint64_t)s->timeout_ms;
    put_op(s, TCPSTORE_GET);
    put_key(s, key);
    rv = flush(s, deadline);
    rv = rv < 0 ? rv : recv_all(s, head, sizeof(head), deadline);
    if (rv == 0) {
        wire_reader_init(&r, head, sizeof(head));
        length = wire_get_u64(&r);
        rv = length > TCPSTORE_MAX_REQUEST ? ERR_PROTOCOL : 0;
    }
    if (rv == 0) {
        rv = length <= size ? recv_all(s, value, length, deadline)
                            : drain(s, length, deadline);
    }
    if (rv < 0) {
        return fail(s, rv, key, msg);
    }
    if (length > size) {
        return errmsg_set(msg, ERR_TOO_LARGE,
                          "store key \"%s\": %llu bytes, at most %zu", key,
                          (unsigned long long)length, size);
    }
    *ret_size = (size_t)length;
    return 0;
}

int store_client_set(struct store_client *s, const char *key, const void *value,
                     size_t size, struct errmsg *msg)
{
    int rv = begin(s, key, size, msg);

    if (rv < 0) {
        return rv;
    }
    put_op(s, TCPSTORE_SET);
    put_key(s, key);
    put_bytes(s, "", value, size);
    rv = flush(s, clock_ms() + (uint64_t)s->timeout_ms);
    return rv < 0 ? fail(s, rv, key, msg) : 0;
}

int store_client_add(struct store_client *s, const char *key, int64_t delta,
                     int64_t *ret, struct errmsg *msg)
{
    struct wire_reader r;
    uint64_t deadline;
    uint8_t reply[8];
    int rv = begin(s, key, 0, msg); /* which may have to connect */

    if (rv < 0) {
        return rv;
    }
    deadline = clock_ms() + (uint64_t)s->timeout_ms;
    put_op(s, TCPSTORE_ADD);
    put_key(s, key);
    rv = wire_put_u64(&s->out, (uint64_t)delta);
    ASSERT(rv == 0);
    rv = flush(s, deadline);
    rv = rv < 0 ? rv : recv_all(s, reply, sizeof(reply), deadline);
    if (rv < 0) {
        return fail(s, rv, key, msg);
    }
    wire_reader_init(&r, reply, sizeof(reply));
    *ret = (int64_t)wire_get_u64(&r);
    return 0;
}

/* ---- connecting ------------------------------------------------------------------ */

static int connect_any(struct store_client *s, const struct addrinfo *list,
                       uint64_t deadline)
{
    int rv = -EADDRNOTAVAIL;

    for (const struct addrinfo *ai = list; ai; ai = ai->ai_next) {
        rv = connect_one(s, ai, deadline);
        if (rv == 0) {
            s->addr_size = MIN(ai->ai_addrlen, (socklen_t)sizeof(s->addr));
            memcpy(&s->addr, ai->ai_addr, s->addr_size);
        }
        if (rv == 0 || rv == ERR_ABORTED) {
            break;
        }
    }
    return rv;
}

/* An agent that is just starting, or a relay that is being replaced. */
static bool is_worth_a_retry(int err)
{
    return err == -ECONNREFUSED || err == -ECONNRESET || err == -ETIMEDOUT ||
           err == -EHOSTUNREACH || err == -ENETUNREACH || err == ERR_CLOSED;
}

static int connect_until(struct store_client *s, const struct addrinfo *list)
{
    uint64_t deadline = clock_ms() + (uint64_t)s->timeout_ms, pause = FIRST_BACKOFF_MS;
    uint64_t now;
    int rv, slept;

    for (;;) {
        rv = connect_any(s, list, deadline);
        now = clock_ms();
        if (rv == 0 || !is_worth_a_retry(rv) || now >= deadline) {
            return rv;
        }
        slept = wait_fd(s, -1, 0, MIN(deadline, now + pause));
        if (slept != ERR_TIMEOUT) {
            return slept;
        }
        pause = MIN(pause * 2, MAX_BACKOFF_MS);
    }
}

static int resolve_and_connect(struct store_client *s, const char *host, int port,
                               struct errmsg *msg)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char service[16];
    int rv;

    (void)snprintf(service, sizeof(service), "%d", port);
    rv = getaddrinfo(host, service, &hints, &list);
    if (rv != 0) {
        return errmsg_set(msg, ERR_MISSING, "store at %s port %d: %s", host, port,
                          gai_strerror(rv));
    }
    rv = connect_until(s, list);
    freeaddrinfo(list);
    if (rv < 0) {
        return errmsg_set(msg, rv, "store at %s port %d: %s (tried for up to %d ms)",
                          host, port, err_text(rv), s->timeout_ms);
    }
    return 0;
}

int store_client_open(const char *host, int port, int timeout_ms,
                      struct store_client **ret, struct errmsg *msg)
{
    struct store_client *s = mem_zalloc(sizeof(*s));
    int rv;

    ASSERT(timeout_ms > 0);
    s->fd = -1;
    s->timeout_ms = timeout_ms;
    buf_init(&s->out, TCPSTORE_MAX_REQUEST);
    s->abort_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->abort_fd < 0) {
        rv = errmsg_set(msg, -errno, "store client: eventfd: %s", err_text(-errno));
    } else {
        rv = resolve_and_connect(s, host, port, msg);
    }
    if (rv < 0) {
        store_client_close(s);
        return rv;
    }
    *ret = s;
    return 0;
}

void store_client_set_timeout(struct store_client *s, int timeout_ms)
{
    ASSERT(timeout_ms > 0);
    s->timeout_ms = timeout_ms;
}

void store_client_close(struct store_client *s)
{
    if (!s) {
        return;
    }
    disconnect(s);
    if (s->abort_fd >= 0) {
        close(s->abort_fd);
    }
    buf_release(&s->out);
    mem_free(s);
}

void store_client_abort(struct store_client *s)
{
    uint64_t one = 1;
    ssize_t n = write(s->abort_fd, &one, sizeof(one));

    ASSERT(n == (ssize_t)sizeof(one) || errno == EAGAIN);
}
