#ifndef LAUNCHER_STORE_RELAY_CLOSED_H
#define LAUNCHER_STORE_RELAY_CLOSED_H

/* PURE. The workers' connections that have ended, of which the service was told once,
 * and maybe in vain: after a reconnect it is told again. Bounded: the oldest are
 * forgotten, and so are theirs there. */

#include "common/msg.h"

enum { RELAY_CLOSED_MAX = 1024 };

/* Zeroed: none. */
struct relay_closed {
    uint32_t client[RELAY_CLOSED_MAX];
    size_t n; /* so far */
};

void relay_closed_add(struct relay_closed *c, uint32_t client);
void relay_closed_tell(const struct relay_closed *c, uint64_t generation,
                       void (*send)(void *arg, const struct msg *m), void *arg);

#endif
