/* parallel.reshard_after_forward: a word or a number. */

#include "tests/lib/cmocka.h"
#include "tests/lib/config_rig.h"
#include "worker/config.h"

#include "common/check.h"
#include "common/mem.h"

#include <string.h>

static void both_words_and_numbers_are_taken(void **state)
{
    static const char *const tries[][2] = {
        {"parallel.reshard_after_forward=true", "true"},
        {"parallel.reshard_after_forward=FALSE", "false"},
        {"parallel.reshard_after_forward=1", "1"},
        {"parallel.reshard_after_forward=08", "8"},
        {"parallel.reshard_after_forward=1_024", "1024"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(tries); i++) {
        assert_string_equal(must_parse(tries[i][0])->parallel.reshard_after_forward,
                            tries[i][1]);
    }
}

static void anything_else_is_refused(void **state)
{
    (void)state;
    assert_file_refused("parallel: {reshard_after_forward: yes}",
                        "@/x.yaml:1:35: parallel.reshard_after_forward: \"yes\" is not "
                        "true, false or an integer");
    assert_file_refused("parallel: {reshard_after_forward: [2]}",
                        "@/x.yaml:1:35: parallel.reshard_after_forward is true, false "
                        "or an integer, not a list");
    assert_refused(
        "parallel.reshard_after_forward=0",
        "command line: parallel.reshard_after_forward: 0 is out of range: 1 … 1048576");
}

static void help_tells_both(void **state)
{
    char *help = config_help();

    (void)state;
    assert_non_null(
        strstr(help, "true, false or an integer from 1 to 1048576; default true\n"));
    mem_free(help);
}

/* The words go with every strategy: true is the default, false what others do anyway. */
static void a_number_needs_weights_that_are_dropped(void **state)
{
    static const char *const fit[] = {
        "parallel.strategy=fsdp|parallel.reshard_after_forward=2",
        "parallel.strategy=hsdp|parallel.reshard_after_forward=1",
        "parallel.strategy=zero1|parallel.reshard_after_forward=false",
    };
    struct errmsg msg;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(fit); i++) {
        must_parse(fit[i]);
        assert_int_equal(config_check(&config_rig_options.config, NULL), 0);
    }
    must_parse("parallel.strategy=zero2|parallel.reshard_after_forward=4");
    assert_int_equal(config_check(&config_rig_options.config, &msg), ERR_INVALID);
    assert_string_equal(
        msg.text, "parallel.reshard_after_forward=4: parallel.strategy=zero2 drops "
                  "no weights after use; set it to true, or take fsdp or hsdp");
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, config_rig_open, config_rig_close)
    const struct CMUnitTest tests[] = {
        CASE(both_words_and_numbers_are_taken),
        CASE(anything_else_is_refused),
        CASE(help_tells_both),
        CASE(a_number_needs_weights_that_are_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
