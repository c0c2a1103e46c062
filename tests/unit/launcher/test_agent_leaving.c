/* A node that is told to go, by a signal, a scheduler's notice or the service's word. */

#include "launcher/agent_core.h"
#include "tests/lib/agent_rig.h"
#include "tests/lib/cmocka.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static void first_signal_is_passed_on_and_the_second_kills(void **state)
{
    WITH_RIG(2, false);
    agent_rig_run(&rig, true);
    agent_signal(rig.agent, SIGINT, rig.now_ms);
    agent_rig_expect(&rig, "send leave g=1 signal=2; kill 0 2; kill 1 2; "
                           "say SIGINT: passed it on to ");
    agent_rig_expect_said(&rig, "SIGINT: passed it on to the workers, which have 40 s "
                                "to end; once more to kill them now");
    agent_signal(rig.agent, SIGHUP, rig.now_ms);
    agent_rig_expect(&rig, "");
    agent_signal(rig.agent, SIGINT, rig.now_ms);
    agent_rig_expect(&rig, "kill 0 9; kill 1 9; say SIGINT once more: killed");
    agent_rig_expect_said(&rig, "SIGINT once more: killed the workers");
    agent_rig_die(&rig, 0, SIGKILL);
    agent_rig_die(&rig, 1, SIGKILL);
    agent_rig_expect(
        &rig,
        "send rank_ended rank=0 code=0 signal=9 stopped=1; send rank_ended rank=0 tail; "
        "send rank_ended rank=1 code=0 signal=9 stopped=1; send rank_ended rank=1 tail; "
        "send stopped g=1 done=0; relay close; end 130");
    agent_rig_release(&rig);
}

static void killed_workers_are_not_said_to_be_killed_again(void **state)
{
    WITH_RIG(2, false);
    agent_rig_run(&rig, true);
    agent_signal(rig.agent, SIGTERM, rig.now_ms);
    agent_signal(rig.agent, SIGTERM, rig.now_ms);
    agent_rig_skip(&rig);
    agent_signal(rig.agent, SIGTERM, rig.now_ms);
    agent_rig_expect(&rig, "");
    agent_rig_release(&rig);
}

static void end_that_follows_its_notice_is_passed_on_with_the_full_time(void **state)
{
    WITH_SHUTDOWN(1, false, 20000);
    agent_rig_run(&rig, true);
    agent_signal(rig.agent, SIGUSR1, rig.now_ms);
    agent_rig_expect(&rig, "send leave g=1 signal=10; kill 0 10; "
                           "say SIGUSR1: passed it on to");
    agent_rig_expect_said(&rig, "SIGUSR1: passed it on to the workers, which have 20 s "
                                "to end; SIGTERM twice to kill them now");
    agent_signal(rig.agent, SIGUSR1, rig.now_ms); /* Slurm's, by two ways */
    agent_signal(rig.agent, SIGUSR2, rig.now_ms);
    agent_rig_pass(&rig, 15000);
    agent_rig_expect(&rig, "");
    agent_signal(rig.agent, SIGTERM, rig.now_ms);
    agent_rig_expect(&rig, "send leave g=1 signal=15; kill 0 15; "
                           "say SIGTERM: passed it on to");
    agent_signal(rig.agent, SIGUSR1, rig.now_ms);
    agent_rig_pass(&rig, 19999);
    agent_rig_expect(&rig, "");
    agent_signal(rig.agent, SIGTERM, rig.now_ms);
    agent_rig_expect(&rig, "kill 0 9; say SIGTERM once more: kille");
    agent_rig_release(&rig);
}

static void signalled_engines_are_asked_to_leave(void **state)
{
    WITH_RIG(2, true);
    agent_rig_run(&rig, true);
    agent_signal(rig.agent, SIGINT, rig.now_ms);
    agent_rig_expect(&rig, "send leave g=1 signal=2; leave 0; leave 1; "
                           "say SIGINT: asked the worker");
    agent_rig_expect_said(&rig, "SIGINT: asked the workers to finish their step, save "
                                "and leave; once more to kill them now");
    agent_rig_exit(&rig, 0, 83);
    agent_rig_exit(&rig, 1, 83);
    assert_int_equal(rig.exit_code, 128 + SIGINT);
    agent_rig_release(&rig);
}

static void drained(struct agent_rig *rig, const char *why)
{
    struct msg m = {.type = MSG_DRAIN};

    (void)snprintf(m.u.drain.text, sizeof(m.u.drain.text), "%s", why);
    agent_rig_tell(rig, &m);
}

