#ifndef WORKER_DATA_RANDPERM_H
#define WORKER_DATA_RANDPERM_H

/* PURE. torch.randperm(n, generator=Generator("cpu").manual_seed(seed)), number for
 * number: MT19937 seeded with the low 32 bits, and one of two shuffles by the size of
 * n. */

#include <stdint.h>

struct mt19937 {
    uint32_t state[624];
    int next; /* of state; 624: make new ones first */
};

void mt19937_seed(struct mt19937 *m, uint64_t seed);
uint32_t mt19937_u32(struct mt19937 *m);
uint64_t mt19937_u64(struct mt19937 *m); /* the first of two numbers is the high half */

/* From this size on torch shuffles with 64-bit numbers. */
#define RANDPERM_LARGE (UINT32_MAX / 20)

void randperm(uint64_t seed, uint32_t n, uint32_t *ret);
void randperm_small(uint64_t seed, uint32_t n, uint32_t *ret);
void randperm_large(uint64_t seed, uint32_t n, uint32_t *ret);

#endif
