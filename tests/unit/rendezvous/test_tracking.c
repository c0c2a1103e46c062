/* What becomes of a job with a rank that hangs: who hears what, by which policy. */

#include "rendezvous/history.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/stage_core.h"

#include "common/check.h"

#include <stdio.h>

#define STEP(n)                             \
    "a reports step=" #n " phase=forward\n" \
    "b reports step=" #n " phase=forward\n" \
    "wait 100\n"
#define TRAIN STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6)

/* a waits for b, which computes. */
#define HANG                                  \
    "a reports step=6 phase=reduce waits=1\n" \
    "wait 1400\n"                             \
    "> b INSPECT g=1 rank=1\n"                \
    "> a INSPECT g=1 rank=0\n"
#define ANSWERS                        \
    "a inspected state=S_futex_wait\n" \
    "b inspected state=R\n"
#define VERDICT                                                                        \
    "> a,b NOTICE rank 1 on b (local rank 0, pid 101) hangs: at step 6, forward, for " \
    "2.4 s, and 1 rank waits for it; its process computes (R)\n"                       \
    "> b INSPECT g=1 rank=1 stack\n"

static const char two_nodes[] =
    "shape nodes=2 restarts=3\n"
    "a enters\n"
    "b enters\n"
    "> a,b ROUND g=1 a b failures=0\n" /* the judge begins anew */
    "unkilled now\n" TRAIN;

static const char two_that_report[] =
    "shape nodes=2 restarts=3 on_hang=1\n"
    "a enters\n"
    "b enters\n"
    "> a,b ROUND g=1 a b failures=0\n" /* the judge begins anew */
    "unkilled now\n" TRAIN;

#define STEP_OF_THREE(n)                    \
    "a reports step=" #n " phase=forward\n" \
    "b reports step=" #n " phase=forward\n" \
    "c reports step=" #n " phase=forward\n" \
    "wait 100\n"
#define TRAIN_THREE                                                     \
    "a enters\n"                                                        \
    "b enters\n"                                                        \
    "c enters\n"                                                        \
    "> a,b,c ROUND g=1 a b c failures=0\n"                              \
    "unkilled now\n" STEP_OF_THREE(1) STEP_OF_THREE(2) STEP_OF_THREE(3) \
        STEP_OF_THREE(4) STEP_OF_THREE(5) STEP_OF_THREE(6)

static const char three_nodes[] = "shape nodes=3 restarts=3\n" TRAIN_THREE;
static const char three_that_report[] =
    "shape nodes=3 restarts=3 on_hang=1\n" TRAIN_THREE;

/* a waits for b; c is not there yet. */
#define THREE_HANG                            \
    "a reports step=6 phase=reduce waits=1\n" \
    "wait 1400\n"                             \
    "> b INSPECT g=1 rank=1\n"                \
    "> c INSPECT g=1 rank=2\n"                \
    "> a INSPECT g=1 rank=0\n" THREE_ANSWERS
#define THREE_ANSWERS "c inspected state=S\n" ANSWERS
#define THREE_ASKED_AGAIN      \
    "> b INSPECT g=1 rank=1\n" \
    "> a INSPECT g=1 rank=0\n" \
    "> c INSPECT g=1 rank=2\n" THREE_ANSWERS
#define THREE_VERDICT                                                                    \
    "> a,b,c NOTICE rank 1 on b (local rank 0, pid 101) hangs: at step 6, forward, for " \
    "2.4 s, and 1 rank waits for it; its process computes (R)\n"                         \
    "> b INSPECT g=1 rank=1 stack\n"

