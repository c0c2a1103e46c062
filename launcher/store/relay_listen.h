#ifndef LAUNCHER_STORE_RELAY_LISTEN_H
#define LAUNCHER_STORE_RELAY_LISTEN_H

/* Where a relay listens: on loopback, and on an address of this host for the workers of
 * other nodes. */

#include "common/check.h"

enum { RELAY_LISTENERS = 2 };

/* Binds one free port on 127.0.0.1 and, unless `addr` is that or "", on `addr`, and
 * listens. The caller owns the descriptors; on errors there are none. -errno. */
int relay_listen(const char *addr, int fds[RELAY_LISTENERS], int *ret_n,
                 int *ret_port) MUST_CHECK;

#endif
