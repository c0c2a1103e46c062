/* Against what torch.amp.GradScaler did: tests/torch/grad_scaler_cases.py recorded it. */

#include "tests/lib/cmocka.h"
#include "worker/optim/grad_scaler.h"

#include "common/check.h"

#include <string.h>

struct recorded_step {
    uint32_t scale, inverse, gradient, unscaled; /* bits of fp32 numbers */
    uint32_t next_scale;
    int32_t tracker; /* this and the next: after the step */
    uint64_t updates;
    bool found_inf;
};

struct recorded_case {
    struct grad_scaler_config config;
    const struct recorded_step *step;
    size_t n_steps;
};

#include "tests/torch/fixtures/grad_scaler.inc"

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static void run_case(const struct recorded_case *c)
{
    struct grad_scaler s = grad_scaler_new(&c->config, true);

    for (size_t i = 0; i < c->n_steps; i++) {
        const struct recorded_step *r = &c->step[i];

        assert_int_equal(bits_of(grad_scaler_factor(&s)), r->scale);
        assert_int_equal(bits_of(grad_scaler_inverse(&s)), r->inverse);
        assert_int_equal(bits_of(float_of(r->gradient) * grad_scaler_inverse(&s)),
                         r->unscaled);
        grad_scaler_update(&s, r->found_inf);
        assert_int_equal(bits_of(s.scale), r->next_scale);
        assert_int_equal(s.growth_tracker, r->tracker);
        assert_int_equal(i + 1 - s.skipped, r->updates);
    }
}

static void every_bit_is_torchs_step_by_step(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        run_case(&cases[i]);
    }
}

static void off_it_multiplies_by_one(void **state)
{
    const struct grad_scaler_config config = {1000, 2, 0.5, 1};
    struct grad_scaler s = grad_scaler_new(&config, false);

    (void)state;
    assert_true(grad_scaler_factor(&s) == 1 && grad_scaler_inverse(&s) == 1);
    s.scale = 0.5F;
    assert_false(grad_scaler_is_exhausted(&s));
}

static void it_stays_where_its_inverse_is_a_normal_number(void **state)
{
    const struct grad_scaler_config config = {0x1p125, 2, 0.5, 1};
    struct grad_scaler s = grad_scaler_new(&config, true);

    (void)state;
    grad_scaler_update(&s, false);
    assert_true(s.scale == 0x1p126F && grad_scaler_inverse(&s) == 0x1p-126F);
    grad_scaler_update(&s, false); /* torch's would be 2^127 */
    assert_true(s.scale == 0x1p126F);
    assert_int_equal(s.growth_tracker, 0);
}

static void below_one_it_is_exhausted(void **state)
{
    const struct grad_scaler_config config = {2, 2, 0.5, 1};
    struct grad_scaler s = grad_scaler_new(&config, true);

    (void)state;
    grad_scaler_update(&s, true);
    assert_false(grad_scaler_is_exhausted(&s)); /* 1: as if there were none */
    grad_scaler_update(&s, true);
    assert_true(grad_scaler_is_exhausted(&s));
    assert_int_equal(s.skipped, 2);
}

static void a_tracker_beyond_a_shorter_interval_grows_at_once(void **state)
{
    const struct grad_scaler_config config = {8, 2, 0.5, 3};
    struct grad_scaler s = grad_scaler_new(&config, true);

    (void)state;
    s.growth_tracker = 1000;
    grad_scaler_update(&s, false);
    assert_true(s.scale == 16 && s.growth_tracker == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bit_is_torchs_step_by_step),
        cmocka_unit_test(off_it_multiplies_by_one),
        cmocka_unit_test(it_stays_where_its_inverse_is_a_normal_number),
        cmocka_unit_test(below_one_it_is_exhausted),
        cmocka_unit_test(a_tracker_beyond_a_shorter_interval_grows_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
