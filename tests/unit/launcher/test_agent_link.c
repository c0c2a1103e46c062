/* The agent's connection: lost and found again; strangers on its port. */

#include "launcher/agent_core.h"
#include "tests/lib/agent_rig.h"
#include "tests/lib/cmocka.h"

#include "common/err.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { CLOCK_KEPT_MS = 300001 }; /* longer than a sample of it is */

static void end_of_an_ephemeral_server_aborts_the_generation(void **state)
{
    WITH_RIG(2, true);
    agent_rig_run(&rig, true);
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    agent_rig_expect(&rig,
                     "say generation 1 ends here: ; relay close; abort 0; abort 1");
    agent_rig_pass(&rig, 20);
    agent_rig_expect(&rig, "connect");
    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_expect(&rig, "send hello session=7 g=1");
    agent_rig_welcome(&rig, 9, true);
    agent_rig_skip(&rig);
    agent_rig_exit(&rig, 0, 80);
    agent_rig_exit(&rig, 1, 80);
    agent_rig_expect(&rig, "send join after=1 port=1002"); /* nothing of the old one */
    agent_rig_release(&rig);
}

static void workers_gone_before_a_server_is_back_join_then(void **state)
{
    WITH_RIG(2, true);
    agent_rig_run(&rig, true);
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    agent_rig_exit(&rig, 0, 80);
    agent_rig_exit(&rig, 1, 80);
    assert_int_equal(rig.agent->state, AGENT_CONNECTING);
    agent_rig_pass(&rig, 20);
    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_skip(&rig);
    agent_rig_welcome(&rig, 9, true);
    agent_rig_expect(&rig, "send join after=1 port=1002");
    agent_rig_release(&rig);
}

static void silence_leaves_the_workers_alone(void **state)
{
    WITH_RIG(2, true);
    agent_rig_run(&rig, true);
    agent_disconnected(rig.agent, LOSS_SILENT, rig.now_ms);
    agent_rig_expect(&rig, "say lost the rendezvous at t");
    agent_rig_pass(&rig, 59000);
    assert_int_equal(rig.agent->state, AGENT_RUNNING);
    agent_rig_skip(&rig);
    agent_rig_pass(&rig, 2000); /* the join time-out, alone */
    assert_int_equal(rig.agent->state, AGENT_STOPPING);
    agent_rig_exit(&rig, 0, 80);
    agent_rig_exit(&rig, 1, 80);
    assert_int_equal(rig.exit_code, 94);
    agent_rig_release(&rig);
}

static void hear_pong(struct agent_rig *rig)
{
    const struct msg pong = {.type = MSG_PONG, .u.pong = {.sent_ms = rig->now_ms}};

    agent_rig_tell(rig, &pong);
}

/* Its kernel keeps the connection. */
static void
frozen_service_is_said_once_after_a_lease_and_that_it_answers_again(void **state)
{
    WITH_RIG(2, true);
    agent_rig_run(&rig, false);
    for (int i = 0; i < 2; i++) {
        hear_pong(&rig);
        agent_rig_pass(&rig, 3000);
        agent_rig_expect(&rig, "");
        agent_rig_pass(&rig, 42000);
        agent_rig_expect(&rig, "say the rendezvous at there:");
        agent_rig_expect_said(
            &rig, "the rendezvous at there:1 does not answer; the workers go "
                  "on without it, and commit no checkpoint until it answers");
        hear_pong(&rig);
        agent_rig_expect(&rig, "say the rendezvous at there:");
        agent_rig_expect_said(&rig, "the rendezvous at there:1 answers again");
    }
    agent_rig_release(&rig);
}

static void frozen_service_that_dies_or_returns_is_not_said_again(void **state)
{
    WITH_RIG(2, true);
    agent_rig_run(&rig, false);
    agent_rig_pass(&rig, 5000);
    agent_rig_skip(&rig);
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    agent_rig_expect(&rig, "");
    agent_rig_pass(&rig, 20);
    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_skip(&rig);
    agent_rig_welcome(&rig, 7, false);
    agent_rig_expect(&rig, "say the rendezvous at there:; relay resend");
    agent_rig_pass(&rig, 3000);
    agent_rig_expect(&rig, "");
    agent_rig_release(&rig);
}

