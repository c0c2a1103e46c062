/* What ctrun's environment says of a rank's place. */

#include "tests/lib/cmocka.h"
#include "worker/launch.h"

#include "common/check.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    "WORLD_SIZE",     "RANK",           "LOCAL_WORLD_SIZE", "LOCAL_RANK",
    "GROUP_RANK",     "MASTER_PORT",    "CTRUN_CONTROL_FD", "CTRUN_GENERATION",
    "CTRUN_CPU_RANK", "CTRUN_CPU_RANKS"};

/* The variables' values in this order; NULL: unset. */
static int read_launch(const char *const values[ARRAY_LEN(names)], struct launch *l,
                       struct errmsg *msg)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (values[i]) {
            assert_int_equal(setenv(names[i], values[i], 1), 0);
        } else {
            assert_int_equal(unsetenv(names[i]), 0);
        }
    }
    *msg = (struct errmsg){0};
    return launch_read(l, msg);
}

static void ranks_that_are_not_bound_share_the_nodes_cpus(void **state)
{
    static const char *const alone[ARRAY_LEN(names)] = {NULL};
    static const char *const values[ARRAY_LEN(names)] = {"6", "4", "4",  "2",  "1",
                                                         "9", "3", "17", NULL, NULL};
    struct launch l;
    struct errmsg msg;

    (void)state;
    assert_int_equal(read_launch(alone, &l, &msg), 0);
    assert_int_equal(l.cpu_rank, 0);
    assert_int_equal(l.cpu_ranks, 1);
    assert_int_equal(read_launch(values, &l, &msg), 0);
    assert_int_equal(l.cpu_rank, 2);
    assert_int_equal(l.cpu_ranks, 4);
}

static void bound_ranks_share_with_those_of_the_same_cpus(void **state)
{
    static const char *const values[ARRAY_LEN(names)] = {"6", "4", "4",  "2", "1",
                                                         "9", "3", "17", "1", "2"};
    static const char *const many[ARRAY_LEN(names)] = {"6", "4", "4",  "2", "1",
                                                       "9", "3", "17", "1", "5"};
    static const char *const beyond[ARRAY_LEN(names)] = {"6", "4", "4",  "2", "1",
                                                         "9", "3", "17", "2", "2"};
    struct launch l;
    struct errmsg msg;

    (void)state;
    assert_int_equal(read_launch(values, &l, &msg), 0);
    assert_int_equal(l.cpu_rank, 1);
    assert_int_equal(l.cpu_ranks, 2);
    assert_int_equal(l.local_rank, 2); /* stays what it was */
    assert_int_equal(read_launch(many, &l, &msg), ERR_INVALID);
    assert_non_null(strstr(msg.text, "CTRUN_CPU_RANKS=\"5\""));
    assert_int_equal(read_launch(beyond, &l, &msg), ERR_INVALID);
    assert_non_null(strstr(msg.text, "CTRUN_CPU_RANK=\"2\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_are_not_bound_share_the_nodes_cpus),
        cmocka_unit_test(bound_ranks_share_with_those_of_the_same_cpus),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
