/* A job's life: generations, the end, commits, what is ignored. */

#include "tests/lib/cmocka.h"
#include "tests/lib/stage.h"

#include "common/check.h"

static const char two_nodes[] = "shape nodes=2 restarts=3\n"
                                "a enters\n"
                                "b enters\n"
                                "> a,b ROUND g=1 a b failures=0\n";

/* One failure is counted; what comes next runs as generation 2. */
static const char failed_once[] =
    "shape nodes=1 restarts=1\n"
    "a enters\n"
    "> a ROUND g=1 a failures=0\n"
    "a ended code=1 step=5 engine\n"
    "> a STOP g=1 abort: rank 0 on a failed\n"
    "a stopped\n"
    "> a REPORT g=1 again failures=1/1 rank 0 on a code=1 signal=0: restarting (1 of 1)\n"
    "a join\n"
    "> a ROUND g=2 a failures=1\n"
    "a resumed\n"
    "> a DECISION g=2 #1 accepted\n"
    "a commit step=5\n"
    "> a DECISION g=2 #2 accepted\n";

static const struct scene scenes[] = {
    /* --- the end --- */

    {"done_on_all_nodes_closes_the_job_with_0", two_nodes,
     "b done\n"
     "a done\n"
     "> a,b CLOSED 0\n"
     "a gone\n"
     "b gone\n"},

    {"a_standby_is_closed_too", two_nodes,
     "c enters\n"
     "> c STANDBY generation 1 runs with 2 nodes and can use no more; standing by to "
     "take over\n"
     "a done\n"
     "b done\n"
     "> a,b,c CLOSED 0\n"},

    {"a_done_node_is_needed_again_after_another_nodes_failure", two_nodes,
     "a done\n"
     "b ended code=1\n"
     "> a,b STOP g=1 abort: rank 1 on b failed\n"
     "b stopped\n"
     "a join\n"
     "> a,b REPORT g=1 again failures=1/3 rank 1 on b code=1 signal=0: restarting (1 of "
     "3)\n"
     "b join\n"
     "> a,b ROUND g=2 a b failures=1\n"
     "a done\n"
     "b done\n"
     "> a,b CLOSED 0\n"},

    {"a_done_node_that_disconnects_does_not_hurt", two_nodes,
     "a done\n"
     "a gone\n"
     "wait 9000\n"
     "b done\n"
     "> b CLOSED 0\n"},

    {"a_done_node_that_leaves_does_not_hurt", two_nodes,
     "a done\n"
     "a leave\n"
     "a gone\n"
     "b done\n"
     "> b CLOSED 0\n"},

    {"saying_done_twice_changes_nothing", two_nodes,
     "a done\n"
     "a done\n"
     "wait 1000\n"
     "b done\n"
     "> a,b CLOSED 0\n"},

    {"done_on_all_nodes_wins_over_a_newcomer", NULL,
     "shape nodes=2:3\n"
     "a enters\n"
     "b enters\n"
     "wait 3000\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "c enters\n"
     "> a,b STOP g=1 leave: node c joined\n"
     "a done\n"
     "b done\n"
     "> a,b,c CLOSED 0\n"},

    {"done_on_one_node_only_does_not_end_the_job_when_the_other_left", NULL,
     "shape nodes=2:3\n"
     "a enters\n"
     "b enters\n"
     "wait 3000\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "c enters\n"
     "> a,b STOP g=1 leave: node c joined\n"
     "a done\n"
     "b stopped\n"
     "> a,b,c REPORT g=1 again failures=0/0: node c joined; re-forming (not counted as a "
     "failure)\n"
     "a join\n"
     "b join\n"
     "> a,b,c ROUND g=2 a b c failures=0\n"},

    {"a_job_whose_last_node_leaves_when_it_is_done_is_done", two_nodes,
     "a done\n"
     "b leave\n"
     "> a STOP g=1 leave: node b leaves: preempted by SIGTERM\n"
     "a join\n"
     "b done\n"
     "> a,b CLOSED 0\n"},

    {"a_done_node_may_say_stopped_before_it_joins_again", two_nodes,
     "a done\n"
     "b ended code=1\n"
     "> a,b STOP g=1 abort: rank 1 on b failed\n"
     "b stopped\n"
     "a stopped\n"
     "> a,b REPORT g=1 again failures=1/3 rank 1 on b code=1 signal=0: restarting (1 of "
     "3)\n"},

    {"the_loss_of_the_last_working_node_calls_the_done_one_back", two_nodes,
     "a done\n"
     "b gone\n"
     "> a STOP g=1 abort: node b was lost: its connection ended\n"
     "a join\n"
     "> a REPORT g=1 again failures=0/3: node b was lost: its connection ended; "
     "re-forming (not counted as a failure)\n"
     "b enters\n"
     "> a,b ROUND g=2 a b failures=0\n"},

    {"a_late_node_hears_how_the_job_ended", NULL,
     "shape nodes=1\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "a ended code=9\n"
     "> a STOP g=1 abort: rank 0 on a failed\n"
     "a stopped\n"
     "> a REPORT g=1 final failures=1/0 exit=9 rank 0 on a code=9 signal=0: not "
     "restarting: --max-restarts is 0\n"
     "> a CLOSED 9\n"
     "b hello\n"
     "> b REFUSED 9: job job is over: it ended with exit code 9\n"
     "> b (closed)\n"},

    {"messages_after_closed_are_ignored", NULL,
     "shape nodes=1\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "a done\n"
     "> a CLOSED 0\n"
     "a join\n"
     "a ended code=3\n"
     "a stopped\n"
     "a leave\n"
     "a refuse code=2\n"
     "a commit step=9\n"
     "a ping\n"
     "wait 9000\n"},

    {"a_job_that_was_told_to_stop_begins_anew_without_its_failures", failed_once,
     "a leave\n"
     "a stopped\n"
     "> a REPORT g=2 again failures=1/1 commit=1:5:h: node a leaves: preempted by "
     "SIGTERM; re-forming (not counted as a failure)\n"
     "a gone\n"
     "b enters\n" /* the same command again: it knows nothing */
     "> b ROUND g=3 b failures=0 commit=1:5:h\n"},

    {"a_job_whose_node_was_lost_keeps_its_failures", failed_once,
     "a gone\n"
     "b enters\n"
     "> b ROUND g=3 b failures=1 commit=1:5:h\n"},

    {"a_node_lost_on_the_way_keeps_the_failures_of_those_who_left", NULL,
     "shape nodes=1:2 restarts=2\n"
     "a enters failures=1\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=1\n"
     "b leave\n"
     "> a STOP g=1 leave: node b leaves: preempted by SIGTERM\n"
     "b stopped\n"
     "b gone\n"
     "a gone\n"
     "c enters\n"
     "wait 3000\n"
     "> c ROUND g=2 c failures=1\n"},

    /* --- generations --- */

    {"the_highest_generation_that_agents_bring_is_surpassed", NULL,
     "shape nodes=2 restarts=9\n"
     "a enters gen=4 failures=2 commit=3:70:h70\n"
     "b enters gen=6 failures=1 commit=4:60:h60\n"
     "> a,b ROUND g=7 a b failures=2 commit=4:60:h60\n"},

    {"more_failures_than_restarts_are_not_believed", NULL,
     "shape nodes=1 restarts=3\n"
     "a enters failures=99\n"
     "> a ROUND g=1 a failures=3\n"},

    {"a_hello_above_the_running_generation_raises_the_next_and_is_a_join", NULL,
     "shape nodes=1:2\n"
     "a enters\n"
     "wait 3000\n"
     "> a ROUND g=1 a failures=0\n"
     "b hello gen=40\n"
     "a resumed\n"
     "> a DECISION g=1 #1 accepted\n"
     "a commit step=5\n" /* generation 1 is still the current one */
     "> a DECISION g=1 #2 accepted\n"
     "b join\n"
     "> a STOP g=1 leave: node b joined\n"
     "a ping\n"
     "> a STORE_REPLY g=1\n"
     "a stopped\n"
     "> a,b REPORT g=1 again failures=0/0 commit=1:5:h: node b joined; re-forming (not counted as a "
     "failure)\n"
     "a join\n"
     "> a,b ROUND g=41 a b failures=0 commit=1:5:h\n"},

    {"a_standby_that_brings_a_higher_generation_disturbs_nobody", two_nodes,
     "c enters gen=40\n"
     "> c STANDBY generation 1 runs with 2 nodes and can use no more; standing by to "
     "take over\n"
     "a done\n"
     "b done\n"
     "> a,b,c CLOSED 0\n"},

    {"messages_of_another_generation_are_ignored", two_nodes,
     "a ended code=1 gen=0\n"
     "a ended code=1 gen=2\n"
     "a stopped gen=2\n"
     "a done gen=0\n"
     "a refuse gen=2\n"
     "a ping gen=0\n"
     "a ping gen=2\n"
     "a ping\n"
     "> a STORE_REPLY g=1\n"
     "b done\n"
     "a done\n"
     "> a,b CLOSED 0\n"},

    {"a_store_request_of_an_old_generation_is_ignored", two_nodes,
     "a stopped\n"
     "> b STOP g=1 leave: node a stopped its workers\n"
     "a ping\n" /* it has no workers any more */
     "b stopped\n"
     "> a,b REPORT g=1 again failures=0/3: node a stopped its workers; re-forming (not "
     "counted as a failure)\n"
     "a ping\n"
     "a join\n"
     "b join\n"
     "> a,b ROUND g=2 a b failures=0\n"
     "a ping gen=1\n"
     "a ping\n"
     "> a STORE_REPLY g=2\n"},

    {"a_node_outside_the_generation_does_not_reach_its_store", two_nodes,
     "c enters\n"
     "> c STANDBY generation 1 runs with 2 nodes and can use no more; standing by to "
     "take over\n"
     "c ping gen=1\n"
     "c ended code=1 gen=1\n"
     "c stopped gen=1\n"
     "c done gen=1\n"
     "c refuse gen=1\n"},

    /* --- joining --- */

    {"joining_twice_changes_nothing", NULL,
     "shape nodes=2\n"
     "a enters\n"
     "a join\n"
     "wait 9000\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"},

    {"joining_twice_does_not_prolong_the_round", NULL,
     "shape nodes=1:2\n"
     "a enters\n"
     "wait 2000\n"
     "a join\n"
     "wait 999\n"
     "wait 1\n"
     "> a ROUND g=1 a failures=0\n"},

    {"a_member_joins_only_when_its_generation_is_over", two_nodes,
     "a join after=0\n"
     "a join after=7\n"
     "wait 1000\n"
     "a done\n"
     "b done\n"
     "> a,b CLOSED 0\n"},

    {"a_member_that_joins_in_the_middle_has_lost_its_workers", two_nodes,
     "a join\n"
     "> b STOP g=1 leave: node a starts over\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=0/3: node a starts over; re-forming (not counted as "
     "a failure)\n"
     "b join\n"
     "> a,b ROUND g=2 a b failures=0\n"},

    {"the_only_member_that_joins_in_the_middle_gets_a_new_generation", NULL,
     "shape nodes=1\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "a join\n"
     "> a REPORT g=1 again failures=0/0: node a starts over; re-forming (not counted as a "
     "failure)\n"
     "> a ROUND g=2 a failures=0\n"},

    {"a_done_node_that_starts_over_does_not_count_as_done", two_nodes,
     "a done\n"
     "a join\n"
     "> b STOP g=1 leave: node a starts over\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=0/3: node a starts over; re-forming (not counted as "
     "a failure)\n"
     "b join\n"
     "> a,b ROUND g=2 a b failures=0\n"},

    /* --- checkpoints --- */

    {"the_next_generation_is_told_the_last_commit", two_nodes,
     "a resumed run=1 step=0\n"
     "> a DECISION g=1 #1 accepted\n"
     "a commit run=1 step=50 hash=h50\n"
     "> a DECISION g=1 #2 accepted\n"
     "a commit run=1 step=50 hash=h50 request=3\n"
     "> a DECISION g=1 #3 accepted\n"
     "a commit run=1 step=40 hash=h40 request=4\n"
     "> a DECISION g=1 #4 refused: this step or a later one is committed already\n"
     "b ended code=1\n"
     "> a,b STOP g=1 abort: rank 1 on b failed\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=1/3 rank 1 on b code=1 signal=0 commit=1:50:h50: restarting (1 of "
     "3)\n"
     "a join\n"
     "b join\n"
     "> a,b ROUND g=2 a b failures=1 commit=1:50:h50\n"},

    {"commits_are_accepted_while_draining", two_nodes,
     "b ended code=1\n"
     "> a,b STOP g=1 abort: rank 1 on b failed\n"
     "a resumed\n"
     "> a DECISION g=1 #1 accepted\n"
     "a commit step=50\n"
     "> a DECISION g=1 #2 accepted\n"
     "b stopped\n"
     "a commit step=60\n"
     "> a DECISION g=1 #2 accepted\n"},

    {"an_old_generations_requests_are_refused", two_nodes,
     "a stopped\n"
     "> b STOP g=1 leave: node a stopped its workers\n"
     "a commit step=50\n"
     "> a DECISION g=1 #2 refused: generation 1 is over\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=0/3: node a stopped its workers; re-forming (not "
     "counted as a failure)\n"
     "a join\n"
     "b join\n"
     "> a,b ROUND g=2 a b failures=0\n"
     "a commit step=50 gen=1\n"
     "> a DECISION g=1 #2 refused: generation 1 is over\n"
     "a resumed step=50 gen=1\n"
     "> a DECISION g=1 #1 refused: generation 1 is over\n"
     "a resumed\n"
     "> a DECISION g=2 #1 accepted\n"
     "a commit step=50\n"
     "> a DECISION g=2 #2 accepted\n"},

    {"full_disk_refuses_no_commit", two_nodes,
     "service fills\n"
     "a resumed\n"
     "> a DECISION g=1 #1 accepted\n"
     "a commit step=50\n"
     "> a DECISION g=1 #2 accepted\n"
     "b ended code=1\n"
     "> a,b STOP g=1 abort: rank 1 on b failed\n"
     "a commit step=60\n"
     "> a DECISION g=1 #2 accepted\n"},

    /* a service that was killed between two generations does not know that */
    {"full_disk_lets_a_job_restart_that_stores_no_keys", two_nodes,
     "unkilled now\n"
     "service fills\n"
     "b ended code=1\n"
     "> a,b STOP g=1 abort: rank 1 on b failed\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=1/3 rank 1 on b code=1 signal=0: restarting (1 of "
     "3)\n"
     "a join\n"
     "b join\n"
     "> a,b ROUND g=2 a b failures=1\n"},

    /* … and looks again at another time */
    {"round_that_may_store_keys_waits_until_the_disk_has_space", NULL,
     "unkilled now\n"
     "shape nodes=2 restarts=3\n"
     "a enters\n"
     "service fills\n"
     "b enters\n"
     "> a,b STANDBY the disk on which this service keeps its state is full, and the job "
     "stores keys: the next generation begins when there is space\n"
     "wait 5000\n"
     "service empties\n"
     "wait 1000\n"
     "> a,b ROUND g=1 a b failures=0\n"},

    {"newcomer_does_not_end_what_runs_before_the_disk_has_space_for_what_follows", NULL,
     "unkilled now\n"
     "shape nodes=1:2 restarts=3\n"
     "a enters\n"
     "wait 30000\n"
     "> a ROUND g=1 a failures=0\n"
     "a stores\n"
     "> a STORE_REPLY g=1\n"
     "service fills\n"
     "b enters\n"
     "> b STANDBY the disk on which this service keeps its state is full, and the job "
     "stores keys: the next generation begins when there is space\n"
     "wait 5000\n"
     "service empties\n"
     "wait 1000\n"
     "> a STOP g=1 leave: node b joined\n"},

    {"a_standbys_commit_is_refused", two_nodes,
     "c enters\n"
     "> c STANDBY generation 1 runs with 2 nodes and can use no more; standing by to "
     "take over\n"
     "c commit gen=1 step=9\n"
     "> c DECISION g=1 #2 refused: generation 1 is over\n"},

    {"a_hello_with_a_newer_commit_does_not_stop_the_running_ones", two_nodes,
     "a resumed\n"
     "> a DECISION g=1 #1 accepted\n"
     "a commit step=50\n"
     "> a DECISION g=1 #2 accepted\n"
     "c hello commit=9:9999:zz\n"
     "a commit step=60\n"
     "> a DECISION g=1 #2 accepted\n"},
};

int main(void)
{
    struct CMUnitTest tests[ARRAY_LEN(scenes)];

    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        tests[i] = stage_scene(&scenes[i]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