/* What the service has said meanwhile is read after the timers of the sleep. */
static void agent_that_was_frozen_itself_blames_nobody(void **state)
{
    WITH_RIG(2, true);
    agent_rig_run(&rig, false);
    hear_pong(&rig);
    rig.now_ms += 45000;
    agent_tick(rig.agent, rig.now_ms);
    hear_pong(&rig);
    agent_rig_pass(&rig, 3000);
    agent_rig_expect(&rig, "");
    agent_rig_release(&rig);
}

static void durable_service_that_returns_hears_everything_again(void **state)
{
    struct control commit = {.type = CONTROL_COMMIT, .run = 1, .step = 10, .hash = "h"};
    WITH_RIG(2, true);

    agent_rig_run(&rig, false);
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    agent_control(rig.agent, 0, &commit, rig.now_ms);
    agent_rig_exit(&rig, 1, 0);
    agent_rig_pass(&rig, 20);
    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_skip(&rig);
    agent_rig_welcome(&rig, 7, false);
    agent_rig_expect(&rig, "say the rendezvous at there:; "
                           "send rank_ended rank=1 tail; "
                           "send commit step=10; relay resend");
    agent_rig_release(&rig);
}

static void hear_again(struct agent_rig *rig)
{
    agent_disconnected(rig->agent, LOSS_CLOSED, rig->now_ms);
    agent_rig_pass(rig, 20);
    agent_connected(rig->agent, "", rig->now_ms);
    agent_rig_skip(rig);
}

/* They may take long, and it would be told the same ten times a second. */
static void who_is_refused_while_workers_stop_does_not_ask_again(void **state)
{
    const struct msg m = {.type = MSG_REFUSED,
                          .u.refused = {.exit_code = 2, .text = "it is over"}};
    WITH_RIG(1, false);

    agent_rig_run(&rig, false);
    hear_again(&rig);
    agent_rig_tell(&rig, &m);
    agent_rig_expect(&rig, "say it is over; kill 0 15; disconnect");
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    agent_rig_pass(&rig, 29999);
    agent_rig_expect(&rig, "");
    agent_rig_pass(&rig, 40000); /* more than the join time-out */
    agent_rig_expect(&rig, "kill 0 9");
    agent_rig_die(&rig, 0, SIGKILL);
    assert_int_equal(rig.exit_code, 2);
    agent_rig_release(&rig);
}

static void first_word_that_the_job_is_over_stands(void **state)
{
    const struct msg m = {.type = MSG_REFUSED,
                          .u.refused = {.exit_code = 2, .text = "it is over"}};
    WITH_RIG(1, false);

    agent_rig_run(&rig, false);
    agent_rig_closed(&rig, 5);
    agent_rig_skip(&rig);
    hear_again(&rig); /* a worker's end may still be told there */
    agent_rig_tell(&rig, &m);
    agent_rig_expect(&rig, "disconnect");
    agent_rig_die(&rig, 0, SIGTERM);
    assert_int_equal(rig.exit_code, 5);
    agent_rig_release(&rig);
}

static void unknown_session_means_that_the_generation_is_over(void **state)
{
    WITH_RIG(2, true);
    agent_rig_run(&rig, false);
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    agent_rig_pass(&rig, 20);
    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_skip(&rig);
    agent_rig_welcome(&rig, 8, false);
    agent_rig_expect(&rig,
                     "say the rendezvous at there:; say generation 1 ends here: ; "
                     "relay close; abort 0; abort 1");
    agent_rig_release(&rig);
}

