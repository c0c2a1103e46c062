/* What an agent tells of its workers' progress, and is asked and told about hangs. */

#include "tests/lib/agent_rig.h"
#include "tests/lib/cmocka.h"

static void progress_is_sent_once_a_second_and_kept_for_the_end(void **state)
{
    struct control progress = {.type = CONTROL_PROGRESS, .step = 1};
    WITH_RIG(2, true);

    agent_rig_run(&rig, true);
    for (uint64_t step = 1; step <= 10; step++) {
        progress.step = step;
        agent_control(rig.agent, 0, &progress, rig.now_ms);
        agent_rig_pass(&rig, 200);
    }
    agent_rig_expect(&rig, "send progress step=1; send progress step=5; send progress "
                           "step=10");
    agent_rig_exit(&rig, 0, 1);
    assert_int_equal(rig.ended.step, 10);
    agent_rig_release(&rig);
}

static void what_was_said_last_is_sent_before_the_end(void **state)
{
    struct control progress = {.type = CONTROL_PROGRESS};
    WITH_RIG(2, true);

    agent_rig_run(&rig, true);
    for (progress.step = 1; progress.step <= 3; progress.step++) {
        progress.loss_step = progress.step - 1;
        agent_control(rig.agent, 0, &progress, rig.now_ms);
    }
    agent_rig_expect(&rig, "send progress step=1");
    agent_rig_exit(&rig, 0, 0);
    agent_rig_expect(&rig, "send progress step=3; send rank_ended rank=0 code=0 "
                           "signal=0 stopped=0; send rank_ended rank=0 tail");
    assert_int_equal(rig.progress.loss_step, 2);
    agent_rig_pass(&rig, 2000);
    agent_rig_expect(&rig, "");
    agent_rig_release(&rig);
}

static void after_a_reconnect_it_is_sent_before_the_end_too(void **state)
{
    struct control progress = {.type = CONTROL_PROGRESS, .step = 1};
    WITH_RIG(2, true);

    agent_rig_run(&rig, false);
    agent_control(rig.agent, 0, &progress, rig.now_ms);
    agent_disconnected(rig.agent, LOSS_SILENT, rig.now_ms);
    progress.step = 2;
    agent_control(rig.agent, 0, &progress, rig.now_ms);
    agent_rig_exit(&rig, 0, 0);
    agent_rig_pass(&rig, 2000);
    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_skip(&rig);
    agent_rig_welcome(&rig, 7, false);
    agent_rig_expect(&rig, "say the rendezvous at there:; send progress step=2; send "
                           "rank_ended rank=0 tail; relay resend");
    agent_rig_release(&rig);
}

static void a_new_loss_of_the_same_step_is_news(void **state)
{
    struct control progress = {.type = CONTROL_PROGRESS, .step = 1};
    WITH_RIG(2, true);

    agent_rig_run(&rig, true);
    agent_control(rig.agent, 0, &progress, rig.now_ms);
    progress.loss_step = 1;
    agent_control(rig.agent, 0, &progress, rig.now_ms);
    agent_rig_expect(&rig, "send progress step=1");
    agent_rig_pass(&rig, 250);
    agent_rig_expect(&rig, "send progress step=1");
    assert_int_equal(rig.progress.loss_step, 1);
    agent_rig_release(&rig);
}

static void a_step_that_json_would_have_below_zero_is_not_heard(void **state)
{
    struct control progress = {.type = CONTROL_PROGRESS, .step = 3};
    WITH_RIG(2, true);

    agent_rig_run(&rig, true);
    agent_control(rig.agent, 0, &progress, rig.now_ms);
    agent_rig_expect(&rig, "send progress step=3");
    progress.step = (uint64_t)INT64_MAX + 1;
    agent_control(rig.agent, 0, &progress, rig.now_ms);
    agent_rig_pass(&rig, 2000);
    agent_rig_expect(&rig, "");
    agent_rig_exit(&rig, 0, 1);
    assert_int_equal(rig.ended.step, 3);
    agent_rig_release(&rig);
}