static const struct scene scenes[] = {
    {"a_rank_that_hangs_is_the_first_cause_of_a_restart", two_nodes,
     HANG ANSWERS
     "wait 1000\n" VERDICT "b inspected stack=#0_spin\n"
     "> a,b NOTICE where rank 1 is (#0 spin)\n"
     "> a,b STOP g=1 abort hung: rank 1 on b hangs\n"
     "a ended rank=0 code=80 engine\n"
     "b ended rank=1 signal=9 stopped engine tail=last\n"
     "b stopped\n"
     "a stopped\n"
     "> a,b REPORT g=1 again failures=1/3 rank 1 on b code=0 signal=9 (last): rank 1 on "
     "b hangs; restarting (1 of 3)\n"
     "a join\n"
     "b join\n"
     "> a,b ROUND g=2 a b failures=1\n"},

    {"without_a_stack_it_is_ended_all_the_same", two_nodes,
     HANG ANSWERS "wait 1000\n" VERDICT "wait 10999\n"
                  "wait 1\n"
                  "> a,b NOTICE where rank 1 is ((its agent has not answered in "
                  "time))\n"
                  "> a,b STOP g=1 abort hung: rank 1 on b hangs\n"},

    {"what_is_had_at_once_is_shown_before_gdb_has_come_to_its_end", two_nodes,
     HANG ANSWERS "wait 1000\n" VERDICT "b inspected stack=stay more=1\n"
                  "> a,b NOTICE where rank 1 is (stay)\n"
                  "b inspected stack=again more=1\n" /* one is all that it has */
                  "wait 2500\n"
                  "b inspected stack=#0_spin\n"
                  "> a,b NOTICE where rank 1 is in C (#0 spin)\n"
                  "> a,b STOP g=1 abort hung: rank 1 on b hangs\n"},

    {"a_gdb_of_which_nothing_is_heard_does_not_hold_up_the_restart", two_nodes,
     HANG ANSWERS "wait 1000\n" VERDICT "b inspected stack=stay more=1\n"
                  "> a,b NOTICE where rank 1 is (stay)\n"
                  "wait 10999\n"
                  "wait 1\n"
                  "> a,b NOTICE where rank 1 is in C ((its agent has not answered in "
                  "time))\n"
                  "> a,b STOP g=1 abort hung: rank 1 on b hangs\n"},

    {"where_there_is_no_gdb_what_was_had_is_all", two_nodes,
     HANG ANSWERS "wait 1000\n" VERDICT "b inspected stack=stay more=1\n"
                  "> a,b NOTICE where rank 1 is (stay)\n"
                  "b inspected\n"
                  "> a,b STOP g=1 abort hung: rank 1 on b hangs\n"},

    {"where_nobody_may_look_this_is_said", two_that_report,
     HANG ANSWERS
     "wait 1000\n" VERDICT "b inspected\n"
     "> a,b NOTICE where rank 1 is ((nobody may look: gdb is not there, or "
     "not allowed to))\n"
     "wait 60000\n"},

    {"a_rank_that_goes_on_meanwhile_is_left_alone", two_nodes,
     HANG ANSWERS "wait 1000\n" VERDICT "b reports step=6 phase=reduce\n"
                  "> a,b NOTICE the ranks go on, after 2.4 s: rank 1 on b hangs no "
                  "more\n"
                  "b inspected stack=#0_spin\n"
                  "> a,b NOTICE where rank 1 is (#0 spin)\n"
                  "wait 1000\n"},

    {"another_rank_that_goes_on_says_nothing_of_the_one_that_was_named", two_nodes,
     HANG ANSWERS "wait 1000\n" VERDICT "a reports step=6 phase=forward\n"
                  "wait 1400\n"
                  "> a INSPECT g=1 rank=0\n"
                  "> b INSPECT g=1 rank=1\n"
                  "wait 99\n"
                  "wait 1\n"
                  "> a,b NOTICE the ranks go on, after 2.4 s\n"
                  "b reports step=6 phase=backward\n"},

    {"who_comes_late_to_where_the_others_wait_does_not_end_the_hang", three_that_report,
     THREE_HANG
     "wait 1000\n" THREE_VERDICT "b inspected stack=#0_spin\n"
     "> a,b,c NOTICE where rank 1 is (#0 spin)\n"
     "c reports step=6 phase=reduce waits=1\n"
     "wait 1500\n" THREE_ASKED_AGAIN "wait 60000\n" /* not told again */
     "b reports step=6 phase=reduce\n"
     "> a,b,c NOTICE the ranks go on, after 63.9 s: rank 1 on b hangs no more\n"},

    {"who_comes_late_only_puts_the_restart_off", three_nodes,
     THREE_HANG "wait 1000\n" THREE_VERDICT "c reports step=6 phase=reduce waits=1\n"
                "b inspected stack=#0_spin\n"
                "> a,b,c NOTICE where rank 1 is (#0 spin)\n"
                "wait 1500\n"
                "> b INSPECT g=1 rank=1\n"
                "> a INSPECT g=1 rank=0\n"
                "> c INSPECT g=1 rank=2\n" THREE_ANSWERS "wait 1000\n"
                "> a,b,c STOP g=1 abort hung: rank 1 on b hangs\n"},

    {"nor_does_one_that_comes_late_from_a_step_ahead_or_repeats_what_it_said",
     three_that_report,
     "a reports step=7 phase=reduce waits=1\n"
     "c reports step=7 phase=forward\n"
     "wait 1400\n"
     "> b INSPECT g=1 rank=1\n"
     "> c INSPECT g=1 rank=2\n"
     "> a INSPECT g=1 rank=0\n" THREE_ANSWERS "wait 1000\n" THREE_VERDICT
     "c reports step=7 phase=reduce waits=1\n"
     "a reports step=7 phase=reduce waits=1\n" /* after more than 2.2 s */
     "b inspected stack=#0_spin\n"
     "> a,b,c NOTICE where rank 1 is (#0 spin)\n"
     "wait 1500\n" THREE_ASKED_AGAIN "wait 60000\n"},

    {"nor_does_one_that_has_waited_for_another_rank", three_that_report,
     THREE_HANG "wait 1000\n" THREE_VERDICT "c reports step=6 phase=reduce waits=0\n"
                "wait 100\n"
                "c reports step=6 phase=gather waits=1\n"
                "b inspected stack=#0_spin\n"
                "> a,b,c NOTICE where rank 1 is (#0 spin)\n"
                "wait 1500\n"
                "> b INSPECT g=1 rank=1\n"
                "> a INSPECT g=1 rank=0\n"
                "> c INSPECT g=1 rank=2\n" THREE_ANSWERS "wait 60000\n"},

    {"one_that_says_again_where_it_is_after_gdb_had_stopped_it_hangs_still", two_nodes,
     HANG ANSWERS "wait 1000\n" VERDICT "wait 2300\n"
                  "b reports step=6 phase=forward\n"
                  "b inspected stack=#0_spin\n"
                  "> a,b NOTICE where rank 1 is (#0 spin)\n"
                  "> a,b STOP g=1 abort hung: rank 1 on b hangs\n"},

    {"a_rank_that_goes_on_just_after_the_others_hangs_no_more", two_nodes,
     HANG ANSWERS "wait 1000\n" VERDICT "a reports step=6 phase=forward\n"
                  "b inspected stack=#0_spin\n"
                  "> a,b NOTICE where rank 1 is (#0 spin)\n"
                  "wait 900\n"
                  "b reports step=6 phase=backward\n"
                  "> a,b NOTICE the ranks go on, after 2.4 s: rank 1 on b hangs no "
                  "more\n"
                  "wait 1000\n"},

    {"a_rank_that_is_stopped_where_it_waits_does_not_wait_for_itself", two_nodes,
     "a reports step=6 phase=reduce waits=1\n"
     "b reports step=6 phase=reduce waits=0\n"
     "wait 1500\n"
     "> a INSPECT g=1 rank=0\n"
     "> b INSPECT g=1 rank=1\n"
     "a inspected state=S_futex_wait\n"
     "b inspected state=T\n"
     "wait 1000\n"
     "> a,b NOTICE rank 1 on b (local rank 0, pid 101) hangs: at step 6, reduce, for "
     "2.4 s, and 1 rank waits for it; its process is stopped (T)\n"
     "> b INSPECT g=1 rank=1 stack\n"},

    {"by_the_policy_report_the_training_goes_on", two_that_report,
     HANG ANSWERS "wait 1000\n" VERDICT "b inspected stack=#0_spin\n"
                  "> a,b NOTICE where rank 1 is (#0 spin)\n"
                  "wait 60000\n"
                  "b reports step=7 phase=forward\n"
                  "> a,b NOTICE the ranks go on, after 62.4 s: rank 1 on b hangs no "
                  "more\n"
                  "a reports step=7 phase=forward\n" TRAIN "wait 1000\n"},

    {"a_node_without_an_answer_is_not_judged", two_nodes,
     HANG "a inspected state=S\n"
          "wait 4000\n"},

    {"an_answer_for_another_nodes_rank_is_none", two_nodes,
     HANG "a inspected rank=1 state=T\n"
          "a inspected state=S\n"
          "wait 4000\n"},

    {"a_failure_before_the_stack_is_the_cause", two_nodes,
     HANG ANSWERS
     "wait 1000\n" VERDICT "a ended rank=0 code=7\n"
     "> a,b STOP g=1 abort: rank 0 on a failed\n"
     "b inspected stack=#0_spin\n"
     "b ended rank=1 signal=9 stopped\n"
     "b stopped\n"
     "a stopped\n"
     "> a,b REPORT g=1 again failures=1/3 rank 0 on a code=7 signal=0: restarting (1 of "
     "3)\n"},

    {"a_node_that_was_silent_gives_everybody_a_fresh_term", two_nodes,
     "b mute\n"
     "wait 300\n"
     "a reports step=6 phase=reduce waits=1\n"
     "wait 1300\n"
     "b beat\n"
     "wait 1399\n"
     "wait 1\n"
     "> b INSPECT g=1 rank=1\n"
     "> a INSPECT g=1 rank=0\n"},

    {"a_service_that_slept_gives_everybody_a_fresh_term", two_nodes,
     "a reports step=6 phase=reduce waits=1\n"
     "sleep 10000\n"
     "wait 1300\n"
     "wait 100\n"
     "> b INSPECT g=1 rank=1\n"
     "> a INSPECT g=1 rank=0\n"},

    {"just_after_a_restart_of_the_service_a_hang_is_found_as_soon", two_nodes,
     "service dies 500\n"
     "a returns\n"
     "b returns\n"
     "b reports step=6 phase=forward\n" HANG ANSWERS "wait 1000\n" VERDICT},

    {"one_from_before_the_restart_is_found_a_term_after_it", two_nodes,
     "a reports step=6 phase=reduce waits=1\n"
     "wait 1000\n"
     "service dies 500\n"
     "a returns\n"
     "a reports step=6 phase=reduce waits=1 age=1500\n"
     "b returns\n"
     "b reports step=6 phase=forward age=1600\n"
     "wait 1400\n"
     "> b INSPECT g=1 rank=1\n"
     "> a INSPECT g=1 rank=0\n" ANSWERS "wait 1000\n"
     "> a,b NOTICE rank 1 on b (local rank 0, pid 101) hangs: at step 6, forward, for "
     "3.9 s, and 1 rank waits for it; its process computes (R)\n"
     "> b INSPECT g=1 rank=1 stack\n"},

    {"what_a_step_takes_is_another_matter_in_another_generation", two_nodes,
     "a leave\n"
     "> b STOP g=1 leave: node a leaves: preempted by SIGTERM\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=0/3: node a leaves: preempted by SIGTERM; "
     "re-forming (not counted as a failure)\n"
     "b join\n"
     "c enters\n"
     "> b,c ROUND g=2 b c failures=0\n"
     "service dies 500\n"
     "b returns\n"
     "> b REPORT g=1 again failures=0/3: node a leaves: preempted by SIGTERM; "
     "re-forming (not counted as a failure)\n"
     "c returns\n"
     "c reports step=6 phase=forward\n"
     "b reports step=6 phase=reduce waits=1\n"
     "wait 20000\n"},

    {"nodes_must_agree_on_what_a_hang_does", NULL,
     "shape nodes=2 restarts=3\n"
     "a enters\n"
     "shape on_hang=1\n"
     "b enters\n"
     "> b REFUSED 2: job job: this node says --on-hang=report, but a started it with "
     "restart; give every node the same --on-hang\n"
     "> b (closed)\n"},

    {"max_restarts_0_ends_the_job_with_the_hung_ranks_signal", NULL,
     "shape nodes=2 restarts=0\n"
     "a enters\n"
     "b enters\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "unkilled now\n" TRAIN HANG ANSWERS "wait 1000\n" VERDICT
     "b inspected stack=#0_spin\n"
     "> a,b NOTICE where rank 1 is (#0 spin)\n"
     "> a,b STOP g=1 abort hung: rank 1 on b hangs\n"
     "b ended rank=1 signal=9 stopped\n"
     "b stopped\n"
     "a stopped\n"
     "> a,b REPORT g=1 final failures=1/0 exit=137 rank 1 on b code=0 signal=9: rank 1 "
     "on b hangs; not restarting: --max-restarts is 0\n"
     "> a,b CLOSED 137\n"},
};

