#include "tests/lib/cmocka.h"

#include "common/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef FAULTS

static void the_environment_arms_points_by_name_and_count(void **state)
{
    (void)state;
    assert_int_equal(fault_at("env.other"), 0);
    assert_int_equal(fault_at("env.a"), 0);
    assert_int_equal(fault_at("env.a"), -ENOSPC);
    assert_int_equal(fault_at("env.a"), 0); /* once */
    assert_int_equal(fault_at("env.b"), -EIO);
}

static void an_armed_point_fails_once_at_its_nth_passage(void **state)
{
    (void)state;
    fault_arm("x", 3, -EPIPE);
    fault_arm("y", 1, -EIO);
    assert_int_equal(fault_at("x"), 0);
    assert_int_equal(fault_at("x"), 0);
    assert_int_equal(fault_at("x"), -EPIPE);
    assert_int_equal(fault_at("x"), 0);
    assert_int_equal(fault_at("y"), -EIO);
}

static void disarmed_points_do_not_fail(void **state)
{
    (void)state;
    fault_arm("x", 1, -EPIPE);
    fault_disarm_all();
    assert_int_equal(fault_at("x"), 0);
}

static void kill_ends_the_process_there(void **state)
{
    int status;
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        fault_arm("x", 1, FAULT_KILL);
        (void)fault_at("x");
        _exit(0);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_arms_points_by_name_and_count),
        cmocka_unit_test(an_armed_point_fails_once_at_its_nth_passage),
        cmocka_unit_test(disarmed_points_do_not_fail),
        cmocka_unit_test(kill_ends_the_process_there),
    };

    /* NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread */
    if (setenv("CTRUN_FAULT", "env.a:2:ENOSPC,env.b:1", 1) < 0) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void nothing_is_left_of_faults_in_a_release_build(void **state)
{
    (void)state;
    assert_int_equal(fault_at("x"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_left_of_faults_in_a_release_build),
    };

    /* NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread */
    if (setenv("CTRUN_FAULT", "x:1", 1) < 0) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
