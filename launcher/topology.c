#include "launcher/topology.h"

#include "common/err.h"

int topology_make(const struct msg_node *nodes, uint32_t n, uint32_t group_rank,
                  struct topology *ret)
{
    struct topology t = {.group_rank = group_rank, .group_world = n};

    if (group_rank >= n) {
        return ERR_PROTOCOL;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (nodes[i].nproc == 0 || nodes[i].nproc > MSG_MAX_WORLD - t.world_size) {
            return ERR_PROTOCOL;
        }
        if (i == group_rank) {
            t.first_rank = t.world_size;
            t.nproc = nodes[i].nproc;
        }
        t.world_size += nodes[i].nproc;
    }
    *ret = t;
    return 0;
}
