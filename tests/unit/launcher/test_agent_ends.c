/* When and by whose hand a worker ended, as its agent tells the service. */

#include "launcher/agent_core.h"
#include "tests/lib/agent_rig.h"
#include "tests/lib/cmocka.h"

#include <signal.h>

enum { EXIT_1 = 1 << 8, WALL_MS = 12345 };

/* `ago_ms`: before now. */
static void die(struct agent_rig *rig, uint32_t slot, int status, uint64_t ago_ms)
{
    struct agent_exit end = {status, rig->now_ms - ago_ms, WALL_MS};

    agent_exited(rig->agent, slot, &end, rig->now_ms);
}

static void drain(struct agent_rig *rig, uint32_t slot, uint64_t failed_ms)
{
    struct agent_end end = {.message = "why",
                            .tail = "",
                            .log_path = "",
                            .wall_ms = WALL_MS,
                            .failed_ms = failed_ms};

    agent_drained(rig->agent, slot, &end, rig->now_ms);
}

/* Running for 100 ms; the first of two has just failed, and the second was told to stop.
 */
static void run_and_fail(struct agent_rig *rig)
{
    agent_rig_run(rig, true);
    agent_rig_pass(rig, 100);
    agent_rig_exit(rig, 0, 1);
    agent_rig_skip(rig);
}

/* Its way out took so long that the sibling, which missed it, was gone first. */
static void worker_that_wrote_down_its_failure_had_failed_then(void **state)
{
    WITH_RIG(2, false);
    run_and_fail(&rig);
    die(&rig, 1, SIGTERM, 0);
    agent_rig_expect(&rig, "send rank_ended rank=1 code=0 signal=15 stopped=1");
    drain(&rig, 1, rig.now_ms - 50);
    assert_int_equal(rig.ended.stopped, 0);
    assert_int_equal(rig.ended.exit_code, 1);
    assert_int_equal(rig.ended.signal, 0);
    assert_int_equal(rig.ended.wall_ms, WALL_MS - 50);
    assert_int_equal(rig.agent->workers[1].ended_ms, rig.now_ms - 50);
    agent_rig_release(&rig);
}

static void what_a_worker_writes_after_it_was_told_to_stop_is_no_failure(void **state)
{
    WITH_RIG(2, false);
    run_and_fail(&rig);
    agent_rig_pass(&rig, 100);
    agent_rig_skip(&rig);
    die(&rig, 1, EXIT_1, 0);
    drain(&rig, 1, rig.now_ms - 50);
    assert_int_equal(rig.ended.stopped, 1);
    agent_rig_release(&rig);
}

static void date_before_the_worker_was_started_is_of_a_clock_that_was_set(void **state)
{
    WITH_RIG(2, false);
    uint64_t before_ms = rig.now_ms - 1;

    agent_rig_run(&rig, true);
    agent_rig_pass(&rig, 100);
    die(&rig, 1, EXIT_1, 0);
    drain(&rig, 1, before_ms);
    assert_int_equal(rig.agent->workers[1].ended_ms, rig.now_ms);
    assert_int_equal(rig.ended.wall_ms, WALL_MS);
    agent_rig_release(&rig);
}

/* The news of it came late: its own children had to be reaped first. */
static void end_before_the_word_to_stop_is_a_failure_of_its_own(void **state)
{
    WITH_RIG(2, false);
    run_and_fail(&rig);
    die(&rig, 1, SIGSEGV, 20);
    agent_rig_expect(&rig, "send rank_ended rank=1 code=0 signal=11 stopped=0");
    assert_int_equal(rig.agent->workers[1].ended_ms, rig.now_ms - 20);
    drain(&rig, 1, rig.now_ms - 50); /* its message was earlier still: its own signal */
    assert_int_equal(rig.ended.stopped, 0);
    assert_int_equal(rig.ended.signal, SIGSEGV);
    agent_rig_release(&rig);
}

static void kill_that_was_not_ours_stops_nobody(void **state)
{
    WITH_RIG(2, false);
    run_and_fail(&rig);
    die(&rig, 1, SIGKILL, 0);
    agent_rig_expect(&rig, "send rank_ended rank=1 code=0 signal=9 stopped=0");
    drain(&rig, 1, 0);
    assert_int_equal(rig.ended.stopped, 0);
    agent_rig_release(&rig);
}

static void kill_at_the_end_of_the_grace_is_ours(void **state)
{
    WITH_RIG(2, false);
    run_and_fail(&rig);
    agent_rig_pass(&rig, AGENT_GRACE_FAILED_MS);
    agent_rig_skip(&rig);
    die(&rig, 1, SIGKILL, 0);
    agent_rig_expect(&rig, "send rank_ended rank=1 code=0 signal=9 stopped=1");
    agent_rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worker_that_wrote_down_its_failure_had_failed_then),
        cmocka_unit_test(what_a_worker_writes_after_it_was_told_to_stop_is_no_failure),
        cmocka_unit_test(date_before_the_worker_was_started_is_of_a_clock_that_was_set),
        cmocka_unit_test(end_before_the_word_to_stop_is_a_failure_of_its_own),
        cmocka_unit_test(kill_that_was_not_ours_stops_nobody),
        cmocka_unit_test(kill_at_the_end_of_the_grace_is_ours),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
