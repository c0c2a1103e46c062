/* The agent's table of transitions, by golden traces of what it has done. */

#include "launcher/agent_core.h"
#include "tests/lib/agent_rig.h"
#include "tests/lib/cmocka.h"

#include "common/err.h"
#include "common/exit_code.h"

#include <signal.h>
#include <string.h>

static void who_waits_in_vain_says_how_many_came_and_who_else_waits(void **state)
{
    struct msg pong = {.type = MSG_PONG,
                       .u.pong = {.n_joined = 3, .also_waiting = "B"}};
    WITH_RIG(2, false);

    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_welcome(&rig, 7, true);
    agent_rig_tell(&rig, &pong);
    agent_rig_pass(&rig, 60000);
    agent_rig_expect_said(
        &rig, "job job did not get its 1 nodes within 60 s (join_timeout of "
              "--rdzv-conf): 3 came; --rdzv-id and --rdzv-endpoint must be the same "
              "everywhere (also waiting here: job B)");
    assert_int_equal(rig.exit_code, EXIT_RENDEZVOUS);
    agent_rig_release(&rig);
}

static void joins_runs_waits_for_the_others_and_closes(void **state)
{
    WITH_RIG(2, false);
    agent_rig_expect(&rig, "connect");
    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_expect(&rig, "send hello session=0 g=0");
    agent_rig_welcome(&rig, 7, true);
    agent_rig_expect(&rig, "send join after=0 port=1001");
    agent_rig_round(&rig, 1, 1, 2);
    agent_rig_expect(&rig, "say joined as node 1 of 2, r; spawn g=1 first=2 world=4; "
                           "start 0 step=0; start 1 step=0");
    agent_rig_exit(&rig, 1, 0);
    agent_rig_expect(
        &rig,
        "send rank_ended rank=3 code=0 signal=0 stopped=0; send rank_ended rank=3 tail");
    agent_rig_exit(&rig, 0, 0);
    agent_rig_expect(
        &rig,
        "send rank_ended rank=2 code=0 signal=0 stopped=0; send rank_ended rank=2 tail; "
        "send stopped g=1 done=1");
    assert_int_equal(rig.agent->state, AGENT_WAITING);
    agent_rig_closed(&rig, 0);
    agent_rig_expect(&rig, "relay close; end 0");
    agent_rig_release(&rig);
}

static void failed_worker_takes_its_siblings_with_it_at_once(void **state)
{
    WITH_RIG(2, false);
    agent_rig_run(&rig, true);
    agent_exited(rig.agent, 0, &(struct agent_exit){3 << 8, rig.now_ms, 12345},
                 rig.now_ms);
    agent_rig_expect(&rig, "send rank_ended rank=0 code=3 signal=0 stopped=0; "
                           "kill 1 15"); /* before its output is read */
    assert_int_equal(rig.ended.wall_ms, 12345);
    agent_drained(rig.agent, 0,
                  &(struct agent_end){"why", "last line", "", 12345, 0, "", ""},
                  rig.now_ms);
    agent_rig_expect(&rig, "send rank_ended rank=0 tail");
    assert_string_equal(rig.ended.message, "why");
    assert_int_equal(rig.ended.exit_code, 3);
    agent_rig_die(&rig, 1, SIGTERM);
    agent_rig_expect(
        &rig,
        "send rank_ended rank=1 code=0 signal=15 stopped=1; send rank_ended rank=1 tail; "
        "send stopped g=1 done=0; send join after=1 port=1002");
    agent_rig_round(&rig, 2, 0, 1);
    agent_rig_expect(&rig, "say runs on this node alone,; "
                           "spawn g=2 first=0 world=2; start 0 step=0; start 1 step=0");
    agent_rig_release(&rig);
}

static void failure_without_restarts_left_ends_with_its_code(void **state)
{
    struct msg report = {.type = MSG_REPORT, .u.report = {.final = 1, .text = "cause"}};
    WITH_RIG(2, false);

    agent_rig_run(&rig, true);
    agent_rig_exit(&rig, 0, 3);
    agent_rig_exit(&rig, 1, 0);
    agent_rig_skip(&rig);
    agent_rig_tell(&rig, &report);
    agent_rig_closed(&rig, 3);
    agent_rig_expect(&rig, "report cause; relay close; end 3");
    assert_true(agent_was_closed(rig.agent));
    agent_rig_release(&rig);
}

