/* train.grad_scaler and its companions. */

#include "tests/lib/cmocka.h"
#include "tests/lib/config_rig.h"
#include "worker/config.h"

#include "common/check.h"

#include <string.h>

static void the_defaults_are_torchs(void **state)
{
    const struct train_config *c = must_parse("");

    (void)state;
    assert_string_equal(c->train.grad_scaler, "auto");
    assert_true(c->train.init_scale == 65536 && c->train.growth_factor == 2 &&
                c->train.backoff_factor == 0.5);
    assert_int_equal(c->train.growth_interval, 2000);
}

static void the_loss_is_scaled_in_fp16_or_where_it_is_asked_for(void **state)
{
    (void)state;
    assert_false(config_scales_loss(must_parse("")));
    assert_true(config_scales_loss(must_parse("train.grad_scaler=true")));
    assert_true(config_scales_loss(must_parse("train.precision=fp16")));
    assert_false(config_scales_loss(must_parse("train.precision=bf16")));
    assert_false(
        config_scales_loss(must_parse("train.grad_scaler=false|train.precision=fp16")));
}

static void what_is_no_scale_is_refused(void **state)
{
    static const char *const bad[] = {
        "train.grad_scaler=on",    "train.init_scale=0.5",
        "train.init_scale=1e38",   "train.backoff_factor=1",
        "train.growth_factor=0.9", "train.growth_interval=0",
        "train.init_scale=inf",    "train.growth_interval=2147483648",
    };
    struct errmsg msg;

    (void)state;
    assert_true(must_parse("train.init_scale=1")->train.init_scale == 1);
    assert_true(must_parse("train.init_scale=8.507059173023462e37")->train.init_scale ==
                0x1p126);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(config_rig_parse(bad[i], &msg), ERR_INVALID);
        assert_non_null(strstr(msg.text, "command line: train."));
    }
}

static void names_of_other_tools_are_known(void **state)
{
    (void)state;
    assert_refused("train.initial_loss_scale=8",
                   "command line: unknown key \"train.initial_loss_scale\"; nearest: "
                   "\"train.init_scale\"");
    assert_refused("gradscaler=true", "command line: unknown key \"gradscaler\"; "
                                      "nearest: \"train.grad_scaler\"");
    assert_refused("fp16.loss_scale_window=1000",
                   "command line: unknown key \"fp16.loss_scale_window\"; nearest: "
                   "\"train.growth_interval\"");
}

static void factors_that_lead_nowhere_are_refused_by_the_checks(void **state)
{
    static const struct {
        const char *line, *text;
    } cases[] = {
        {"train.growth_factor=1",
         "train.growth_factor (1) must be above 1: the loss scale could never grow "
         "again"},
        {"train.growth_factor=1.00000001",
         "train.growth_factor (1) must be above 1: the loss scale could never grow "
         "again"},
        {"train.backoff_factor=0.99999999",
         "train.backoff_factor (1) must be below 1: an overflow would leave the loss "
         "scale as it is"},
        {"train.backoff_factor=0",
         "train.backoff_factor (0) must be above 0: an overflow would leave no loss "
         "scale"},
    };
    struct errmsg msg;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        must_parse(cases[i].line);
        assert_int_equal(config_check(&config_rig_options.config, &msg), ERR_INVALID);
        assert_string_equal(msg.text, cases[i].text);
    }
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, config_rig_open, config_rig_close)
    const struct CMUnitTest tests[] = {
        CASE(the_defaults_are_torchs),
        CASE(the_loss_is_scaled_in_fp16_or_where_it_is_asked_for),
        CASE(what_is_no_scale_is_refused),
        CASE(names_of_other_tools_are_known),
        CASE(factors_that_lead_nowhere_are_refused_by_the_checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
