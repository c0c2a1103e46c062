/* How often something may happen. */

#include "rendezvous/bucket.h"
#include "tests/lib/cmocka.h"

enum { PER_S = 10, BURST = 20 };

static uint32_t take_all(struct bucket *b, uint64_t now_ms)
{
    uint32_t n = 0;

    while (bucket_take(b, PER_S, BURST, now_ms)) {
        n++;
    }
    return n;
}

static void burst_is_there_at_once_and_comes_back_with_time(void **state)
{
    struct bucket b = {0};

    (void)state;
    assert_int_equal(take_all(&b, 5000), BURST);
    assert_int_equal(take_all(&b, 5099), 0);
    assert_int_equal(take_all(&b, 5100), 1);
    assert_int_equal(take_all(&b, 6100), PER_S);
    assert_int_equal(take_all(&b, 6100 + 3600000), BURST);
    assert_int_equal(take_all(&b, UINT64_MAX), BURST);
}

static void clock_that_stands_still_gives_nothing(void **state)
{
    struct bucket b = {0};

    (void)state;
    assert_int_equal(take_all(&b, 1000), BURST);
    for (int i = 0; i < 100; i++) {
        assert_false(bucket_take(&b, PER_S, BURST, 1000));
    }
    assert_int_equal(take_all(&b, 900), 0); /* nor does one that goes back */
    assert_int_equal(take_all(&b, 1100), 1);
}

static void network_that_floods_leaves_the_others_theirs(void **state)
{
    static struct buckets b = {.seed = 7};
    int n_shared = 0;

    (void)state;
    while (buckets_take(&b, 0, PER_S, BURST, 1000)) {
    }
    for (uint64_t key = 1; key <= 1000; key++) {
        n_shared += !buckets_take(&b, key, PER_S, BURST, 1000);
    }
    assert_true(n_shared < 5); /* 1000 / BUCKETS on average */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(burst_is_there_at_once_and_comes_back_with_time),
        cmocka_unit_test(clock_that_stands_still_gives_nothing),
        cmocka_unit_test(network_that_floods_leaves_the_others_theirs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
