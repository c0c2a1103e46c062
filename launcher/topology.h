#ifndef LAUNCHER_TOPOLOGY_H
#define LAUNCHER_TOPOLOGY_H

/* PURE. A round's node table → this node's ranks. Global ranks are numbered through in
 * group rank order. */

#include "common/msg.h"

struct topology {
    uint32_t group_rank, group_world;
    uint32_t first_rank; /* global rank of local rank 0 */
    uint32_t nproc;
    uint32_t world_size;
};

/* ERR_PROTOCOL: no such group rank, or a world of more than 2^20 ranks. */
int topology_make(const struct msg_node *nodes, uint32_t n, uint32_t group_rank,
                  struct topology *ret) MUST_CHECK;

#endif
