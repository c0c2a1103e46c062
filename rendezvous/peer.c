#include "rendezvous/peer.h"

#include "common/err.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

int peer_parse(const char *text, struct sockaddr_storage *ret)
{
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;
    struct sockaddr_in *v4 = (struct sockaddr_in *)ret;

    *ret = (struct sockaddr_storage){0};
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        ret->ss_family = AF_INET;
        return 0;
    }
    if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
        ret->ss_family = AF_INET6;
        return 0;
    }
    return ERR_INVALID;
}

bool peer_is_loopback(const struct sockaddr *addr)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)addr;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)addr;

    if (addr->sa_family == AF_INET) {
        return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    return addr->sa_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) ||
            (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) &&
             v6->sin6_addr.s6_addr[12] == IN_LOOPBACKNET));
}

uint64_t peer_network(const struct sockaddr *addr)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)addr;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)addr;
    uint64_t network = 0;
    uint32_t host;

    if (addr->sa_family == AF_INET) {
        return ntohl(v4->sin_addr.s_addr) >> 8;
    }
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
        memcpy(&host, &v6->sin6_addr.s6_addr[12], sizeof(host));
        return ntohl(host) >> 8;
    }
    memcpy(&network, v6->sin6_addr.s6_addr, sizeof(network));
    return network;
}

void peer_name(const struct sockaddr *addr, char *text, size_t size)
{
    static const char mapped[] = "::ffff:";
    socklen_t addr_size = addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                      : sizeof(struct sockaddr_in);

    if (addr->sa_family == AF_UNIX) {
        (void)snprintf(text, size, "local");
        return;
    }
    if (getnameinfo(addr, addr_size, text, (socklen_t)size, NULL, 0, NI_NUMERICHOST) !=
        0) {
        text[0] = '\0';
    }
    if (strncmp(text, mapped, sizeof(mapped) - 1) == 0 && strchr(text, '.')) {
        memmove(text, text + sizeof(mapped) - 1, strlen(text) - sizeof(mapped) + 2);
    }
}