static void a_service_may_have_any_clock(void **state)
{
    struct msg pong = {.type = MSG_PONG, .u.pong = {.service_ms = UINT64_MAX - 5}};
    WITH_RIG(1, false);

    agent_rig_run(&rig, false);
    pong.u.pong.sent_ms = rig.now_ms;
    agent_rig_tell(&rig, &pong);
    assert_int_equal(link_service_ms(rig.agent, rig.now_ms + 5), UINT64_MAX);
    rig.now_ms += CLOCK_KEPT_MS;
    pong.u.pong =
        (struct msg_pong){.sent_ms = rig.now_ms, .service_ms = UINT64_C(1) << 63U};
    agent_rig_tell(&rig, &pong);
    assert_int_equal(link_service_ms(rig.agent, rig.now_ms), UINT64_C(1) << 63U);
    agent_rig_release(&rig);
}

static void a_report_of_an_end_that_no_process_has_breaks_the_protocol(void **state)
{
    static const struct {
        int32_t code, signal;
        int rv;
    } cases[] = {
        {0, 0, 0},
        {255, 0, 0},
        {0, 64, 0},
        {256, 0, ERR_PROTOCOL},
        {INT32_MIN, 0, ERR_PROTOCOL},
        {0, 65, ERR_PROTOCOL},
        {0, INT32_MIN, ERR_PROTOCOL},
    };
    WITH_RIG(1, false);

    agent_rig_run(&rig, false);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct msg m = {.type = MSG_REPORT,
                        .u.report = {.code = cases[i].code, .signal = cases[i].signal}};

        assert_int_equal(agent_message(rig.agent, &m, rig.now_ms), cases[i].rv);
        agent_rig_expect(&rig, cases[i].rv == 0 ? "report " : "");
    }
    agent_rig_release(&rig);
}

static void a_leave_is_said_again(void **state)
{
    WITH_RIG(2, true);

    agent_rig_run(&rig, false);
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    agent_signal(rig.agent, SIGTERM, rig.now_ms); /* in vain */
    agent_rig_pass(&rig, 20);
    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_skip(&rig);
    agent_rig_welcome(&rig, 7, false);
    agent_rig_expect(&rig, "say the rendezvous at there:; send leave g=1 signal=15; "
                           "relay resend");
    agent_rig_release(&rig);
}

static void a_refusal_is_said_again(void **state)
{
    struct control refuse = {.type = CONTROL_REFUSE, .code = 2, .text = "bad key"};
    WITH_RIG(2, true);

    agent_rig_run(&rig, false);
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    agent_control(rig.agent, 0, &refuse, rig.now_ms);
    agent_rig_pass(&rig, 20);
    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_skip(&rig);
    agent_rig_welcome(&rig, 7, false);
    agent_rig_expect(&rig, "say the rendezvous at there:; send refuse; relay resend");
    agent_rig_release(&rig);
}

static void a_node_that_waits_for_the_others_says_again_that_it_is_done(void **state)
{
    WITH_RIG(1, true);

    agent_rig_run(&rig, false);
    agent_rig_exit(&rig, 0, 0);
    assert_int_equal(rig.agent->state, AGENT_WAITING);
    agent_rig_reconnect(&rig);
    agent_rig_welcome(&rig, 7, false);
    agent_rig_expect(&rig, "say the rendezvous at there:; send rank_ended rank=0 tail; "
                           "send stopped g=1 done=1; relay resend");
    agent_rig_release(&rig);
}

static void a_standby_stays_one_while_the_service_restarts(void **state)
{
    struct msg m = {.type = MSG_STANDBY, .u.standby = {.text = "stands by"}};
    WITH_RIG(1, true);

    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_welcome(&rig, 7, false);
    agent_rig_tell(&rig, &m);
    agent_rig_reconnect(&rig);
    agent_rig_welcome(&rig, 7, false);
    agent_rig_expect(&rig, "send join after=0 port=1001");
    agent_rig_tell(&rig, &m);
    agent_rig_expect(&rig, "");  /* that was said */
    agent_rig_pass(&rig, 59000); /* its join time-out is 60 s from here on */
    assert_int_equal(rig.agent->state, AGENT_JOINING);
    agent_rig_release(&rig);
}

