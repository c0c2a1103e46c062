/* What people see of jobs, as JSON. Times are those of the stage: it begins at 1000. */

#include "rendezvous/view.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/stage.h"
#include "tests/lib/view_stage.h"

#include "common/check.h"

#include <stdio.h>
#include <string.h>

#define STEP(n)                             \
    "a reports step=" #n " phase=forward\n" \
    "b reports step=" #n " phase=forward\n" \
    "wait 100\n"

static const char two_that_hang[] =
    "shape nodes=2 restarts=3 on_hang=1\n"
    "a enters\n"
    "b enters\n"
    "> a,b ROUND g=1 a b failures=0\n" STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(
        6) "a reports step=6 phase=reduce waits=1\n"
           "wait 1400\n"
           "> b INSPECT g=1 rank=1\n"
           "> a INSPECT g=1 rank=0\n"
           "a inspected state=S_futex_wait\n"
           "b inspected state=T\n"
           "wait 1000\n"
           "> a,b NOTICE rank 1 on b (local rank 0, pid 101) hangs: at step 6, forward, for "
           "2.4 s, and 1 rank waits for it; its process is stopped (T)\n"
           "> b INSPECT g=1 rank=1 stack\n"
           "wait 10000\n";

static void a_service_without_jobs_shows_none(void **state)
{
    struct stage *st = stage_new();
    const struct view v = view_of(st);

    (void)state;
    view_expect(view_jobs(&v, NULL), "{'jobs': []}");
    view_expect(view_history(&v, NULL), "{'jobs': []}");
    view_expect(view_events(&v, NULL, 0, 10), "{'events': [], 'last': 0}");
    assert_null(view_job(&v, "job"));
    assert_null(view_nodes(&v, "job", 0, 10));
    assert_null(view_ranks(&v, "job", 0, 10));
    stage_free(st);
}

/* Of all events of the job, in their order. */
static void expect_kinds(const struct view *v, const char *kinds)
{
    json_t *events = view_events(v, "job", 0, 10);
    const json_t *e;
    char found[256] = "";
    size_t i;

    json_array_foreach(json_object_get(events, "events"), i, e)
    {
        size_t n = strlen(found);

        (void)snprintf(found + n, sizeof(found) - n, "%s%s", n > 0 ? " " : "",
                       json_string_value(json_object_get(e, "kind")));
    }
    json_decref(events);
    assert_string_equal(found, kinds);
}

static void of_a_hosts_several_nodes_is_said_which_one_is_lost(void **state)
{
    struct stage *st = stage_new();
    const struct view v = view_of(st);
    json_t *events;
    json_t *last;

    (void)state;
    stage_play(
        st,
        "shape nodes=2\n"
        "a enters host=vm\n"
        "b enters host=vm\n"
        "> a,b ROUND g=1 vm vm failures=0\n"
        "b gone\n"
        "> a STOP g=1 abort: node vm (group rank 1) was lost: its connection ended\n");
    events = view_events(&v, NULL, 0, 100);
    last = json_array_get(json_object_get(events, "events"), 3);
    assert_string_equal(json_string_value(json_object_get(last, "kind")), "node_lost");
    view_expect(json_incref(json_object_get(last, "node")), "'vm'");
    view_expect(json_incref(json_object_get(last, "group_rank")), "1");
    json_decref(events);
    stage_free(st);
}

static void who_goes_after_its_hello_alone_is_no_lost_node(void **state)
{
    struct stage *st = stage_new();
    const struct view v = view_of(st);

    (void)state;
    stage_play(st, "shape nodes=2\n"
                   "a hello\n"
                   "b hello\n"
                   "b join\n"
                   "a gone\n");
    expect_kinds(&v, "node_joined");
    stage_play(st, "b gone\n");
    expect_kinds(&v, "node_joined node_lost");
    stage_free(st);
}

