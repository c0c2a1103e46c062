#include "launcher/rdzv/netaddr.h"

#include "common/err.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

/* An address with its port, v4-mapped ones turned into IPv4. */
struct endpoint {
    int family;
    uint16_t port; /* network order */
    size_t size;
    uint8_t bytes[16];
};

static struct endpoint endpoint_of(const struct sockaddr *addr)
{
    struct endpoint e = {.family = addr->sa_family};
    struct sockaddr_in in;
    struct sockaddr_in6 in6;

    if (addr->sa_family == AF_INET) {
        memcpy(&in, addr, sizeof(in));
        e.port = in.sin_port;
        e.size = sizeof(in.sin_addr);
        memcpy(e.bytes, &in.sin_addr, e.size);
    } else if (addr->sa_family == AF_INET6) {
        memcpy(&in6, addr, sizeof(in6));
        e.port = in6.sin6_port;
        e.size = sizeof(in6.sin6_addr);
        memcpy(e.bytes, &in6.sin6_addr, e.size);
        if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
            e.family = AF_INET;
            e.size = sizeof(in.sin_addr);
            memmove(e.bytes, e.bytes + 12, e.size);
        }
    }
    return e;
}

static bool is_same_host(const struct endpoint *a, const struct endpoint *b)
{
    return a->family == b->family && memcmp(a->bytes, b->bytes, a->size) == 0;
}

static bool is_loopback(const struct endpoint *e)
{
    static const uint8_t one[16] = {[15] = 1};

    return e->family == AF_INET ? e->bytes[0] == 127 : memcmp(e->bytes, one, 16) == 0;
}

static bool is_link_local(const struct endpoint *e)
{
    return e->family == AF_INET ? e->bytes[0] == 169 && e->bytes[1] == 254
                                : e->bytes[0] == 0xfe && (e->bytes[1] & 0xc0) == 0x80;
}

bool netaddr_is_loopback(const struct sockaddr *addr)
{
    struct endpoint e = endpoint_of(addr);

    return is_loopback(&e);
}

bool netaddr_is_among(const struct sockaddr *addr, const struct ifaddrs *all)
{
    struct endpoint wanted = endpoint_of(addr);
    bool found = is_loopback(&wanted);

    for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
        if (i->ifa_addr) {
            struct endpoint e = endpoint_of(i->ifa_addr);

            found = e.size > 0 && is_same_host(&e, &wanted);
        }
    }
    return found;
}

int netaddr_is_this_host(const struct sockaddr *addr, bool *ret)
{
    struct ifaddrs *all = NULL;

    if (getifaddrs(&all) < 0) {
        return -errno;
    }
    *ret = netaddr_is_among(addr, all);
    freeifaddrs(all);
    return 0;
}

void netaddr_format(const struct sockaddr *addr, char *ret, size_t size)
{
    struct endpoint e = endpoint_of(addr);

    ret[0] = '\0';
    if (e.size == 0 || !inet_ntop(e.family, e.bytes, ret, (socklen_t)size)) {
        ret[0] = '\0';
    }
}

/* The source address that a datagram to `to` would have. */
static bool source_towards(const struct sockaddr *to, socklen_t to_size, char *ret,
                           size_t size)
{
    struct sockaddr_storage from = {0};
    socklen_t from_size = sizeof(from);
    int fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool found;

    if (fd < 0) {
        return false;
    }
    found = connect(fd, to, to_size) == 0 &&
            getsockname(fd, (struct sockaddr *)&from, &from_size) == 0 &&
            !netaddr_is_loopback((struct sockaddr *)&from);
    (void)close(fd); /* a datagram socket without data */
    if (found) {
        netaddr_format((struct sockaddr *)&from, ret, size);
    }
    return found;
}

/* Up, with a carrier, and no loopback: an address kept there is nobody's way in. */
static bool is_reachable(const struct ifaddrs *i)
{
    const unsigned wanted = IFF_UP | IFF_RUNNING;

    return (i->ifa_flags & (wanted | IFF_LOOPBACK)) == wanted;
}

/* Of a family; a link-local one is of no use without its interface's name. */
static bool first_interface(int family, char *ret, size_t size)
{
    struct ifaddrs *all = NULL;
    bool found = false;

    if (getifaddrs(&all) < 0) {
        return false;
    }
    for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
        struct endpoint e = {0};

        if (i->ifa_addr && i->ifa_addr->sa_family == family && is_reachable(i)) {
            e = endpoint_of(i->ifa_addr);
        }
        found = e.size > 0 && !is_loopback(&e) && !is_link_local(&e);
        if (found) {
            netaddr_format(i->ifa_addr, ret, size);
        }
    }
    freeifaddrs(all);
    return found;
}

