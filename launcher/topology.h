#ifndef LAUNCHER_TOPOLOGY_H
#define LAUNCHER_TOPOLOGY_H

/* PURE. A round → this node's ranks. Global ranks are numbered through in group rank
 * order. */

#include "common/msg.h"

struct topology {
    uint32_t group_rank, group_world;
    uint32_t first_rank; /* global rank of local rank 0 */
    uint32_t nproc;
    uint32_t world_size;
    uint32_t role_first_rank; /* of local rank 0, among the ranks of the node's role */
    uint32_t role_world_size; /* ranks of that role on all nodes */
};

/* For a node of `nproc` ranks. ERR_PROTOCOL: such a world cannot be: no such group
 * rank, more than 2^20 ranks, too few for the nodes before or behind this one; more of
 * its role than there are ranks. */
int topology_make(const struct msg_round *m, uint32_t nproc,
                  struct topology *ret) MUST_CHECK;

#endif
