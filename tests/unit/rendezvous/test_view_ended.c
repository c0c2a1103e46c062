/* What people see of jobs that are over, or whose nodes were told to go. Times are those
 * of the stage: it begins at 1000. */

#include "rendezvous/view.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/stage.h"
#include "tests/lib/view_stage.h"

static void a_job_that_has_ended_is_in_the_history(void **state)
{
    struct stage *st = stage_new();
    struct view v;
    json_t *job;

    (void)state;
    stage_play(st, "shape nodes=1\n"
                   "a enters\n"
                   "> a ROUND g=1 a failures=0\n"
                   "a progress step=1 loss=4.5\n"
                   "a done\n"
                   "> a CLOSED 0\n"
                   "a gone\n");
    v = view_of(st);
    view_expect(view_jobs(&v, NULL), "{'jobs': []}");
    view_expect(view_history(&v, NULL),
                "{'jobs': [{'id': 'job', 'state': 'done', 'generation': 1, 'nodes': 1,"
                " 'ranks': 1, 'exit_code': 0, 'began_ms': 1000, 'formed_ms': 1000,"
                " 'ended_ms': 1000, 'restarts': " NO_RESTARTS ","
                " 'step': 1, 'loss': 4.5, 'loss_step': 1, 'loss_ms': 1000}]}");
    job = view_job(&v, "job");
    view_expect(json_incref(json_object_get(job, "curve")), "[[1, 4.5]]");
    json_decref(job);
    view_expect(view_history(&v, "other"), "{'jobs': []}");
    stage_free(st);
}

/* Of the only one. */
static void expect_ended_step(const struct view *v, const char *expected)
{
    json_t *jobs = view_history(v, NULL);
    json_t *job = json_array_get(json_object_get(jobs, "jobs"), 0);

    view_expect(view_member(json_incref(job), "step"), expected);
    json_decref(jobs);
}

static void an_ended_jobs_step_is_its_last_not_that_of_its_loss(void **state)
{
    struct stage *st = stage_new();
    struct view v;

    (void)state;
    stage_play(st, "shape nodes=1\n"
                   "a enters\n"
                   "> a ROUND g=1 a failures=0\n"
                   "a progress step=29 loss=4.5 of=20\n"
                   "a done\n"
                   "> a CLOSED 0\n"
                   "a gone\n");
    v = view_of(st);
    expect_ended_step(&v, "29");
    view_expect(view_member(view_job(&v, "job"), "curve"), "[[20, 4.5]]");
    stage_free(st);
}

/* Ranks report seldom: that a step was saved may be known before it was reported. */
static void a_job_has_come_at_least_to_the_step_that_it_has_saved(void **state)
{
    struct stage *st = stage_new();
    struct view v;

    (void)state;
    stage_play(st, "shape nodes=1\n"
                   "a enters\n"
                   "> a ROUND g=1 a failures=0\n"
                   "a resumed step=0\n"
                   "> a DECISION g=1 #1 accepted\n"
                   "a progress step=5 loss=4.5\n"
                   "a commit step=7\n"
                   "> a DECISION g=1 #2 accepted\n");
    v = view_of(st);
    view_expect(view_member(view_job(&v, "job"), "step"), "7");
    stage_play(st, "a progress step=8 loss=4.5\n"
                   "a commit step=9\n"
                   "> a DECISION g=1 #2 accepted\n"
                   "a done\n"
                   "> a CLOSED 0\n"
                   "a gone\n");
    v = view_of(st);
    expect_ended_step(&v, "9");
    stage_free(st);
}

/* The table of its ranks is gone then. */
static void between_generations_a_job_shows_how_far_and_how_fast_it_was(void **state)
{
    struct stage *st = stage_new();
    struct view v;

    (void)state;
    stage_play(st, "shape nodes=1 restarts=1\n"
                   "a enters\n"
                   "> a ROUND g=1 a failures=0\n"
                   "a reports step=5 tok=300 phase=reduce\n"
                   "wait 1000\n"
                   "a ended code=7\n"
                   "> a STOP g=1 abort: rank 0 on a failed\n"
                   "a stopped\n"
                   "> a REPORT g=1 again failures=1/1 rank 0 on a code=7 signal=0: "
                   "restarting (1 of 1)\n");
    v = view_of(st);
    for (int i = 0; i < 2; i++) { /* with its node, and idle */
        view_expect(view_member(view_job(&v, "job"), "state"), "'forming'");
        view_expect(view_member(view_job(&v, "job"), "step"), "5");
        view_expect(view_member(view_job(&v, "job"), "tok_s"), "300");
        view_expect(view_member(view_job(&v, "job"), "progress_age_ms"), "1000");
        view_expect(view_ranks(&v, "job", 0, 10), "{'ranks': [], 'total': 0}");
        stage_play(st, i == 0 ? "a gone\n" : "");
    }
    stage_free(st);
}

