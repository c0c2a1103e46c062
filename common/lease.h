#ifndef COMMON_LEASE_H
#define COMMON_LEASE_H

/* PURE. When silence is said, and what both ends of an agent's connection ask of the
 * kernel: to give it up when nothing is acknowledged for long, but not before the agent's
 * lease is over, which is what an operator has set for a network that loses packets. */

#include "common/check.h"

#include <stdbool.h>
#include <stdint.h>

enum { LEASES_OF_SILENCE = 2, LEASE_LONGEST_MS = 24 * 3600 * 1000 };

enum { LEASE_HEARTBEATS = 4 }; /* of an agent, in a lease */

static inline uint32_t lease_heartbeat_ms(uint32_t lease_ms)
{
    return MAX(lease_ms / LEASE_HEARTBEATS, 1);
}

/* The next heartbeat is due, and of the last ones, one after the other, so many have no
 * answer: a lease and more. Who was asleep itself has sent none meanwhile. */
static inline bool lease_is_silence(unsigned n_unanswered)
{
    return n_unanswered > LEASE_HEARTBEATS;
}

/* For TCP_USER_TIMEOUT: two leases, and never less than `least_ms`. */
static inline int lease_silence_ms(uint32_t lease_ms, int least_ms)
{
    const uint32_t lease = MIN(lease_ms, (uint32_t)LEASE_LONGEST_MS);

    return MAX(least_ms, LEASES_OF_SILENCE * (int)lease);
}

#endif
