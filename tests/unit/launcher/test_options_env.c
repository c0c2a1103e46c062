/* Options by variables: PET_NNODES and its like. */

#include "launcher/options/options_core.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/options_rig.h"

#include <string.h>

static void refuse_variable(const char *variable, const char *text)
{
    options_rig_set_variable(variable);
    REFUSE(text, "a");
    options_rig_set_variable(NULL);
}

static int forget_variables(void **state)
{
    (void)state;
    options_rig_set_variable(NULL);
    return 0;
}

static void
a_variable_stands_for_an_option_that_is_not_on_the_command_line(void **state)
{
    struct launch_options o;

    (void)state;
    options_rig_set_variable("PET_NNODES=2:3");
    ACCEPT(&o, "--rdzv-endpoint=n", "a");
    assert_int_equal(o.min_nodes, 2);
    assert_int_equal(o.max_nodes, 3);
    ACCEPT(&o, "--nnodes=4", "--rdzv-endpoint=n", "a");
    assert_int_equal(o.min_nodes, 4);
    options_rig_set_variable(
        "PET_RDZV_CONF=join_timeout=5"); /* replaced whole, not merged */
    ACCEPT(&o, "--rdzv-conf=last_call_timeout=3", "a");
    assert_true(o.join_timeout_ms == 600000);
    options_rig_set_variable("PET_MAX_RESTARTS=x"); /* not looked at */
    ACCEPT(&o, "--max-restarts=3", "a");
    ACCEPT(&o, "--help");
    ACCEPT(&o, "ckpt", "list");
    options_rig_set_variable("PET_UNKNOWN=1");
    ACCEPT(&o, "a");
}

static void a_flags_variable_is_a_number_and_the_flag_itself_wins(void **state)
{
    struct launch_options o;

    (void)state;
    options_rig_set_variable("PET_NO_PYTHON=1");
    ACCEPT(&o, "a");
    assert_true(o.no_python);
    options_rig_set_variable("PET_NO_PYTHON= -2");
    ACCEPT(&o, "a");
    assert_true(o.no_python);
    options_rig_set_variable("PET_NO_PYTHON=0");
    ACCEPT(&o, "a");
    assert_false(o.no_python);
    ACCEPT(&o, "--no-python", "a");
    assert_true(o.no_python);
}

static void a_mistake_in_a_variable_names_it(void **state)
{
    (void)state;
    refuse_variable(
        "PET_NNODES=x",
        "PET_NNODES: expects N or MIN:MAX, numbers from 1 to 16384, not 'x'");
    refuse_variable("PET_MODULE=yes",
                    "PET_MODULE: expects 1 (on) or 0 (off), not 'yes'");
    refuse_variable(
        "PET_TEE=9",
        "PET_TEE: expects 0 (neither), 1 (stdout), 2 (stderr) or 3 (both), or LOCAL_RANK:MASK,… as 0:3,1:2; not '9'");
}

static void a_variable_that_is_empty_counts_as_given(void **state)
{
    struct launch_options o;

    (void)state;
    refuse_variable("PET_MAX_RESTARTS=",
                    "PET_MAX_RESTARTS: expects a number from 0 to 1000000, not ''");
    refuse_variable("PET_STANDALONE=",
                    "PET_STANDALONE: expects 1 (on) or 0 (off), not ''");
    options_rig_set_variable(
        "PET_LOG_DIR="); /* an empty text is what the option has without it */
    ACCEPT(&o, "a");
    options_rig_set_variable("PET_RDZV_ID="); /* … and an empty id a random one */
    ACCEPT(&o, "--rdzv-endpoint=localhost", "a");
    assert_string_equal(o.rdzv_id, "");
    REFUSE("--rdzv-id: an empty one means a random one, which other nodes cannot know; "
           "name one",
           "--nnodes=2", "--rdzv-endpoint=n", "a");
}

/* The variables of torchrun.md, and no others. */
static void torchruns_options_and_one_more_have_variables(void **state)
{
    static const char *const names[] = {"NNODES",
                                        "NPROC_PER_NODE",
                                        "RDZV_BACKEND",
                                        "RDZV_ENDPOINT",
                                        "RDZV_ID",
                                        "RDZV_CONF",
                                        "STANDALONE",
                                        "MAX_RESTARTS",
                                        "MONITOR_INTERVAL",
                                        "START_METHOD",
                                        "EVENT_LOG_HANDLER",
                                        "ROLE",
                                        "MODULE",
                                        "NO_PYTHON",
                                        "RUN_PATH",
                                        "LOG_DIR",
                                        "REDIRECTS",
                                        "TEE",
                                        "LOG_LINE_PREFIX_TEMPLATE",
                                        "LOCAL_RANKS_FILTER",
                                        "DUPLICATE_STDOUT_FILTERS",
                                        "DUPLICATE_STDERR_FILTERS",
                                        "NODE_RANK",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "LOCAL_ADDR",
                                        "SIGNALS_TO_HANDLE",
                                        "PREEMPT_SIGNAL", /* ours: for batch files */
                                        "SHUTDOWN_TIMEOUT",
                                        "VIRTUAL_LOCAL_RANK"};
    const struct options *table = &launch_options_table;
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < table->n; i++) {
        char name[64] = "";
        bool is_listed = false;

        if (table->specs[i].no_variable || table->specs[i].elsewhere) {
            continue;
        }
        for (size_t k = 0; table->specs[i].name[k] != '\0'; k++) {
            char c = table->specs[i].name[k];

            name[k] = c == '-' ? '_' : (char)(c - 'a' + 'A');
        }
        for (size_t k = 0; k < ARRAY_LEN(names); k++) {
            is_listed = is_listed || strcmp(names[k], name) == 0;
        }
        if (!is_listed) {
            print_error("PET_%s is not torchrun's\n", name);
        }
        assert_true(is_listed);
        n++;
    }
    assert_int_equal(n, ARRAY_LEN(names));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(
            a_variable_stands_for_an_option_that_is_not_on_the_command_line,
            forget_variables),
        cmocka_unit_test_teardown(a_flags_variable_is_a_number_and_the_flag_itself_wins,
                                  forget_variables),
        cmocka_unit_test_teardown(a_mistake_in_a_variable_names_it, forget_variables),
        cmocka_unit_test_teardown(a_variable_that_is_empty_counts_as_given,
                                  forget_variables),
        cmocka_unit_test_teardown(torchruns_options_and_one_more_have_variables,
                                  forget_variables),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
