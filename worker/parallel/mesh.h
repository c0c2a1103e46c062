#ifndef WORKER_PARALLEL_MESH_H
#define WORKER_PARALLEL_MESH_H

/* PURE. Where a rank stands: coordinates (pp, dp_replicate, dp_shard, tp), the last
 * running fastest. Pipeline stages and tensor parallelism are 1 so far.
 *
 *   rank = replica · dp_shard + shard         dp_replicate = 2, dp_shard = 3:
 *                                               replica 0   0 1 2
 *                                               replica 1   3 4 5
 *
 * A model's state is cut into dp_shard parts; every replica has them all. */

#include "common/err.h"

#include <stdbool.h>

/* What a strategy cuts into shards. Each needs the one before. */
struct zero {
    bool optimizer; /* ZeRO-1 */
    bool grads;     /* ZeRO-2 */
    bool params;    /* ZeRO-3: gathered for use, then dropped */
    bool one_owner; /* shard 0 is all of it, the others are empty: DP */
};

struct mesh {
    int dp_replicate, dp_shard;
};

struct mesh_wish {
    const char *strategy; /* for the texts */
    struct zero zero;
    bool replicates;            /* hsdp */
    int dp_replicate, dp_shard; /* 0: auto */
    int world_size;
    int node_size; /* ranks of every node; 0: not all alike: both on auto make one copy */
};

/* ERR_INVALID: what was wished for does not fit the world, with the remedy. */
int mesh_make(const struct mesh_wish *wish, struct mesh *ret,
              struct errmsg *msg) MUST_CHECK;

/* parallel.reshard_after_forward=n: groups of n neighbouring shards must come out
 * even. */
int mesh_check_reshard(const struct mesh *m, int n, struct errmsg *msg) MUST_CHECK;

static inline int mesh_replica(const struct mesh *m, int rank)
{
    return rank / m->dp_shard;
}

static inline int mesh_shard(const struct mesh *m, int rank)
{
    return rank % m->dp_shard;
}

#endif
