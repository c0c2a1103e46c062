#ifndef RENDEZVOUS_MEMBERS_H
#define RENDEZVOUS_MEMBERS_H

/* PURE. Which nodes have been in a job's generations: one that comes when the job is
 * over, and was never in it, comes late; one that was begins the job anew. */

#include "common/err.h"
#include "common/msg.h"

enum { MEMBERS_MAX = 256 };

/* Zeroed: none. */
struct members {
    uint64_t key[MEMBERS_MAX];
    uint32_t n;
    bool has_more; /* than are kept: anybody may have been one */
};

/* Of a node: its --node-rank, else its host and source address. `seed` as of tables. */
uint64_t members_key(const struct msg_hello *hello, const char *peer_addr,
                     uint64_t seed);

void members_add(struct members *m, uint64_t key); /* once or again */
/* Of the keys as they are saved: u64 each. ERR_CORRUPT: too many, or not whole. */
int members_restore(struct members *m, struct bytes keys, bool has_more) MUST_CHECK;

bool members_may_have(const struct members *m, uint64_t key);

#endif
