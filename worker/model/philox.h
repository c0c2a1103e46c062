#ifndef WORKER_MODEL_PHILOX_H
#define WORKER_MODEL_PHILOX_H

/* PURE. Philox 4x32-10 (Salmon et al., 2011): a counter-based generator. The four
 * numbers of a counter depend on key and counter alone, so that any part of a stream
 * can be made anywhere, in any order, by anybody. */

#include <stdint.h>

struct philox {
    uint32_t word[4];
};

struct philox philox_block(uint64_t key, struct philox counter);

/* Four standard normal numbers from the four words of a block (Box–Muller). Only IEEE's
 * basic operations are used, no libm, so that every machine gets the same bits. */
void philox_normals(struct philox block, double ret[4]);

/* Uniform in (0, 1): never 0, never 1. */
double philox_uniform(uint32_t word);

#endif
