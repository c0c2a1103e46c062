/* Generations that end because a node goes in good order, and what is no failure then. */

#include "tests/lib/cmocka.h"
#include "tests/lib/stage.h"

#include "common/check.h"

static const char two_nodes[] = "shape nodes=2 restarts=3\n"
                                "a enters\n"
                                "b enters\n"
                                "> a,b ROUND g=1 a b failures=0\n";

static const struct scene scenes[] = {
    {"the_others_finish_their_step_when_a_node_leaves", NULL,
     "shape nodes=1:2 restarts=3\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "b leave\n"
     "> a STOP g=1 leave: node b leaves: preempted by SIGTERM\n"
     "b leave\n"
     "b ended code=83 engine stopped\n"
     "a ended code=83 engine stopped\n"
     "b stopped\n"
     "b gone\n"
     "a stopped\n"
     "> a REPORT g=1 again failures=0/3: node b leaves: preempted by "
     "SIGTERM; re-forming (not counted as a failure)\n"
     "a join\n"
     "> a ROUND g=2 a failures=0\n"},

    {"a_node_that_left_is_not_waited_for_and_cannot_join", NULL,
     "shape nodes=1:2\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "b leave\n"
     "> a STOP g=1 leave: node b leaves: preempted by SIGTERM\n"
     "a stopped\n"
     "a join\n"
     "b join\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=0/0: node b leaves: preempted by "
     "SIGTERM; re-forming (not counted as a failure)\n"
     "> a ROUND g=2 a failures=0\n"
     "b join\n"},

    {"a_rank_that_its_agent_stopped_is_no_failure", two_nodes,
     "a ended signal=15 stopped\n"
     "a stopped\n"
     "> b STOP g=1 leave: node a stopped its workers\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=0/3: node a stopped its workers; re-forming (not "
     "counted as a failure)\n"},

    {"when_all_leave_nothing_is_counted_and_the_job_may_go_on_later", two_nodes,
     "a leave\n"
     "> b STOP g=1 leave: node a leaves: preempted by SIGTERM\n"
     "b leave\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=0/3: node a leaves: preempted by "
     "SIGTERM; re-forming (not counted as a failure)\n"
     "a gone\n"
     "b gone\n"
     "wait 60000\n"
     "c enters host=a\n"
     "d enters host=b\n"
     "> c,d ROUND g=2 a b failures=0\n"},

    {"a_node_that_leaves_before_the_round_is_not_in_it", NULL,
     "shape nodes=1:3\n"
     "a enters\n"
     "b enters\n"
     "b leave\n"
     "b join\n"
     "wait 3000\n"
     "> a ROUND g=1 a failures=0\n"},

    {"ranks_that_miss_those_of_a_node_that_leaves_have_not_failed", two_nodes,
     "a leave signal=10\n"
     "> b STOP g=1 leave: node a leaves: preempted by SIGUSR1\n"
     "wait 999\n"
     "b ended code=1\n" /* before its agent had heard of it, by a slow network */
     "> a,b STOP g=1 abort: rank 1 on b failed\n"
     "a ended signal=10 stopped\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=0/3: node a leaves: preempted by SIGUSR1; "
     "re-forming (not counted as a failure)\n"},

    {"ranks_whose_end_overtakes_the_word_to_leave_have_not_failed", two_nodes,
     "b ended code=1\n"
     "> a,b STOP g=1 abort: rank 1 on b failed\n"
     "wait 100\n"
     "a leave\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=0/3: node a leaves: preempted by SIGTERM; "
     "re-forming (not counted as a failure)\n"},

    {"a_node_that_leaves_after_a_failure_does_not_explain_it", two_nodes,
     "b ended code=1\n"
     "> a,b STOP g=1 abort: rank 1 on b failed\n"
     "wait 101\n"
     "a leave\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=1/3 rank 1 on b code=1 signal=0: restarting (1 of "
     "3); meanwhile node a leaves: preempted by SIGTERM\n"},

    {"an_engine_that_fails_while_a_node_leaves_has_failed", two_nodes,
     "a leave\n"
     "> b STOP g=1 leave: node a leaves: preempted by SIGTERM\n"
     "b ended code=1 engine\n"
     "> a,b STOP g=1 abort: rank 1 on b failed\n"
     "a ended code=80 engine stopped\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=1/3 rank 1 on b code=1 signal=0: restarting (1 of "
     "3); meanwhile node a leaves: preempted by SIGTERM\n"},

    {"the_service_and_a_terminal_preempt_nobody", NULL,
     "shape nodes=1:3\n"
     "a enters\n"
     "b enters\n"
     "c enters\n"
     "> a,b,c ROUND g=1 a b c failures=0\n"
     "c leave signal=0\n"
     "> a,b STOP g=1 leave: node c leaves: drained\n"
     "c gone\n"
     "> a,b STOP g=1 abort: node c has left: its connection ended\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=0/0: node c has left: its connection ended; "
     "re-forming (not counted as a failure)\n"
     "a join\n"
     "b join\n"
     "> a,b ROUND g=2 a b failures=0\n"
     "b leave signal=2\n"
     "> a STOP g=2 leave: node b leaves: SIGINT\n"},

    {"a_failure_while_leaving_makes_it_urgent", two_nodes,
     "a leave\n"
     "> b STOP g=1 leave: node a leaves: preempted by SIGTERM\n"
     "wait 1000\n"
     "b ended code=5\n"
     "> a,b STOP g=1 abort: rank 1 on b failed\n"
     "a ended signal=15 stopped\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=0/3: node a leaves: preempted by SIGTERM; "
     "re-forming (not counted as a failure)\n"},

    {"an_engine_that_left_by_itself_is_not_counted", two_nodes,
     "a ended code=83 engine\n"
     "> a,b STOP g=1 leave: the workers were asked to leave\n"
     "b ended code=83 engine\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=0/3: the workers were asked to leave; re-forming "
     "(not counted as a failure)\n"},

    {"a_node_that_stops_without_a_word_ends_the_generation", two_nodes,
     "a stopped\n"
     "> b STOP g=1 leave: node a stopped its workers\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=0/3: node a stopped its workers; re-forming (not "
     "counted as a failure)\n"},

    {"every_member_is_told_once_and_once_more_if_it_is_urgent", NULL,
     "shape nodes=3:4\n"
     "a enters\n"
     "b enters\n"
     "c enters\n"
     "wait 3000\n"
     "> a,b,c ROUND g=1 a b c failures=0\n"
     "d enters\n"
     "> a,b,c STOP g=1 leave: node d joined\n"
     "a stopped\n"
     "b ended code=5\n"
     "> b,c STOP g=1 abort: rank 1 on b failed\n"
     "c ended code=6\n"
     "d gone\n"
     "wait 101\n"
     "c leave\n"
     "b stopped\n"
     "c stopped\n"
     "> a,b,c REPORT g=1 final failures=1/0 exit=5 rank 1 on b code=5 signal=0: not "
     "restarting: --max-restarts is 0; meanwhile node d joined\n"
     "> a,b,c CLOSED 5\n"},

    /* --- the service itself --- */

    {"who_serves_and_goes_lets_the_others_finish_and_forms_no_other_generation", NULL,
     "shape nodes=1:3\n"
     "a enters\n"
     "b enters\n"
     "c enters\n"
     "> a,b,c ROUND g=1 a b c failures=0\n"
     "a resumed run=1 step=0 request=1\n"
     "> a DECISION g=1 #1 accepted\n"
     "c leave\n"
     "> a,b STOP g=1 leave: node c leaves: preempted by SIGTERM\n"
     "c stopped\n"
     "unkilled now\n"
     "service finishes\n"
     "c gone\n"
     "b stopped\n"
     "b join\n"
     "a commit run=1 step=7 hash=h request=2\n"
     "> a DECISION g=1 #2 accepted\n"
     "a stopped\n"
     "> a,b REPORT g=1 again failures=0/0 commit=1:7:h: node c leaves: preempted by "
     "SIGTERM; re-forming (not counted as a failure)\n"
     "a join\n"
     "wait 60000\n"},

    {"who_serves_others_and_goes_asks_them_to_finish_their_step", NULL,
     "shape nodes=1\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "unkilled now\n"
     "service finishes\n"
     "> a STOP g=1 leave: the service leaves\n"
     "a stopped\n"
     "> a REPORT g=1 again failures=0/0: the service leaves; re-forming (not counted as "
     "a "
     "failure)\n"
     "a join\n"
     "b enters job=other\n"
     "wait 60000\n"},
};

int main(void)
{
    struct CMUnitTest tests[ARRAY_LEN(scenes)];

    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        tests[i] = stage_scene(&scenes[i]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
