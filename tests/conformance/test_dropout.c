/* The numbers behind dropout: the share that is dropped, and that no two of site, sample,
 * seed and neighbours have to do with each other. Which element has which number is
 * checked in test_gradients.c, that all instruction sets agree in test_kernels.c. */

#include "tests/conformance/kernel_case.h"

enum { N = 1 << 18, B = 2 };

static struct device *device;

static int open_best(void **state)
{
    (void)state;
    device = open_device(NULL, 2);
    return 0;
}

static int close_best(void **state)
{
    (void)state;
    device_close(device);
    return 0;
}

/* 1 where an element was kept, B sequences of N. The caller frees it. */
static bool *mask_of(struct dropout drop)
{
    float *x = malloc(sizeof(float[B][N]));
    bool *ret = malloc(sizeof(bool[B][N]));

    assert_non_null(x);
    assert_non_null(ret);
    for (size_t i = 0; i < (size_t)B * N; i++) {
        x[i] = 3.0F;
    }
    device->k->dropout(device, x, x, B, N, &drop);
    for (size_t i = 0; i < (size_t)B * N; i++) {
        assert_true(x[i] == 0 || x[i] == 3.0F * (float)(1 / (1 - drop.p)));
        ret[i] = x[i] != 0;
    }
    free(x);
    return ret;
}

/* k of n at a chance of p each: within 5 standard deviations. */
static void expect_share(size_t k, size_t n, double p)
{
    double off = fabs((double)k - (double)n * p);

    if (off > 5 * sqrt((double)n * p * (1 - p))) {
        fail_msg("%zu of %zu, expected a share of %g", k, n, p);
    }
}

/* Two masks of n dropped by a share of p, of which one says nothing about the other. */
static void expect_independent(const bool *x, const bool *y, size_t n, double p)
{
    size_t both = 0;

    for (size_t i = 0; i < n; i++) {
        both += !x[i] && !y[i];
    }
    expect_share(both, n, p * p);
}

static void the_share_dropped_is_the_one_asked_for(void **state)
{
    static const double shares[] = {1e-3, 0.1, 0.25, 0.5, 0.9, 0.999};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shares); i++) {
        bool *mask = mask_of((struct dropout){.p = shares[i], .seed = 1, .site = 1});
        size_t dropped = 0;

        for (size_t j = 0; j < (size_t)B * N; j++) {
            dropped += !mask[j];
        }
        expect_share(dropped, (size_t)B * N, shares[i]);
        free(mask);
    }
}

static void sites_samples_and_seeds_are_independent(void **state)
{
    static const struct dropout others[] = {
        {.p = 0.3, .seed = 9, .position = 5, .site = 3},
        {.p = 0.3, .seed = 9, .position = 5, .site = 2 + 256},
        {.p = 0.3, .seed = 9, .position = 7, .site = 2},
        {.p = 0.3, .seed = 9, .position = 5 + (UINT64_C(1) << 32), .site = 2},
        {.p = 0.3, .seed = 10, .position = 5, .site = 2},
        {.p = 0.3, .seed = 9 + (UINT64_C(1) << 32), .position = 5, .site = 2},
        {.p = 0.3, .seed = 9, .position = 2, .site = 5},
    };
    bool *mask =
        mask_of((struct dropout){.p = 0.3, .seed = 9, .position = 5, .site = 2});

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        bool *other = mask_of(others[i]);

        expect_independent(mask, other, (size_t)B * N, 0.3);
        free(other);
    }
    expect_independent(mask, mask + N, N, 0.3); /* the leaf's two sequences */
    free(mask);
}

static void neighbours_are_independent(void **state)
{
    bool *mask =
        mask_of((struct dropout){.p = 0.3, .seed = 9, .position = 5, .site = 2});

    (void)state;
    for (size_t distance = 1; distance <= 130; distance++) {
        expect_independent(mask, mask + distance, (size_t)B * N - distance, 0.3);
    }
    free(mask);
}

/* Sequence b of a leaf is the first one of a leaf that begins there. */
static void a_samples_numbers_do_not_depend_on_its_place_in_a_leaf(void **state)
{
    bool *mask =
        mask_of((struct dropout){.p = 0.3, .seed = 9, .position = 5, .site = 2});
    bool *next =
        mask_of((struct dropout){.p = 0.3, .seed = 9, .position = 6, .site = 2});

    (void)state;
    assert_memory_equal(mask + N, next, N);
    assert_true(memcmp(mask, next, N) != 0);
    free(mask);
    free(next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_share_dropped_is_the_one_asked_for),
        cmocka_unit_test(sites_samples_and_seeds_are_independent),
        cmocka_unit_test(neighbours_are_independent),
        cmocka_unit_test(a_samples_numbers_do_not_depend_on_its_place_in_a_leaf),
    };

    return cmocka_run_group_tests(tests, open_best, close_best);
}
