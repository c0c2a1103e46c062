#ifndef WORKER_PARALLEL_PARALLEL_H
#define WORKER_PARALLEL_PARALLEL_H

/* How the gradient of a global step is summed over leaves and ranks: the strategy
 * vtable.
 *
 * One step:  for each local leaf { grads = ops->leaf(p, leaf, &head);
 *              backward … ops->on_unit(p, unit) after each unit, last to first }
 *            grads = ops->finish(p)
 *
 * The reduction of a bucket (a run of units, or a part of one, of about bucket_cap
 * bytes) goes out on QUEUE_REDUCE as soon as the last local leaf's backward has filled
 * it, while the compute queue goes on with earlier layers.
 *
 * exact: gradients of leaves are summed along tree.h's tree, bit-identical for every
 * world size; the tied embedding has two accumulators with a tree each, added once at
 * the end. fast: leaves are added as they come, ranks by the backend's all_reduce. */

#include "worker/comm/comm.h"
#include "worker/model/unit.h"
#include "worker/parallel/tree.h"

struct parallel;

struct parallel_config {
    const struct layout *layout; /* borrowed: outlives the strategy */
    struct device *device;
    struct comm *comm; /* NULL for world size 1 */
    int rank;
    int world_size;
    int node_size; /* ranks of every node, 0: not all alike; asked only without comm */
    uint32_t n_leaves; /* M = global_batch / micro_batch; ≥ world_size */
    size_t bucket_cap_bytes;
    bool exact;
    size_t tied_size; /* elements of the head's tied gradient (V·C); it belongs to the
                         tensor at offset 0 of unit 0 */
};

struct parallel_ops {
    const char *name;
    /* Of all its arenas, exact; comm need not be open. */
    size_t (*bytes)(const struct parallel_config *config);
    /* What the rank gives to the comm for others in a step, in bytes; as above. */
    size_t (*sent)(const struct parallel_config *config);
    /* ERR_INVALID: more ranks than leaves. */
    int (*open)(const struct parallel_config *config, struct parallel **ret,
                struct errmsg *msg);
    void (*close)(struct parallel *p);
    float *(*leaf)(struct parallel *p, uint32_t leaf, float **ret_head);
    void (*on_unit)(struct parallel *p, int unit);
    const float *(*finish)(struct parallel *p);
};

struct parallel {
    const struct parallel_ops *ops;
    uint32_t leaf_begin, leaf_end; /* this rank's leaves of every step */
};

/* strategy: "ddp". ERR_UNSUPPORTED names any other. */
int parallel_find(const char *strategy, const struct parallel_ops **ret,
                  struct errmsg *msg) MUST_CHECK;

#endif
