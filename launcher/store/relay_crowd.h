#ifndef LAUNCHER_STORE_RELAY_CROWD_H
#define LAUNCHER_STORE_RELAY_CROWD_H

/* PURE. Whom to read when the connections of a node together hold much that the service
 * has not acknowledged: what one worker has piled up is no reason for another to wait, so
 * those that hold little are read on, as long as it goes. Sizes in bytes. */

#include <stdbool.h>
#include <stddef.h>

enum {
    RELAY_CROWD_LARGE_AT = 64 * 1024 * 1024, /* of all together … */
    RELAY_CROWD_SMALL = 64 * 1024, /* … but for those that hold no more than this … */
    RELAY_CROWD_ALL_AT =
        144 * 1024 * 1024, /* … up to here; above the one + a request */
};

enum relay_crowd {
    RELAY_CROWD_NONE,
    RELAY_CROWD_LARGE, /* who holds much waits */
    RELAY_CROWD_ALL,   /* everybody does */
};

/* `held`: by all together. */
enum relay_crowd relay_crowd_of(size_t held);

/* Must this connection wait, which holds so much? `is_paused`: the service's connection
 * takes no more, which is as if those that hold much were too many. */
bool relay_crowd_must_wait(enum relay_crowd crowd, bool is_paused, size_t held);

#endif