static void the_last_report_of_a_burst_is_sent_as_soon_as_it_is_over(void **state)
{
    struct control progress = {.type = CONTROL_PROGRESS, .waits_for = 2};
    WITH_RIG(2, true);

    agent_rig_run(&rig, true);
    for (progress.step = 1; progress.step <= 5; progress.step++) {
        agent_control(rig.agent, 0, &progress, rig.now_ms);
        agent_rig_pass(&rig, 20);
    }
    agent_rig_expect(&rig, "send progress step=1");
    agent_rig_pass(&rig, 229);
    agent_rig_expect(&rig, "");
    agent_rig_pass(&rig, 1);
    agent_rig_expect(&rig, "send progress step=5");
    assert_int_equal(rig.progress.age_ms, 250);
    assert_int_equal(rig.progress.waits_for, 1);
    agent_rig_pass(&rig, 3000);
    agent_rig_expect(&rig, "");
    agent_rig_release(&rig);
}

static void the_same_again_is_sent_once_a_second(void **state)
{
    struct control progress = {.type = CONTROL_PROGRESS, .step = 1};
    WITH_RIG(2, true);

    agent_rig_run(&rig, true);
    for (int i = 0; i < 10; i++) {
        agent_control(rig.agent, 0, &progress, rig.now_ms);
        agent_rig_pass(&rig, 250);
    }
    agent_rig_expect(&rig, "send progress step=1; send progress step=1; send progress "
                           "step=1");
    agent_rig_release(&rig);
}

/* It came late, since nothing more had come for a while. */
static void the_same_again_soon_after_a_late_report_is_sent_too(void **state)
{
    struct control progress = {.type = CONTROL_PROGRESS, .step = 1};
    WITH_RIG(2, true);

    agent_rig_run(&rig, true);
    agent_control(rig.agent, 0, &progress, rig.now_ms);
    progress.step = 2;
    agent_control(rig.agent, 0, &progress, rig.now_ms);
    agent_rig_pass(&rig, 250);
    agent_rig_expect(&rig, "send progress step=1; send progress step=2");
    agent_rig_pass(&rig, 750);
    agent_control(rig.agent, 0, &progress, rig.now_ms);
    agent_rig_pass(&rig, 249);
    agent_rig_expect(&rig, "");
    agent_rig_pass(&rig, 1);
    agent_rig_expect(&rig, "send progress step=2");
    assert_int_equal(rig.progress.age_ms, 250);
    agent_rig_pass(&rig, 3000);
    agent_rig_expect(&rig, "");
    agent_rig_release(&rig);
}

static void who_has_been_started_is_told_and_told_again(void **state)
{
    WITH_RIG(2, false);

    agent_rig_run(&rig, false);
    agent_spawned(rig.agent, 1, 4321, rig.now_ms);
    agent_rig_expect(&rig, "send progress step=0");
    assert_int_equal(rig.progress.rank, 1);
    assert_int_equal(rig.progress.pid, 4321);
    assert_int_equal(rig.progress.waits_for, -1);
    agent_disconnected(rig.agent, LOSS_SILENT, rig.now_ms);
    agent_rig_pass(&rig, 2000);
    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_skip(&rig);
    agent_rig_welcome(&rig, 7, false);
    agent_rig_expect(&rig, "say the rendezvous at there:; send progress step=0; relay "
                           "resend");
    agent_rig_release(&rig);
}

static void inspect_what(struct agent_rig *rig, uint64_t generation, uint32_t rank,
                         enum inspect_what what)
{
    struct msg m = {
        .type = MSG_INSPECT,
        .u.inspect = {.generation = generation, .rank = rank, .what = (uint8_t)what}};

    agent_rig_tell(rig, &m);
}

static void inspect_rank(struct agent_rig *rig, uint64_t generation, uint32_t rank)
{
    inspect_what(rig, generation, rank, INSPECT_STACK);
}

/* Where its ranks were others. */
static void who_asks_for_a_log_of_a_generation_before_is_answered(void **state)
{
    WITH_RIG(2, true);

    agent_rig_run(&rig, true);
    agent_rig_stop(&rig, 1, STOP_ABORT);
    agent_rig_exit(&rig, 0, 1);
    agent_rig_exit(&rig, 1, 1);
    agent_rig_round(&rig, 2, 1, 2);
    agent_rig_skip(&rig);
    inspect_what(&rig, 1, 1, INSPECT_LOG);
    agent_rig_expect(&rig, "inspect 1 what=1");
    inspect_what(&rig, 2, 2, INSPECT_LOG_ERRORS);
    agent_rig_expect(&rig, "inspect 0 what=2");
    inspect_what(&rig, 1, 2, INSPECT_LOG);
    agent_rig_expect(&rig, "send inspected rank=2 gone");
    inspect_what(&rig, 1, 1, INSPECT_STACK);
    agent_rig_expect(&rig, "send inspected rank=1 gone");
    agent_rig_release(&rig);
}

