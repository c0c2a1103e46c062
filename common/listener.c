/* Happy path: 1. socket, bind, listen by hand, for the options that uv_tcp_bind
 * lacks; 2. a uv_poll says when somebody is there; 3. up to ACCEPTS_PER_TURN are
 * accepted, the rest is for the next turn of the loop. Failures: out of descriptors or
 * memory → the poll is stopped and a timer starts it again. */

#include "common/listener.h"

#include "common/closer.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/portowner.h"
#include "common/str.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

enum { ACCEPTS_PER_TURN = 64, RETRY_MS = 100, MAX_HOST = 256 };

struct listener {
    struct listener_config config;
    int fd;
    int port;
    bool is_starved; /* said so already */
    uv_poll_t poll;
    uv_timer_t retry;
    struct closer closer;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* ---- the socket ---- */

static int bind_error(const char *addr, int port, int err, struct errmsg *msg)
{
    char host[MAX_HOST];

    str_format_host(host, sizeof(host), addr);
    if (err == -EADDRINUSE) {
        return errmsg_set(msg, err, "port %d on %s is taken: choose another port", port,
                          host);
    }
    return errmsg_set(
        msg, err, "cannot listen on %s:%d: %s%s", host, port, err_text(err),
        err == -EADDRNOTAVAIL ? ": no network interface has this address" : "");
}

static int bind_to(int fd, const struct sockaddr *addr, socklen_t size)
{
    int one = 1;
    int zero = 0;

    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0) {
        return -errno;
    }
    if (addr->sa_family == AF_INET6 &&
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero)) < 0) {
        return -errno;
    }
    return bind(fd, addr, size) < 0 ? -errno : 0;
}

/* Returns the socket, or -errno. */
static int open_socket(const struct addrinfo *info, bool listens)
{
    int rv;
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0) {
        return -errno;
    }
    rv = bind_to(fd, info->ai_addr, info->ai_addrlen);
    if (rv == 0 && listens && listen(fd, SOMAXCONN) < 0) {
        rv = -errno;
    }
    if (rv < 0) {
        (void)close(fd); /* it never served */
        return rv;
    }
    return fd;
}

/* NULL when it is no numeric address. */
static struct addrinfo *parse_address(const char *addr, int port)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                             .ai_socktype = SOCK_STREAM};
    struct addrinfo *info;
    char service[16];

    return str_format(service, sizeof(service), "%d", port) &&
                   getaddrinfo(addr, service, &hints, &info) == 0
               ? info
               : NULL;
}

/* The socket, or an error. */
static int try_address(const char *addr, int port, bool listens)
{
    struct addrinfo *info = parse_address(addr, port);
    int fd;

    if (!info) {
        return ERR_INVALID;
    }
    fd = open_socket(info, listens);
    freeaddrinfo(info);
    return fd;
}

/* Returns the socket, or an error with its text. "::" is 0.0.0.0 where there is no IPv6.
 */
static int bind_on(const char *addr, int port, bool listens, struct errmsg *msg)
{
    int fd = try_address(addr, port, listens);

    if (fd == ERR_INVALID) {
        return errmsg_set(
            msg, ERR_INVALID,
            "'%s' is no numeric address: give one such as 127.0.0.1 or ::", addr);
    }
    if ((fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL) && strcmp(addr, "::") == 0) {
        addr = "0.0.0.0";
        fd = try_address(addr, port, listens);
    }
    return fd < 0 ? bind_error(addr, port, fd, msg) : fd;
}

void listener_name_holder(const char *addr, int port, char *ret, size_t size)
{
    struct addrinfo *info = parse_address(addr, port);
    char host[MAX_HOST];
    char owner[128];

    str_format_host(host, sizeof(host), addr);
    if (info && portowner_find(info->ai_addr, owner, sizeof(owner))) {
        (void)snprintf(ret, size,
                       "port %d on %s is taken by %s: end it, or choose another port",
                       port, host, owner);
    } else {
        (void)snprintf(
            ret, size,
            "port %d on %s is taken by a process that cannot be looked at (another "
            "user's, or one that does not listen): choose another port",
            port, host);
    }
    if (info) {
        freeaddrinfo(info);
    }
}

