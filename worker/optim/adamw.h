#ifndef WORKER_OPTIM_ADAMW_H
#define WORKER_OPTIM_ADAMW_H

/* AdamW with decay groups and clipping over a rank's own block: torch's arithmetic, no
 * host wait. exp_avg and exp_avg_sq have the parameters' layout; padding stays zero.
 * Of frozen tensors it touches nothing; their gradients, of which the norm is too, are
 * zeros. */

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

struct adamw_turn {
    uint64_t step;        /* from 1: whose learning rate it is */
    uint64_t update;      /* from 1, ≤ step: for the bias corrections */
    float unscale;        /* 1 / the scale of the loss */
    bool skip_not_finite; /* no update where the gradient is not finite */
};

/* Of a training whose every step is an update. */
static inline struct adamw_turn adamw_turn_of(uint64_t step)
{
    return (struct adamw_turn){.step = step, .update = step, .unscale = 1.0F};
}

/* Norm (into *ret_norm, device memory, before clipping) of the whole unscaled gradient,
 * clip, update of the own block.
 *
 * Without an update everything stays as it is, on all ranks alike and with nothing said
 * between them: each has the sums of squares of all chunks, so all have the same bits of
 * the norm. It is finite exactly if every element of every shard is: squares of fp32
 * numbers are below 2^256, which in double do not overflow however many are added, and
 * 1 / scale, at most 1 and never 0, makes no element finite or infinite. Padding is 0,
 * and so is what it adds. */
void adamw_step(struct adamw *a, float *params, const float *grads,
                struct adamw_turn turn, const double **ret_norm);

#endif