static void drained_engines_leave_and_the_end_is_0(void **state)
{
    WITH_RIG(2, true);
    agent_rig_run(&rig, true);
    drained(&rig, "by root on n9");
    agent_rig_expect(&rig, "say this node is drained: by; "
                           "send leave g=1 signal=0; leave 0; leave 1; "
                           "say drain: asked the workers");
    agent_rig_expect_said(&rig, "drain: asked the workers to finish their step, save "
                                "and leave; SIGTERM twice to kill them now");
    drained(&rig, "again");
    agent_rig_expect(&rig, "");
    agent_rig_exit(&rig, 0, 83);
    agent_rig_exit(&rig, 1, 83);
    assert_int_equal(rig.exit_code, 0);
    assert_true(agent_is_drained(rig.agent));
    agent_rig_release(&rig);
}

static void drained_programs_are_told_and_a_signal_after_it_is_passed_on(void **state)
{
    WITH_SHUTDOWN(1, false, 20000);
    agent_rig_run(&rig, false);
    drained(&rig, "");
    agent_rig_expect(
        &rig, "send leave g=1 signal=0; kill 0 15; say drain: passed it on to t");
    agent_signal(rig.agent, SIGINT, rig.now_ms);
    agent_rig_expect(&rig,
                     "send leave g=1 signal=0; kill 0 2; say SIGINT: passed it on to ");
    agent_rig_pass(&rig, 19999);
    agent_rig_expect(&rig, "");
    agent_signal(rig.agent, SIGINT, rig.now_ms);
    agent_rig_expect(&rig, "kill 0 9; say SIGINT once more: killed");
    agent_rig_die(&rig, 0, SIGKILL);
    assert_int_equal(rig.exit_code, 0);
    agent_rig_release(&rig);
}

static void drained_node_without_workers_ends_at_once(void **state)
{
    WITH_RIG(2, false);
    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_welcome(&rig, 7, true);
    agent_rig_skip(&rig);
    drained(&rig, "");
    agent_rig_expect(&rig, "send leave g=0 signal=0; relay close; end 0");
    agent_rig_release(&rig);
}

/* Agreed with the step's loss exchange: the word may reach this node's agent later. */
static void engine_that_left_with_others_takes_its_siblings_along_in_peace(void **state)
{
    WITH_RIG(2, true);
    agent_rig_run(&rig, true);
    agent_rig_exit(&rig, 0, 83);
    agent_rig_expect(&rig,
                     "send rank_ended rank=0 code=83 signal=0 stopped=0; leave 1; "
                     "send rank_ended rank=0 tail");
    agent_rig_stop(&rig, 1, STOP_LEAVE);
    agent_rig_expect(&rig, "");
    agent_rig_exit(&rig, 1, 83);
    assert_int_equal(rig.exit_code, -1);
    agent_rig_release(&rig);
}

static void word_that_it_leaves_is_repeated_to_a_service_that_was_away(void **state)
{
    WITH_RIG(1, true);
    agent_rig_run(&rig, false);
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    agent_signal(rig.agent, SIGTERM, rig.now_ms);
    agent_rig_pass(&rig, 1000);
    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_skip(&rig);
    agent_rig_welcome(&rig, 7, false);
    agent_rig_expect(&rig, "say the rendezvous at there:; "
                           "send leave g=1 signal=15; relay resend");
    agent_rig_release(&rig);
}

/* Its worker is gone, and the service has been away since before the signal. */
static void leaves_unheard(struct agent_rig *rig)
{
    struct msg pong = {.type = MSG_PONG};

    agent_rig_run(rig, false);
    pong.u.pong.sent_ms = rig->now_ms;
    pong.u.pong.service_ms = rig->now_ms + 100000;
    agent_rig_tell(rig, &pong);
    agent_disconnected(rig->agent, LOSS_CLOSED, rig->now_ms);
    agent_signal(rig->agent, SIGTERM, rig->now_ms);
    agent_rig_pass(rig, 500);
    agent_rig_skip(rig);
    agent_rig_die(rig, 0, SIGTERM);
    assert_int_equal(rig->exit_code, -1);
}

static void node_that_leaves_unheard_stays_until_the_service_knows(void **state)
{
    uint64_t told_ms;
    char want[256];
    WITH_RIG(1, false);

    leaves_unheard(&rig);
    told_ms = rig.now_ms - 500 + 100000;
    agent_rig_expect_said(
        &rig, "SIGTERM: the workers have ended; waiting for the rendezvous at there:1 "
              "(it closed the connection), to tell it that this node leaves, for 40 s "
              "at most; once more to leave now");
    agent_rig_pass(&rig, 3000);
    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_skip(&rig);
    agent_rig_welcome(&rig, 7, false);
    (void)snprintf(want, sizeof(want),
                   "say the rendezvous at there:; send leave g=1 signal=15 at=%llu; "
                   "send rank_ended rank=0 tail; send stopped g=1 done=0; relay close; "
                   "end 143",
                   (unsigned long long)told_ms);
    agent_rig_expect(&rig, want);
    agent_rig_release(&rig);
}