static void who_asks_for_a_rank_is_answered_by_its_node(void **state)
{
    struct msg_inspected found = {.generation = 1, .rank = 1, .state = "T"};
    WITH_RIG(2, true);

    agent_rig_run(&rig, true);
    inspect_rank(&rig, 1, 1);
    agent_rig_expect(&rig, "inspect 1 what=3");
    agent_inspected(rig.agent, &found);
    agent_rig_expect(&rig, "send inspected rank=1 T");
    inspect_rank(&rig, 1, 2);
    agent_rig_expect(&rig, "send inspected rank=2 gone");
    inspect_rank(&rig, 2, 0);
    agent_rig_expect(&rig, "send inspected rank=0 gone");
    agent_rig_release(&rig);
}

static void who_asks_whether_a_rank_hangs_hears_first_where_all_are(void **state)
{
    struct control progress = {.type = CONTROL_PROGRESS, .step = 1};
    struct msg m = {.type = MSG_INSPECT,
                    .u.inspect = {.generation = 1, .rank = 0, .what = INSPECT_HANG}};
    WITH_RIG(2, true);

    agent_rig_run(&rig, true);
    agent_control(rig.agent, 1, &progress, rig.now_ms);
    progress.step = 2;
    agent_control(rig.agent, 1, &progress, rig.now_ms);
    agent_rig_expect(&rig, "send progress step=1"); /* 2 within a second */
    agent_rig_tell(&rig, &m);
    agent_rig_expect(&rig, "send progress step=2; inspect 0 what=0");
    agent_rig_release(&rig);
}

static void a_rank_that_hangs_is_killed_the_others_are_told(void **state)
{
    struct msg m = {.type = MSG_STOP,
                    .u.stop = {.generation = 1, .mode = STOP_ABORT, .hung = 2}};
    WITH_RIG(2, true);

    agent_rig_run(&rig, true);
    agent_rig_tell(&rig, &m);
    agent_rig_expect(&rig, "kill 1 9; abort 0");
    agent_rig_die(&rig, 1, 9);
    agent_rig_expect(&rig, "send rank_ended rank=1 code=0 signal=9 stopped=1; send "
                           "rank_ended rank=1 tail");
    agent_rig_release(&rig);
}

static void another_nodes_rank_that_hangs_is_not_ours_to_kill(void **state)
{
    struct msg m = {.type = MSG_STOP,
                    .u.stop = {.generation = 1, .mode = STOP_ABORT, .hung = 3}};
    WITH_RIG(2, true);

    agent_rig_run(&rig, true);
    agent_rig_tell(&rig, &m);
    agent_rig_expect(&rig, "abort 0; abort 1");
    agent_rig_release(&rig);
}

static void a_notice_is_said_line_by_line_fit_for_a_terminal(void **state)
{
    struct msg m = {
        .type = MSG_NOTICE,
        .u.notice = {.text = "rank 1\033 hangs", .detail = "#0 spin\n\n#1 main\n"}};
    WITH_RIG(2, true);

    agent_rig_run(&rig, true);
    agent_rig_tell(&rig, &m);
    agent_rig_expect(&rig, "say rank 1? hangs; say   #0 spin; say   #1 main");
    agent_rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_is_sent_once_a_second_and_kept_for_the_end),
        cmocka_unit_test(what_was_said_last_is_sent_before_the_end),
        cmocka_unit_test(after_a_reconnect_it_is_sent_before_the_end_too),
        cmocka_unit_test(a_new_loss_of_the_same_step_is_news),
        cmocka_unit_test(a_step_that_json_would_have_below_zero_is_not_heard),
        cmocka_unit_test(the_last_report_of_a_burst_is_sent_as_soon_as_it_is_over),
        cmocka_unit_test(the_same_again_is_sent_once_a_second),
        cmocka_unit_test(the_same_again_soon_after_a_late_report_is_sent_too),
        cmocka_unit_test(who_has_been_started_is_told_and_told_again),
        cmocka_unit_test(who_asks_for_a_log_of_a_generation_before_is_answered),
        cmocka_unit_test(who_asks_for_a_rank_is_answered_by_its_node),
        cmocka_unit_test(who_asks_whether_a_rank_hangs_hears_first_where_all_are),
        cmocka_unit_test(a_rank_that_hangs_is_killed_the_others_are_told),
        cmocka_unit_test(another_nodes_rank_that_hangs_is_not_ours_to_kill),
        cmocka_unit_test(a_notice_is_said_line_by_line_fit_for_a_terminal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
