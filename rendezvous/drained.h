#ifndef RENDEZVOUS_DRAINED_H
#define RENDEZVOUS_DRAINED_H

/* PURE. Agents that an operator has told to go and whose connection ended before they
 * said that they do: the word may not have reached them. Who comes back is told again.
 * Bounded, the newest in place of the oldest; not durable. */

#include "rendezvous/record.h"

enum { DRAINED_MAX = 64 };

struct drained_agent {
    uint64_t id;
    char by[RECORD_DRAINED_MAX]; /* as the node's */
};

/* Zeroed: empty. */
struct drained {
    struct drained_agent *agent; /* owned */
    size_t n;                    /* so far; DRAINED_MAX at most are there */
};

void drained_release(struct drained *d);
void drained_note(struct drained *d, uint64_t id, const char *by);

/* Its word, if there is one, which is forgotten then. */
void drained_take(struct drained *d, uint64_t id, char ret[RECORD_DRAINED_MAX]);

#endif