static void
node_that_leaves_unheard_waits_no_longer_than_its_workers_might(void **state)
{
    WITH_RIG(1, false);

    leaves_unheard(&rig);
    agent_rig_pass(&rig, 39499);
    assert_int_equal(rig.exit_code, -1);
    agent_rig_pass(&rig, 1);
    agent_rig_expect_said(
        &rig, "leaving without a word to the rendezvous at there:1, which does not "
              "answer: the job will take this node for lost");
    assert_int_equal(rig.exit_code, 128 + SIGTERM);
    agent_rig_release(&rig);
}

static void node_that_leaves_unheard_goes_at_once_when_it_is_told_again(void **state)
{
    WITH_RIG(1, false);

    leaves_unheard(&rig);
    agent_signal(rig.agent, SIGHUP, rig.now_ms); /* noise */
    assert_int_equal(rig.exit_code, -1);
    agent_signal(rig.agent, SIGINT, rig.now_ms);
    assert_int_equal(rig.exit_code, 128 + SIGTERM);
    agent_rig_release(&rig);
}

static void leaves_unheard_after_a_notice(struct agent_rig *rig)
{
    agent_rig_run(rig, false);
    agent_disconnected(rig->agent, LOSS_CLOSED, rig->now_ms);
    agent_signal(rig->agent, SIGUSR1, rig->now_ms);
    agent_rig_die(rig, 0, SIGUSR1);
}

static void end_that_follows_its_notice_gives_no_more_time(void **state)
{
    WITH_SHUTDOWN(1, false, 20000);

    leaves_unheard_after_a_notice(&rig);
    agent_rig_pass(&rig, 15000);
    agent_signal(rig.agent, SIGTERM, rig.now_ms);
    agent_rig_pass(&rig, 4999);
    assert_int_equal(rig.exit_code, -1);
    agent_rig_pass(&rig, 1);
    assert_int_equal(rig.exit_code, 128 + SIGTERM);
    agent_rig_release(&rig);
}

static void agent_that_was_stopped_past_its_time_leaves_at_its_second_word(void **state)
{
    WITH_SHUTDOWN(1, false, 20000);

    leaves_unheard_after_a_notice(&rig);
    agent_rig_skip(&rig);
    agent_signal(rig.agent, SIGTERM,
                 rig.now_ms + 25000); /* before its timer is heard */
    agent_rig_expect_said(
        &rig, "leaving without a word to the rendezvous at there:1, which does not "
              "answer: the job will take this node for lost");
    assert_int_equal(rig.exit_code, 128 + SIGTERM);
    agent_rig_release(&rig);
}

/* So early that the service's clock is not known yet. */
static void moment_of_an_early_word_is_told_with_its_repetition(void **state)
{
    struct msg pong = {.type = MSG_PONG};
    char want[128];
    uint64_t told_ms;
    WITH_RIG(1, true);

    agent_rig_run(&rig, false);
    told_ms = rig.now_ms + 100000;
    agent_signal(rig.agent, SIGTERM, rig.now_ms);
    agent_rig_skip(&rig); /* without a time */
    agent_rig_pass(&rig, 500);
    pong.u.pong.sent_ms = rig.now_ms;
    pong.u.pong.service_ms = rig.now_ms + 100000;
    agent_rig_tell(&rig, &pong);
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    agent_rig_pass(&rig, 1000);
    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_skip(&rig);
    agent_rig_welcome(&rig, 7, false);
    (void)snprintf(
        want, sizeof(want),
        "say the rendezvous at there:; send leave g=1 signal=15 at=%llu; relay resend",
        (unsigned long long)told_ms);
    agent_rig_expect(&rig, want);
    agent_rig_release(&rig);
}

/* By systemd, say, or Slurm, which tell every process: the worker was quicker. */
static void node_whose_workers_ended_unheard_before_the_signal_stays_too(void **state)
{
    WITH_RIG(1, false);

    agent_rig_run(&rig, false);
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    agent_rig_die(&rig, 0, SIGTERM);
    agent_signal(rig.agent, SIGTERM, rig.now_ms);
    assert_int_equal(rig.exit_code, -1);
    agent_rig_pass(&rig, 40000);
    assert_int_equal(rig.exit_code, 128 + SIGTERM);
    agent_rig_release(&rig);
}

