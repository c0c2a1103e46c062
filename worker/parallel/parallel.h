#ifndef WORKER_PARALLEL_PARALLEL_H
#define WORKER_PARALLEL_PARALLEL_H

/* How parameters, gradients and optimizer state are shared out over ranks: the strategy
 * vtable.
 *
 * One step:  for each turn { a leaf: params = ops->pass(p, true); grads = ops->turn(p,
 *              &head); forward, backward by those two; or, without a leaf left,
 *              parallel_idle(p, true) }
 *            grads = ops->finish(p); norm over ops->chunks; update of the own block;
 *            ops->updated(p)
 *
 * A rank holds its own block (shards.h) of parameters and optimizer state for good; with
 * one shard that is all of it. Reductions go out on QUEUE_REDUCE as soon as the last
 * turn's backward has filled what they need, gathers on QUEUE_GATHER ahead of their use,
 * while the compute queue goes on.
 *
 * exact: gradients of leaves are summed along tree.h's tree, bit-identical for every
 * world size and strategy; the tied embedding has two accumulators with a tree each,
 * added once at the end. fast: leaves are added as they come, replicas by the backend's
 * all_reduce. */

#include "worker/comm/comm.h"
#include "worker/model/gpt2.h"
#include "worker/parallel/mesh.h"
#include "worker/parallel/shards.h"
#include "worker/parallel/tree.h"

struct parallel;
struct parallel_ops;

struct parallel_config {
    const struct parallel_ops *ops; /* the strategy itself */
    const struct layout *layout;    /* borrowed: outlives the strategy */
    struct device *device;
    struct comm *comm;   /* of all ranks, on QUEUE_REDUCE; NULL for world size 1 */
    struct comm *gather; /* of the shard group, on QUEUE_GATHER; NULL for one shard */
    struct comm *secondary; /* of n_secondary neighbours, on QUEUE_GATHER; or NULL */
    struct comm *shard;     /* as gather, on QUEUE_REDUCE */
    struct comm *replica;   /* ranks of equal shard, on QUEUE_REDUCE; NULL for one */
    int rank;
    int world_size;
    int node_size; /* ranks of every node, 0: not all alike; asked only without comm */
    struct mesh mesh;  /* zeros: every rank is a replica */
    struct zero zero;  /* the strategy's; with zero.params off they are kept whole */
    uint32_t n_leaves; /* M = global_batch / micro_batch; ≥ world_size */
    size_t bucket_cap_bytes;
    int blocks_per_group;    /* units that are gathered and reduced together; 0: 1 */
    size_t min_group_params; /* and at least so many elements */
    int ahead;               /* groups gathered before they are needed */
    int n_secondary; /* shards that keep a second copy between uses (gather.h), a
                        divisor of dp_shard; 0: none */
    bool exact;
    enum dtype param_dtype;  /* of what a pass sees; the own block stays fp32 */
    enum dtype reduce_dtype; /* each leaf's gradient is rounded to it, once; sums are
                                fp32 */
    size_t tied_size; /* elements of the head's tied gradient (V·C); it belongs to the
                         tensor at offset 0 of unit 0 */
};

/* What a rank holds, exact; comm need not be open. */
struct parallel_bytes {
    size_t params;   /* its own block */
    size_t rounded;  /* the same as passes see it, where they see it otherwise */
    size_t gathered; /* others' */
    size_t kept;     /* … for later gathers of a step */
    size_t grads;    /* and what their reduction needs */
};

struct parallel_ops {
    const char *name;
    struct zero zero;
    bool replicates; /* has both axes */
    struct parallel_bytes (*bytes)(const struct parallel_config *config);
    /* What the rank gives to the comms for others in a step, in bytes; as above. */
    size_t (*sent)(const struct parallel_config *config);
    /* ERR_INVALID: more ranks than leaves. */
    int (*open)(const struct parallel_config *config, struct parallel **ret,
                struct errmsg *msg);
    void (*close)(struct parallel *p);

    /* The parameters of one pass, with or without backward. With `gathers` all ranks
     * must make the same passes. */
    struct unit_params (*pass)(struct parallel *p, bool backward);
    /* Where the next leaf's gradient goes; *ret_head NULL: no tied head. */
    struct unit_grads (*turn)(struct parallel *p, float **ret_head);
    /* The sum, after the last turn: the own block of it, or (`whole_grads`) a flat block
     * in which the own ranges are complete. */
    const float *(*finish)(struct parallel *p);
    /* Sums of squares by chunk of the flat block: the own ranges' are there, the others'
     * come. After what is on the compute queue now, and before what comes there. */
    void (*chunks)(struct parallel *p, double *chunks);
    /* The own block of parameters has changed. */
    void (*updated)(struct parallel *p);
};

struct parallel {
    const struct parallel_ops *ops;
    int n_units;
    int team;               /* neighbouring ranks that share a run of leaves (tree.h) */
    struct leaf_run leaves; /* this rank's of every step */
    uint32_t n_turns;       /* at least as many; equal on all ranks of the team */
    struct shard_map own;
    float *params; /* the own block, device memory */
    bool gathers;
    bool whole_grads;
};

/* strategy: a name of the configuration. ERR_UNSUPPORTED names one that is not there. */
int parallel_find(const char *strategy, const struct parallel_ops **ret,
                  struct errmsg *msg) MUST_CHECK;

/* How many neighbouring ranks share a run of leaves. */
int parallel_team(const struct parallel_config *config);

/* The own block of config->rank; release with shard_map_release. */
void parallel_own(const struct parallel_config *config, struct shard_map *ret);

/* Takes part in a pass of the others, without a leaf. */
void parallel_idle(struct parallel *p, bool backward);

#endif
