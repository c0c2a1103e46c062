#ifndef COMMON_SOCKDIR_H
#define COMMON_SOCKDIR_H

/* The folders in which the servers of this host leave sockets for their operators:
 * $XDG_RUNTIME_DIR/ctrun, and /tmp/ctrun-<uid>; or $CTRUN_SOCKET_DIR alone. Each server
 * has one socket there, from its start to its end. A folder counts only if it belongs
 * to this user and nobody else may look into it (0700), and is no link: then whoever
 * answers there is this user's, or root's. All is done relative to the folder that was
 * checked. Any thread; may block as a file system does. */

#include "common/check.h"
#include "common/err.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    SOCKDIR_PLACES = 2,
    SOCKDIR_NAME_MAX = 64,
    SOCKDIR_MAX_SERVERS = 256, /* more are not looked at */
};

struct sockdir {
    int fd;
    char path[PATH_MAX];
};

/* Opens the folder of that place (0 is the better one), with `makes` after making it.
 * ERR_MISSING: it is not there, or cannot be, and the other may do; ERR_REFUSED, with a
 * text: it is not ours alone. */
int sockdir_open(struct sockdir *d, unsigned place, bool makes,
                 struct errmsg *msg) MUST_CHECK;
void sockdir_close(struct sockdir *d);

/* A listening socket (CLOEXEC, non-blocking) under a name of its own, or -errno. */
int sockdir_listen(const struct sockdir *d, char name[SOCKDIR_NAME_MAX]) MUST_CHECK;
void sockdir_remove(const struct sockdir *d, const char *name);

/* The names of the sockets there, in order; how many. */
size_t sockdir_list(const struct sockdir *d, char (*names)[SOCKDIR_NAME_MAX],
                    size_t max);

/* Removes the sockets of processes that have been killed. */
void sockdir_sweep(const struct sockdir *d);

/* A connected socket (CLOEXEC, non-blocking), or -errno. One whose server is gone
 * (-ECONNREFUSED) is removed. */
int sockdir_connect(const struct sockdir *d, const char *name) MUST_CHECK;

/* The same by the socket's path, whoever's folder it is in; nothing is removed. */
int sockdir_connect_path(const char *path) MUST_CHECK;

#endif
