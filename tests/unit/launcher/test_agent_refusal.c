/* The service that was there before, or not: whether the agent takes it for that, and
 * what it does where one refuses the other. */

#include "launcher/agent_core.h"
#include "tests/lib/agent_rig.h"
#include "tests/lib/cmocka.h"

#include "common/err.h"

#include <stdio.h>
#include <string.h>

static void a_foreign_or_older_durable_service_is_refused(void **state)
{
    static const struct {
        struct msg_welcome welcome;
        const char *said;
    } cases[] = {
        {{.session = 7, .cluster = 6, .boot = 9, .generation = 1},
         "the rendezvous at there:1 is refused: another service answers there (cluster "
         "0000000000000006, not 0000000000000005); start it with the state that it had"},
        {{.cluster = 5, .boot = 2, .start = 777, .lacks = 1},
         "the rendezvous at there:1 is refused: an older state of the service answers "
         "there, or a copy that went its own way (it lacks start 2, 0000000000000066, "
         "that this node has seen); start it with the state that it had"},
        {{.cluster = 5, .boot = 9, .start = 777, .had = 999},
         "the rendezvous at there:1 is refused: an older state of the service answers "
         "there, or a copy that went its own way (it has transaction 999 of start 3, "
         "this node has seen 1000); start it with the state that it had"},
        {{.session = 7, .cluster = 5, .boot = 9, .start = 777, .had = 1000},
         "the rendezvous at there:1 is refused: an older state of the service answers "
         "there, or a copy that went its own way (generation 0 of job job, this node "
         "has seen 1); start it with the state that it had"},
    };
    WITH_RIG(2, true);

    agent_rig_run(&rig, false);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct msg m = {.type = MSG_WELCOME, .u.welcome = cases[i].welcome};

        agent_rig_reconnect(&rig);
        agent_rig_tell(&rig, &m);
        agent_rig_expect(&rig, "say the rendezvous at there:; disconnect");
        agent_rig_expect_said(&rig, cases[i].said);
        agent_rig_reconnect(&rig);
        agent_rig_tell(&rig, &m);
        agent_rig_expect(&rig, "disconnect"); /* that was said */
        agent_rig_pass(&rig, 1000);           /* … and is tried a little later */
        agent_rig_reconnect(&rig);
        agent_rig_welcome(&rig, 7, false);
    }
    assert_int_equal(rig.agent->state, AGENT_RUNNING);
    agent_rig_release(&rig);
}

/* The user's: an old copy is started in the right one's place, and started again. */
static void a_copy_is_refused_for_good_and_that_is_said_once(void **state)
{
    struct msg m = {.type = MSG_WELCOME,
                    .u.welcome = {.cluster = 5, .start = 777, .lacks = 1}};
    WITH_RIG(2, true);

    agent_rig_run(&rig, false);
    for (uint64_t boot = 1; boot <= 5; boot++) {
        m.u.welcome.boot = boot;
        m.u.welcome.start++;
        m.u.welcome.kept = 500 * boot;
        agent_rig_reconnect(&rig);
        agent_rig_tell(&rig, &m);
        agent_rig_expect(&rig, boot == 1 ? "say the rendezvous at there:; disconnect"
                                         : "disconnect");
        agent_rig_pass(&rig, 10000);
        agent_rig_skip(&rig);
    }
    assert_int_equal(rig.agent->state, AGENT_RUNNING);
    agent_rig_release(&rig);
}

static void the_service_is_told_what_was_heard_of_its_state(void **state)
{
    struct msg pong = {.type = MSG_PONG, .u.pong = {.kept = 1001}};
    WITH_RIG(2, true);

    agent_rig_run(&rig, false);
    agent_rig_tell(&rig, &pong);
    agent_rig_reconnect(&rig);
    assert_int_equal(rig.hello.start, 101);
    assert_int_equal(rig.hello.boot, 1);
    assert_int_equal(rig.hello.kept, 1001);
    agent_rig_welcome(&rig, 7, false);
    agent_rig_reconnect(&rig);
    assert_int_equal(rig.hello.start, 102); /* another start's count */
    assert_int_equal(rig.hello.boot, 2);
    assert_int_equal(rig.hello.kept, 1000);
    agent_rig_release(&rig);
}

static void a_state_without_what_was_heard_to_be_kept_is_refused(void **state)
{
    struct msg pong = {.type = MSG_PONG, .u.pong = {.kept = 1001}};
    struct msg m = {.type = MSG_WELCOME,
                    .u.welcome = {.session = 7, .cluster = 5, .boot = 9}};
    WITH_RIG(2, true);

    agent_rig_run(&rig, false);
    m.u.welcome.generation = 1;
    for (uint64_t kept = 1001; kept <= 1002; kept++) {
        agent_rig_tell(&rig, &pong);
        agent_keeps(rig.agent, kept); /* a reply of the store */
        m.u.welcome.start = 700 + kept;
        m.u.welcome.had = kept - 1;
        m.u.welcome.kept = kept + 1; /* it has gone on */
        agent_rig_reconnect(&rig);
        agent_rig_tell(&rig, &m);
        assert_int_equal(rig.agent->link, LINK_DOWN);
        agent_rig_pass(&rig, 1000);
        m.u.welcome.had = kept;
        m.u.welcome.kept = kept;
        m.u.welcome.boot++;
        agent_rig_reconnect(&rig);
        agent_rig_tell(&rig, &m);
        assert_int_equal(rig.agent->link, LINK_UP);
        m.u.welcome.boot++;
    }
    assert_int_equal(rig.agent->state, AGENT_RUNNING);
    agent_rig_release(&rig);
}