static const char by_a_hang[] = HANG ANSWERS
    "wait 1000\n" VERDICT "b inspected stack=#0_spin\n"
    "> a,b NOTICE where rank 1 is (#0 spin)\n"
    "> a,b STOP g=1 abort hung: rank 1 on b hangs\n"
    "a stopped\n"
    "b stopped\n"
    "> a,b REPORT g=1 again failures=1/3 rank 1 on b code=0 signal=9: rank "
    "1 on b hangs; restarting (1 of 3)\n";

static void a_hang_is_told_from_other_failures(void **state)
{
    struct stage *st = stage_new();
    const struct history_job *job;
    const struct history_event *event = NULL;

    (void)state;
    stage_play(st, two_nodes);
    stage_play(st, by_a_hang);
    job = history_find(stage_history(st), "job");
    assert_int_equal(job->restarts[RESTART_HANG], 1);
    assert_int_equal(job->restarts[RESTART_FAILURE], 0);
    assert_string_equal(job->cause, "rank 1 on b hangs; restarting (1 of 3)");
    for (uint64_t after = 0; (event = history_after(stage_history(st), after)) != NULL;
         after = event->number) {
        if (event->kind == JOB_HANGS) {
            break;
        }
    }
    assert_non_null(event);
    assert_true(event->has_rank);
    assert_int_equal(event->rank, 1);
    assert_string_equal(event->node, "b");
    stage_free(st);
}