static void newcomer_hears_nothing_of_the_generation_that_it_has_ended(void **state)
{
    struct msg m = {.type = MSG_REPORT, .u.report = {.generation = 3, .text = "x"}};
    WITH_RIG(1, false);

    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_welcome(&rig, 7, false);
    agent_rig_skip(&rig);
    agent_rig_tell(&rig, &m);
    agent_rig_expect(&rig, "");
    m.u.report.final = 1;
    agent_rig_tell(&rig, &m);
    agent_rig_expect(&rig, "report x");
    agent_rig_release(&rig);
}

static void a_report_that_is_said_again_is_shown_once(void **state)
{
    struct msg m = {.type = MSG_REPORT, .u.report = {.generation = 1, .text = "x"}};
    WITH_RIG(1, true);

    agent_rig_run(&rig, false);
    agent_rig_tell(&rig, &m);
    agent_rig_expect(&rig, "report x");
    agent_rig_tell(&rig, &m);
    agent_rig_expect(&rig, "");
    m.u.report.final = 1;
    agent_rig_tell(&rig, &m);
    agent_rig_expect(&rig, "report x");
    agent_rig_release(&rig);
}

static void foreign_service_does_not_keep_the_agent_waiting(void **state)
{
    struct msg m = {.type = MSG_WELCOME,
                    .u.welcome = {.session = 7, .cluster = 6, .boot = 1}};
    WITH_RIG(2, true);

    agent_rig_run(&rig, false);
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    while (rig.agent->state == AGENT_RUNNING && rig.now_ms < 200000) {
        agent_rig_pass(&rig, 1000);
        agent_connected(rig.agent, "", rig.now_ms);
        agent_rig_tell(&rig, &m); /* again and again */
    }
    assert_int_equal(rig.agent->state, AGENT_STOPPING);
    assert_in_range(rig.now_ms, 60000, 63000);
    agent_rig_exit(&rig, 0, 80);
    agent_rig_exit(&rig, 1, 80);
    assert_int_equal(rig.exit_code, 94);
    agent_rig_release(&rig);
}

static void nobody_answers_a_few_lines_then_exit_94(void **state)
{
    static const uint64_t said_ms[] = {1500, 6500, 16500, 36500};
    unsigned n_lines = 0;
    WITH_RIG(2, false);

    while (rig.exit_code < 0 && rig.now_ms < 100000) {
        agent_rig_pass(&rig, 10);
        agent_connect_failed(rig.agent, "connection refused", rig.now_ms);
        if (memmem(buf_bytes(&rig.trace), buf_len(&rig.trace), "waiting for", 11)) {
            assert_true(n_lines < ARRAY_LEN(said_ms));
            assert_int_equal(rig.now_ms, 1000 + said_ms[n_lines++]);
        }
        if (rig.exit_code < 0) {
            agent_rig_skip(&rig);
        }
    }
    assert_int_equal(n_lines, ARRAY_LEN(said_ms));
    assert_int_equal(rig.exit_code, 94);
    assert_int_equal(rig.now_ms, 1000 + 60000);
    agent_rig_release(&rig);
}

static void reconnects_within_a_second(void **state)
{
    WITH_RIG(2, false);
    for (int i = 0; i < 40; i++) {
        agent_connect_failed(rig.agent, "connection refused", rig.now_ms);
        agent_rig_skip(&rig);
        agent_rig_pass(&rig, 1000);
        assert_non_null(
            memmem(buf_bytes(&rig.trace), buf_len(&rig.trace), "connect", 7));
    }
    agent_rig_release(&rig);
}

