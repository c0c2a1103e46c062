#ifndef LAUNCHER_RDZV_LOCAL_ADDR_H
#define LAUNCHER_RDZV_LOCAL_ADDR_H

/* --local-addr → the numeric address at which the other nodes reach this one. */

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

/* A number or a host name, which is looked up (blocks). Of a name's addresses it is one
 * that this host has; where those are loopback alone (Debian's 127.0.1.1 for the host's
 * own name) and other nodes are to come (`for_others`), netaddr_public's. ERR_INVALID
 * with one line: no such name, none of its addresses is this host's, or none that
 * others reach. */
int local_addr_resolve(const char *text, bool for_others, char *ret, size_t size,
                       struct errmsg *msg) MUST_CHECK;

#endif
