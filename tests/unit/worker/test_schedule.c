#include "tests/lib/cmocka.h"
#include "worker/optim/schedule.h"

#include "common/check.h"

#include <math.h>

static void assert_near(double a, double b)
{
    if (fabs(a - b) > 1e-15 + 1e-12 * fabs(b)) {
        fail_msg("%.17g is not %.17g", a, b);
    }
}

static void cosine_is_torchs(void **state)
{
    (void)state;
    /* torch 2.15: SequentialLR of LambdaLR((k + 1) / 4) and CosineAnnealingLR(8, 6e-5)
     */
    const double expected[] = {
        0.00015,
        0.0003,
        0.00045,
        0.0006,
        0.0006,
        0.0005794474737780474,
        0.0005209188309203678,
        0.0004333245267385742,
        0.00032999999999999994,
        0.00022667547326142573,
        0.00013908116907963218,
        8.055252622195258e-05,
    };
    struct schedule_config config = {SCHEDULE_COSINE, 6e-4, 6e-5, 4, 12};

    for (uint64_t step = 1; step <= ARRAY_LEN(expected); step++) {
        assert_near(schedule_lr(&config, step), expected[step - 1]);
    }
}

static void linear_goes_straight_down(void **state)
{
    (void)state;
    struct schedule_config config = {SCHEDULE_LINEAR, 1.0, 0.2, 2, 6};
    const double expected[] = {0.5, 1.0, 1.0, 0.8, 0.6, 0.4};

    for (uint64_t step = 1; step <= ARRAY_LEN(expected); step++) {
        assert_near(schedule_lr(&config, step), expected[step - 1]);
    }
}

static void constant_stays_after_the_warm_up(void **state)
{
    (void)state;
    struct schedule_config config = {SCHEDULE_CONSTANT, 0.5, 0.1, 2, 100};

    assert_near(schedule_lr(&config, 1), 0.25);
    assert_near(schedule_lr(&config, 2), 0.5);
    assert_near(schedule_lr(&config, 100), 0.5);
}

static void the_edges_divide_by_nothing(void **state)
{
    (void)state;
    struct schedule_config no_warmup = {SCHEDULE_COSINE, 1, 0, 0, 10};
    struct schedule_config only_warmup = {SCHEDULE_COSINE, 1, 0.5, 10, 10};

    assert_near(schedule_lr(&no_warmup, 1), 1);
    assert_near(schedule_lr(&only_warmup, 10), 1);
    assert_near(schedule_lr(&only_warmup, 11), 0.5); /* past the end: the floor */
    assert_near(schedule_lr(&no_warmup, 1000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cosine_is_torchs),
        cmocka_unit_test(linear_goes_straight_down),
        cmocka_unit_test(constant_stays_after_the_warm_up),
        cmocka_unit_test(the_edges_divide_by_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