static void port_taken_by_a_stranger_is_a_mistake(void **state)
{
    WITH_RIG(2, false);

    rig.holder = "port 1 is held by nc (pid 9)";
    for (int i = 0; i < 3; i++) {
        agent_connected(rig.agent, "port 1 is taken", rig.now_ms);
        agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
        agent_rig_pass(&rig, 100);
    }
    assert_int_equal(rig.exit_code, 2);
    agent_rig_release(&rig);
}

static void
port_taken_where_nobody_answers_is_a_mistake_after_five_seconds(void **state)
{
    const char *taken = "port 1 is taken";
    WITH_RIG(2, false);

    rig.holder = "port 1 is held by nc (pid 9)";
    agent_rig_skip(&rig);
    agent_port_taken(rig.agent, "connection refused", taken, rig.now_ms);
    agent_rig_expect(&rig, "say port 1 is held by nc (pi");
    while (rig.exit_code < 0 && rig.now_ms < 20000) {
        agent_rig_pass(&rig, 10);
        agent_port_taken(rig.agent, "connection refused", taken, rig.now_ms);
    }
    assert_int_equal(rig.exit_code, 2);
    assert_in_range(rig.now_ms, 1000 + 5000, 1000 + 6000);
    agent_rig_expect_said(&rig,
                          "the rendezvous cannot be served at there:1, and nobody "
                          "answers there: port 1 is held by nc (pid 9)");
    assert_int_equal(rig.n_asked, 2); /* for the first line and for the last */
    agent_rig_release(&rig);
}

static void port_that_becomes_free_is_no_mistake(void **state)
{
    WITH_RIG(2, false);

    rig.holder = "by pid 9";
    for (int i = 0; i < 10; i++) {
        agent_port_taken(rig.agent, "connection refused", "taken", rig.now_ms);
        agent_rig_pass(&rig, 2000);
        agent_connect_failed(rig.agent, "connection refused", rig.now_ms);
        agent_rig_pass(&rig, 2000);
    }
    assert_int_equal(rig.exit_code, -1);
    agent_rig_release(&rig);
}

static void job_that_runs_waits_for_its_port(void **state)
{
    WITH_RIG(2, false);

    agent_rig_run(&rig, false);
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    for (int i = 0; i < 10; i++) {
        agent_rig_pass(&rig, 1000);
        agent_port_taken(rig.agent, "connection refused", "taken", rig.now_ms);
        agent_rig_pass(&rig, 1000);
        agent_cannot_connect(rig.agent, "no descriptor", rig.now_ms);
        agent_rig_pass(&rig, 1000);
        agent_connected(rig.agent, "taken", rig.now_ms); /* a stranger … */
        agent_disconnected(rig.agent, i % 2 == 0 ? LOSS_SILENT : LOSS_CLOSED,
                           rig.now_ms);
    }
    assert_int_equal(rig.agent->state, AGENT_RUNNING);
    assert_int_equal(rig.n_asked, 0); /* which takes long, and changes nothing */
    agent_rig_release(&rig);
}

static void fault_of_this_host_ends_at_once(void **state)
{
    WITH_RIG(2, false);

    agent_rig_skip(&rig);
    agent_cannot_connect(rig.agent, "loopback is down", rig.now_ms);
    agent_rig_expect(&rig, "say cannot connect to the re; relay close; end 2");
    agent_rig_release(&rig);
}

static void mute_stranger_on_our_port_is_a_mistake_too(void **state)
{
    WITH_RIG(2, false);

    rig.holder = "port 1 is held by nc (pid 9)";
    agent_connected(rig.agent, "port 1 is taken", rig.now_ms);
    agent_rig_pass(&rig, 4500);
    assert_int_equal(rig.exit_code, 2);
    agent_rig_release(&rig);
}

static void stopped_ctrun_on_our_port_is_waited_for(void **state)
{
    WITH_RIG(2, false);

    rig.holder = "port 1 is held by ctrun (pid 9)";
    agent_connected(rig.agent, "port 1 is taken", rig.now_ms);
    agent_rig_pass(&rig, 4500);
    assert_int_equal(rig.exit_code, -1);
    agent_rig_release(&rig);
}

