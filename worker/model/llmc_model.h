#ifndef WORKER_MODEL_LLMC_MODEL_H
#define WORKER_MODEL_LLMC_MODEL_H

/* Reads an llm.c model file into what a rank holds of the flat parameter block.
 *
 *   256 × int32, little-endian: 20240326, version (3 = fp32, 5 = bf16), context, vocab,
 *                               layers, heads, dim, padded vocab, 0 …
 *   wte (Vp, C)  wpe (P, C)
 *   ln_1.weight (L, C)  ln_1.bias  c_attn.weight (L, 3C, C)  c_attn.bias (L, 3C)
 *   attn.c_proj.weight (L, C, C)  .bias  ln_2.weight  ln_2.bias
 *   c_fc.weight (L, 4C, C)  .bias  mlp.c_proj.weight (L, C, 4C)  .bias
 *   ln_f.weight (C)  ln_f.bias (C)
 *
 * Weights are (out, in) there and become [in, out]; rows of wte from vocab on are
 * padding and are left out. bf16 becomes fp32, exactly. Blocks; host memory. */

#include "worker/parallel/shards.h"

/* 1 when the file begins with the magic number, to tell it from a checkpoint; 0 when
 * not, or it is not there; -errno when it cannot be read. */
int llmc_model_is(const char *path) MUST_CHECK;

/* `params` is the own block of `own` (NULL: the flat block); its padding is left as it
 * is. Tensors of which the rank holds nothing are not read. ERR_INVALID when a
 * dimension is not model.*'s, ERR_CORRUPT when the size is not exactly right. */
int llmc_model_load(const char *path, const struct model_config *config,
                    const struct layout *layout, const struct shard_map *own,
                    float *params, struct errmsg *msg) MUST_CHECK;

#endif
