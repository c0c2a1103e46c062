#ifndef RENDEZVOUS_ROLES_H
#define RENDEZVOUS_ROLES_H

/* PURE. Ranks within a role: the nodes of a round that gave the same --role, in group
 * rank order, number their ranks from 0. */

#include "rendezvous/round.h"

struct role_place {
    uint32_t first_rank; /* of the node's local rank 0 */
    uint32_t world_size; /* ranks of all the role's nodes */
};

/* One for each node of the round, in its order; owned by the caller: mem_free. */
struct role_place *roles_make(const struct round *r);

#endif
