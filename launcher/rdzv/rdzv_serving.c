#include "launcher/rdzv/rdzv_serving.h"

#include <arpa/inet.h>
#include <string.h>

/* A name for a loopback address that other hosts know by another: Debian lets the
 * host's own name be 127.0.1.1. */
static bool is_name(const char *host)
{
    struct in6_addr addr;

    return strcmp(host, "localhost") != 0 && inet_pton(AF_INET, host, &addr) != 1 &&
           inet_pton(AF_INET6, host, &addr) != 1;
}

enum rdzv_place rdzv_serving_place(enum rdzv_serving serving,
                                   const struct rdzv_endpoint *endpoint)
{
    bool is_out_of_reach = endpoint->is_loopback && endpoint->max_nodes > 1;

    if (endpoint->is_kept_elsewhere) {
        return RDZV_NOWHERE;
    }
    switch (serving) {
    case RDZV_SERVE_NEVER:
        return RDZV_NOWHERE;
    case RDZV_SERVE_ALWAYS: /* other nodes may have another address for this host */
        return endpoint->is_ours && !is_out_of_reach ? RDZV_OWN_ADDRESS
                                                     : RDZV_EVERYWHERE;
    case RDZV_SERVE_OWN_ADDRESS:
        break;
    }
    if (!endpoint->is_ours) {
        return RDZV_NOWHERE;
    }
    return is_out_of_reach && is_name(endpoint->host) ? RDZV_EVERYWHERE
                                                      : RDZV_OWN_ADDRESS;
}
