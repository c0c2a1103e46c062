#include "tests/lib/cmocka.h"
#include "worker/model/philox.h"

#include "common/check.h"

#include <math.h>
#include <stddef.h>

/* Random123's known answers (kat_vectors, philox4x32 with 10 rounds). */
static void blocks_are_the_published_ones(void **state)
{
    (void)state;
    static const struct {
        uint64_t key;
        struct philox counter, expected;
    } vectors[] = {
        {0, {{0, 0, 0, 0}}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {UINT64_MAX,
         {{UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX}},
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {0x299f31d0a4093822,
         {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        struct philox got = philox_block(vectors[i].key, vectors[i].counter);
        assert_memory_equal(&got, &vectors[i].expected, sizeof(got));
    }
}

static void uniform_numbers_lie_strictly_between_0_and_1(void **state)
{
    (void)state;
    assert_true(philox_uniform(0) > 0.0);
    assert_true(philox_uniform(UINT32_MAX) < 1.0);
    assert_true(philox_uniform(0x80000000U) > 0.5);
}

static const uint32_t edges[] = {0,           1,           0x1FFFFFFF, 0x20000000,
                                 0x20000001,  0x3FFFFFFF,  0x40000000, 0x5FFFFFFF,
                                 0x60000000,  0x7FFFFFFF,  0x80000000, 0x9FFFFFFF,
                                 0xA0000000U, 0xBFFFFFFFU, 0xC0000000, 0xDFFFFFFF,
                                 0xE0000000,  0xFFFFFFFE,  UINT32_MAX, 0xB504F333};

static void expect_box_muller(uint32_t word, uint32_t turn)
{
    double got[4];
    philox_normals((struct philox){{word, turn, turn, word}}, got);
    double radius = sqrt(-2.0 * log(((double)word + 0.5) * 0x1p-32));
    double angle = 2.0 * 3.14159265358979323846 * (turn * 0x1p-32);
    assert_true(fabs(got[0] - radius * cos(angle)) <= 1e-14);
    assert_true(fabs(got[1] - radius * sin(angle)) <= 1e-14);
}

/* The logarithm, cosine and sine of our own against libm's. */
static void normals_are_box_mullers(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(edges); i++) {
        for (size_t j = 0; j < ARRAY_LEN(edges); j++) {
            expect_box_muller(edges[i], edges[j]);
        }
    }
    for (uint32_t i = 0; i < 20000; i++) {
        struct philox p = philox_block(7, (struct philox){{i, 0, 0, 0}});
        expect_box_muller(p.word[0], p.word[1]);
    }
}

/* --- the reference: one pair after the other --- */

/* Natural logarithm of u in (0, 1): exponent and mantissa in [√½, √2), then the series
 * of 2·atanh(s), s = (m − 1)/(m + 1), |s| ≤ 0.172: s^25 is below 1e-19. */
static double scalar_log_of(double u)
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
static double scalar_sin_small(double x)
{
    double z = x * x;
    double sum = 0.0;
    for (int k = 17; k >= 3; k -= 2) {
        sum = (1.0 + sum) * -z / (k * (k - 1));
    }
    return x + x * sum;
}

static double scalar_cos_small(double x)
{
    double z = x * x;
    double sum = 0.0;
    for (int k = 18; k >= 2; k -= 2) {
        sum = (1.0 + sum) * -z / (k * (k - 1));
    }
    return 1.0 + sum;
}

/* cos and sin of 2π·turn/2^32. The octant is found in integers, without rounding. */
static void scalar_cos_sin_of(uint32_t turn, double *ret_cos, double *ret_sin)
{
    uint32_t octant = turn >> 29;
    uint32_t rest = turn & 0x1FFFFFFFU;
    if (octant % 2 != 0) {
        rest = 0x20000000U - rest; /* mirrored at π/4 */
    }
    double angle = (double)rest * (6.28318530717958647693 * 0x1p-32);
    double c = scalar_cos_small(angle);
    double s = scalar_sin_small(angle);
    if ((octant + 1) / 2 % 2 != 0) { /* octants 1, 2, 5, 6 */
        double swap = c;
        c = s;
        s = swap;
    }
    *ret_cos = octant >= 2 && octant < 6 ? -c : c;
    *ret_sin = octant >= 4 ? -s : s;
}

static void expect_the_scalar_s_bits(struct philox block)
{
    double got[4];
    philox_normals(block, got);
    for (int i = 0; i < 4; i += 2) {
        double u = ((double)block.word[i] + 0.5) * 0x1p-32;
        double radius = sqrt(-2.0 * scalar_log_of(u));
        double c;
        double s;
        scalar_cos_sin_of(block.word[i + 1], &c, &s);
        assert_true(got[i] == radius * c && got[i + 1] == radius * s);
    }
}

/* The same weights on every machine, so the lanes must not show. */
static void normals_have_the_bits_of_the_scalar_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(edges); i++) {
        for (size_t j = 0; j < ARRAY_LEN(edges); j++) {
            expect_the_scalar_s_bits(
                (struct philox){{edges[i], edges[j], edges[j], edges[i]}});
        }
    }
    for (uint32_t i = 0; i < 100000; i++) {
        expect_the_scalar_s_bits(philox_block(3, (struct philox){{i, 0, 0, 0}}));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_the_published_ones),
        cmocka_unit_test(uniform_numbers_lie_strictly_between_0_and_1),
        cmocka_unit_test(normals_are_box_mullers),
        cmocka_unit_test(normals_have_the_bits_of_the_scalar_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
