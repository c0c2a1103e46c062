/* What people are told while a node waits: for what, and for whom. */

#include "launcher/agent_core.h"
#include "tests/lib/agent_rig.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>

/* The service knows of `n` nodes that wait. */
static void hear_of(struct agent_rig *rig, uint32_t n, const char *also)
{
    struct msg pong = {.type = MSG_PONG, .u.pong = {.n_joined = n}};

    (void)snprintf(pong.u.pong.also_waiting, sizeof(pong.u.pong.also_waiting), "%s",
                   also);
    agent_rig_tell(rig, &pong);
}

static void join(struct agent_rig *rig, uint32_t n, const char *also)
{
    agent_connected(rig->agent, "", rig->now_ms);
    agent_rig_welcome(rig, 7, true);
    hear_of(rig, n, also);
    agent_rig_skip(rig);
}

static void a_node_that_hosts_the_rendezvous_and_is_alone_says_so(void **state)
{
    WITH_RIG(1, false);

    rig.agent->config.min_nodes = 2;
    rig.route.is_served_here = true;
    join(&rig, 1, "");
    agent_rig_pass(&rig, 1500);
    agent_rig_expect_said(
        &rig, "this node hosts the rendezvous at there:1 itself, and nobody else has "
              "joined job job: --rdzv-endpoint and --rdzv-id must be the same on all "
              "nodes; waiting for 1 more of 2 nodes, for 59 s at most");
    agent_rig_release(&rig);
}

static void a_node_that_has_lost_the_others_does_not_suspect_their_command(void **state)
{
    WITH_RIG(1, false);

    rig.agent->config.min_nodes = 2;
    rig.agent->generation = 1;
    rig.route.is_served_here = true;
    join(&rig, 1, "");
    agent_rig_pass(&rig, 1500);
    agent_rig_expect_said(&rig, "joined job job at there:1; waiting for 1 more of 2 "
                                "nodes, for 59 s at most");
    agent_rig_release(&rig);
}

static void a_node_with_others_says_how_many_are_missing(void **state)
{
    WITH_RIG(1, false);

    rig.agent->config.min_nodes = 3;
    rig.agent->config.max_nodes = 4;
    rig.route.is_served_here = true;
    join(&rig, 2, "");
    agent_rig_pass(&rig, 4000);
    agent_rig_expect_said(&rig,
                          "joined job job at there:1; waiting for 1 more of 3 to 4 "
                          "nodes, for 56 s at most");
    hear_of(&rig, 3, "");
    agent_rig_pass(&rig, 5000);
    agent_rig_expect_said(&rig,
                          "joined job job at there:1; waiting for the others of 3 to 4 "
                          "nodes (3 are here), for 51 s at most");
    agent_rig_release(&rig);
}

static void another_job_that_waits_there_is_named(void **state)
{
    WITH_RIG(1, false);

    rig.agent->config.min_nodes = 2;
    join(&rig, 1, "B");
    agent_rig_pass(&rig, 1500);
    agent_rig_expect_said(&rig, "joined job job at there:1 (also waiting here: job B); "
                                "waiting for 1 more of 2 nodes, for 59 s at most");
    agent_rig_release(&rig);
}

static void an_attempt_without_an_answer_is_described(void **state)
{
    WITH_RIG(1, false);

    (void)snprintf(rig.route.attempt, sizeof(rig.route.attempt), "10.0.0.9: no answer");
    agent_rig_pass(&rig, 1500);
    agent_rig_expect_said(&rig, "waiting for the rendezvous at there:1 (10.0.0.9: no "
                                "answer), for 59 s at most");
    agent_rig_release(&rig);
}

static void
what_is_no_rendezvous_is_told_from_one_that_closes_and_one_that_is_mute(void **state)
{
    static const struct {
        enum agent_loss loss;
        const char *said;
    } cases[] = {
        {LOSS_FOREIGN, "waiting for the rendezvous at there:1 (what answers there does "
                       "not speak ctrun's protocol), for 59 s at most"},
        {LOSS_CLOSED, "waiting for the rendezvous at there:1 (it accepts connections "
                      "and closes them: is it a rendezvous of ctrun?), for 59 s at "
                      "most"},
        {LOSS_SILENT, "waiting for the rendezvous at there:1 (it accepts connections, "
                      "but does not answer), for 59 s at most"},
    };
    (void)state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        WITH_RIG(1, false);
        agent_connected(rig.agent, "", rig.now_ms);
        agent_disconnected(rig.agent, cases[i].loss, rig.now_ms);
        agent_rig_pass(&rig, 1500);
        agent_rig_expect_said(&rig, cases[i].said);
        agent_rig_release(&rig);
    }
}

static void a_lost_service_is_awaited_by_a_node_that_had_joined(void **state)
{
    WITH_RIG(1, false);

    rig.agent->config.min_nodes = 2;
    join(&rig, 1, "");
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    agent_rig_skip(&rig);
    agent_rig_pass(&rig, 1500);
    agent_rig_expect_said(&rig, "waiting for the rendezvous at there:1 (it closed the "
                                "connection), for 59 s at most");
    agent_rig_release(&rig);
}

