#ifndef WORKER_MODEL_INIT_H
#define WORKER_MODEL_INIT_H

/* PURE. The first values of a model's parameters, as GPT-2's: normal(0, 0.02), residual
 * projections scaled by 1/√(2·layers), biases 0, norms 1.
 *
 * Philox with key = seed and counter = {element/4: 64 bits, hash of the tensor's name:
 * 32, 0}: an element's value depends on seed, name and index alone, so whoever owns a
 * shard makes it, and every machine makes the same bits. Host memory; call it before
 * training. */

#include "worker/model/unit.h"

/* Elements [first, first + n) of the tensor into out[0 … n). */
void init_tensor(const struct tensor *tensor, uint64_t seed, int layers, float *out,
                 size_t first, size_t n);

/* Elements [begin, end) of the flat block, layout order, into out[0 … end − begin);
 * padding becomes zero. Ranges can be made on several threads at once. */
void init_range(const struct layout *layout, uint64_t seed, int layers, float *out,
                size_t begin, size_t end);

/* The whole flat block. */
void init_params(const struct layout *layout, uint64_t seed, int layers, float *params);

/* FNV-1a, 32 bits. */
uint32_t init_name_hash(const char *name);

#endif