static void stop_that_no_report_follows_is_explained_at_the_next_round(void **state)
{
    struct msg report = {.type = MSG_REPORT, .u.report = {.text = "again"}};
    struct msg stop = {
        .type = MSG_STOP,
        .u.stop = {.generation = 1, .mode = STOP_ABORT, .text = "node b was lost"}};
    WITH_RIG(2, false);

    agent_rig_run(&rig, true);
    for (uint64_t g = 1; g <= 2; g++) {
        stop.u.stop.generation = g;
        agent_rig_tell(&rig, &stop);
        agent_rig_die(&rig, 0, SIGTERM);
        agent_rig_die(&rig, 1, SIGTERM);
        if (g == 2) {
            agent_rig_tell(&rig, &report);
        }
        agent_rig_skip(&rig);
        agent_rig_round(&rig, g + 1, 0, 1);
        agent_rig_expect(
            &rig, g == 1
                      ? "say generation 1 ends here: ; say runs on this node alone,; "
                        "spawn g=2 first=0 world=2; start 0 step=0; start 1 step=0"
                      : "say runs on this node alone,; "
                        "spawn g=3 first=0 world=2; start 0 step=0; start 1 step=0");
    }
    agent_rig_release(&rig);
}

static void abort_tells_engines_and_kills_after_five_seconds(void **state)
{
    WITH_RIG(2, true);
    agent_rig_run(&rig, true);
    agent_rig_stop(&rig, 1, STOP_ABORT);
    agent_rig_expect(&rig, "abort 0; abort 1");
    agent_rig_exit(&rig, 0, 80);
    agent_rig_expect(
        &rig,
        "send rank_ended rank=0 code=80 signal=0 stopped=1; send rank_ended rank=0 tail");
    agent_rig_pass(&rig, 4999);
    agent_rig_expect(&rig, "");
    agent_rig_pass(&rig, 1);
    agent_rig_expect(&rig, "kill 1 9");
    agent_rig_release(&rig);
}

static void leave_gives_thirty_seconds_and_abort_cuts_them_short(void **state)
{
    WITH_RIG(2, true);
    agent_rig_run(&rig, true);
    agent_rig_stop(&rig, 1, STOP_LEAVE);
    agent_rig_expect(&rig, "leave 0; leave 1");
    agent_rig_pass(&rig, 6000);
    agent_rig_expect(&rig, "");
    agent_rig_stop(&rig, 1, STOP_ABORT);
    agent_rig_expect(&rig, "abort 0; abort 1");
    agent_rig_stop(&rig, 1, STOP_ABORT);
    agent_rig_expect(&rig, "");
    agent_rig_pass(&rig, 5000);
    agent_rig_expect(&rig, "kill 0 9; kill 1 9");
    agent_rig_release(&rig);
}

static void other_programs_get_term_and_thirty_seconds(void **state)
{
    WITH_RIG(2, false);
    agent_rig_run(&rig, true);
    agent_rig_stop(&rig, 1, STOP_ABORT);
    agent_rig_expect(&rig, "kill 0 15; kill 1 15");
    agent_rig_pass(&rig, 29999);
    agent_rig_expect(&rig, "");
    agent_rig_pass(&rig, 1);
    agent_rig_expect(&rig, "kill 0 9; kill 1 9");
    agent_rig_release(&rig);
}

static void workers_that_may_save_have_the_time_that_was_given(void **state)
{
    WITH_RIG(2, false);
    agent_rig_run(&rig, true);
    agent_rig_stop(&rig, 1, STOP_LEAVE);
    agent_rig_expect(&rig, "kill 0 15; kill 1 15");
    agent_rig_pass(&rig, 39999);
    agent_rig_expect(&rig, "");
    agent_rig_pass(&rig, 1);
    agent_rig_expect(&rig, "kill 0 9; kill 1 9");
    agent_rig_release(&rig);
}

