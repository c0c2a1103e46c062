#include "launcher/rdzv/local_addr.h"

#include "launcher/rdzv/netaddr.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/* The first of them that is this host's, better none of loopback; ERR_MISSING. */
static int find_ours(const struct addrinfo *info, const struct sockaddr **ret)
{
    *ret = NULL;
    for (; info; info = info->ai_next) {
        bool is_ours = false;
        int rv = netaddr_is_this_host(info->ai_addr, &is_ours);

        if (rv < 0) {
            return rv;
        }
        if (is_ours && (!*ret || netaddr_is_loopback(*ret))) {
            *ret = info->ai_addr;
        }
    }
    return *ret ? 0 : ERR_MISSING;
}

static bool is_numeric(const char *text)
{
    struct sockaddr_storage addr;

    return netaddr_parse(text, 0, &addr) == 0;
}

static bool is_for_here_only(const struct sockaddr *addr, const char *text)
{
    return netaddr_is_loopback(addr) && !is_numeric(text) &&
           strcmp(text, "localhost") != 0;
}

static int choose(const struct addrinfo *info, const char *text, bool for_others,
                  char *ret, size_t size, struct errmsg *msg)
{
    const struct sockaddr *ours;
    int rv = find_ours(info, &ours);

    if (rv == ERR_MISSING) {
        return errmsg_set(msg, ERR_INVALID,
                          "--local-addr: no interface of this host has the address %s; "
                          "'ip addr' lists those that there are",
                          text);
    }
    if (rv < 0) {
        return errmsg_set(msg, rv,
                          "--local-addr: cannot list this host's addresses: %s",
                          err_text(rv));
    }
    netaddr_format(ours, ret, size);
    if (for_others && is_for_here_only(ours, text)) {
        netaddr_public(ret, size);
    }
    return ret[0] != '\0'
               ? 0
               : errmsg_set(
                     msg, ERR_INVALID,
                     "--local-addr: %s is loopback on this host, and no interface "
                     "that is up has an address that other nodes reach",
                     text);
}

int local_addr_resolve(const char *text, bool for_others, char *ret, size_t size,
                       struct errmsg *msg)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *info;
    int rv = getaddrinfo(text, NULL, &hints, &info);

    if (rv != 0) {
        return errmsg_set(msg, ERR_INVALID, "--local-addr: %s does not resolve: %s",
                          text,
                          rv == EAI_SYSTEM ? strerrordesc_np(errno) : gai_strerror(rv));
    }
    rv = choose(info, text, for_others, ret, size, msg);
    freeaddrinfo(info);
    return rv;
}