/* Steps that take so long, one after the other. */
static void train(struct stage *st, unsigned first, unsigned n, unsigned step_ms)
{
    for (unsigned i = first; i < first + n; i++) {
        char script[256];

        (void)snprintf(script, sizeof(script),
                       "a reports step=%u phase=forward\n"
                       "b reports step=%u phase=forward\n"
                       "wait %u\n",
                       i, i, step_ms + i % 3 * step_ms / 5);
        stage_play(st, script);
    }
}

static void what_a_step_takes_is_saved_when_it_has_changed_much(void **state)
{
    struct stage *st = stage_new();
    size_t saved;

    (void)state;
    stage_play(st, two_nodes);
    saved = st->shelf.n_saved;
    train(st, 7, 100, 90);
    assert_int_equal(st->shelf.n_saved, saved);
    train(st, 107, 100, 300);
    assert_in_range(st->shelf.n_saved, saved + 1, saved + 3);
    shelf_commit(&st->shelf);
    assert_int_equal(shelf_count(&st->shelf, RECORD_PACE), 1);
    stage_free(st);
}

int main(void)
{
    struct CMUnitTest tests[ARRAY_LEN(scenes) + 2];

    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        tests[i] = stage_scene(&scenes[i]);
    }
    tests[ARRAY_LEN(scenes)] =
        (struct CMUnitTest)cmocka_unit_test(a_hang_is_told_from_other_failures);
    tests[ARRAY_LEN(scenes) + 1] = (struct CMUnitTest)cmocka_unit_test(
        what_a_step_takes_is_saved_when_it_has_changed_much);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
