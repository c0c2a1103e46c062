/* PURE. Philox 4x32-10, and normal numbers made of it with IEEE's basic operations
 * only. */

#include "worker/model/philox.h"

#include <math.h>

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

/* Natural logarithm of u in (0, 1): exponent and mantissa in [√½, √2), then the series
 * of 2·atanh(s), s = (m − 1)/(m + 1), |s| ≤ 0.172: s^25 is below 1e-19. */
static double log_of(double u)
{
    int exponent;
    double m = frexp(u, &exponent);
    if (m < 0.70710678118654752440) {
        m *= 2.0;
        exponent -= 1;
    }
    double s = (m - 1.0) / (m + 1.0);
    double z = s * s;
    double sum = 0.0;
    for (int k = 23; k >= 1; k -= 2) {
        sum = sum * z + 1.0 / k;
    }
    return (double)exponent * 0.69314718055994530942 + 2.0 * s * sum;
}

/* Taylor series on [0, π/4], to the term below 1e-17. */
static double sin_small(double x)
{
    double z = x * x;
    double sum = 0.0;
    for (int k = 17; k >= 3; k -= 2) {
        sum = (1.0 + sum) * -z / (k * (k - 1));
    }
    return x + x * sum;
}

static double cos_small(double x)
{
    double z = x * x;
    double sum = 0.0;
    for (int k = 18; k >= 2; k -= 2) {
        sum = (1.0 + sum) * -z / (k * (k - 1));
    }
    return 1.0 + sum;
}

/* cos and sin of 2π·turn/2^32. The octant is found in integers, without rounding. */
static void cos_sin_of(uint32_t turn, double *ret_cos, double *ret_sin)
{
    uint32_t octant = turn >> 29;
    uint32_t rest = turn & 0x1FFFFFFFU;
    if (octant % 2 != 0) {
        rest = 0x20000000U - rest; /* mirrored at π/4 */
    }
    double angle = (double)rest * (6.28318530717958647693 * 0x1p-32);
    double c = cos_small(angle);
    double s = sin_small(angle);
    if ((octant + 1) / 2 % 2 != 0) { /* octants 1, 2, 5, 6 */
        double swap = c;
        c = s;
        s = swap;
    }
    *ret_cos = octant >= 2 && octant < 6 ? -c : c;
    *ret_sin = octant >= 4 ? -s : s;
}

void philox_normals(struct philox block, double ret[4])
{
    for (int i = 0; i < 4; i += 2) {
        double radius = sqrt(-2.0 * log_of(philox_uniform(block.word[i])));
        double c;
        double s;
        cos_sin_of(block.word[i + 1], &c, &s);
        ret[i] = radius * c;
        ret[i + 1] = radius * s;
    }
}
