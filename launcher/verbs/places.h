#ifndef LAUNCHER_VERBS_PLACES_H
#define LAUNCHER_VERBS_PLACES_H

/* Where servers may be: the one that --endpoint or CTRUN_ENDPOINT names; else this
 * user's sockets (common/sockdir.h), and the default endpoint of ctrun-rendezvous. */

#include "common/err.h"
#include "common/sockdir.h"

#include <stdbool.h>

enum { PLACES_MAX = SOCKDIR_MAX_SERVERS + 1, PLACES_DEFAULT_PORT = 29400 };

struct place {
    char name[PATH_MAX + SOCKDIR_NAME_MAX]; /* for people, and --endpoint */
    int fd;                                 /* connected, by a Unix socket; -1: */
    char host[256];                         /* … */
    int port;
    bool is_guess; /* nobody has said that there is one */
};

struct places {
    struct place *place; /* owned */
    size_t n;
};

/* `endpoint` "": not given. What is refused of the folders is told by a warning. */
int places_find(const char *endpoint, struct places *ret,
                struct errmsg *msg) MUST_CHECK;
void places_release(struct places *p); /* closes those that nobody took */

#endif
