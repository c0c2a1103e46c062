#ifndef COMMON_LISTENER_H
#define COMMON_LISTENER_H

/* A listening socket on a libuv loop. When no descriptor is free it pauses and
 * tries again, so that those who wait in the backlog get their turn. The loop's thread.
 */

#include "common/err.h"

#include <stddef.h>

struct uv_loop_s;
struct sockaddr;
struct listener;

/* `fd` is non-blocking, CLOEXEC and the callback's to close. */
typedef void (*listener_accept_cb)(void *arg, int fd, const struct sockaddr *peer);

struct listener_config {
    struct uv_loop_s *loop; /* borrowed: outlives the listener */
    listener_accept_cb on_accept;
    void *arg;
};

/* Listens on a numeric address; "::" is dual-stack and falls back to 0.0.0.0 where
 * there is no IPv6; port 0 picks one. -EADDRINUSE: listener_name_holder says more. */
int listener_open(const struct listener_config *config, const char *addr, int port,
                  struct listener **ret, struct errmsg *msg) MUST_CHECK;

/* The same on a listening socket (non-blocking), which it takes over, on errors too. */
int listener_adopt(const struct listener_config *config, int fd,
                   struct listener **ret) MUST_CHECK;

/* After -EADDRINUSE: a text that says who holds the port, where /proc tells; cut to
 * `size`. It looks at every process of the machine, so not where many may ask. */
void listener_name_holder(const char *addr, int port, char *ret, size_t size);

/* Whether it could listen there: binds, and lets go. */
int listener_try(const char *addr, int port, struct errmsg *msg) MUST_CHECK;

int listener_port(const struct listener *l);

/* Asynchronous: frees the listener, then calls back. */
void listener_close(struct listener *l, void (*on_closed)(void *arg), void *arg);

#endif
