#ifndef COMMON_LEASE_H
#define COMMON_LEASE_H

/* PURE. What both ends of an agent's connection ask of the kernel: to give it up when
 * nothing is acknowledged for long, but not before the agent's lease is over, which is
 * what an operator has set for a network that loses packets. */

#include "common/check.h"

#include <stdint.h>

enum { LEASES_OF_SILENCE = 2, LEASE_LONGEST_MS = 24 * 3600 * 1000 };

/* For TCP_USER_TIMEOUT: two leases, and never less than `least_ms`. */
static inline int lease_silence_ms(uint32_t lease_ms, int least_ms)
{
    const uint32_t lease = MIN(lease_ms, (uint32_t)LEASE_LONGEST_MS);

    return MAX(least_ms, LEASES_OF_SILENCE * (int)lease);
}

#endif