static void what_only_agents_say_breaks_the_protocol(void **state)
{
    static const enum msg_type types[] = {MSG_HELLO, MSG_JOIN, MSG_STORE, MSG_WELCOME};
    struct msg m = {0};
    WITH_RIG(2, false);

    m.type = MSG_PONG;
    agent_connected(rig.agent, "", rig.now_ms);
    assert_int_equal(agent_message(rig.agent, &m, rig.now_ms), ERR_PROTOCOL);
    agent_rig_welcome(&rig, 7, true);
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        m.type = types[i];
        assert_int_equal(agent_message(rig.agent, &m, rig.now_ms), ERR_PROTOCOL);
    }
    agent_rig_release(&rig);
}

static void ends_carry_the_services_time(void **state)
{
    struct msg pong = {.type = MSG_PONG};
    WITH_RIG(2, false);

    agent_rig_run(&rig, true);
    pong.u.pong.sent_ms = rig.now_ms;
    pong.u.pong.service_ms = 500000;
    agent_rig_pass(&rig, 100); /* there and back: the service answered half-way */
    agent_rig_tell(&rig, &pong);
    pong.u.pong.sent_ms = rig.now_ms;
    pong.u.pong.service_ms = 9;
    agent_rig_pass(&rig, 200); /* a slower one says less */
    agent_rig_tell(&rig, &pong);
    agent_rig_exit(&rig, 0, 1);
    assert_int_equal(rig.ended.ended_ms, 500000 + 50 + 200);
    agent_rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(end_of_an_ephemeral_server_aborts_the_generation),
        cmocka_unit_test(workers_gone_before_a_server_is_back_join_then),
        cmocka_unit_test(silence_leaves_the_workers_alone),
        cmocka_unit_test(
            frozen_service_is_said_once_after_a_lease_and_that_it_answers_again),
        cmocka_unit_test(frozen_service_that_dies_or_returns_is_not_said_again),
        cmocka_unit_test(agent_that_was_frozen_itself_blames_nobody),
        cmocka_unit_test(durable_service_that_returns_hears_everything_again),
        cmocka_unit_test(who_is_refused_while_workers_stop_does_not_ask_again),
        cmocka_unit_test(first_word_that_the_job_is_over_stands),
        cmocka_unit_test(unknown_session_means_that_the_generation_is_over),
        cmocka_unit_test(a_service_may_have_any_clock),
        cmocka_unit_test(a_report_of_an_end_that_no_process_has_breaks_the_protocol),
        cmocka_unit_test(a_leave_is_said_again),
        cmocka_unit_test(a_refusal_is_said_again),
        cmocka_unit_test(a_node_that_waits_for_the_others_says_again_that_it_is_done),
        cmocka_unit_test(a_standby_stays_one_while_the_service_restarts),
        cmocka_unit_test(newcomer_hears_nothing_of_the_generation_that_it_has_ended),
        cmocka_unit_test(a_report_that_is_said_again_is_shown_once),
        cmocka_unit_test(foreign_service_does_not_keep_the_agent_waiting),
        cmocka_unit_test(nobody_answers_a_few_lines_then_exit_94),
        cmocka_unit_test(reconnects_within_a_second),
        cmocka_unit_test(port_taken_by_a_stranger_is_a_mistake),
        cmocka_unit_test(
            port_taken_where_nobody_answers_is_a_mistake_after_five_seconds),
        cmocka_unit_test(port_that_becomes_free_is_no_mistake),
        cmocka_unit_test(job_that_runs_waits_for_its_port),
        cmocka_unit_test(fault_of_this_host_ends_at_once),
        cmocka_unit_test(mute_stranger_on_our_port_is_a_mistake_too),
        cmocka_unit_test(stopped_ctrun_on_our_port_is_waited_for),
        cmocka_unit_test(what_only_agents_say_breaks_the_protocol),
        cmocka_unit_test(ends_carry_the_services_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