static void shorter_time_holds_after_a_failure_too(void **state)
{
    for (int is_engine = 0; is_engine < 2; is_engine++) {
        WITH_SHUTDOWN(1, is_engine != 0, 2000);
        agent_rig_run(&rig, true);
        agent_rig_stop(&rig, 1, STOP_ABORT);
        agent_rig_expect(&rig, is_engine ? "abort 0" : "kill 0 15");
        agent_rig_pass(&rig, 1999);
        agent_rig_expect(&rig, "");
        agent_rig_pass(&rig, 1);
        agent_rig_expect(&rig, "kill 0 9");
        agent_rig_release(&rig);
    }
}

static void program_that_says_hello_is_an_engine(void **state)
{
    struct control hello = {.type = CONTROL_HELLO, .path = "/logs", .max_world = 8};
    WITH_RIG(2, false);

    agent_rig_run(&rig, true);
    agent_control(rig.agent, 0, &hello, rig.now_ms);
    agent_rig_expect(&rig, "engine 0 /logs");
    agent_rig_stop(&rig, 1, STOP_LEAVE);
    agent_rig_expect(&rig, "leave 0; kill 1 15");
    agent_rig_release(&rig);
}

static void refusal_is_said_once_and_ends(void **state)
{
    struct msg m = {.type = MSG_REFUSED, .u.refused = {.exit_code = 2, .text = "no"}};
    WITH_RIG(2, false);

    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_skip(&rig);
    agent_rig_tell(&rig, &m);
    agent_rig_expect(&rig, "say no; relay close; end 2");
    agent_rig_release(&rig);
}

static void node_that_is_done_joins_again_when_another_failed(void **state)
{
    WITH_RIG(2, false);
    agent_rig_run(&rig, true);
    agent_rig_exit(&rig, 0, 0);
    agent_rig_exit(&rig, 1, 0);
    agent_rig_skip(&rig);
    agent_rig_stop(&rig, 1, STOP_ABORT);
    agent_rig_expect(&rig, "send join after=1 port=1002");
    agent_rig_release(&rig);
}

static void finished_workers_of_a_stopped_generation_join_the_next(void **state)
{
    WITH_RIG(2, true);
    agent_rig_run(&rig, true);
    agent_rig_exit(&rig, 0, 0);
    agent_rig_stop(&rig, 1, STOP_ABORT);
    agent_rig_skip(&rig);
    agent_rig_exit(&rig, 1, 0);
    agent_rig_expect(
        &rig,
        "send rank_ended rank=1 code=0 signal=0 stopped=1; send rank_ended rank=1 tail; "
        "send stopped g=1 done=1; send join after=1 port=1002");
    agent_rig_release(&rig);
}

static void decisions_go_back_to_the_worker_that_asked(void **state)
{
    struct control resumed = {.type = CONTROL_RESUMED, .run = 2, .step = 5};
    struct control commit = {.type = CONTROL_COMMIT, .run = 2, .step = 10, .hash = "h"};
    struct msg m = {.type = MSG_DECISION,
                    .u.decision = {.generation = 1, .accepted = 1}};
    WITH_RIG(2, true);

    agent_rig_run(&rig, true);
    agent_control(rig.agent, 1, &resumed, rig.now_ms);
    m.u.decision.request = rig.last_request;
    agent_rig_skip(&rig);
    agent_rig_tell(&rig, &m);
    agent_rig_expect(&rig, "decide 1 step=5 resumed yes");
    agent_rig_tell(&rig, &m);
    agent_rig_expect(&rig, ""); /* answered already */
    agent_control(rig.agent, 1, &commit, rig.now_ms);
    m.u.decision.request = rig.last_request;
    m.u.decision.generation = 0;
    agent_rig_skip(&rig);
    agent_rig_tell(&rig, &m);
    agent_rig_expect(&rig, ""); /* of another generation */
    m.u.decision.generation = 1;
    agent_rig_tell(&rig, &m);
    agent_rig_expect(&rig, "decide 1 step=10 commit yes");
    agent_rig_release(&rig);
}

