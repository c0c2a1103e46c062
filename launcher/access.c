#include "launcher/access.h"

#include <stdio.h>

void access_make(bool is_engine, uint32_t max_nodes, const char *local_addr,
                 const char *own_addr, struct access *ret)
{
    ret->is_shared = !is_engine && max_nodes > 1;
    ret->fixed_addr = NULL;
    (void)snprintf(ret->addr, sizeof(ret->addr), "%s",
                   local_addr[0] != '\0' ? local_addr : own_addr);
}

void access_fix(struct access *a, bool is_engine, const char *addr, int port)
{
    if (!is_engine) {
        a->is_shared = false;
        a->fixed_addr = addr;
        a->fixed_port = port;
    }
}

const char *access_listen_addr(const struct access *a)
{
    return a->is_shared ? a->addr : "";
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