static void a_job_whose_nodes_were_told_to_leave_is_stopped(void **state)
{
    struct stage *st = stage_new();
    struct view v;

    (void)state;
    stage_play(
        st,
        "shape nodes=1\n"
        "a enters\n"
        "> a ROUND g=1 a failures=0\n"
        "a progress step=1 loss=4.5\n"
        "a leave\n"
        "a stopped\n"
        "> a REPORT g=1 again failures=0/0: node a leaves: preempted by SIGTERM; re-forming (not "
        "counted as a failure)\n"
        "a gone\n");
    v = view_of(st);
    view_expect(view_member(view_job(&v, "job"), "state"), "'stopped'");
    view_expect(view_member(view_job(&v, "job"), "curve"), "[[1, 4.5]]");
    view_expect(view_member(view_job(&v, "job"), "began_ms"), "1000");
    view_expect(
        view_history(&v, NULL), /* it was never restarted */
        "{'jobs': [{'id': 'job', 'state': 'stopped', 'generation': 1, 'nodes': 1,"
        " 'ranks': 1, 'began_ms': 1000, 'formed_ms': 1000, 'ended_ms': 1000,"
        " 'cause': {'text': 'node a leaves: preempted by SIGTERM'},"
        " 'restarts': " NO_RESTARTS ","
        " 'step': 1, 'loss': 4.5, 'loss_step': 1, 'loss_ms': 1000}]}");
    stage_free(st);
}

static void
a_job_that_is_stopped_shows_its_failures_until_it_is_begun_anew(void **state)
{
    struct stage *st = stage_new();
    struct view v;

    (void)state;
    stage_play(st, "shape nodes=1 restarts=3\n"
                   "a enters\n"
                   "> a ROUND g=1 a failures=0\n"
                   "a progress step=1 loss=4.5\n"
                   "a ended code=7\n"
                   "> a STOP g=1 abort: rank 0 on a failed\n"
                   "a stopped\n"
                   "> a REPORT g=1 again failures=1/3 rank 0 on a code=7 signal=0: "
                   "restarting (1 of 3)\n"
                   "a join\n"
                   "> a ROUND g=2 a failures=1\n"
                   "a leave\n"
                   "a stopped\n"
                   "> a REPORT g=2 again failures=1/3: node a leaves: preempted by "
                   "SIGTERM; re-forming (not counted as a failure)\n"
                   "a gone\n");
    v = view_of(st);
    view_expect(view_member(view_job(&v, "job"), "failures"), "1");
    view_expect(
        view_member(view_job(&v, "job"), "restarts"),
        "{'failure': 1, 'node_lost': 0, 'node_joined': 0, 'node_left': 0, 'hang': 0,"
        " 'preemption': 0, 'smaller_world': 0}");
    stage_play(st, "b enters\n"
                   "> b ROUND g=3 b failures=0\n");
    v = view_of(st);
    view_expect(view_member(view_job(&v, "job"), "failures"), "0");
    view_expect(view_member(view_job(&v, "job"), "curve"), "[]");
    stage_free(st);
}

static void a_job_that_was_cancelled_has_not_failed(void **state)
{
    struct stage *st = stage_new();
    struct view v;
    json_t *job;

    (void)state;
    stage_play(st, view_two_nodes);
    stage_play(st, "operator cancels\n"
                   "> a,b STOP g=1 leave: cancelled by op\n"
                   "a ended rank=1 code=1\n"
                   "> a,b STOP g=1 abort: rank 1 on a failed\n"
                   "a stopped\n"
                   "b stopped\n"
                   "> a,b CLOSED 143: job job was cancelled by op\n");
    v = view_of(st);
    job = view_job(&v, "job");
    assert_string_equal(json_string_value(json_object_get(job, "state")), "cancelled");
    assert_int_equal(json_integer_value(json_object_get(job, "exit_code")), 143);
    json_decref(job);
    stage_play(st, "a gone\n"
                   "b gone\n");
    v = view_of(st);
    view_expect(
        view_history(&v, NULL),
        "{'jobs': [{'id': 'job', 'state': 'cancelled', 'generation': 1, 'nodes': 2, "
        "'ranks': 4, 'exit_code': 143, 'began_ms': 1000, 'formed_ms': 4000, "
        "'ended_ms': 4000, 'cause': {'text': 'cancelled by op'}, "
        "'restarts': " NO_RESTARTS "}]}");
    stage_free(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_has_ended_is_in_the_history),
        cmocka_unit_test(an_ended_jobs_step_is_its_last_not_that_of_its_loss),
        cmocka_unit_test(a_job_has_come_at_least_to_the_step_that_it_has_saved),
        cmocka_unit_test(between_generations_a_job_shows_how_far_and_how_fast_it_was),
        cmocka_unit_test(a_job_whose_nodes_were_told_to_leave_is_stopped),
        cmocka_unit_test(
            a_job_that_is_stopped_shows_its_failures_until_it_is_begun_anew),
        cmocka_unit_test(a_job_that_was_cancelled_has_not_failed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
