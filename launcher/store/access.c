#include "launcher/store/access.h"

#include "common/str.h"

#include <stdio.h>
#include <string.h>

static bool is_local(const struct access_config *c)
{
    return c->is_engine || c->asked == STORE_ACCESS_LOCAL ||
           (c->asked == STORE_ACCESS_AUTO && c->has_keys);
}

static bool is_fixed(const struct access_config *c)
{
    return c->fixed_addr && !is_local(c);
}

static bool is_shared(const struct access_config *c)
{
    if (is_local(c) || is_fixed(c)) {
        return false;
    }
    return c->asked == STORE_ACCESS_DIRECT ||
           (c->asked == STORE_ACCESS_AUTO && c->max_nodes > 1);
}

static bool is_loopback(const char *addr)
{
    return str_starts_with(addr, "127.") || strcmp(addr, "::1") == 0;
}

bool access_wants_public(const struct access_config *c)
{
    /* with several nodes a service on loopback says that all of them are here */
    return is_shared(c) && c->max_nodes == 1 && c->local_addr[0] == '\0' &&
           is_loopback(c->own_addr);
}

void access_make(const struct access_config *c, struct access *ret)
{
    const char *addr = c->local_addr[0] != '\0' ? c->local_addr : c->own_addr;

    if (access_wants_public(c) && c->public_addr[0] != '\0') {
        addr = c->public_addr;
    }
    ret->is_shared = is_shared(c);
    ret->fixed_addr = is_fixed(c) ? c->fixed_addr : NULL;
    ret->fixed_port = c->fixed_port;
    (void)snprintf(ret->addr, sizeof(ret->addr), "%s", addr);
}

const char *access_listen_addr(const struct access *a)
{
    return a->is_shared ? a->addr : "";
}

uint16_t access_published_port(const struct access *a, int port)
{
    return a->is_shared ? (uint16_t)port : 0;
}

struct access_master access_master(const struct access *a, const struct msg_node *nodes,
                                   int port)
{
    if (a->fixed_addr) {
        return (struct access_master){a->fixed_addr, a->fixed_port};
    }
    if (a->is_shared) {
        return (struct access_master){nodes[0].addr, nodes[0].port};
    }
    return (struct access_master){"127.0.0.1", port};
}
