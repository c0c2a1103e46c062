#ifndef WORKER_OPTIM_ADAMW_H
#define WORKER_OPTIM_ADAMW_H

/* AdamW with decay groups and clipping over a rank's own block: torch's arithmetic, no
 * host wait. exp_avg and exp_avg_sq have the parameters' layout; padding stays zero. */

#include "worker/device/kernels.h"
#include "worker/optim/schedule.h"
#include "worker/parallel/shards.h"

struct adamw;

struct adamw_config {
    const struct layout *layout; /* borrowed */
    const struct shard_map *own; /* borrowed; NULL: the whole flat block */
    bool whole_grads; /* gradients come as a flat block, not as the own one */
    /* Completes the chunks' sums of squares, of which the own are there; NULL: all are.
     * Enqueues. */
    void (*share_chunks)(void *arg, double *chunks);
    void *arg;
    struct device *device;
    double beta1, beta2, eps, weight_decay;
    double grad_clip; /* ≤ 0: none */
    struct schedule_config schedule;
};

size_t adamw_bytes(const struct adamw_config *config);
int adamw_new(const struct adamw_config *config, struct adamw **ret,
              struct errmsg *msg) MUST_CHECK;
void adamw_free(struct adamw *a); /* NULL allowed */
float *adamw_exp_avg(struct adamw *a);
float *adamw_exp_avg_sq(struct adamw *a);

/* Norm (into *ret_norm, device memory, before clipping) of the whole gradient, clip,
 * update of the own block; step from 1. */
void adamw_step(struct adamw *a, float *params, const float *grads, uint64_t step,
                const double **ret_norm);

#endif