void netaddr_public(char *ret, size_t size)
{
    /* documentation networks: the default route, or none */
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = htons(9)};

    ret[0] = '\0';
    if (inet_pton(AF_INET, "192.0.2.1", &to.sin_addr) == 1 &&
        source_towards((struct sockaddr *)&to, sizeof(to), ret, size)) {
        return;
    }
    if (inet_pton(AF_INET6, "2001:db8::1", &to6.sin6_addr) == 1 &&
        source_towards((struct sockaddr *)&to6, sizeof(to6), ret, size)) {
        return;
    }
    if (!first_interface(AF_INET, ret, size)) {
        (void)first_interface(AF_INET6, ret, size);
    }
}

/* --- sock_diag --- */

struct question {
    struct nlmsghdr head;
    struct inet_diag_req_v2 body;
};

/* The answers of a kernel, or of a sandbox, that has no sock_diag. Any other failure
 * may be brought about, or pass: it says nothing about the peer. */
static bool is_no_sock_diag(int error)
{
    return error == EAFNOSUPPORT || error == EPROTONOSUPPORT ||
           error == ESOCKTNOSUPPORT || error == ECONNREFUSED || error == EOPNOTSUPP ||
           error == ENOSYS || error == EINVAL;
}

static int unanswered(int error)
{
    return is_no_sock_diag(error) ? ERR_UNSUPPORTED : -error;
}

static int ask(int fd, const struct question *q, uid_t *ret)
{
    union {
        struct nlmsghdr head;
        char bytes[4096];
    } answer;
    struct inet_diag_msg found;
    ssize_t n;

    if (send(fd, q, sizeof(*q), MSG_NOSIGNAL) < 0) {
        return unanswered(errno);
    }
    n = recv(fd, &answer, sizeof(answer), 0);
    if (n < 0) {
        return unanswered(errno);
    }
    if (n < (ssize_t)sizeof(answer.head)) {
        return -EBADMSG;
    }
    if (answer.head.nlmsg_type == NLMSG_ERROR) {
        struct nlmsgerr e;

        if ((size_t)n < NLMSG_LENGTH(sizeof(e))) {
            return -EBADMSG;
        }
        memcpy(&e, NLMSG_DATA(&answer.head), sizeof(e));
        return e.error == -ENOENT ? ERR_MISSING : unanswered(-e.error);
    }
    if (answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
        (size_t)n < NLMSG_LENGTH(sizeof(found))) {
        return ERR_UNSUPPORTED;
    }
    memcpy(&found, NLMSG_DATA(&answer.head), sizeof(found));
    if (found.idiag_inode == 0) {
        return ERR_MISSING; /* closed: the kernel calls it root's, whose ever it was */
    }
    *ret = found.idiag_uid;
    return 0;
}

int netaddr_peer_uid(const struct sockaddr *peer, const struct sockaddr *local,
                     uid_t *ret)
{
    struct endpoint from = endpoint_of(peer);
    struct endpoint to = endpoint_of(local);
    struct question q = {
        .head = {.nlmsg_len = sizeof(q),
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST},
        .body = {.sdiag_family = (uint8_t)from.family,
                 .sdiag_protocol = IPPROTO_TCP,
                 .idiag_states = UINT32_MAX},
    };
    int fd;
    int rv;

    if (from.size == 0 || from.family != to.family) {
        return ERR_INVALID;
    }
    q.body.id.idiag_sport = from.port;
    q.body.id.idiag_dport = to.port;
    memcpy(q.body.id.idiag_src, from.bytes, from.size);
    memcpy(q.body.id.idiag_dst, to.bytes, to.size);
    q.body.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
    q.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd < 0) {
        return unanswered(errno);
    }
    rv = ask(fd, &q, ret);
    (void)close(fd);
    return rv;
}

int netaddr_port(const struct sockaddr *addr)
{
    struct sockaddr_in6 v6;
    struct sockaddr_in v4;

    if (addr->sa_family == AF_INET) {
        memcpy(&v4, addr, sizeof(v4));
        return ntohs(v4.sin_port);
    }
    if (addr->sa_family == AF_INET6) {
        memcpy(&v6, addr, sizeof(v6));
        return ntohs(v6.sin6_port);
    }
    return 0;
}

int netaddr_parse(const char *text, int port, struct sockaddr_storage *ret)
{
    *ret = (struct sockaddr_storage){0};
    return uv_ip4_addr(text, port, (struct sockaddr_in *)ret) < 0 &&
                   uv_ip6_addr(text, port, (struct sockaddr_in6 *)ret) < 0
               ? ERR_INVALID
               : 0;
}

int netaddr_listen(const char *addr, int port, int *ret_fd, int *ret_port)
{
    struct sockaddr_storage ss;
    socklen_t size = sizeof(ss);
    const int on = 1;
    int fd;
    int rv = netaddr_parse(addr, port, &ss);

    if (rv < 0) {
        return rv;
    }
    fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, (struct sockaddr *)&ss, size) < 0 || listen(fd, NETADDR_BACKLOG) < 0 ||
        getsockname(fd, (struct sockaddr *)&ss, &size) < 0) {
        rv = -errno;
        (void)close(fd);
        return rv;
    }
    *ret_fd = fd;
    *ret_port = netaddr_port((struct sockaddr *)&ss);
    return 0;
}
