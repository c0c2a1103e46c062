/* PURE. Philox 4x32-10, and normal numbers made of it with IEEE's basic operations
 * only. */

#include "worker/model/philox.h"

#include "common/check.h"

#include <math.h>
#include <stddef.h>

enum { ROUNDS = 10 };

struct philox philox_block(uint64_t key, struct philox counter)
{
    uint32_t k0 = (uint32_t)key;
    uint32_t k1 = (uint32_t)(key >> 32);
    struct philox x = counter;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t p0 = (uint64_t)0xD2511F53U * x.word[0];
        uint64_t p1 = (uint64_t)0xCD9E8D57U * x.word[2];
        x = (struct philox){{
            (uint32_t)(p1 >> 32) ^ x.word[1] ^ k0,
            (uint32_t)p1,
            (uint32_t)(p0 >> 32) ^ x.word[3] ^ k1,
            (uint32_t)p0,
        }};
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    return x;
}

double philox_uniform(uint32_t word)
{
    return ((double)word + 0.5) * 0x1p-32;
}

/* A block's two Box–Muller pairs at once. Each lane takes the steps of a scalar, in
 * their order, so its bits are a scalar's; the polynomials' divisions, which cannot be
 * made cheaper without other bits, overlap. SSE2, which is every x86-64's, and NEON. */
typedef double lanes __attribute__((vector_size(16)));
typedef int64_t masks __attribute__((vector_size(16))); /* all bits of a lane or none */

static lanes choose(masks mask, lanes yes, lanes no)
{
    return (lanes)(((masks)yes & mask) | ((masks)no & ~mask));
}

static const double log_series[] = {1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17,
                                    1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9,
                                    1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};

/* Natural logarithm of u in (0, 1): exponent and mantissa in [√½, √2), then the series
 * of 2·atanh(s), s = (m − 1)/(m + 1), |s| ≤ 0.172: s^25 is below 1e-19. */
static lanes log_of(lanes u)
{
    masks bits = (masks)u;
    lanes m = (lanes)((bits & 0xFFFFFFFFFFFFF) | INT64_C(1022) << 52); /* [½, 1) */
    lanes exponent = {(double)((bits[0] >> 52) - 1022),
                      (double)((bits[1] >> 52) - 1022)};
    masks is_low = m < 0.70710678118654752440;
    m = choose(is_low, m * 2.0, m);
    exponent = choose(is_low, exponent - 1.0, exponent);
    lanes s = (m - 1.0) / (m + 1.0);
    lanes z = s * s;
    lanes sum = {0.0, 0.0};
    for (size_t i = 0; i < ARRAY_LEN(log_series); i++) {
        sum = sum * z + log_series[i];
    }
    return exponent * 0.69314718055994530942 + 2.0 * s * sum;
}

/* Taylor series on [0, π/4], to the term below 1e-17. */
static lanes sin_small(lanes x)
{
    lanes z = x * x;
    lanes sum = {0.0, 0.0};
    for (int k = 17; k >= 3; k -= 2) {
        sum = (1.0 + sum) * -z / (double)(k * (k - 1));
    }
    return x + x * sum;
}

static lanes cos_small(lanes x)
{
    lanes z = x * x;
    lanes sum = {0.0, 0.0};
    for (int k = 18; k >= 2; k -= 2) {
        sum = (1.0 + sum) * -z / (double)(k * (k - 1));
    }
    return 1.0 + sum;
}

static lanes negated_if(masks mask, lanes x)
{
    return choose(mask, -x, x);
}

/* cos and sin of 2π·turn/2^32. The octant is found in integers, without rounding. */
static void cos_sin_of(const uint32_t turn[2], lanes *ret_cos, lanes *ret_sin)
{
    masks octant = {turn[0] >> 29, turn[1] >> 29};
    masks rest = {turn[0] & 0x1FFFFFFF, turn[1] & 0x1FFFFFFF};
    masks is_odd = -(octant & 1);
    rest = (is_odd & (0x20000000 - rest)) | (~is_odd & rest); /* mirrored at π/4 */
    lanes angle = {(double)rest[0], (double)rest[1]};
    angle *= 6.28318530717958647693 * 0x1p-32;
    lanes c = cos_small(angle);
    lanes s = sin_small(angle);
    masks is_swapped = ((octant + 1) & 2) != 0; /* octants 1, 2, 5, 6 */
    masks is_left = ((octant + 2) & 4) != 0;    /* 2 to 5 */
    masks is_low = (octant & 4) != 0;           /* 4 to 7 */
    *ret_cos = negated_if(is_left, choose(is_swapped, s, c));
    *ret_sin = negated_if(is_low, choose(is_swapped, c, s));
}

void philox_normals(struct philox block, double ret[4])
{
    lanes u = {philox_uniform(block.word[0]), philox_uniform(block.word[2])};
    lanes square = -2.0 * log_of(u);
    lanes radius = {sqrt(square[0]), sqrt(square[1])};
    lanes c;
    lanes s;
    cos_sin_of((uint32_t[]){block.word[1], block.word[3]}, &c, &s);
    c *= radius;
    s *= radius;
    ret[0] = c[0];
    ret[1] = s[0];
    ret[2] = c[1];
    ret[3] = s[1];
}