static int bound_port(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } addr = {.v6 = {0}};
    socklen_t size = sizeof(addr);

    if (getsockname(fd, &addr.any, &size) < 0) {
        return -errno;
    }
    if (addr.any.sa_family == AF_UNIX) {
        return 0;
    }
    return ntohs(addr.any.sa_family == AF_INET6 ? addr.v6.sin6_port : addr.v4.sin_port);
}

/* ---- accepting ---- */

static void on_readable(uv_poll_t *poll, int status, int events);

static void start_accepting(struct listener *l)
{
    int rv = uv_poll_start(&l->poll, UV_READABLE, on_readable);

    ASSERT(rv == 0); /* fails for a closing handle only */
}

static void on_retry(uv_timer_t *timer)
{
    start_accepting(timer->data);
}

static void pause_accepting(struct listener *l, int err)
{
    int rv;

    if (!l->is_starved) {
        log_warn("new connections have to wait", "port=%d cause=\"%s\"", l->port,
                 err_text(err));
        l->is_starved = true;
    }
    rv = uv_poll_stop(&l->poll);
    ASSERT(rv == 0);
    rv = uv_timer_start(&l->retry, on_retry, RETRY_MS, 0);
    ASSERT(rv == 0);
}

/* Returns false when there is nobody to accept. */
static bool accept_one(struct listener *l)
{
    struct sockaddr_storage peer = {0}; /* of a Unix socket's comes the family alone */
    socklen_t size = sizeof(peer);
    int fd;

    fd = accept4(l->fd, (struct sockaddr *)&peer, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        l->is_starved = false;
        l->config.on_accept(l->config.arg, fd, (struct sockaddr *)&peer);
        return true;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        pause_accepting(l, -errno);
        return false;
    }
    /* the rest are errors of that one connection (accept(2)), or EAGAIN */
    return errno != EAGAIN;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct listener *l = poll->data;

    (void)status; /* accept4 finds out for itself */
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        if (!accept_one(l) || uv_is_closing((uv_handle_t *)poll)) {
            return;
        }
    }
}

int listener_adopt(const struct listener_config *config, int fd, struct listener **ret)
{
    struct listener *l = mem_zalloc(sizeof(*l));
    int rv;

    l->config = *config;
    l->fd = fd;
    l->port = bound_port(fd);
    rv = l->port < 0 ? l->port : uv_poll_init(config->loop, &l->poll, fd);
    if (rv < 0) {
        (void)close(fd); /* it never served */
        mem_free(l);
        return rv;
    }
    rv = uv_timer_init(config->loop, &l->retry);
    ASSERT(rv == 0); /* documented never to fail */
    closer_init(&l->closer);
    closer_opened(&l->closer);
    closer_opened(&l->closer);
    l->poll.data = l;
    l->retry.data = l;
    start_accepting(l);
    *ret = l;
    return 0;
}

int listener_open(const struct listener_config *config, const char *addr, int port,
                  struct listener **ret, struct errmsg *msg)
{
    int fd = bind_on(addr, port, true, msg);
    int rv;

    if (fd < 0) {
        return fd;
    }
    rv = listener_adopt(config, fd, ret);
    return rv < 0 ? bind_error(addr, port, rv, msg) : 0;
}

int listener_try(const char *addr, int port, struct errmsg *msg)
{
    int fd = bind_on(addr, port, false, msg);

    if (fd >= 0) {
        (void)close(fd); /* it never served */
    }
    return MIN(fd, 0);
}

int listener_port(const struct listener *l)
{
    return l->port;
}

static void on_all_closed(void *arg)
{
    struct listener *l = arg;
    void (*on_closed)(void *arg) = l->on_closed;
    void *on_closed_arg = l->on_closed_arg;

    mem_free(l);
    on_closed(on_closed_arg);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct listener *l = handle->data;

    closer_closed(&l->closer);
}

void listener_close(struct listener *l, void (*on_closed)(void *arg), void *arg)
{
    l->on_closed = on_closed;
    l->on_closed_arg = arg;
    uv_close((uv_handle_t *)&l->poll, on_handle_closed);
    uv_close((uv_handle_t *)&l->retry, on_handle_closed);
    (void)close(l->fd); /* libuv has let go of it in uv_close */
    closer_finish(&l->closer, on_all_closed, l);
}
