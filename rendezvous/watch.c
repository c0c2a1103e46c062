/* The options of sockets. */

#include "rendezvous/connection.h"

#include "common/lease.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum {
    IDLE_S = 60,                /* anybody's */
    USER_TIMEOUT = 120000,      /* it has not taken what we sent */
    CLOSE_WATCH_S = 4,          /* idle seconds before the first probe */
    CLOSE_WATCH_PROBES = 3,     /* one second apart */
    CLOSE_USER_TIMEOUT = 10000, /* … at least, or two leases (lease.h) */
    PATIENT_USER_TIMEOUT = CONNECTION_LINGER_MS, /* its peer's window may be shut */
    MAX_UNSENT = 128 * 1024,                     /* bytes … */
    MAX_UNREAD = 512 * 1024, /* … in the kernel, where nothing overtakes */
};

int connection_watch(struct connection *c)
{
    int timeout = USER_TIMEOUT;
    uv_os_fd_t fd;
    int rv = uv_tcp_keepalive(&c->tcp, 1, IDLE_S);

    rv = rv == 0 ? uv_fileno((uv_handle_t *)&c->tcp, &fd) : rv;
    if (rv == 0 &&
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout)) < 0) {
        rv = -errno;
    }
    return rv;
}

void connection_watch_patiently(struct connection *c)
{
    int idle = IDLE_S;
    int timeout = PATIENT_USER_TIMEOUT;
    uv_os_fd_t fd;
    int rv = uv_fileno((uv_handle_t *)&c->tcp, &fd);

    if (c->is_local) {
        return;
    }
    if (rv < 0) {
        connection_fail(c, rv);
    } else if (setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)) < 0 ||
               setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout,
                          sizeof(timeout)) < 0) {
        connection_fail(c, -errno);
    }
}

void connection_watch_closely(struct connection *c, uint32_t lease_ms)
{
    int idle = CLOSE_WATCH_S;
    int one = 1;
    int probes = CLOSE_WATCH_PROBES;
    int timeout = lease_silence_ms(lease_ms, CLOSE_USER_TIMEOUT);
    int unsent = MAX_UNSENT;
    int unread = MAX_UNREAD;
    uv_os_fd_t fd;
    int rv = uv_fileno((uv_handle_t *)&c->tcp, &fd);

    if (c->is_local) {
        return; /* its peer does not vanish */
    }
    if (rv < 0) {
        connection_fail(c, rv);
    } else if (setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)) < 0 ||
               setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof(one)) < 0 ||
               setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes)) < 0 ||
               setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout,
                          sizeof(timeout)) < 0 ||
               setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent)) <
                   0 ||
               setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &unread, sizeof(unread)) < 0) {
        connection_fail(c, -errno);
    }
}
