#ifndef WORKER_MODEL_GPT2_ROUND_H
#define WORKER_MODEL_GPT2_ROUND_H

/* Mixed precision where there is but fp32: what a kernel has just written is rounded
 * where a device with tensors of the model's precision would round. These are the
 * activations and their gradients; statistics of the norms, log-sum-exps, losses and
 * the weights' gradients stay fp32, and a kernel is fp32 inside. Parameters come
 * rounded. */

#include "worker/model/gpt2_internal.h"

/* x (rows, width) */
static inline void gpt2_round(struct gpt2 *g, float *x, int rows, int width)
{
    if (g->config.precision != DTYPE_FP32) {
        g->device->k->round(g->device, QUEUE_COMPUTE, x, x,
                            (size_t)rows * (size_t)width, g->config.precision);
    }
}

#endif