static void a_standby_says_when_it_waits_for_a_service_or_nodes_instead(void **state)
{
    struct msg standby = {.type = MSG_STANDBY, .u.standby = {.text = "standing by"}};
    WITH_RIG(1, false);

    join(&rig, 1, "");
    agent_rig_tell(&rig, &standby);
    agent_rig_expect_said(&rig, "job job at there:1: standing by");
    agent_rig_pass(&rig, 30000);
    hear_of(&rig, 1, "");
    agent_rig_expect_said(&rig, "");
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    agent_rig_pass(&rig, 4000);
    agent_rig_expect_said(&rig, "waiting for the rendezvous at there:1 (it closed the "
                                "connection), for 56 s at most");
    agent_connected(rig.agent, "", rig.now_ms);
    agent_rig_welcome(&rig, 9, true);
    hear_of(&rig, 1, "");
    agent_rig_pass(&rig, 5000);
    agent_rig_expect_said(&rig, "joined job job at there:1; waiting for the others of "
                                "1 to 2 nodes (1 are here), for 55 s at most");
    agent_rig_tell(&rig, &standby);
    agent_rig_expect_said(&rig, "job job at there:1: standing by");
    agent_rig_release(&rig);
}

/* Two jobs that were given one name, by mistake: the second ends with 0, too. */
static void a_standby_of_one_node_is_told_the_remedy_and_that_nothing_ran(void **state)
{
    struct msg standby = {.type = MSG_STANDBY, .u.standby = {.text = "standing by"}};
    WITH_RIG(1, false);

    rig.agent->config.max_nodes = 1;
    join(&rig, 1, "");
    agent_rig_tell(&rig, &standby);
    agent_rig_expect_said(&rig,
                          "job job at there:1: standing by (a job of its own needs "
                          "another --rdzv-id)");
    agent_rig_closed(&rig, 0);
    agent_rig_expect_said(&rig,
                          "job job has ended well; this node stood by, and nothing "
                          "was run here");
    assert_int_equal(rig.exit_code, 0);
    agent_rig_release(&rig);
}

static void a_node_that_gives_up_says_what_it_waited_for_at_last(void **state)
{
    WITH_RIG(1, false);

    rig.agent->config.min_nodes = 2;
    join(&rig, 1, "");
    agent_rig_pass(&rig, 60000);
    agent_rig_expect_said(&rig, "job job did not get its 2 nodes within 60 s "
                                "(join_timeout of --rdzv-conf): 1 came; --rdzv-id and "
                                "--rdzv-endpoint must be the same everywhere");
    assert_int_equal(rig.exit_code, 94);
    agent_rig_release(&rig);

    agent_rig_init(&rig, &rig_config);
    rig.agent->config.min_nodes = 2;
    join(&rig, 1, "");
    agent_disconnected(rig.agent, LOSS_CLOSED, rig.now_ms);
    agent_rig_pass(&rig, 60000);
    agent_rig_expect_said(&rig, "no rendezvous at there:1 within 60 s (it closed the "
                                "connection); is the node that serves it up, and "
                                "--rdzv-endpoint the same everywhere?");
    assert_int_equal(rig.exit_code, 94);
    agent_rig_release(&rig);
}

static void a_node_that_runs_alone_says_where_others_may_join(void **state)
{
    WITH_RIG(2, false);

    join(&rig, 1, "");
    agent_rig_round(&rig, 1, 0, 1);
    agent_rig_expect_said(&rig,
                          "runs on this node alone, of 1 to 2; others may join job "
                          "job at there:1");
    agent_rig_release(&rig);

    agent_rig_init(&rig, &rig_config);
    rig.agent->config.max_nodes = 1;
    join(&rig, 1, "");
    agent_rig_round(&rig, 1, 0, 1);
    agent_rig_expect(&rig, "spawn g=1 first=0 world=2; start 0 step=0; start 1 step=0");
    agent_rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_that_hosts_the_rendezvous_and_is_alone_says_so),
        cmocka_unit_test(
            a_node_that_has_lost_the_others_does_not_suspect_their_command),
        cmocka_unit_test(a_node_with_others_says_how_many_are_missing),
        cmocka_unit_test(another_job_that_waits_there_is_named),
        cmocka_unit_test(an_attempt_without_an_answer_is_described),
        cmocka_unit_test(
            what_is_no_rendezvous_is_told_from_one_that_closes_and_one_that_is_mute),
        cmocka_unit_test(a_lost_service_is_awaited_by_a_node_that_had_joined),
        cmocka_unit_test(a_standby_says_when_it_waits_for_a_service_or_nodes_instead),
        cmocka_unit_test(a_standby_of_one_node_is_told_the_remedy_and_that_nothing_ran),
        cmocka_unit_test(a_node_that_gives_up_says_what_it_waited_for_at_last),
        cmocka_unit_test(a_node_that_runs_alone_says_where_others_may_join),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
