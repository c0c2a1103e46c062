/* What becomes of a job whose nodes go, or are started anew, while the service is away:
 * which failures that explains, and who takes whose place. */

#include "tests/lib/cmocka.h"
#include "tests/lib/stage.h"

#include "common/check.h"

static const char two_of_two[] = "shape nodes=1:2 restarts=0\n"
                                 "a enters\n"
                                 "b enters\n"
                                 "> a,b ROUND g=1 a b failures=0\n";

static const char two_numbered[] = "shape nodes=2\n"
                                   "a enters rank=0\n"
                                   "b enters rank=1\n"
                                   "> a,b ROUND g=1 a b failures=0\n"
                                   "unkilled now\n";

/* The service dies; a comes back, b is away, and a's rank has failed after it went. */
#define A_FAILED_MEANWHILE                     \
    "service dies 8000\n"                      \
    "a returns\n"                              \
    "a ended code=1 at=2000\n"                 \
    "> a STOP g=1 abort: rank 0 on a failed\n" \
    "a stopped\n"

static const struct scene scenes[] = {
    {"ranks_that_missed_a_node_that_left_meanwhile_have_not_failed", two_of_two,
     "service dies 8000\n"
     "a returns\n"
     "a ended code=1 at=6000\n" /* b's ranks took their time */
     "> a STOP g=1 abort: rank 0 on a failed\n"
     "a stopped\n"
     "a join\n"
     "wait 1000\n"
     "b returns\n"
     "> b STOP g=1 abort: rank 0 on a failed\n"
     "b leave at=2000\n"
     "b ended signal=15 stopped at=6000\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=0/0: node b leaves: preempted by SIGTERM; "
     "re-forming (not counted as a failure)\n"
     "> a ROUND g=2 a failures=0\n"},

    {"so_have_those_that_are_heard_after_it", two_of_two,
     "service dies 8000\n"
     "b returns\n"
     "b leave at=2000\n"
     "b ended signal=15 stopped at=6000\n"
     "b stopped\n"
     "b gone\n"
     "wait 1000\n"
     "a returns\n"
     "> a STOP g=1 leave: node b leaves: preempted by SIGTERM\n"
     "a ended code=1 at=6000\n"
     "> a STOP g=1 abort: rank 0 on a failed\n"
     "a stopped\n"
     "> a REPORT g=1 again failures=0/0: node b leaves: preempted by SIGTERM; "
     "re-forming (not counted as a failure)\n"},

    {"a_node_that_left_meanwhile_does_not_explain_an_earlier_failure", two_of_two,
     "service dies 8000\n"
     "a returns\n"
     "a ended code=1 at=1899\n"
     "> a STOP g=1 abort: rank 0 on a failed\n"
     "a stopped\n"
     "b returns\n"
     "> b STOP g=1 abort: rank 0 on a failed\n"
     "b leave at=2000\n"
     "b stopped\n"
     "> a,b REPORT g=1 final failures=1/0 exit=1 rank 0 on a code=1 signal=0: not "
     "restarting: --max-restarts is 0; meanwhile node b leaves: preempted by SIGTERM\n"
     "> a,b CLOSED 1\n"},

    {"ranks_that_missed_a_node_that_was_lost_meanwhile_have_not_failed", two_of_two,
     A_FAILED_MEANWHILE
     "a join\n"
     "wait 2999\n"
     "wait 376\n"
     "> a REPORT g=1 again failures=0/0: node b was lost: it did not come back; "
     "re-forming (not counted as a failure)\n"
     "> a ROUND g=2 a failures=0\n"},

    {"nor_when_the_service_dies_once_more_before_it_is_missed", two_of_two,
     A_FAILED_MEANWHILE
     "a join\n"
     "service dies 8000\n"
     "a returns\n"
     "wait 2999\n"
     "wait 376\n"
     "> a REPORT g=1 again failures=0/0: node b was lost: it did not come back; "
     "re-forming (not counted as a failure)\n"
     "> a ROUND g=2 a failures=0\n"},

    {"a_node_that_was_started_anew_waits_for_the_end_of_its_old_self", two_numbered,
     "service dies 500\n" /* b's host, too */
     "a returns\n"
     "c enters host=b rank=1\n"
     "> c STANDBY generation 1 runs with 2 nodes and can use no more; standing by to "
     "take "
     "over\n"
     "wait 3375\n"
     "> a STOP g=1 abort: node b (group rank 1) was lost: it did not come back\n"
     "a stopped\n"
     "> a,c REPORT g=1 again failures=0/0: node b (group rank 1) was lost: it did not "
     "come back; "
     "re-forming (not counted as a failure)\n"
     "a join\n"
     "> a,c ROUND g=2 a b failures=0\n"},

    {"so_do_all_nodes_when_everything_lost_its_power", two_numbered,
     "service dies 500\n"
     "c enters host=a rank=0\n"
     "> c STANDBY generation 1 runs with 2 nodes and can use no more; standing by to "
     "take "
     "over\n"
     "d enters host=b rank=1\n"
     "> d STANDBY generation 1 runs with 2 nodes and can use no more; standing by to "
     "take "
     "over\n"
     "wait 4000\n"
     "> c,d REPORT g=1 again failures=0/0: node b (group rank 1) was lost: it did not "
     "come back; re-forming (not counted as a failure)\n"
     "> c,d ROUND g=2 a b failures=0\n"},

    {"one_in_the_place_of_a_node_that_returns_is_turned_away", NULL,
     "shape nodes=1:3\n"
     "a enters rank=0\n"
     "b enters rank=1\n"
     "wait 3000\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "unkilled now\n"
     "service dies 500\n"
     "a returns\n"
     "c enters host=b rank=1\n"
     "> c STANDBY generation 1 runs with 2 nodes and can use no more; standing by to "
     "take "
     "over\n"
     "b returns\n"
     "> c REFUSED 2: job job: --node-rank=1 is taken by b; give every node its own\n"
     "c gone\n"
     "wait 10\n"},

    {"a_node_rank_is_not_taken_from_a_node_that_has_returned", two_numbered,
     "service dies 500\n"
     "a returns\n"
     "b returns\n"
     "c hello host=b rank=1\n"
     "> c REFUSED 2: job job: --node-rank=1 is taken by b; give every node its own\n"
     "> c (closed)\n"},

    {"a_failure_that_was_told_before_a_node_was_lost_counts", two_of_two,
     "a ended code=1\n"
     "> a,b STOP g=1 abort: rank 0 on a failed\n"
     "wait 1500\n"
     "service dies 500\n"
     "a returns\n"
     "> a STOP g=1 abort: rank 0 on a failed\n"
     "a stopped\n"
     "a join\n"
     "wait 2999\n"
     "wait 376\n"
     "> a REPORT g=1 final failures=1/0 exit=1 rank 0 on a code=1 signal=0: not "
     "restarting: --max-restarts is 0; meanwhile node b was lost: it did not come back\n"
     "> a CLOSED 1\n"},

    {"a_failure_long_after_the_nodes_were_told_of_a_leave_counts", two_of_two,
     "unkilled now\n" /* after a start they may all have to be told again */
     "b leave\n"
     "> a STOP g=1 leave: node b leaves: preempted by SIGTERM\n"
     "wait 2000\n"
     "b stopped\n"
     "a beat\n"
     "wait 2000\n"
     "a beat\n"
     "wait 2000\n"
     "a beat\n"
     "wait 2000\n"
     "a beat\n"
     "wait 2000\n"
     "a ended code=1\n"
     "> a STOP g=1 abort: rank 0 on a failed\n"
     "a stopped\n"
     "> a,b REPORT g=1 final failures=1/0 exit=1 rank 0 on a code=1 signal=0: not "
     "restarting: --max-restarts is 0; meanwhile node b leaves: preempted by SIGTERM\n"
     "> a,b CLOSED 1\n"},

    {"a_failure_counts_when_every_node_comes_back", two_of_two,
     A_FAILED_MEANWHILE
     "wait 1000\n"
     "b returns\n"
     "> b STOP g=1 abort: rank 0 on a failed\n"
     "b stopped\n"
     "> a,b REPORT g=1 final failures=1/0 exit=1 rank 0 on a code=1 signal=0: not "
     "restarting: --max-restarts is 0\n"
     "> a,b CLOSED 1\n"},
};

int main(void)
{
    struct CMUnitTest tests[ARRAY_LEN(scenes)];

    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        tests[i] = stage_scene(&scenes[i]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
