/* Sessions, leases, several jobs, hostile orders, on a stage. */

#include "tests/lib/cmocka.h"
#include "tests/lib/stage.h"

#include "common/check.h"

/* It had room for one more node. */
#define ELASTIC_JOB_ENDS                                                         \
    "shape nodes=1:2\n"                                                          \
    "a enters\n"                                                                 \
    "wait 3000\n"                                                                \
    "> a ROUND g=1 a failures=0\n"                                               \
    "a ended code=3\n"                                                           \
    "> a STOP g=1 abort: rank 0 on a failed\n"                                   \
    "a stopped\n"                                                                \
    "> a REPORT g=1 final failures=1/0 exit=3 rank 0 on a code=3 signal=0: not " \
    "restarting: --max-restarts is 0\n"                                          \
    "> a CLOSED 3\n"                                                             \
    "a gone\n"

static const struct scene scenes[] = {
    /* --- sessions --- */

    {"hello_is_welcomed_and_heartbeats_are_answered", NULL,
     "trace all\n"
     "a hello\n"
     "> a welcome\n"
     "a beat\n"
     "> a pong\n"},

    {"a_heartbeats_answer_tells_who_waits", NULL,
     "trace all\n"
     "shape nodes=3\n"
     "a hello\n"
     "> a welcome\n"
     "b hello\n"
     "> b welcome\n"
     "c hello job=other\n"
     "> c welcome\n"
     "a join\n"
     "a beat\n"
     "> a PONG joined=1 also=\n"
     "b join\n"
     "c join\n"
     "a beat\n"
     "> a PONG joined=2 also=other\n"
     "c beat\n"
     "> c PONG joined=1 also=job\n"},

    {"another_version_is_refused_with_94", NULL,
     "a hello version=9\n"
     "> a REFUSED 94: this service speaks version 8 of the agent protocol, the node "
     "version 9: install the same ctrun everywhere\n"
     "> a (closed)\n"},

    {"the_same_agent_on_a_new_connection_replaces_the_old_session", NULL,
     "shape nodes=2\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "a2 opens\n" /* unrelated connections stay */
     "a hello\n"
     "> b STOP g=1 abort: node a was lost: it connected anew\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=0/0: node a was lost: it connected anew; "
     "re-forming (not counted as a failure)\n"
     "b join\n"
     "a join\n"
     "> a,b ROUND g=2 a b failures=0\n"},

    {"an_agent_alone_in_its_job_may_come_back_on_a_new_connection", NULL,
     "shape nodes=1\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "a enters\n"
     "> a ROUND g=2 a failures=0\n"
     "a gone\n"
     "a enters\n"
     "> a ROUND g=3 a failures=0\n"},

    {"an_agent_that_only_waited_may_come_back_on_a_new_connection", NULL,
     "shape nodes=2\n"
     "a enters rank=0\n"
     "a enters rank=0\n"
     "b enters rank=1\n"
     "> a,b ROUND g=1 a b failures=0\n"},

    /* --- leases --- */

    {"a_silent_agent_loses_its_lease", NULL,
     "shape nodes=1:2\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "b mute\n"
     "wait 2999\n"
     "wait 1\n"
     "> b (closed)\n"
     "> a STOP g=1 abort: node b was lost: silent for 3000 ms\n"},

    {"a_lease_does_not_end_while_heartbeats_come", NULL,
     "shape nodes=1:2\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "wait 600000\n"},

    {"a_connection_that_never_says_hello_is_closed", NULL,
     "unkilled now\n"
     "a opens\n"
     "wait 2999\n"
     "wait 1\n"
     "> a (closed)\n"},

    {"when_the_service_itself_slept_everybody_gets_a_fresh_term", NULL,
     "shape nodes=2\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "a mute\n"
     "b mute\n"
     "sleep 60000\n"
     "wait 2999\n"
     "wait 1\n"
     "> a,b (closed)\n"
     "> b STOP g=1 abort: node a was lost: silent for 3000 ms\n"},

    {"a_short_sleep_past_the_end_of_a_lease_is_noticed_too", NULL,
     "shape nodes=2\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "a mute\n"
     "wait 1300\n"
     "sleep 1750\n"
     "wait 2000\n"
     "a beat\n"
     "wait 2000\n"},

    {"a_tick_that_is_a_little_late_still_judges", NULL,
     "shape nodes=2\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "a mute\n"
     "wait 2500\n"
     "sleep 500\n"
     "> a (closed)\n"
     "> b STOP g=1 abort: node a was lost: silent for 3000 ms\n"},

    /* --- several jobs --- */

    {"jobs_live_side_by_side", NULL,
     "shape nodes=2 restarts=1\n"
     "a enters job=x\n"
     "b enters job=y restarts=0\n"
     "c enters job=x\n"
     "> a,c ROUND g=1 a c failures=0\n"
     "d enters job=y restarts=0\n"
     "> b,d ROUND g=1 b d failures=0\n"
     "a ended code=1\n"
     "> a,c STOP g=1 abort: rank 0 on a failed\n"
     "b done\n"
     "d done\n"
     "> b,d CLOSED 0\n"
     "a stopped\n"
     "c stopped\n"
     "> a,c REPORT g=1 again failures=1/1 rank 0 on a code=1 signal=0: restarting (1 of "
     "1)\n"},

    {"an_agent_of_the_same_id_in_another_job_is_another_agent", NULL,
     "shape nodes=2\n"
     "a enters job=x id=7\n"
     "b enters job=y id=7\n"
     "a enters job=x id=7\n" /* replaces its own session */
     "c enters job=x\n"
     "> a,c ROUND g=1 a c failures=0\n"
     "d enters job=y\n"
     "> b,d ROUND g=1 b d failures=0\n"},

    {"an_ended_job_is_forgotten_with_its_last_session", NULL,
     "shape nodes=1\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "a done\n"
     "> a CLOSED 0\n"
     "b hello\n"
     "> b REFUSED 0: job job is over: it ended with exit code 0\n"
     "> b (closed)\n"
     "a gone\n"
     "c enters\n"
     "> c ROUND g=2 c failures=0\n"}, /* told from the old one's */

    {"a_node_that_was_away_when_its_job_failed_learns_how_it_ended", NULL,
     "shape nodes=1:2\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "b gone\n"
     "> a STOP g=1 abort: node b was lost: its connection ended\n"
     "a stopped\n"
     "> a REPORT g=1 again failures=0/0: node b was lost: its connection ended; "
     "re-forming (not counted as a failure)\n"
     "a join\n"
     "> a ROUND g=2 a failures=0\n"
     "a ended code=7\n"
     "> a STOP g=2 abort: rank 0 on a failed\n"
     "a stopped\n"
     "> a REPORT g=2 final failures=1/0 exit=7 rank 0 on a code=7 signal=0: not "
     "restarting: --max-restarts is 0\n"
     "> a CLOSED 7\n"
     "a gone\n"
     "b hello\n"
     "> b REFUSED 7: job job is over: it ended with exit code 7\n"
     "> b (closed)\n"},

    {"a_node_that_was_away_when_its_job_was_refused_learns_why", NULL,
     "shape nodes=1\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "a refuse code=92 text=bad_data\n"
     "> a STOP g=1 abort: bad data\n"
     "a stopped\n"
     "> a CLOSED 92: bad data\n"
     "a gone\n"
     "a hello\n"
     "> a REFUSED 92: job job is over: it ended with exit code 92: bad data\n"
     "> a (closed)\n"},

    {"a_node_of_an_ended_job_does_not_disturb_the_one_begun_anew", NULL,
     "shape nodes=1\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "a done\n"
     "> a CLOSED 0\n"
     "a gone\n"
     "c enters\n"
     "> c ROUND g=2 c failures=0\n"
     "b hello gen=1\n"
     "> b REFUSED 0: job job is over: it ended with exit code 0\n"
     "> b (closed)\n"
     "d hello gen=2\n" /* of the new one */
     "d join after=2\n"
     "> d STANDBY generation 2 runs with 1 node and can use no more; standing by to "
     "take over\n"},

    {"a_node_that_an_elastic_job_had_room_for_is_told_that_it_comes_late", NULL,
     ELASTIC_JOB_ENDS
     "wait 59999\n"
     "b hello\n"
     "> b REFUSED 3: job job is over: it ended with exit code 3; this node came too late "
     "for it (to run it again, give it another --rdzv-id, or wait 60 s)\n"
     "> b (closed)\n"
     "wait 1\n"
     "b enters\n"
     "wait 3000\n"
     "> b ROUND g=2 b failures=0\n"},

    {"a_node_that_was_in_an_ended_job_begins_it_anew_and_others_may_join", NULL,
     ELASTIC_JOB_ENDS "a enters gen=0 after=0\n" /* by the same command */
                      "b enters\n"
                      "> a,b ROUND g=2 a b failures=0\n"},

    {"a_node_with_another_command_does_not_come_late", NULL,
     ELASTIC_JOB_ENDS "b enters restarts=1\n"
                      "wait 3000\n"
                      "> b ROUND g=2 b failures=0\n"},

    {"a_node_of_another_service_is_none_of_the_ended_job", NULL,
     "shape nodes=1\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "a done\n"
     "> a CLOSED 0\n"
     "a gone\n"
     "b enters gen=1 cluster=12\n"
     "> b ROUND g=2 b failures=0\n"},

    {"a_job_begun_anew_and_cancelled_before_it_ran_keeps_its_generations", NULL,
     "shape nodes=1\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "a done\n"
     "> a CLOSED 0\n"
     "a gone\n"
     "shape nodes=2\n"
     "c enters\n"
     "operator cancels\n"
     "> c CLOSED 143: job job was cancelled by op\n"
     "c gone\n"
     "b hello gen=1\n" /* it was away all the time */
     "> b REFUSED 143: job job is over: it ended with exit code 143: cancelled by op\n"
     "> b (closed)\n"},

    {"an_ended_job_is_forgotten_after_ten_minutes", NULL,
     "shape nodes=1\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "a done\n"
     "> a CLOSED 0\n"
     "a gone\n"
     "wait 599999\n"
     "b hello gen=1\n"
     "> b REFUSED 0: job job is over: it ended with exit code 0\n"
     "> b (closed)\n"
     "wait 1\n"
     "b enters gen=1\n"
     "> b ROUND g=2 b failures=0\n"},

    {"a_job_that_never_ran_is_forgotten_with_its_last_session", NULL,
     "shape nodes=2\n"
     "a enters gen=30\n"
     "a gone\n"
     "b enters restarts=5 nodes=1 gen=0\n"
     "> b ROUND g=1 b failures=0\n"},

    {"a_job_that_ran_is_kept_for_its_nodes", NULL,
     "shape nodes=1 restarts=2\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "a resumed\n"
     "> a DECISION g=1 #1 accepted\n"
     "a commit step=5 hash=h5\n"
     "> a DECISION g=1 #2 accepted\n"
     "a gone\n"
     "wait 60000\n"
     "b enters\n" /* a new process, which knows nothing */
     "> b ROUND g=2 b failures=0 commit=1:5:h5\n"},

    /* --- hostile orders --- */

    {"hello_twice_on_one_connection_breaks_the_protocol", NULL,
     "shape nodes=2\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "unkilled now\n"
     "a hello again\n"
     "> a (ERR_PROTOCOL)\n"
     "> b STOP g=1 abort: node a was lost: its connection ended\n"},

    {"a_message_before_hello_breaks_the_protocol", NULL,
     "unkilled now\n"
     "a opens\n"
     "a join\n"
     "> a (ERR_PROTOCOL)\n"
     "b opens\n"
     "b beat\n"
     "> b (ERR_PROTOCOL)\n"
     "c opens\n"
     "c ended code=1\n"
     "> c (ERR_PROTOCOL)\n"},

    {"messages_in_the_wrong_direction_are_ignored", NULL,
     "shape nodes=1\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "a sends type=2\n"
     "a sends type=3\n"
     "a sends type=6\n"
     "a sends type=7\n"
     "a sends type=8\n"
     "a sends type=9\n"
     "a sends type=16\n"
     "a sends type=20\n"
     "a sends type=21\n"
     "a sends type=22\n"
     "a done\n"
     "> a CLOSED 0\n"},

    {"messages_before_the_join_are_ignored", NULL,
     "shape nodes=1\n"
     "a hello\n"
     "a stopped\n"
     "a done\n"
     "a ended code=1\n"
     "a refuse\n"
     "a ping\n"
     "a commit gen=0 step=1\n"
     "> a DECISION g=0 #2 refused: generation 0 is over\n"
     "a join\n"
     "> a ROUND g=1 a failures=0\n"},
};

int main(void)
{
    struct CMUnitTest tests[ARRAY_LEN(scenes)];

    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        tests[i] = stage_scene(&scenes[i]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
