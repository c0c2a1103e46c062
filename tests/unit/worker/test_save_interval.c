/* checkpoint.every=auto on a virtual clock: steps last as long as the test says. */

#include "tests/lib/cmocka.h"
#include "worker/save_interval.h"

#include "common/check.h"

#include <math.h>

enum { HOUR_MS = 3600 * 1000 };

static void steps(struct save_interval *s, int n, double step_ms)
{
    for (int i = 0; i < n; i++) {
        save_interval_step(s, step_ms, false);
    }
}

/* A checkpoint: a pause, `n` steps beside it and one that finds it done. */
static void save(struct save_interval *s, double pause_ms, int n, double step_ms)
{
    save_interval_begin(s, pause_ms);
    for (int i = 0; i < n; i++) {
        save_interval_step(s, step_ms, true);
    }
    save_interval_step(s, step_ms, false);
}

static void the_first_comes_soon_to_be_measured(void **state)
{
    struct save_interval s = {0};

    (void)state;
    assert_int_equal(save_interval_ms(&s), SAVE_INTERVAL_SHORTEST_MS);
    steps(&s, 5, 100);
    assert_int_equal(save_interval_ms(&s), SAVE_INTERVAL_SHORTEST_MS);
    assert_false(save_interval_is_news(&s));
}

static void the_cost_is_what_steps_beside_it_last_longer_and_the_pause(void **state)
{
    struct save_interval s = {0};

    (void)state;
    steps(&s, 1, 5000); /* pages memory in */
    steps(&s, 5, 100);
    save(&s, 20, 3, 150);
    assert_float_equal(s.cost_ms, 20 + 4 * 50, 1e-9);
    /* √(2 · 0.22 s · 4 h) */
    assert_int_equal(save_interval_ms(&s),
                     (uint64_t)sqrt(2 * 220.0 * SAVE_INTERVAL_PRIOR_MS));
}

static void costs_are_averaged(void **state)
{
    struct save_interval s = {0};

    (void)state;
    steps(&s, 3, 100);
    save(&s, 100, 0, 100);
    steps(&s, 3, 100);
    save(&s, 300, 0, 100);
    assert_float_equal(s.cost_ms, 200, 1e-9);
}

static void a_checkpoint_faster_than_noise_costs_nothing(void **state)
{
    struct save_interval s = {0};

    (void)state;
    steps(&s, 5, 100);
    save(&s, 1, 2, 90);
    assert_float_equal(s.cost_ms, 0, 1e-9);
    assert_int_equal(save_interval_ms(&s), SAVE_INTERVAL_SHORTEST_MS);
}

static void where_each_step_is_saved_the_pause_is_the_cost(void **state)
{
    struct save_interval s = {0};

    (void)state;
    save_interval_begin(&s, 70);
    save_interval_step(&s, 100, true);
    save_interval_begin(&s, 70);
    save_interval_step(&s, 100, true);
    save_interval_begin(&s, 70);
    assert_float_equal(s.cost_ms, 70, 1e-9);
}

static void more_failures_mean_more_checkpoints(void **state)
{
    static const struct {
        uint64_t failures, trained_ms, mtbf_ms;
    } cases[] = {
        {0, 0, SAVE_INTERVAL_PRIOR_MS},
        {0, 96 * (uint64_t)HOUR_MS, 100 * (uint64_t)HOUR_MS}, /* none in four days */
        {1, 4 * (uint64_t)HOUR_MS, 4 * (uint64_t)HOUR_MS},
        {3, 4 * (uint64_t)HOUR_MS, 2 * (uint64_t)HOUR_MS},
        {99, 96 * (uint64_t)HOUR_MS, HOUR_MS}, /* what was seen outweighs the prior */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct save_interval s = {.failures = cases[i].failures,
                                  .trained_ms = cases[i].trained_ms};

        assert_int_equal(save_interval_mtbf_ms(&s), cases[i].mtbf_ms);
        steps(&s, 2, 100);
        save(&s, 1000, 0, 100);
        assert_int_equal(save_interval_ms(&s),
                         (uint64_t)sqrt(2000.0 * (double)cases[i].mtbf_ms));
    }
}

static void the_interval_has_bounds(void **state)
{
    struct save_interval s = {.failures = 1000000};
    struct save_interval slow = {.trained_ms = 10000 * (uint64_t)HOUR_MS};

    (void)state;
    steps(&s, 2, 100);
    save(&s, 1000, 0, 100);
    assert_int_equal(save_interval_ms(&s), SAVE_INTERVAL_SHORTEST_MS);
    steps(&slow, 2, 100);
    save(&slow, 600000, 0, 100);
    assert_int_equal(save_interval_ms(&slow), SAVE_INTERVAL_LONGEST_MS);
}

static void only_what_differs_by_half_is_news(void **state)
{
    struct save_interval s = {0};

    (void)state;
    steps(&s, 2, 100);
    save(&s, 1000, 0, 100);
    assert_true(save_interval_is_news(&s));
    assert_false(save_interval_is_news(&s));
    s.trained_ms = 4 * (uint64_t)HOUR_MS; /* √2 times as long */
    assert_false(save_interval_is_news(&s));
    s.trained_ms = 8 * (uint64_t)HOUR_MS; /* √3 */
    assert_true(save_interval_is_news(&s));
    s.failures = 2; /* back to where it was */
    assert_true(save_interval_is_news(&s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_comes_soon_to_be_measured),
        cmocka_unit_test(the_cost_is_what_steps_beside_it_last_longer_and_the_pause),
        cmocka_unit_test(costs_are_averaged),
        cmocka_unit_test(a_checkpoint_faster_than_noise_costs_nothing),
        cmocka_unit_test(where_each_step_is_saved_the_pause_is_the_cost),
        cmocka_unit_test(more_failures_mean_more_checkpoints),
        cmocka_unit_test(the_interval_has_bounds),
        cmocka_unit_test(only_what_differs_by_half_is_news),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
