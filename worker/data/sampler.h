#ifndef WORKER_DATA_SAMPLER_H
#define WORKER_DATA_SAMPLER_H

/* The order of samples: a stream of positions, the same for every world size. Step s
 * (from 0) takes positions [s·global_batch, (s+1)·global_batch); leaf m of a step is
 * the m-th run of micro_batch consecutive positions. The position is the whole state.
 *
 *   permute  endless; position k = perm(seed, ⌊k/N⌋)[k mod N], a keyed Feistel
 *            permutation with cycle walking, O(1) memory
 *   torch    epoch e is torch.randperm(N) seeded with seed + e (MT19937), its
 *            incomplete last global batch dropped; keeps one epoch's indices */

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

struct sampler;

/* ERR_INVALID: unknown kind; n_samples < global_batch for "torch"; n_samples == 0. */
int sampler_new(const char *kind, uint64_t seed, uint64_t n_samples,
                uint64_t global_batch, struct sampler **ret,
                struct errmsg *msg) MUST_CHECK;
void sampler_free(struct sampler *s); /* NULL allowed */

/* Of the order that it keeps in memory. */
size_t sampler_bytes(const struct sampler *s);

/* The sample at a position. Not thread-safe ("torch" keeps an epoch). */
uint64_t sampler_at(struct sampler *s, uint64_t position);

#endif
