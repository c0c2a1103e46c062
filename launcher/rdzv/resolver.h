#ifndef LAUNCHER_RDZV_RESOLVER_H
#define LAUNCHER_RDZV_RESOLVER_H

/* The addresses of a name, found by a thread that nobody has to wait for: with name
 * servers that do not answer it takes the C library half a minute, and who is told to
 * stop meanwhile is to end at once. Loop thread only. */

#include "common/aside.h"

struct addrinfo;

/* on_done(arg, answer), once, unless it is dropped before (aside_drop). */
struct aside *resolver_ask(struct uv_loop_s *loop, const char *host, int port,
                           void (*on_done)(void *arg, void *answer), void *arg);

/* For the time of on_done. NULL: none, *ret_why says why. */
const struct addrinfo *resolver_found(const void *answer, const char **ret_why);

#endif
