/* Why generations end and what follows: failures, losses, refusals, who hears what.
 * Nodes that leave: test_leaving.c. */

#include "tests/lib/cmocka.h"
#include "tests/lib/stage.h"

#include "common/check.h"

static const char two_nodes[] = "shape nodes=2 restarts=3\n"
                                "a enters\n"
                                "b enters\n"
                                "> a,b ROUND g=1 a b failures=0\n";

/* Six ranks. */
static const char three_of_two[] = "shape nodes=1:3 nproc=2\n"
                                   "a enters\n"
                                   "b enters\n"
                                   "c enters\n"
                                   "> a,b,c ROUND g=1 a b c failures=0\n";

static const struct scene scenes[] = {
    {"a_failure_stops_every_member_and_is_counted", two_nodes,
     "a ended code=7\n"
     "> a,b STOP g=1 abort: rank 0 on a failed\n"
     "b ended signal=15 stopped\n"
     "b stopped\n"
     "a stopped\n"
     "> a,b REPORT g=1 again failures=1/3 rank 0 on a code=7 signal=0: restarting (1 of "
     "3)\n"
     "a join\n"
     "b join\n"
     "> a,b ROUND g=2 a b failures=1\n"},

    {"the_end_of_a_rank_that_is_not_the_nodes_own_is_no_cause", two_nodes,
     "a ended rank=1 code=7\n"
     "a ended rank=2 code=7\n"
     "a ended rank=1048575 code=7\n"
     "b ended rank=0 code=7\n"
     "b ended rank=1 code=3\n"
     "> a,b STOP g=1 abort: rank 1 on b failed\n"
     "a ended rank=1 code=9 at=1\n"
     "a ended rank=0 signal=15 stopped\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=1/3 rank 1 on b code=3 signal=0: restarting (1 of "
     "3)\n"},

    {"max_restarts_0_ends_the_job_with_the_ranks_code", NULL,
     "shape nodes=1 restarts=0\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "a ended code=7\n"
     "> a STOP g=1 abort: rank 0 on a failed\n"
     "a stopped\n"
     "> a REPORT g=1 final failures=1/0 exit=7 rank 0 on a code=7 signal=0: not "
     "restarting: --max-restarts is 0\n"
     "> a CLOSED 7\n"},

    {"used_up_restarts_end_the_job_with_128_and_the_signal", NULL,
     "shape nodes=1 restarts=1\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "a ended code=7\n"
     "> a STOP g=1 abort: rank 0 on a failed\n"
     "a stopped\n"
     "> a REPORT g=1 again failures=1/1 rank 0 on a code=7 signal=0: restarting (1 of "
     "1)\n"
     "a join\n"
     "> a ROUND g=2 a failures=1\n"
     "a ended signal=11\n"
     "> a STOP g=2 abort: rank 0 on a failed\n"
     "a stopped\n"
     "> a REPORT g=2 final failures=2/1 exit=139 rank 0 on a code=0 signal=11: not "
     "restarting: --max-restarts=1 is used up\n"
     "> a CLOSED 139\n"},

    {"several_failures_of_a_generation_count_once", two_nodes,
     "a ended code=7\n"
     "> a,b STOP g=1 abort: rank 0 on a failed\n"
     "b ended code=8\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=1/3 rank 0 on a code=7 signal=0: restarting (1 of "
     "3)\n"},

    {"the_first_cause_is_first_by_time_not_by_arrival", two_nodes,
     "wait 1000\n"
     "a ended code=7 at=1900\n"
     "> a,b STOP g=1 abort: rank 0 on a failed\n"
     "b ended code=8 at=1800\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=1/3 rank 1 on b code=8 signal=0: restarting (1 of "
     "3)\n"},

    {"an_end_without_a_time_ended_when_it_was_heard", two_nodes,
     "wait 1000\n"
     "a ended code=7 at=1900\n"
     "> a,b STOP g=1 abort: rank 0 on a failed\n"
     "b ended code=8 at=0\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=1/3 rank 0 on a code=7 signal=0: restarting (1 of "
     "3)\n"},

    {"an_end_that_no_process_has_is_not_reckoned_with", two_nodes,
     "a ended code=-2147483648\n"
     "a ended code=256\n"
     "a ended signal=-2147483648\n"
     "a ended signal=65\n"
     "a ended code=7\n"
     "> a,b STOP g=1 abort: rank 0 on a failed\n"},

    {"an_engine_that_lost_its_peer_is_not_the_cause", two_nodes,
     "b ended code=80 engine\n"
     "> a,b STOP g=1 abort: rank 1 on b failed\n"
     "wait 10\n"
     "a ended signal=9 engine\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=1/3 rank 0 on a code=0 signal=9: restarting (1 of "
     "3)\n"},

    {"reactions_alone_count_as_a_failure_of_nobody", two_nodes,
     "b ended code=81 engine\n"
     "> a,b STOP g=1 abort: rank 1 on b failed\n"
     "a ended code=80 engine stopped\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=1/3: every rank lost a peer or timed out; none "
     "failed by itself (where exchanges take long, raise comm.timeout); restarting (1 of "
     "3)\n"},

    {"reactions_alone_do_not_give_the_job_their_code", NULL,
     "shape nodes=2 restarts=0\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "b ended code=80 engine\n"
     "> a,b STOP g=1 abort: rank 1 on b failed\n"
     "a ended code=81 engine\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 final failures=1/0 exit=1: every rank lost a peer or timed out; "
     "none "
     "failed by itself (where exchanges take long, raise comm.timeout); not restarting: "
     "--max-restarts is 0\n"
     "> a,b CLOSED 1\n"},

    {"an_end_told_again_with_its_last_lines_counts_once_and_they_are_reported", NULL,
     "shape nodes=2 restarts=0\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "a ended code=7\n"
     "> a,b STOP g=1 abort: rank 0 on a failed\n"
     "b stopped\n"
     "a ended code=7 tail=division_by_zero\n"
     "a stopped\n"
     "> a,b REPORT g=1 final failures=1/0 exit=7 rank 0 on a code=7 signal=0 (division "
     "by "
     "zero): not restarting: --max-restarts is 0\n"
     "> a,b CLOSED 7\n"},

    {"the_same_crash_three_times_running_ends_the_job_with_93", NULL,
     "shape nodes=1 restarts=9\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "a ended code=1 step=5 engine\n"
     "> a STOP g=1 abort: rank 0 on a failed\n"
     "a stopped\n"
     "> a REPORT g=1 again failures=1/9 rank 0 on a code=1 signal=0: restarting (1 of "
     "9)\n"
     "a join\n"
     "> a ROUND g=2 a failures=1\n"
     "a ended code=1 step=5 engine\n"
     "> a STOP g=2 abort: rank 0 on a failed\n"
     "a stopped\n"
     "> a REPORT g=2 again failures=2/9 rank 0 on a code=1 signal=0: restarting (2 of "
     "9)\n"
     "a join\n"
     "> a ROUND g=3 a failures=2\n"
     "a ended code=1 step=5 engine\n"
     "> a STOP g=3 abort: rank 0 on a failed\n"
     "a stopped\n"
     "> a REPORT g=3 final failures=3/9 exit=93 rank 0 on a code=1 signal=0: the same "
     "rank ended the same way at the same step three times running: not restarting\n"
     "> a CLOSED 93\n"},

    /* --- losses --- */

    {"a_lost_node_is_not_counted", two_nodes,
     "b gone\n"
     "> a STOP g=1 abort: node b was lost: its connection ended\n"
     "a stopped\n"
     "> a REPORT g=1 again failures=0/3: node b was lost: its connection ended; "
     "re-forming (not counted as a failure)\n"
     "a join\n"
     "b enters\n"
     "> a,b ROUND g=2 a b failures=0\n"},

    {"engines_that_reacted_to_a_lost_node_are_not_counted", two_nodes,
     "a ended code=80 engine\n"
     "> a,b STOP g=1 abort: rank 0 on a failed\n"
     "a stopped\n"
     "b mute\n"
     "wait 2999\n"
     "wait 1\n"
     "> b (closed)\n"
     "> a REPORT g=1 again failures=0/3: node b was lost: silent for 3000 ms; re-forming "
     "(not counted as a failure)\n"},

    {"engines_that_react_after_the_loss_are_not_counted", two_nodes,
     "b gone\n"
     "> a STOP g=1 abort: node b was lost: its connection ended\n"
     "wait 5000\n"
     "a ended code=81 engine\n"
     "a stopped\n"
     "> a REPORT g=1 again failures=0/3: node b was lost: its connection ended; "
     "re-forming (not counted as a failure)\n"},

    {"a_foreign_program_that_fails_within_a_second_before_the_loss_is_not_counted",
     two_nodes,
     "a ended code=1\n"
     "> a,b STOP g=1 abort: rank 0 on a failed\n"
     "wait 999\n"
     "b gone\n"
     "a stopped\n"
     "> a REPORT g=1 again failures=0/3: node b was lost: its connection ended; "
     "re-forming (not counted as a failure)\n"},

    {"a_failure_more_than_a_second_before_a_loss_is_counted", two_nodes,
     "a ended code=1\n"
     "> a,b STOP g=1 abort: rank 0 on a failed\n"
     "wait 1000\n"
     "b gone\n"
     "a stopped\n"
     "> a REPORT g=1 again failures=1/3 rank 0 on a code=1 signal=0: restarting (1 of "
     "3); meanwhile node b was lost: its connection ended\n"},

    {"the_first_of_several_losses_is_named", NULL,
     "shape nodes=3\n"
     "a enters\n"
     "b enters\n"
     "c enters\n"
     "> a,b,c ROUND g=1 a b c failures=0\n"
     "b gone\n"
     "> a,c STOP g=1 abort: node b was lost: its connection ended\n"
     "c gone\n"
     "a stopped\n"
     "> a REPORT g=1 again failures=0/0: node b was lost: its connection ended; "
     "re-forming (not counted as a failure)\n"},

    {"a_later_loss_does_not_take_back_what_the_first_explains", NULL,
     "shape nodes=3 restarts=3\n"
     "a enters\n"
     "b enters\n"
     "c enters\n"
     "> a,b,c ROUND g=1 a b c failures=0\n"
     "a ended code=1\n"
     "> a,b,c STOP g=1 abort: rank 0 on a failed\n"
     "wait 500\n"
     "b gone\n"
     "wait 5000\n"
     "c gone\n"
     "a stopped\n"
     "> a REPORT g=1 again failures=0/3: node b was lost: its connection ended; "
     "re-forming (not counted as a failure)\n"},

    {"the_loss_of_a_node_that_has_stopped_changes_nothing", two_nodes,
     "a ended code=7\n"
     "> a,b STOP g=1 abort: rank 0 on a failed\n"
     "b stopped\n"
     "b gone\n"
     "a stopped\n"
     "> a REPORT g=1 again failures=1/3 rank 0 on a code=7 signal=0: restarting (1 of "
     "3)\n"},

    {"a_failed_rank_counts_whatever_its_node_says", NULL,
     "shape nodes=1 restarts=1\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "a ended code=1\n"
     "> a STOP g=1 abort: rank 0 on a failed\n"
     "a done\n"
     "> a REPORT g=1 again failures=1/1 rank 0 on a code=1 signal=0: restarting (1 of "
     "1)\n"},

    /* --- refusals --- */

    {"a_refusal_ends_the_job_with_its_code_and_text_uncounted", two_nodes,
     "a refuse code=2 text=model.heads:_3_does_not_divide\n"
     "> a,b STOP g=1 abort: model.heads: 3 does not divide\n"
     "b refuse code=2 text=the_same\n"
     "a ended code=2 engine\n"
     "b ended code=2 engine\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b CLOSED 2: model.heads: 3 does not divide\n"},

    {"the_refusals_own_code_wins_over_how_ranks_end", two_nodes,
     "a refuse code=95 text=damaged\n"
     "> a,b STOP g=1 abort: damaged\n"
     "b ended signal=9 stopped\n"
     "a ended code=1 engine\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b CLOSED 95: damaged\n"},

    {"a_refusal_after_a_failure_still_decides", two_nodes,
     "b ended code=1 engine\n"
     "> a,b STOP g=1 abort: rank 1 on b failed\n"
     "a refuse code=2 text=why\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b CLOSED 2: why\n"},

    {"a_node_lost_meanwhile_does_not_change_the_refusals_text", two_nodes,
     "a refuse code=2 text=why\n"
     "> a,b STOP g=1 abort: why\n"
     "b gone\n"
     "a stopped\n"
     "> a CLOSED 2: why\n"},

    {"a_refusal_with_code_0_is_no_success", two_nodes,
     "a refuse code=0 text=why\n"
     "> a,b STOP g=1 abort: why\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b CLOSED 2: why\n"},

    /* --- refusals of so large a world --- */

    {"surplus_nodes_stand_by_where_the_world_was_refused_as_too_large", three_of_two,
     "b refuse code=2 world=4 text=6_ranks,_but_4_leaves\n"
     "> a,b,c STOP g=1 abort: 6 ranks, but 4 leaves\n"
     "b ended code=2 rank=2 engine\n"
     "a ended code=2 rank=0 engine\n"
     "a stopped\n"
     "b stopped\n"
     "c stopped\n"
     "> a,b,c REPORT g=1 again failures=0/0: 6 ranks, but 4 leaves; going on with at "
     "most 4 ranks, surplus nodes stand by (not counted as a failure)\n"
     "a join\n"
     "b join world=4\n"
     "c join\n"
     "> a,b ROUND g=2 a b failures=0\n"
     "> c STANDBY generation 2 runs with 2 nodes and can use no more (at most 4 "
     "ranks); standing by to take over\n"
     "d enters\n"
     "> d STANDBY generation 2 runs with 2 nodes and can use no more (at most 4 "
     "ranks); standing by to take over\n"
     "a gone\n"
     "> b STOP g=2 abort: node a was lost: its connection ended\n"
     "b stopped\n"
     "> b,c,d REPORT g=2 again failures=0/0: node a was lost: its connection ended; "
     "re-forming (not counted as a failure)\n"
     "b join world=4\n"
     "> b,c ROUND g=3 b c failures=0\n"},

    {"the_limit_is_kept_when_the_node_that_heard_it_is_lost", three_of_two,
     "a refuse world=4 text=too_many\n"
     "> a,b,c STOP g=1 abort: too many\n"
     "a gone\n"
     "d enters\n"
     "b stopped\n"
     "c stopped\n"
     "> b,c,d REPORT g=1 again failures=0/0: too many; going on with at most 4 ranks, "
     "surplus nodes stand by (not counted as a failure)\n"
     "b join\n"
     "c join\n"
     "> b,c ROUND g=2 b c failures=0\n"
     "> d STANDBY generation 2 runs with 2 nodes and can use no more (at most 4 "
     "ranks); standing by to take over\n"
     "e enters\n"
     "> e STANDBY generation 2 runs with 2 nodes and can use no more (at most 4 "
     "ranks); standing by to take over\n"},

    {"the_limit_is_forgotten_when_nobody_is_left", three_of_two,
     "a refuse world=4 text=too_many\n"
     "> a,b,c STOP g=1 abort: too many\n"
     "a gone\n"
     "b gone\n"
     "c gone\n"
     "d enters\n"
     "e enters\n"
     "f enters\n"
     "> d,e,f ROUND g=2 d e f failures=0\n"},

    {"a_world_that_min_nodes_exceed_fails_the_job_once", NULL,
     "shape nodes=2:3 nproc=2\n"
     "a enters\n"
     "b enters\n"
     "c enters\n"
     "> a,b,c ROUND g=1 a b c failures=0\n"
     "a refuse code=2 world=3 text=why\n"
     "> a,b,c STOP g=1 abort: why\n"
     "a stopped\n"
     "b stopped\n"
     "c stopped\n"
     "> a,b,c CLOSED 2: why\n"},

    {"a_world_that_a_node_alone_exceeds_fails_the_job_once", NULL,
     "shape nodes=1 nproc=6\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "a refuse code=2 world=4 text=why\n"
     "> a STOP g=1 abort: why\n"
     "a stopped\n"
     "> a CLOSED 2: why\n"},

    {"the_ranks_of_nodes_that_are_still_to_come_are_counted", NULL,
     "shape nodes=2 nproc=1\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "a refuse code=2 world=1 text=why\n"
     "> a,b STOP g=1 abort: why\n"
     "b gone\n"
     "a stopped\n"
     "> a CLOSED 2: why\n"},

    {"the_nodes_that_would_be_first_are_those_that_must_fit", NULL,
     "shape nodes=1:2 nproc=6\n"
     "a enters\n"
     "shape nodes=1:2 nproc=1\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "b refuse code=2 world=4 text=why\n"
     "> a,b STOP g=1 abort: why\n"
     "b stopped\n"
     "a stopped\n"
     "> a,b CLOSED 2: why\n"},

    {"a_refusal_of_a_world_that_is_as_small_as_was_asked_for_is_the_end", three_of_two,
     "a refuse world=4 text=why\n"
     "> a,b,c STOP g=1 abort: why\n"
     "a stopped\n"
     "b stopped\n"
     "c stopped\n"
     "> a,b,c REPORT g=1 again failures=0/0: why; going on with at most 4 ranks, "
     "surplus nodes stand by (not counted as a failure)\n"
     "a join\n"
     "b join\n"
     "c join\n"
     "> a,b ROUND g=2 a b failures=0\n"
     "> c STANDBY generation 2 runs with 2 nodes and can use no more (at most 4 "
     "ranks); standing by to take over\n"
     "b refuse world=4 text=still\n"
     "> a,b STOP g=2 abort: still\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b,c CLOSED 2: still\n"},

    {"a_smaller_world_again_is_asked_for_as_long_as_it_fits", three_of_two,
     "a refuse world=4 text=why\n"
     "> a,b,c STOP g=1 abort: why\n"
     "a stopped\n"
     "b stopped\n"
     "c gone\n"
     "> a,b REPORT g=1 again failures=0/0: why; going on with at most 4 ranks, surplus "
     "nodes stand by (not counted as a failure)\n"
     "a join\n"
     "b join\n"
     "> a,b ROUND g=2 a b failures=0\n"
     "b refuse world=3 text=still\n"
     "> a,b STOP g=2 abort: still\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=2 again failures=0/0: still; going on with at most 3 ranks, "
     "surplus nodes stand by (not counted as a failure)\n"
     "a join\n"
     "b join\n"
     "> a ROUND g=3 a failures=0\n"
     "> b STANDBY generation 3 runs with 1 node and can use no more (at most 3 "
     "ranks); standing by to take over\n"
     "a refuse world=1 text=never\n"
     "> a STOP g=3 abort: never\n"
     "a stopped\n"
     "> a,b CLOSED 2: never\n"},
};

int main(void)
{
    struct CMUnitTest tests[ARRAY_LEN(scenes)];

    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        tests[i] = stage_scene(&scenes[i]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
