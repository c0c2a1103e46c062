#include "launcher/store/relay_listen.h"

#include "launcher/rdzv/netaddr.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum { PORT_TRIES = 16 };

static bool is_local_only(const char *addr)
{
    return addr[0] == '\0' || strcmp(addr, "127.0.0.1") == 0;
}

/* The same port on both addresses, whichever is free. */
int relay_listen(const char *addr, int fds[RELAY_LISTENERS], int *ret_n, int *ret_port)
{
    int rv = -EADDRINUSE;
    int port;

    *ret_n = is_local_only(addr) ? 1 : 2;
    if (is_local_only(addr)) {
        return netaddr_listen("127.0.0.1", 0, &fds[0], ret_port);
    }
    for (int i = 0; i < PORT_TRIES && rv == -EADDRINUSE; i++) {
        rv = netaddr_listen(addr, 0, &fds[0], ret_port);
        if (rv < 0) {
            return rv;
        }
        rv = netaddr_listen("127.0.0.1", *ret_port, &fds[1], &port);
        if (rv < 0) {
            (void)close(fds[0]);
            fds[0] = -1;
        }
    }
    return rv;
}
