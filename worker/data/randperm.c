#include "worker/data/randperm.h"

enum { MT_N = 624, MT_M = 397 };

void mt19937_seed(struct mt19937 *m, uint64_t seed)
{
    m->state[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < MT_N; i++) {
        uint32_t before = m->state[i - 1];

        m->state[i] = 1812433253U * (before ^ (before >> 30)) + i;
    }
    m->next = MT_N;
}

static void make_more(struct mt19937 *m)
{
    for (int i = 0; i < MT_N; i++) {
        uint32_t y =
            (m->state[i] & 0x80000000U) | (m->state[(i + 1) % MT_N] & 0x7fffffffU);
        uint32_t twist = (y & 1) ? 0x9908b0dfU : 0;

        m->state[i] = m->state[(i + MT_M) % MT_N] ^ (y >> 1) ^ twist;
    }
    m->next = 0;
}

uint32_t mt19937_u32(struct mt19937 *m)
{
    uint32_t y;

    if (m->next == MT_N) {
        make_more(m);
    }
    y = m->state[m->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    return y ^ (y >> 18);
}

uint64_t mt19937_u64(struct mt19937 *m)
{
    uint64_t high = mt19937_u32(m);

    return high << 32 | mt19937_u32(m);
}

void randperm_small(uint64_t seed, uint32_t n, uint32_t *ret)
{
    struct mt19937 m;

    mt19937_seed(&m, seed);
    for (uint32_t i = 0; i < n; i++) {
        ret[i] = i;
    }
    for (uint32_t i = 0; i + 1 < n; i++) {
        uint32_t other = i + mt19937_u32(&m) % (n - i);
        uint32_t swapped = ret[i];

        ret[i] = ret[other];
        ret[other] = swapped;
    }
}

void randperm_large(uint64_t seed, uint32_t n, uint32_t *ret)
{
    struct mt19937 m;

    mt19937_seed(&m, seed);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t other = mt19937_u64(&m) % ((uint64_t)i + 1);

        ret[i] = i;
        ret[i] = ret[other];
        ret[other] = i;
    }
}

void randperm(uint64_t seed, uint32_t n, uint32_t *ret)
{
    if (n < RANDPERM_LARGE) {
        randperm_small(seed, n, ret);
    } else {
        randperm_large(seed, n, ret);
    }
}
