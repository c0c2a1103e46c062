#ifndef WORKER_PARALLEL_REDUCTION_H
#define WORKER_PARALLEL_REDUCTION_H

/* The exact reduction of buckets between ranks (and, with one rank, within it): what
 * goes to whom and which sums follow, all laid out before the first step.
 *
 * Every rank holds some blocks of the tree (tree.h), each in a whole gradient buffer.
 * Per bucket, rank r owns shard r:
 *
 *   1  inside the node: each block's part for local rank j goes to j, which merges the
 *      node's blocks as far as the tree allows (only where there are several nodes, and
 *      all have the same number of ranks, more than one)
 *   2  between the ranks of equal place in the nodes: each block's shard goes to its
 *      owner, which folds all blocks: the complete sum
 *   3  all-gather of the shards, unless each rank needs its own alone
 *
 * The tree does not know who carries out which of its additions, so the bits are the
 * same with and without step 1, and on one rank. */

#include "worker/comm/comm.h"
#include "worker/parallel/buckets.h"
#include "worker/parallel/tree.h"

struct reduction;

struct reduction_config {
    struct device *device;
    struct comm *comm; /* NULL: one rank */
    int rank, world_size;
    int node_size; /* ranks of every node; 0: not all alike */
    uint32_t n_leaves;
    const struct bucket_list *buckets; /* borrowed */
    const struct counter *held; /* borrowed; the own blocks, slot = gradient buffer */
    float *slots;               /* gradient buffers, one behind the other */
    float *staging;             /* reduction_staging() floats */
    bool own_shard_only;        /* of the sum: no step 3 */
};

/* Floats of staging that it needs, and floats that it sends in a step; they look at
 * ranks, nodes, leaves and buckets alone. */
size_t reduction_staging(const struct reduction_config *config);
size_t reduction_sent(const struct reduction_config *config);

struct reduction *reduction_new(const struct reduction_config *config);
void reduction_free(struct reduction *r); /* NULL allowed */

/* Enqueues the reduction of bucket `i` on queue `q`. The sum, or its own shard, will be
 * in the buffer of the first own block; a head's bucket is added to its twin there,
 * which must come later. */
void reduction_run(struct reduction *r, enum queue q, int i);

#endif