static void refusing_worker_is_passed_on_once(void **state)
{
    struct control refuse = {.type = CONTROL_REFUSE, .code = 2, .text = "bad key"};
    WITH_RIG(2, true);

    agent_rig_run(&rig, true);
    agent_control(rig.agent, 0, &refuse, rig.now_ms);
    agent_control(rig.agent, 1, &refuse, rig.now_ms);
    agent_rig_expect(&rig, "send refuse");
    agent_rig_release(&rig);
}

static void world_that_a_worker_refused_is_joined_with(void **state)
{
    struct control refuse = {
        .type = CONTROL_REFUSE, .code = 2, .text = "too many", .max_world = 4};
    struct control hello = {.type = CONTROL_HELLO, .path = "/logs", .max_world = 8};
    WITH_RIG(2, true);

    agent_rig_run(&rig, true);
    agent_control(rig.agent, 0, &refuse, rig.now_ms);
    agent_rig_expect(&rig, "send refuse world=4");
    agent_rig_stop(&rig, 1, STOP_ABORT);
    agent_rig_exit(&rig, 0, 2);
    agent_rig_skip(&rig);
    agent_rig_exit(&rig, 1, 2);
    agent_rig_expect(
        &rig,
        "send rank_ended rank=1 code=2 signal=0 stopped=1; send rank_ended rank=1 "
        "tail; send stopped g=1 done=0; send join after=1 port=1002 world=4");
    agent_rig_round(&rig, 2, 0, 1);
    agent_control(rig.agent, 1, &hello, rig.now_ms);
    agent_rig_stop(&rig, 2, STOP_ABORT);
    agent_rig_exit(&rig, 0, 80);
    agent_rig_skip(&rig);
    agent_rig_exit(&rig, 1, 80);
    agent_rig_expect(
        &rig,
        "send rank_ended rank=1 code=80 signal=0 stopped=1; send rank_ended rank=1 "
        "tail; send stopped g=2 done=0; send join after=2 port=1003 world=8");
    agent_rig_release(&rig);
}

static void worker_that_cannot_start_is_an_end_of_its_own(void **state)
{
    WITH_RIG(2, false);
    agent_rig_run(&rig, true);
    agent_spawn_failed(rig.agent, 1,
                       &(struct agent_end){"cannot start prog", "", "", 0, 0, "", ""},
                       rig.now_ms);
    agent_rig_expect(&rig, "send rank_ended rank=1 code=127 signal=0 stopped=0; "
                           "kill 0 15");
    assert_string_equal(rig.ended.message, "cannot start prog");
    agent_rig_release(&rig);
}

static void standby_waits_without_end_and_joining_does_not(void **state)
{
    struct msg standby = {.type = MSG_STANDBY, .u.standby = {.text = "standing by"}};
    struct msg pong = {.type = MSG_PONG};
    WITH_RIG(2, false);

    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_welcome(&rig, 7, true);
    agent_rig_tell(&rig, &standby);
    for (int i = 0; i < 10; i++) {
        agent_rig_pass(&rig, 30000);
        pong.u.pong.sent_ms = rig.now_ms;
        agent_rig_tell(&rig, &pong);
    }
    assert_int_equal(rig.agent->state, AGENT_JOINING);
    agent_rig_release(&rig);

    agent_rig_init(&rig, &rig_config);
    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_welcome(&rig, 7, true);
    for (int i = 0; i < 3; i++) {
        agent_rig_pass(&rig, 30000);
        pong.u.pong.sent_ms = rig.now_ms;
        agent_rig_tell(&rig, &pong);
    }
    assert_int_equal(rig.exit_code, 94);
    agent_rig_release(&rig);
}