static void
node_that_leaves_unheard_does_not_wait_for_a_service_without_memory(void **state)
{
    WITH_RIG(1, false);

    agent_rig_run(&rig, true);
    agent_disconnected(rig.agent, LOSS_SILENT, rig.now_ms);
    agent_signal(rig.agent, SIGTERM, rig.now_ms);
    agent_rig_die(&rig, 0, SIGTERM);
    assert_int_equal(rig.exit_code, 128 + SIGTERM);
    agent_rig_release(&rig);
}

static void engines_that_cannot_commit_are_killed_in_words(void **state)
{
    WITH_RIG(2, true);
    agent_rig_run(&rig, false);
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    agent_rig_expect_said(&rig, "lost the rendezvous at there:1 (it closed the "
                                "connection); the workers go on without it, and commit "
                                "no checkpoint until it answers");
    agent_signal(rig.agent, SIGTERM, rig.now_ms);
    agent_rig_expect_said(&rig,
                          "SIGTERM: asked the workers to finish their step, save and "
                          "leave, which waits for the rendezvous to answer; once more "
                          "to kill them now");
    agent_rig_pass(&rig, 40000);
    agent_rig_expect_said(&rig,
                          "the workers have not saved and left within 40 s (without "
                          "the rendezvous nothing is committed): killed; what they "
                          "have done since the last checkpoint is lost");
    agent_rig_release(&rig);
}

static void signal_to_workers_that_end_already_asks_them_nothing(void **state)
{
    WITH_RIG(2, true);
    agent_rig_run(&rig, true);
    agent_rig_stop(&rig, 1, STOP_ABORT);
    agent_rig_expect(&rig, "abort 0; abort 1");
    agent_signal(rig.agent, SIGTERM, rig.now_ms);
    agent_rig_expect(&rig, "send leave g=1 signal=15; say SIGTERM: the workers are");
    agent_rig_expect_said(
        &rig, "SIGTERM: the workers are ending already; once more to kill them now");
    agent_signal(rig.agent, SIGINT, rig.now_ms);
    agent_rig_expect(&rig, "kill 0 9; kill 1 9; say SIGINT after SIGTERM: ki");
    agent_rig_expect_said(&rig, "SIGINT after SIGTERM: killed the workers");
    agent_rig_release(&rig);
}

static void signal_while_the_last_output_is_read_kills_nobody(void **state)
{
    WITH_RIG(2, false);
    agent_rig_run(&rig, true);
    agent_exited(rig.agent, 0, &(struct agent_exit){0, rig.now_ms, 0}, rig.now_ms);
    agent_exited(rig.agent, 1, &(struct agent_exit){0, rig.now_ms, 0}, rig.now_ms);
    agent_rig_skip(&rig);
    agent_signal(rig.agent, SIGHUP, rig.now_ms);
    agent_rig_expect(&rig, "send leave g=1 signal=1; say SIGHUP: the workers are ");
    agent_rig_expect_said(
        &rig, "SIGHUP: the workers are ending already; SIGTERM to kill them now");
    agent_signal(rig.agent, SIGTERM, rig.now_ms);
    agent_rig_expect(&rig, "");
    agent_rig_release(&rig);
}

static void signal_before_the_workers_run_ends_at_once(void **state)
{
    WITH_RIG(2, false);
    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_welcome(&rig, 7, true);
    agent_rig_skip(&rig);
    agent_signal(rig.agent, SIGTERM, rig.now_ms);
    agent_rig_expect(&rig, "send leave g=0 signal=15; relay close; end 143");
    agent_rig_release(&rig);
}

static void node_that_leaves_a_job_that_is_over_waits_for_nobody(void **state)
{
    struct msg over = {.type = MSG_REFUSED,
                       .u.refused = {.exit_code = 0, .text = "over"}};
    WITH_RIG(1, false);

    agent_rig_run(&rig, false);
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    agent_signal(rig.agent, SIGTERM, rig.now_ms);
    agent_rig_pass(&rig, 500);
    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_tell(&rig, &over);
    assert_int_equal(rig.exit_code, -1);
    agent_rig_die(&rig, 0, SIGTERM);
    assert_int_equal(rig.exit_code, 128 + SIGTERM);
    agent_rig_release(&rig);
}

