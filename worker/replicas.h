#ifndef WORKER_REPLICAS_H
#define WORKER_REPLICAS_H

/* Whether ranks that hold the same still do. Now and then, and before every checkpoint,
 * each hashes what it holds, unit by unit, and all compare: a difference is what a broken
 * machine (memory, processor, network) has left, and no checkpoint is taken of it.
 *
 *   copies of the model (ddp, hsdp)    the own block, between ranks of equal shard
 *   copies of the weights alone        what was gathered, between all ranks
 *   (zero1, zero2, dp, reshard_after_forward=false)
 *   neither                            nothing is there twice, nothing is compared
 *
 * Wrong is who differs from more than half; where no hash has so many, all who hold
 * it. */

#include "worker/comm/comm.h"
#include "worker/parallel/parallel.h"

struct replicas;
struct trainer;

struct replicas_config {
    struct device *device;
    struct comm *comm;           /* of all ranks, on QUEUE_REDUCE */
    const struct layout *layout; /* borrowed, as the next */
    struct parallel *parallel;
    struct mesh mesh;
    int timeout_ms;
};

/* False where nothing is there twice. `zero` as in parallel_config. */
bool replicas_exist(const struct mesh *mesh, const struct zero *zero);
size_t replicas_bytes(const struct layout *layout, int world_size);

int replicas_new(const struct replicas_config *config, struct replicas **ret,
                 struct errmsg *msg) MUST_CHECK;
void replicas_free(struct replicas *r); /* NULL allowed */

/* All ranks at once, while the compute queue is idle. The first of the `n_blocks` is
 * the own block of parameters; more of the same size (moments) are compared where that
 * is. Waits for the others. ERR_DIVERGED on the ranks that are wrong, ERR_PEER_LOST on
 * the others, so that the wrong ones are the cause of the job's failure. */
int replicas_compare(struct replicas *r, const float *const *blocks, int n_blocks,
                     uint64_t step, struct errmsg *msg) MUST_CHECK;

/* After a step of which a checkpoint is taken or not: the same, if it is due. */
int replicas_check(const struct trainer *t, bool is_saved,
                   struct errmsg *msg) MUST_CHECK;

/* PURE. `hash`: n_units of each rank; ranks r, r + stride, … hold the same. Marks who is
 * wrong; the first unit in which any rank is, or −1. */
int replicas_judge(const uint64_t *hash, int world_size, int n_units, int stride,
                   bool *is_wrong);

#endif