static void old_rounds_are_ignored_and_senseless_ones_refused(void **state)
{
    struct msg bad = {.type = MSG_ROUND,
                      .u.round = {.generation = 9, .group_world = 4000000000U}};
    WITH_RIG(2, false);

    agent_rig_run(&rig, true);
    agent_rig_exit(&rig, 0, 1);
    agent_rig_exit(&rig, 1, 1);
    agent_rig_skip(&rig);
    agent_rig_round(&rig, 1, 0, 1);
    agent_rig_expect(&rig, "");
    assert_int_equal(agent_message(rig.agent, &bad, rig.now_ms), ERR_PROTOCOL);
    bad.u.round.group_world = 1;
    assert_int_equal(agent_message(rig.agent, &bad, rig.now_ms), ERR_PROTOCOL);
    bad.u.round.world_size = 2;
    assert_int_equal(agent_message(rig.agent, &bad, rig.now_ms), ERR_PROTOCOL);
    bad.u.round.role_world_size = 2; /* and still no table */
    assert_int_equal(agent_message(rig.agent, &bad, rig.now_ms), ERR_PROTOCOL);
    assert_int_equal(rig.agent->state, AGENT_JOINING);
    agent_rig_release(&rig);
}

static void lost_keeper_ends_the_node(void **state)
{
    WITH_RIG(2, false);
    agent_rig_run(&rig, true);
    agent_keeper_lost(rig.agent, rig.now_ms);
    agent_rig_expect(&rig,
                     "say the keeper, the parent o; disconnect; relay close; end 1");
    agent_rig_release(&rig);
}

static void keeper_that_is_lost_while_all_is_stopped_changes_no_exit_code(void **state)
{
    WITH_RIG(2, false);
    agent_rig_run(&rig, true);
    agent_signal(rig.agent, SIGTERM, rig.now_ms);
    agent_keeper_lost(rig.agent, rig.now_ms);
    assert_int_equal(rig.exit_code, 128 + SIGTERM);
    agent_rig_release(&rig);
}

static void a_job_that_closes_under_running_workers_stops_them_first(void **state)
{
    WITH_RIG(2, true);
    agent_rig_run(&rig, true);
    agent_rig_closed(&rig, 3);
    agent_rig_expect(&rig, "abort 0; abort 1");
    agent_rig_exit(&rig, 0, 80);
    agent_rig_exit(&rig, 1, 80);
    assert_int_equal(rig.exit_code, 3);
    agent_rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_in_vain_says_how_many_came_and_who_else_waits),
        cmocka_unit_test(joins_runs_waits_for_the_others_and_closes),
        cmocka_unit_test(failed_worker_takes_its_siblings_with_it_at_once),
        cmocka_unit_test(failure_without_restarts_left_ends_with_its_code),
        cmocka_unit_test(stop_that_no_report_follows_is_explained_at_the_next_round),
        cmocka_unit_test(abort_tells_engines_and_kills_after_five_seconds),
        cmocka_unit_test(leave_gives_thirty_seconds_and_abort_cuts_them_short),
        cmocka_unit_test(other_programs_get_term_and_thirty_seconds),
        cmocka_unit_test(workers_that_may_save_have_the_time_that_was_given),
        cmocka_unit_test(shorter_time_holds_after_a_failure_too),
        cmocka_unit_test(program_that_says_hello_is_an_engine),
        cmocka_unit_test(refusal_is_said_once_and_ends),
        cmocka_unit_test(node_that_is_done_joins_again_when_another_failed),
        cmocka_unit_test(finished_workers_of_a_stopped_generation_join_the_next),
        cmocka_unit_test(decisions_go_back_to_the_worker_that_asked),
        cmocka_unit_test(refusing_worker_is_passed_on_once),
        cmocka_unit_test(world_that_a_worker_refused_is_joined_with),
        cmocka_unit_test(worker_that_cannot_start_is_an_end_of_its_own),
        cmocka_unit_test(standby_waits_without_end_and_joining_does_not),
        cmocka_unit_test(old_rounds_are_ignored_and_senseless_ones_refused),
        cmocka_unit_test(lost_keeper_ends_the_node),
        cmocka_unit_test(keeper_that_is_lost_while_all_is_stopped_changes_no_exit_code),
        cmocka_unit_test(a_job_that_closes_under_running_workers_stops_them_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