static void a_job_that_runs_is_shown_with_its_progress(void **state)
{
    struct stage *st = stage_new();
    struct view v;

    (void)state;
    stage_play(st, "shape nodes=1 restarts=3\n"
                   "a enters\n"
                   "> a ROUND g=1 a failures=0\n"
                   "a resumed step=0\n"
                   "> a DECISION g=1 #1 accepted\n"
                   "a progress step=1 loss=4.5\n"
                   "a progress step=2 loss=nan\n"
                   "a progress step=3 loss=3.25 tok=900 phase=save pid=77\n"
                   "a commit step=3\n"
                   "> a DECISION g=1 #2 accepted\n");
    v = view_of(st);
    view_expect(
        view_job(&v, "job"),
        "{'id': 'job', 'state': 'running', 'generation': 1, 'nodes': 1, 'waiting': 0,"
        " 'min_nodes': 1, 'max_nodes': 1, 'ranks': 1, 'failures': 0,"
        " 'max_restarts': 3, 'committed_step': 3, 'committed_ms': 1000,"
        " 'began_ms': 1000, 'formed_ms': 1000, 'restarts': " NO_RESTARTS ","
        " 'step': 3, 'loss': 3.25, 'loss_step': 3, 'loss_ms': 1000,"
        " 'tok_s': 900, 'progress_age_ms': 0, 'curve': [[1, 4.5], [2, null], [3, 3.25]]}");
    view_expect(view_ranks(&v, "job", 0, 1),
                "{'ranks': [{'rank': 0, 'local_rank': 0, 'host': 'a', 'group_rank': 0,"
                " 'pid': 77, 'step': 3, 'phase': 'save', 'tok_s': 900, 'loss': 3.25,"
                " 'age_ms': 0}], 'total': 1}");
    stage_free(st);
}

/* A program tells a loss every few steps, its agent that one until there is another. */
static void a_loss_is_shown_at_the_step_whose_it_is(void **state)
{
    struct stage *st = stage_new();
    struct view v;

    (void)state;
    stage_play(st, "shape nodes=1\n"
                   "a enters\n"
                   "> a ROUND g=1 a failures=0\n"
                   "a progress step=9\n"
                   "a progress step=11 loss=4.5 of=10\n"
                   "a progress step=19 loss=4.5 of=10\n"
                   "a progress step=20 loss=nan of=20\n"
                   "a progress step=29 loss=nan of=20\n"
                   "a progress step=30 loss=1 of=0\n"
                   "a progress step=31 loss=1 of=-1\n");
    v = view_of(st);
    view_expect(view_member(view_job(&v, "job"), "curve"), "[[10, 4.5], [20, null]]");
    view_expect(view_member(view_job(&v, "job"), "step"), "31");
    view_expect(view_member(view_job(&v, "job"), "loss_step"), "20");
    stage_free(st);
}

/* The member `key` of an object, which is taken over; NULL: it has none. */
static void a_hang_is_shown_while_it_lasts(void **state)
{
    struct stage *st = stage_new();
    struct view v;

    (void)state;
    stage_play(st, two_that_hang);
    v = view_of(st);
    view_expect(
        view_member(view_job(&v, "job"), "hang"),
        "{'text': 'rank 1 on b (local rank 0, pid 101) hangs: at step 6, forward, for "
        "12.4 s, and 1 rank waits for it; its process is stopped (T)',"
        " 'age_ms': 12400, 'node': 'b', 'rank': 1, 'step': 6, 'phase': 'forward'}");
    view_expect(view_ranks(&v, "job", 1, 1),
                "{'ranks': [{'rank': 1, 'local_rank': 0, 'host': 'b', 'group_rank': 1,"
                " 'pid': 101, 'step': 6, 'phase': 'forward', 'age_ms': 12500,"
                " 'hangs': true}], 'total': 2}");
    stage_play(st, "b reports step=7 phase=forward\n"
                   "> a,b NOTICE the ranks go on, after 12.4 s: rank 1 on b hangs no "
                   "more\n");
    v = view_of(st);
    assert_null(view_member(view_job(&v, "job"), "hang"));
    stage_free(st);
}

static void nodes_and_ranks_come_in_pages_by_group_rank(void **state)
{
    struct stage *st = stage_new();
    struct view v;

    (void)state;
    stage_play(st, view_two_nodes);
    v = view_of(st);
    view_expect(view_nodes(&v, "job", 0, 1),
                "{'nodes': [{'host': 'a', 'address': '10.0.0.1', 'state': 'running',"
                " 'ranks': 2, 'role': 'x', 'group_rank': 0, 'first_rank': 0}],"
                " 'total': 2, 'next': 1}");
    view_expect(view_nodes(&v, "job", 1, 10),
                "{'nodes': [{'host': 'b', 'address': '10.0.0.1', 'state': 'running',"
                " 'ranks': 2, 'role': 'default', 'group_rank': 1, 'first_rank': 2}],"
                " 'total': 2}");
    view_expect(view_ranks(&v, "job", 1, 2),
                "{'ranks': [{'rank': 1, 'local_rank': 1, 'host': 'a', 'group_rank': 0},"
                " {'rank': 2, 'local_rank': 0, 'host': 'b', 'group_rank': 1}],"
                " 'total': 4, 'next': 3}");
    view_expect(
        view_ranks(&v, "job", 3, 2),
        "{'ranks': [{'rank': 3, 'local_rank': 1, 'host': 'b', 'group_rank': 1}],"
        " 'total': 4}");
    view_expect(view_ranks(&v, "job", SIZE_MAX, SIZE_MAX), "{'ranks': [], 'total': 4}");
    view_expect(view_nodes(&v, "job", SIZE_MAX, SIZE_MAX), "{'nodes': [], 'total': 2}");
    stage_free(st);
}