static void what_keeps_a_job_from_its_service_is_said_once_for_each_reason(void **state)
{
    static const char *const texts[] = {"it does not know this side's secret",
                                        "it lets only those in that have its secret"};
    WITH_RIG(2, true);

    agent_rig_run(&rig, false);
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    agent_rig_expect(&rig, "say lost the rendezvous at t");
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        char said[256];

        agent_rig_pass(&rig, 10000);
        agent_rig_expect(&rig, "connect");
        agent_refused(rig.agent, texts[i], rig.now_ms);
        agent_rig_expect(&rig, "say cannot connect to the re");
        (void)snprintf(said, sizeof(said),
                       "cannot connect to the rendezvous at there:1: %s", texts[i]);
        agent_rig_expect_said(&rig, said);
        agent_rig_pass(&rig, 10000);
        agent_rig_expect(&rig, "connect");
        agent_refused(rig.agent, texts[i], rig.now_ms);
        agent_rig_expect(&rig, "");
    }
    assert_int_equal(rig.agent->state, AGENT_RUNNING);
    agent_rig_release(&rig);
}

/* How often it has connected until `end_ms`, refused each time. */
static unsigned connects_until(struct agent_rig *rig, uint64_t end_ms)
{
    unsigned n = 0;

    while (rig->now_ms < end_ms) {
        agent_rig_pass(rig, 10);
        if (rig->agent->link == LINK_OPENING) {
            n++;
            agent_refused(rig->agent, "it does not know this side's secret",
                          rig->now_ms);
        }
    }
    return n;
}

static void one_that_is_refused_for_the_same_reason_tries_ever_more_seldom(void **state)
{
    uint64_t from_ms;
    WITH_RIG(2, true);

    agent_rig_run(&rig, false);
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    from_ms = rig.now_ms;
    assert_in_range(connects_until(&rig, from_ms + 15000), 4, 7); /* 1, 2, 4, 8 s … */
    assert_in_range(connects_until(&rig, from_ms + 55000), 4, 8); /* … ten */
    agent_rig_pass(&rig, 10000);
    agent_connect_failed(rig.agent, "connection refused", rig.now_ms);
    agent_rig_pass(&rig, 1000); /* something has changed */
    assert_int_equal(rig.agent->link, LINK_OPENING);
    agent_rig_release(&rig);
}

static void a_wait_that_a_refusal_ends_names_that_alone(void **state)
{
    struct msg m = {.type = MSG_WELCOME,
                    .u.welcome = {.session = 7, .cluster = 6, .boot = 1}};
    WITH_RIG(2, true);

    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_welcome(&rig, 7, false);
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    while (rig.exit_code < 0 && rig.now_ms < 200000) {
        agent_rig_pass(&rig, 100);
        agent_connected(rig.agent, "", rig.now_ms);
        agent_rig_tell(&rig, &m);
    }
    assert_int_equal(rig.exit_code, 94);
    agent_rig_expect_said(
        &rig, "no rendezvous at there:1 within 60 s (another service answers there "
              "(cluster 0000000000000006, not 0000000000000005); start it with the "
              "state that it had)");
    agent_rig_release(&rig);
}
static void a_durable_service_may_restart_while_the_workers_run(void **state)
{
    WITH_RIG(2, true);

    agent_rig_run(&rig, false);
    for (uint64_t boot = 2; boot < 5; boot++) {
        struct msg m = {.type = MSG_WELCOME,
                        .u.welcome = {.session = 7,
                                      .cluster = 5,
                                      .boot = boot,
                                      .generation = 1,
                                      .start = 100 + boot,
                                      .had = 1000,
                                      .kept = 1000,
                                      .lease_ms = 3000}};

        agent_rig_reconnect(&rig);
        agent_rig_tell(&rig, &m);
        agent_rig_expect(&rig, "say the rendezvous at there:; relay resend");
        assert_int_equal(rig.agent->state, AGENT_RUNNING);
        assert_int_equal(link_service_ms(rig.agent, rig.now_ms), 0); /* asked anew */
    }
    agent_rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_foreign_or_older_durable_service_is_refused),
        cmocka_unit_test(a_copy_is_refused_for_good_and_that_is_said_once),
        cmocka_unit_test(the_service_is_told_what_was_heard_of_its_state),
        cmocka_unit_test(a_state_without_what_was_heard_to_be_kept_is_refused),
        cmocka_unit_test(
            what_keeps_a_job_from_its_service_is_said_once_for_each_reason),
        cmocka_unit_test(
            one_that_is_refused_for_the_same_reason_tries_ever_more_seldom),
        cmocka_unit_test(a_wait_that_a_refusal_ends_names_that_alone),
        cmocka_unit_test(a_durable_service_may_restart_while_the_workers_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