static void cancelled_job_is_said_at_once_and_only_once(void **state)
{
    struct msg stop = {
        .type = MSG_STOP,
        .u.stop = {.generation = 1, .mode = STOP_LEAVE, .text = "cancelled by eve"}};
    WITH_RIG(2, true);

    agent_rig_run(&rig, true);
    agent_rig_tell(&rig, &stop);
    agent_rig_expect(&rig, "leave 0; leave 1; say job job is cancelled by ");
    agent_rig_expect_said(&rig,
                          "job job is cancelled by eve: asked the workers to finish "
                          "their step, save and leave; SIGTERM twice to kill them "
                          "now");
    agent_rig_tell(&rig, &stop); /* again, after a reconnect */
    agent_rig_expect(&rig, "");
    agent_rig_release(&rig);
}

/* ---- those who stay ---- */

static void leaves_with_others(struct agent_rig *rig)
{
    struct msg stop = {
        .type = MSG_STOP,
        .u.stop = {.generation = 1, .mode = STOP_LEAVE, .text = "b leaves"}};

    agent_rig_run(rig, true);
    agent_rig_tell(rig, &stop);
    agent_rig_exit(rig, 0, 83);
    agent_rig_exit(rig, 1, 83);
    assert_int_equal(rig->agent->state, AGENT_JOINING);
    agent_rig_skip(rig);
}

static void
the_last_commit_of_those_who_left_is_known_to_whoever_serves_next(void **state)
{
    struct msg report = {.type = MSG_REPORT,
                         .u.report = {.generation = 1,
                                      .text = "b leaves",
                                      .commit_run = 2,
                                      .commit_step = 7,
                                      .commit_hash = "h7"}};
    WITH_RIG(2, true);

    leaves_with_others(&rig);
    agent_rig_tell(&rig, &report);
    assert_int_equal(rig.agent->commit_run, 2);
    assert_int_equal(rig.agent->commit_step, 7);
    assert_string_equal(rig.agent->commit_hash, "h7");
    report.u.report.generation = 2;
    report.u.report.commit_step = 6; /* an older report, said again */
    agent_rig_tell(&rig, &report);
    assert_string_equal(rig.agent->commit_hash, "h7");
    assert_int_equal(rig.agent->commit_step, 7);
    agent_rig_release(&rig);
}

static void
a_server_that_is_gone_before_its_report_is_not_the_end_of_the_reason(void **state)
{
    WITH_RIG(2, true);

    leaves_with_others(&rig);
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    agent_rig_expect_said(&rig,
                          "generation 1 ends here: the connection to the rendezvous "
                          "at there:1 has ended (it closed the connection); "
                          "before that: b leaves");
    agent_rig_skip(&rig);
    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancelled_job_is_said_at_once_and_only_once),
        cmocka_unit_test(first_signal_is_passed_on_and_the_second_kills),
        cmocka_unit_test(killed_workers_are_not_said_to_be_killed_again),
        cmocka_unit_test(end_that_follows_its_notice_is_passed_on_with_the_full_time),
        cmocka_unit_test(signalled_engines_are_asked_to_leave),
        cmocka_unit_test(drained_engines_leave_and_the_end_is_0),
        cmocka_unit_test(drained_programs_are_told_and_a_signal_after_it_is_passed_on),
        cmocka_unit_test(drained_node_without_workers_ends_at_once),
        cmocka_unit_test(
            engine_that_left_with_others_takes_its_siblings_along_in_peace),
        cmocka_unit_test(word_that_it_leaves_is_repeated_to_a_service_that_was_away),
        cmocka_unit_test(node_that_leaves_unheard_stays_until_the_service_knows),
        cmocka_unit_test(
            node_that_leaves_unheard_waits_no_longer_than_its_workers_might),
        cmocka_unit_test(node_that_leaves_unheard_goes_at_once_when_it_is_told_again),
        cmocka_unit_test(node_that_leaves_a_job_that_is_over_waits_for_nobody),
        cmocka_unit_test(end_that_follows_its_notice_gives_no_more_time),
        cmocka_unit_test(
            agent_that_was_stopped_past_its_time_leaves_at_its_second_word),
        cmocka_unit_test(moment_of_an_early_word_is_told_with_its_repetition),
        cmocka_unit_test(node_whose_workers_ended_unheard_before_the_signal_stays_too),
        cmocka_unit_test(
            node_that_leaves_unheard_does_not_wait_for_a_service_without_memory),
        cmocka_unit_test(engines_that_cannot_commit_are_killed_in_words),
        cmocka_unit_test(signal_to_workers_that_end_already_asks_them_nothing),
        cmocka_unit_test(signal_while_the_last_output_is_read_kills_nobody),
        cmocka_unit_test(signal_before_the_workers_run_ends_at_once),
        cmocka_unit_test(
            the_last_commit_of_those_who_left_is_known_to_whoever_serves_next),
        cmocka_unit_test(
            a_server_that_is_gone_before_its_report_is_not_the_end_of_the_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
