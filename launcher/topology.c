#include "launcher/topology.h"

#include "common/err.h"

/* Its role has no more ranks before and behind this node's than there are. */
static bool has_role_place(const struct topology *t, uint32_t behind)
{
    uint32_t first = t->role_first_rank;

    return first <= t->first_rank && t->role_world_size >= t->nproc &&
           t->role_world_size - t->nproc >= first &&
           t->role_world_size - t->nproc - first <= behind;
}

int topology_make(const struct msg_round *m, uint32_t nproc, struct topology *ret)
{
    struct topology t = {.group_rank = m->group_rank,
                         .group_world = m->group_world,
                         .first_rank = m->first_rank,
                         .nproc = nproc,
                         .world_size = m->world_size,
                         .role_first_rank = m->role_first_rank,
                         .role_world_size = m->role_world_size};
    bool is_first = t.group_rank == 0;
    uint32_t behind;

    if (t.group_rank >= t.group_world || t.group_world > MSG_MAX_NODES ||
        t.world_size > MSG_MAX_WORLD || nproc == 0 || nproc > t.world_size ||
        t.first_rank > t.world_size - nproc) {
        return ERR_PROTOCOL;
    }
    behind = t.world_size - nproc - t.first_rank;
    if (t.first_rank < t.group_rank || is_first != (t.first_rank == 0) ||
        behind < t.group_world - 1 - t.group_rank) {
        return ERR_PROTOCOL; /* every node has a rank */
    }
    if (!has_role_place(&t, behind)) {
        return ERR_PROTOCOL;
    }
    *ret = t;
    return 0;
}