static void ranks_keep_their_places_while_a_node_has_gone(void **state)
{
    struct stage *st = stage_new();
    struct view v;

    (void)state;
    stage_play(st, view_two_nodes);
    stage_play(st, "a gone\n"
                   "> b STOP g=1 abort: node a was lost: its connection ended\n");
    v = view_of(st);
    view_expect(view_ranks(&v, "job", 1, 2),
                "{'ranks': [{'rank': 1, 'local_rank': 1, 'host': 'a', 'group_rank': 0,"
                " 'away': true},"
                " {'rank': 2, 'local_rank': 0, 'host': 'b', 'group_rank': 1}],"
                " 'total': 4, 'next': 3}");
    view_expect(view_nodes(&v, "job", 0, 9),
                "{'nodes': [{'host': 'b', 'address': '10.0.0.1', 'state': 'running',"
                " 'ranks': 2, 'role': 'default', 'group_rank': 1, 'first_rank': 2}],"
                " 'total': 1}");
    view_expect(view_member(view_job(&v, "job"), "ranks"), "4");
    view_expect(view_member(view_job(&v, "job"), "draining"),
                "'node a was lost: its connection ended'");
    stage_free(st);
}

static void a_node_that_is_no_member_comes_last_and_has_no_ranks(void **state)
{
    struct stage *st = stage_new();
    struct view v;

    (void)state;
    stage_play(st, "shape nodes=1 restarts=3\n"
                   "b enters\n"
                   "> b ROUND g=1 b failures=0\n"
                   "a hello\n");
    v = view_of(st);
    view_expect(view_nodes(&v, "job", 1, 1),
                "{'nodes': [{'host': 'a', 'address': '10.0.0.1', 'state': 'present',"
                " 'ranks': 1}], 'total': 2}");
    view_expect(
        view_ranks(&v, "job", 0, 9),
        "{'ranks': [{'rank': 0, 'local_rank': 0, 'host': 'b', 'group_rank': 0}],"
        " 'total': 1}");
    stage_free(st);
}

static void
a_restart_is_counted_under_its_cause_and_the_first_cause_is_named(void **state)
{
    struct stage *st = stage_new();
    const struct history_job *h;
    struct view v;
    json_t *job;

    (void)state;
    stage_play(st, "shape nodes=1 restarts=3\n"
                   "a enters\n"
                   "> a ROUND g=1 a failures=0\n"
                   "a ended code=7\n"
                   "> a STOP g=1 abort: rank 0 on a failed\n"
                   "a stopped\n"
                   "> a REPORT g=1 again failures=1/3 rank 0 on a code=7 signal=0: "
                   "restarting (1 of 3)\n");
    v = view_of(st);
    h = history_find(stage_history(st), "job");
    assert_int_equal(h->restarts[RESTART_FAILURE], 1);
    job = view_job(&v, "job");
    assert_string_equal(json_string_value(json_object_get(job, "state")), "forming");
    view_expect(json_incref(json_object_get(job, "cause")),
                "{'text': 'rank 0 on a: exit code 7; restarting (1 of 3)', 'node': 'a',"
                " 'rank': 0}");
    json_decref(job);
    view_expect(
        view_events(&v, "job", 2, 1),
        "{'events': [{'number': 3, 'wall_ms': 1000, 'kind': 'restarting',"
        " 'job': 'job', 'generation': 1, 'node': 'a', 'rank': 0, 'cause': 'failure',"
        " 'restarts': {'failure': 1, 'node_lost': 0, 'node_joined': 0,"
        " 'node_left': 0, 'hang': 0, 'preemption': 0, 'smaller_world': 0},"
        " 'text': 'rank 0 on a: exit code 7; restarting (1 of 3)'}], 'last': 3}");
    view_expect(view_events(&v, "other", 0, 9), "{'events': [], 'last': 3}");
    stage_free(st);
}

