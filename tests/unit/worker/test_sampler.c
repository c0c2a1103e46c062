#include "tests/lib/cmocka.h"
#include "worker/data/randperm.h"
#include "worker/data/sampler.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static struct sampler *make(const char *kind, uint64_t seed, uint64_t n, uint64_t batch)
{
    struct sampler *s = NULL;
    struct errmsg msg = {0};

    if (sampler_new(kind, seed, n, batch, &s, &msg) != 0) {
        fail_msg("%s", msg.text);
    }
    return s;
}

static void assert_order(const uint32_t *order, size_t n, const uint32_t *expected)
{
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(order[i], expected[i]);
    }
}

static void randperm_is_torchs(void **state)
{
    (void)state;
    /* torch.randperm of 1.13 and 2.15 */
    const uint32_t seed_0[] = {4, 1, 7, 5, 3, 9, 0, 8, 6, 2};
    const uint32_t seed_42[] = {2, 6, 1, 8, 4, 5, 0, 9, 3, 7};
    const uint32_t seed_5[] = {1, 4, 9, 6, 3, 5, 0, 2, 8, 7};
    const uint32_t first[] = {415, 824, 310, 0, 663, 928, 969, 555};
    const uint32_t last[] = {130, 3, 765, 890};
    uint32_t order[1000];

    randperm(0, 10, order);
    assert_order(order, 10, seed_0);
    randperm(42, 10, order);
    assert_order(order, 10, seed_42);
    randperm(((uint64_t)1 << 32) + 5, 10, order); /* the low 32 bits count */
    assert_order(order, 10, seed_5);
    randperm(1337, 1000, order); /* past one refill of the generator */
    assert_order(order, 8, first);
    assert_order(order + 996, 4, last);
}

static void large_sets_take_torchs_other_shuffle(void **state)
{
    (void)state;
    /* the same loop over numpy's MT19937; at full size it was compared with torch */
    const uint32_t seed_0[] = {8, 2, 6, 3, 5, 1, 0, 9, 7, 4};
    const uint32_t seed_42[] = {6, 0, 5, 8, 7, 2, 3, 1, 9, 4};
    uint32_t order[10];

    randperm_large(0, 10, order);
    assert_order(order, 10, seed_0);
    randperm_large(42, 10, order);
    assert_order(order, 10, seed_42);
    assert_int_equal(RANDPERM_LARGE, 214748364);
}

static void torch_epochs_are_seeded_one_by_one_and_drop_the_rest(void **state)
{
    (void)state;
    struct sampler *s = make("torch", 41, 10, 4);
    uint32_t order[10];

    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        randperm(41 + epoch, 10, order);
        for (uint64_t i = 0; i < 8; i++) { /* two whole steps of four */
            assert_int_equal(sampler_at(s, epoch * 8 + i), order[i]);
        }
    }
    randperm(41, 10, order);
    assert_int_equal(sampler_at(s, 3), order[3]); /* and back */
    sampler_free(s);
}

/* Marks each of epoch e's samples; every one must come once. */
static void assert_bijection(struct sampler *s, uint64_t n, uint64_t epoch,
                             uint8_t *seen)
{
    memset(seen, 0, n);
    for (uint64_t k = 0; k < n; k++) {
        uint64_t sample = sampler_at(s, epoch * n + k);

        assert_true(sample < n);
        assert_int_equal(seen[sample], 0);
        seen[sample] = 1;
    }
}

static void permute_gives_every_sample_once_an_epoch(void **state)
{
    (void)state;
    const uint64_t large[] = {1023, 1024, 1025, 4095, 4096, 4097, 65537, 100003};
    uint8_t *seen = malloc(100003);

    assert_non_null(seen);
    for (uint64_t n = 1; n <= 300; n++) {
        struct sampler *s = make("permute", n * 7919, n, 8);

        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            assert_bijection(s, n, epoch, seen);
        }
        sampler_free(s);
    }
    for (size_t i = 0; i < ARRAY_LEN(large); i++) {
        struct sampler *s = make("permute", 1, large[i], 8);

        assert_bijection(s, large[i], 1, seen);
        sampler_free(s);
    }
    free(seen);
}

static unsigned count_equal(struct sampler *a, uint64_t from_a, struct sampler *b,
                            uint64_t from_b, uint64_t n)
{
    unsigned equal = 0;

    for (uint64_t k = 0; k < n; k++) {
        equal += sampler_at(a, from_a + k) == sampler_at(b, from_b + k);
    }
    return equal;
}

static void seeds_and_epochs_give_other_orders(void **state)
{
    (void)state;
    enum { N = 1000 };
    struct sampler *a = make("permute", 1, N, 8);
    struct sampler *b = make("permute", 2, N, 8);
    struct sampler *a2 = make("permute", 1, N, 8);

    /* chance gives one fixed point a thousand */
    assert_in_range(count_equal(a, 0, b, 0, N), 0, 10);
    assert_in_range(count_equal(a, 0, a2, N, N), 0, 10);
    assert_in_range(count_equal(a, N, b, 0, N), 0, 10); /* seed + 1 is no epoch later */
    assert_int_equal(count_equal(a, 0, a2, 0, N), N);
    sampler_free(a);
    sampler_free(b);
    sampler_free(a2);
}

static void orders_look_random(void **state)
{
    (void)state;
    enum { N = 4000 };
    struct sampler *s = make("permute", 3, N, 8);
    unsigned rising = 0;
    unsigned adjacent = 0;

    for (uint64_t k = 1; k < N; k++) {
        uint64_t before = sampler_at(s, k - 1);
        uint64_t now = sampler_at(s, k);

        rising += now > before;
        adjacent += now == before + 1;
    }
    assert_in_range(rising, N / 2 - 120, N / 2 + 120); /* six standard deviations */
    assert_in_range(adjacent, 0, 10);
    sampler_free(s);
}

static void permute_holds_nothing_for_the_largest_sets(void **state)
{
    (void)state;
    struct sampler *s = make("permute", 3, UINT64_MAX, 8);

    assert_true(sampler_at(s, 0) != sampler_at(s, 1));
    sampler_free(s);
}

static void impossible_orders_are_refused(void **state)
{
    (void)state;
    struct sampler *s = NULL;
    struct errmsg msg = {0};

    assert_int_equal(sampler_new("random", 1, 10, 4, &s, &msg), ERR_INVALID);
    assert_string_equal(msg.text,
                        "data.sampler: \"random\" is not one of permute, torch");
    assert_int_equal(sampler_new("permute", 1, 0, 4, &s, &msg), ERR_INVALID);
    assert_int_equal(sampler_new("torch", 1, 3, 4, &s, &msg), ERR_INVALID);
    assert_string_equal(msg.text, "data.sampler=torch: 3 samples are fewer than "
                                  "train.global_batch (4), so no step is complete");
    assert_int_equal(sampler_new("torch", 1, (uint64_t)1 << 32, 4, &s, &msg),
                     ERR_TOO_LARGE);
    assert_null(s);
    sampler_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(randperm_is_torchs),
        cmocka_unit_test(large_sets_take_torchs_other_shuffle),
        cmocka_unit_test(torch_epochs_are_seeded_one_by_one_and_drop_the_rest),
        cmocka_unit_test(permute_gives_every_sample_once_an_epoch),
        cmocka_unit_test(seeds_and_epochs_give_other_orders),
        cmocka_unit_test(orders_look_random),
        cmocka_unit_test(permute_holds_nothing_for_the_largest_sets),
        cmocka_unit_test(impossible_orders_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
