/* When a round closes, who is in, in which order. */

#include "rendezvous/round.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/stage.h"

static void host_names_compare_as_people_count(void **state)
{
    static const struct {
        const char *a, *b;
        int order;
    } cases[] = {
        {"node2", "node10", -1},
        {"node10", "node2", 1},
        {"node2", "node2", 0},
        {"node02", "node2", 0},
        {"node", "node1", -1},
        {"a9b2", "a9b10", -1},
        {"a", "b", -1},
        {"", "a", -1},
        {"", "", 0},
        {"node1a", "node1b", -1},
        {"n1", "na", -1},
        {"n0", "n00", 0},
        {"n00", "n1", -1},
        {"\xc3\xa4", "z", 1},
        {"10.0.0.9", "10.0.0.10", -1},
        {"n99999999999999999999", "n100000000000000000000", -1},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int order = round_compare_hosts(cases[i].a, cases[i].b);

        assert_int_equal((order > 0) - (order < 0), cases[i].order);
    }
}

static const struct scene scenes[] = {
    {"a_round_closes_at_once_when_max_nodes_are_in", NULL,
     "shape nodes=1:2\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"},

    {"the_first_round_closes_3_s_after_the_last_join", NULL,
     "shape nodes=1:4\n"
     "a enters\n"
     "wait 2999\n"
     "b enters\n"
     "wait 2999\n"
     "wait 1\n"
     "> a,b ROUND g=1 a b failures=0\n"},

    {"last_call_bounds_the_wait_from_min_on", NULL,
     "shape nodes=2:9 call=4000\n"
     "a enters\n"
     "wait 9000\n"
     "b enters\n"
     "wait 2500\n"
     "c enters\n"
     "wait 1499\n"
     "wait 1\n"
     "> a,b,c ROUND g=1 a b c failures=0\n"},

    {"no_last_call_means_no_wait_beyond_min", NULL,
     "shape nodes=2:9 call=0\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"},

    {"below_min_nothing_closes", NULL,
     "shape nodes=2:4\n"
     "a enters\n"
     "wait 60000\n"},

    {"min_is_counted_anew_when_a_waiting_node_is_lost", NULL,
     "shape nodes=2:4 call=4000\n"
     "a enters\n"
     "b enters\n"
     "wait 2000\n"
     "b gone\n"
     "wait 10000\n"
     "c enters\n"
     "wait 2999\n"
     "wait 1\n"
     "> a,c ROUND g=1 a c failures=0\n"},

    {"a_node_that_only_said_hello_is_not_in", NULL,
     "shape nodes=1:2\n"
     "a enters\n"
     "b hello\n"
     "wait 3000\n"
     "> a ROUND g=1 a failures=0\n"},

    {"from_the_second_generation_on_all_living_nodes_are_enough", NULL,
     "shape nodes=1:4 restarts=1\n"
     "a enters\n"
     "b enters\n"
     "wait 3000\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "a ended rank=0 code=1\n"
     "> a,b STOP g=1 abort: rank 0 on a failed\n"
     "a stopped\n"
     "a join\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=1/1 rank 0 on a code=1 signal=0: restarting (1 of "
     "1)\n"
     "b join\n"
     "> a,b ROUND g=2 a b failures=1\n"},

    {"a_living_node_that_does_not_join_is_waited_for_3_s", NULL,
     "shape nodes=1:4 restarts=1\n"
     "a enters\n"
     "b enters\n"
     "wait 3000\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "a ended rank=0 code=1\n"
     "> a,b STOP g=1 abort: rank 0 on a failed\n"
     "b stopped\n"
     "a stopped\n"
     "> a,b REPORT g=1 again failures=1/1 rank 0 on a code=1 signal=0: restarting (1 of "
     "1)\n"
     "a join\n"
     "wait 2999\n"
     "wait 1\n"
     "> a ROUND g=2 a failures=1\n"
     "b join\n"
     "> a STOP g=2 leave: node b joined\n"},

    {"when_everybody_was_lost_the_first_to_return_waits_for_the_others", NULL,
     "shape nodes=1:4\n"
     "a enters\n"
     "b enters\n"
     "wait 3000\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "a gone\n"
     "> b STOP g=1 abort: node a was lost: its connection ended\n"
     "b gone\n"
     "a enters\n"
     "wait 1000\n"
     "b enters\n"
     "wait 3000\n"
     "> a,b ROUND g=2 a b failures=0\n"},

    {"natural_host_order_decides_between_new_nodes", NULL,
     "shape nodes=3\n"
     "node10 enters\n"
     "node9 enters\n"
     "node1 enters\n"
     "> node1,node10,node9 ROUND g=1 node1 node9 node10 failures=0\n"},

    {"on_one_host_the_first_to_come_is_first", NULL,
     "shape nodes=3\n"
     "a enters host=h\n"
     "b enters host=h\n"
     "c enters host=h\n"
     "> a,b,c ROUND g=1 h h h failures=0\n"
     "a ended rank=0 code=1\n" /* its own rank tells who is who */
     "> a,b,c STOP g=1 abort: rank 0 on h failed\n"
     "c ended code=80 engine\n"
     "b ended code=81 engine\n"
     "a stopped\n"
     "b stopped\n"
     "c stopped\n"
     "> a,b,c REPORT g=1 final failures=1/0 exit=1 rank 0 on h code=1 signal=0: not "
     "restarting: --max-restarts is 0\n"
     "> a,b,c CLOSED 1\n"},

    {"node_rank_wins_over_everything", NULL,
     "shape nodes=3\n"
     "a enters rank=2 gen=4 group=0\n"
     "b enters rank=0\n"
     "c enters rank=1\n"
     "> a,b,c ROUND g=5 b c a failures=0\n"},

    {"nodes_with_a_node_rank_come_before_those_without", NULL,
     "shape nodes=2\n"
     "a enters\n"
     "b enters rank=1\n"
     "> a,b ROUND g=1 b a failures=0\n"},

    {"ranks_are_stable_over_a_restart_of_the_server", NULL,
     "shape nodes=3\n"
     "a enters gen=7 group=2\n"
     "b enters gen=7 group=1\n"
     "c enters gen=7 group=0\n"
     "> a,b,c ROUND g=8 c b a failures=0\n"},

    {"members_of_the_last_generation_come_before_those_of_older_ones", NULL,
     "shape nodes=3\n"
     "a enters gen=6 group=0\n"
     "b enters gen=7 group=1\n"
     "c enters gen=7 group=0\n"
     "> a,b,c ROUND g=8 c b a failures=0\n"},

    {"survivors_keep_their_order_and_the_newcomer_is_last", NULL,
     "shape nodes=3\n"
     "b enters\n"
     "c enters\n"
     "d enters\n"
     "> b,c,d ROUND g=1 b c d failures=0\n"
     "b gone\n"
     "> c,d STOP g=1 abort: node b was lost: its connection ended\n"
     "c stopped\n"
     "d stopped\n"
     "> c,d REPORT g=1 again failures=0/0: node b was lost: its connection ended; "
     "re-forming (not counted as a failure)\n"
     "d join\n"
     "c join\n"
     "a enters\n"
     "> a,c,d ROUND g=2 c d a failures=0\n"},

    {"surplus_nodes_stand_by", NULL,
     "shape nodes=1:2\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "c enters\n"
     "> c STANDBY generation 1 runs with 2 nodes and can use no more; standing by to "
     "take over\n"
     "wait 60000\n"},

    {"a_standby_takes_over_at_once", NULL,
     "shape nodes=2\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "c enters\n"
     "> c STANDBY generation 1 runs with 2 nodes and can use no more; standing by to "
     "take over\n"
     "a gone\n"
     "> b STOP g=1 abort: node a was lost: its connection ended\n"
     "b stopped\n"
     "> b,c REPORT g=1 again failures=0/0: node a was lost: its connection ended; "
     "re-forming (not counted as a failure)\n"
     "b join\n"
     "> b,c ROUND g=2 b c failures=0\n"},

    {"a_standby_that_waited_long_does_not_run_ahead_of_the_survivors", NULL,
     "shape nodes=1:2\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "c enters\n"
     "> c STANDBY generation 1 runs with 2 nodes and can use no more; standing by to "
     "take over\n"
     "wait 60000\n"
     "a gone\n"
     "> b STOP g=1 abort: node a was lost: its connection ended\n"
     "b stopped\n"
     "> b,c REPORT g=1 again failures=0/0: node a was lost: its connection ended; "
     "re-forming (not counted as a failure)\n"
     "wait 100\n"
     "b join\n"
     "> b,c ROUND g=2 b c failures=0\n"},

    {"a_node_that_stands_by_again_is_told_again", NULL,
     "shape nodes=1 restarts=3\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "b enters\n"
     "> b STANDBY generation 1 runs with 1 node and can use no more; standing by to "
     "take over\n"
     "a gone\n"
     "> b REPORT g=1 again failures=0/3: node a was lost: its connection ended; "
     "re-forming (not counted as a failure)\n"
     "> b ROUND g=2 b failures=0\n"
     "c enters rank=0\n"
     "> c STANDBY generation 2 runs with 1 node and can use no more; standing by to "
     "take over\n"
     "b ended code=1\n"
     "> b STOP g=2 abort: rank 0 on b failed\n"
     "b stopped\n"
     "> b,c REPORT g=2 again failures=1/3 rank 0 on b code=1 signal=0: restarting (1 of "
     "3)\n"
     "b join\n"
     "> c ROUND g=3 c failures=1\n"
     "> b STANDBY generation 3 runs with 1 node and can use no more; standing by to "
     "take over\n"},

    {"a_standby_does_not_take_the_place_of_a_survivor", NULL,
     "shape nodes=2 restarts=3\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "c enters\n"
     "> c STANDBY generation 1 runs with 2 nodes and can use no more; standing by to "
     "take over\n"
     "a ended code=1\n"
     "> a,b STOP g=1 abort: rank 0 on a failed\n"
     "a stopped\n"
     "a join\n"
     "b stopped\n"
     "> a,b,c REPORT g=1 again failures=1/3 rank 0 on a code=1 signal=0: restarting (1 of "
     "3)\n"
     "b join\n"
     "> a,b ROUND g=2 a b failures=1\n"},

    {"a_survivor_that_does_not_join_is_replaced_after_3_s", NULL,
     "shape nodes=1 restarts=3\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "b enters\n"
     "> b STANDBY generation 1 runs with 1 node and can use no more; standing by to "
     "take over\n"
     "wait 9000\n"
     "a ended code=1\n"
     "> a STOP g=1 abort: rank 0 on a failed\n"
     "a stopped\n"
     "> a,b REPORT g=1 again failures=1/3 rank 0 on a code=1 signal=0: restarting (1 of "
     "3)\n"
     "wait 2999\n"
     "wait 1\n"
     "> b ROUND g=2 b failures=1\n"},

    {"a_standby_that_is_lost_disturbs_nobody", NULL,
     "shape nodes=1\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "b enters\n"
     "> b STANDBY generation 1 runs with 1 node and can use no more; standing by to "
     "take over\n"
     "b gone\n"
     "wait 9000\n"},

    {"each_node_learns_its_place_among_the_ranks_of_its_role", NULL,
     "shape nodes=3 restarts=1\n"
     "a enters role=trainer nproc=1\n"
     "b enters role=data nproc=2\n"
     "c enters role=trainer nproc=3\n"
     "> a ROUND g=1 a b c failures=0 role=0/4\n"
     "> b ROUND g=1 a b c failures=0 role=0/2\n"
     "> c ROUND g=1 a b c failures=0 role=1/4\n"},

    {"a_role_may_change_from_one_generation_to_the_next", NULL,
     "shape nodes=2 restarts=1\n"
     "a enters role=x\n"
     "b enters role=x nproc=2\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "a ended code=1\n"
     "> a,b STOP g=1 abort: rank 0 on a failed\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=1/1 rank 0 on a code=1 signal=0: restarting (1 of "
     "1)\n"
     "a join role=x\n"
     "b join role=y\n"
     "> a ROUND g=2 a b failures=1 role=0/1\n"
     "> b ROUND g=2 a b failures=1 role=0/2\n"},

    {"nodes_beyond_the_largest_world_stand_by", NULL,
     "shape nodes=1:3 nproc=2\n"
     "a enters world=4\n"
     "b enters world=4\n"
     "c enters world=4\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "> c STANDBY generation 1 runs with 2 nodes and can use no more (at most 4 "
     "ranks); standing by to take over\n"},

    {"the_largest_world_never_cuts_below_min", NULL,
     "shape nodes=2:3 nproc=2\n"
     "a enters world=1\n"
     "b enters world=1\n"
     "c enters world=1\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "> c STANDBY generation 1 runs with 2 nodes and can use no more (at most 1 rank); "
     "standing by to take over\n"},

    {"one_node_that_knows_the_largest_world_is_enough", NULL,
     "shape nodes=1:3 nproc=2\n"
     "a enters\n"
     "b enters\n"
     "c enters world=2\n"
     "> a ROUND g=1 a failures=0\n"
     "> b,c STANDBY generation 1 runs with 1 node and can use no more (at most 2 "
     "ranks); standing by to take over\n"},

    {"a_node_that_has_left_does_not_limit_the_world", NULL,
     "shape nodes=1:3\n"
     "a enters\n"
     "b enters world=1\n"
     "b leave\n"
     "c enters\n"
     "wait 3000\n"
     "> a,c ROUND g=1 a c failures=0\n"},

    {"a_newcomer_beyond_the_largest_world_stands_by", NULL,
     "shape nodes=1:3\n"
     "a enters world=1\n"
     "wait 3000\n"
     "> a ROUND g=1 a failures=0\n"
     "b enters\n"
     "> b STANDBY generation 1 runs with 1 node and can use no more (at most 1 rank); "
     "standing by to take over\n"
     "c enters world=1\n"
     "> c STANDBY generation 1 runs with 1 node and can use no more (at most 1 rank); "
     "standing by to take over\n"
     "wait 60000\n"},

    {"a_late_joiner_ends_the_generation_softly_and_is_in_the_next", NULL,
     "shape nodes=1:2\n"
     "a enters\n"
     "wait 3000\n"
     "> a ROUND g=1 a failures=0\n"
     "b enters\n"
     "> a STOP g=1 leave: node b joined\n"
     "a ended code=83 engine\n"
     "a stopped\n"
     "> a,b REPORT g=1 again failures=0/0: node b joined; re-forming (not counted as a "
     "failure)\n"
     "a join\n"
     "> a,b ROUND g=2 a b failures=0\n"},

    {"nobody_is_admitted_while_the_job_is_ending", NULL,
     "shape nodes=2:3\n"
     "a enters\n"
     "b enters\n"
     "wait 3000\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "a done\n"
     "c enters\n"
     "> c STANDBY generation 1 runs with 2 nodes and can use no more; standing by to "
     "take over\n"
     "b done\n"
     "> a,b,c CLOSED 0\n"},
};

int main(void)
{
    struct CMUnitTest tests[ARRAY_LEN(scenes) + 1] = {
        cmocka_unit_test(host_names_compare_as_people_count),
    };

    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        tests[i + 1] = stage_scene(&scenes[i]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