static const struct cause_case {
    enum restart_cause cause;
    const char *script;
} cause_cases[] = {
    {RESTART_NODE_JOINED,
     "c enters nproc=2\n"
     "> a,b STOP g=1 leave: node c joined\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b,c REPORT g=1 again failures=0/3: node c joined; re-forming (not counted as "
     "a failure)\n"},
    {RESTART_PREEMPTION, /* by SIGTERM */
     "a leave\n"
     "> b STOP g=1 leave: node a leaves: preempted by SIGTERM\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=0/3: node a leaves: preempted by SIGTERM; re-forming (not counted as a "
     "failure)\n"},
    {RESTART_NODE_LOST,
     "b gone\n"
     "> a STOP g=1 abort: node b was lost: its connection ended\n"
     "a stopped\n"
     "> a REPORT g=1 again failures=0/3: node b was lost: its connection ended; "
     "re-forming (not counted as a failure)\n"},
    {RESTART_NODE_LEFT,
     "b stopped\n"
     "> a STOP g=1 leave: node b stopped its workers\n"
     "a stopped\n"
     "> a,b REPORT g=1 again failures=0/3: node b stopped its workers; re-forming (not "
     "counted as a failure)\n"},
};

static void each_cause_is_told_from_the_others(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cause_cases); i++) {
        struct stage *st = stage_new();
        const struct history_job *h;

        stage_play(st, view_two_nodes);
        stage_play(st, cause_cases[i].script);
        h = history_find(stage_history(st), "job");
        for (int c = 0; c < RESTART_CAUSE_COUNT; c++) {
            assert_int_equal(h->restarts[c], c == (int)cause_cases[i].cause);
        }
        stage_free(st);
    }
}

static void jobs_are_sorted_by_their_ids(void **state)
{
    struct stage *st = stage_new();
    struct view v;
    json_t *jobs;
    json_t *list;

    (void)state;
    stage_play(st, "shape nodes=1\n"
                   "a hello job=z\n"
                   "b hello job=\xc3\xa9<b>\n"
                   "c hello job=a\n");
    v = view_of(st);
    jobs = view_jobs(&v, NULL);
    list = json_object_get(jobs, "jobs");
    assert_int_equal(json_array_size(list), 3);
    for (size_t i = 0; i < 3; i++) {
        static const char *const ids[] = {"a", "z", "\xc3\xa9<b>"};
        const json_t *id = json_object_get(json_array_get(list, i), "id");

        assert_string_equal(json_string_value(id), ids[i]);
    }
    json_decref(jobs);
    jobs = view_jobs(&v, "z");
    assert_int_equal(json_array_size(json_object_get(jobs, "jobs")), 1);
    json_decref(jobs);
    stage_free(st);
}

static void a_node_that_is_turned_away_is_an_event(void **state)
{
    struct stage *st = stage_new();
    const struct history_event *e;

    (void)state;
    stage_play(st, "shape nodes=2\n"
                   "a enters\n"
                   "b hello restarts=9\n"
                   "> b REFUSED 2: job job: this node says --max-restarts=9, but a "
                   "started it with 0; give every node the same --max-restarts\n"
                   "> b (closed)\n");
    e = history_after(stage_history(st), 1);
    assert_non_null(e);
    assert_int_equal(e->kind, NODE_IS_REFUSED);
    assert_string_equal(e->node, "b");
    stage_free(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_service_without_jobs_shows_none),
        cmocka_unit_test(of_a_hosts_several_nodes_is_said_which_one_is_lost),
        cmocka_unit_test(who_goes_after_its_hello_alone_is_no_lost_node),
        cmocka_unit_test(a_job_that_runs_is_shown_with_its_progress),
        cmocka_unit_test(a_loss_is_shown_at_the_step_whose_it_is),
        cmocka_unit_test(a_hang_is_shown_while_it_lasts),
        cmocka_unit_test(nodes_and_ranks_come_in_pages_by_group_rank),
        cmocka_unit_test(ranks_keep_their_places_while_a_node_has_gone),
        cmocka_unit_test(a_node_that_is_no_member_comes_last_and_has_no_ranks),
        cmocka_unit_test(
            a_restart_is_counted_under_its_cause_and_the_first_cause_is_named),
        cmocka_unit_test(each_cause_is_told_from_the_others),
        cmocka_unit_test(jobs_are_sorted_by_their_ids),
        cmocka_unit_test(a_node_that_is_turned_away_is_an_event),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
