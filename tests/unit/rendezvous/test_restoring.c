/* A record that has the right form, and says what cannot be: it was damaged and got a new
 * sum, or somebody else has written it. It is refused, and nothing is made of it. */

#include "rendezvous/job.h"
#include "rendezvous/record_fields.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/stage_core.h"

#include "common/wire.h"

#include <stdio.h>
#include <string.h>

static const char running[] = "shape nodes=2 restarts=3\n"
                              "a enters\n"
                              "b enters\n"
                              "> a,b ROUND g=1 a b failures=0\n";

static const char draining[] = "a ended rank=0 code=1\n"
                               "> a,b STOP g=1 abort: rank 0 on a failed\n";

static const char forming[] =
    "a stopped\n"
    "b stopped\n"
    "> a,b REPORT g=1 again failures=1/3 rank 0 on a code=1 signal=0: restarting (1 of "
    "3)\n";

static const char over[] = "a done\n"
                           "b done\n"
                           "> a,b CLOSED 0\n"
                           "a gone\n"
                           "b gone\n";

/* --- what is changed --- */

static void hang_policy(void *job)
{
    ((struct record_job *)job)->on_hang = ON_HANG_REPORT + 1;
}

static void state(void *job)
{
    ((struct record_job *)job)->state = JOB_FAILED + 1;
}

static void cause_of_leaving(void *job)
{
    ((struct record_job *)job)->left_for = RESTART_CAUSE_COUNT;
}

static void rank_that_hung(void *job)
{
    ((struct record_job *)job)->hung = MSG_MAX_WORLD + 1;
}

static void exit_code(void *job)
{
    ((struct record_job *)job)->exit_code = 256;
}

static void members(void *job)
{
    ((struct record_job *)job)->n_members = MSG_MAX_NODES + 1;
}

static void nodes_state(void *node)
{
    ((struct record_node *)node)->state = NODE_STATE_COUNT;
}

static void group_rank(void *node)
{
    ((struct record_node *)node)->group_rank = 2;
}

static void no_group_rank(void *node)
{
    ((struct record_node *)node)->group_rank = INT32_MIN;
}

static void arrival(void *node)
{
    ((struct record_node *)node)->arrival = UINT64_MAX;
}

static void workers(void *node)
{
    ((struct record_node *)node)->nproc = MSG_MAX_WORLD;
}

static void hung_rank(void *cause)
{
    ((struct record_cause *)cause)->hung_rank = MSG_MAX_WORLD;
}

static void loop_rank(void *cause)
{
    ((struct record_cause *)cause)->loop_rank = MSG_MAX_WORLD;
}

static void way_to_fail(void *outcome)
{
    ((struct record_outcome *)outcome)->signal = 1000;
}

/* A rank's end, of its first cause. */
static void first_rank(void *rank)
{
    ((struct record_rank *)rank)->rank = MSG_MAX_WORLD;
}

static void first_signal(void *rank)
{
    ((struct record_rank *)rank)->signal = 1000;
}

static void reported_rank(void *report)
{
    ((struct record_report *)report)->rank = MSG_MAX_WORLD;
}

static void reported_signal(void *report)
{
    ((struct record_report *)report)->signal = 1000;
}

static void exit_code_of_the_past(void *finished)
{
    ((struct record_finished *)finished)->exit_code = 256;
}

static void members_of_the_past(void *finished)
{
    ((struct record_finished *)finished)->n_members = MSG_MAX_NODES + 1;
}

/* --- the record with it --- */

union any_record {
    struct record_job job;
    struct record_node node;
    struct record_cause cause;
    struct record_report report;
    struct record_finished finished;
};

typedef void change_fn(void *fields);

/* Of the cause, its first outcome. */
static void change_outcome(struct record_cause *c, change_fn *change, struct buf *list)
{
    struct record_outcome outcome;
    struct bytes rest = c->outcomes;
    struct bytes first;
    struct buf value;

    assert_true(record_list_next(&rest, &first));
    assert_int_equal(record_get_outcome(first, &outcome), 0);
    change(&outcome);
    buf_init(&value, RECORD_VALUE_MAX);
    assert_int_equal(record_put_outcome(&outcome, &value), 0);
    assert_int_equal(wire_put_bytes(list, buf_bytes(&value), buf_len(&value)), 0);
    c->outcomes = record_bytes(list);
    buf_release(&value);
}

/* Its first cause. */
static void change_rank(struct record_cause *c, change_fn *change, struct buf *value)
{
    struct record_rank rank;

    assert_int_equal(record_get_rank(c->first, &rank), 0);
    change(&rank);
    assert_int_equal(record_put_rank(&rank, value), 0);
    c->first = record_bytes(value);
}

static void change_record(const struct record *r, change_fn *change, struct buf *out)
{
    union any_record fields;
    struct buf list;

    buf_init(&list, RECORD_VALUE_MAX);
    if (r->kind == RECORD_JOB) {
        assert_int_equal(record_get_job(r->value, &fields.job), 0);
        change(&fields);
        assert_int_equal(record_put_job(&fields.job, out), 0);
    } else if (r->kind == RECORD_NODE) {
        assert_int_equal(record_get_node(r->value, &fields.node), 0);
        change(&fields);
        assert_int_equal(record_put_node(&fields.node, out), 0);
    } else if (r->kind == RECORD_CAUSE) {
        assert_int_equal(record_get_cause(r->value, &fields.cause), 0);
        if (change == way_to_fail) {
            change_outcome(&fields.cause, change, &list);
        } else if (change == first_rank || change == first_signal) {
            change_rank(&fields.cause, change, &list);
        } else {
            change(&fields);
        }
        assert_int_equal(record_put_cause(&fields.cause, out), 0);
    } else if (r->kind == RECORD_REPORT) {
        assert_int_equal(record_get_report(r->value, &fields.report), 0);
        change(&fields);
        assert_int_equal(record_put_report(&fields.report, out), 0);
    } else {
        assert_int_equal(record_get_finished(r->value, &fields.finished), 0);
        change(&fields);
        assert_int_equal(record_put_finished(&fields.finished, out), 0);
    }
    buf_release(&list);
}

/* What the first record of that kind, changed so, is taken for; 0 where nothing is
 * changed. */
static int restore_changed(const struct shelf *shelf, enum record_kind kind,
                           change_fn *change)
{
    struct service *service = service_new(&(struct service_config){
        .cluster = STAGE_CLUSTER, .boot = 9, .lease_ms = 3000, .seed = 9});
    const struct record *r;
    struct errmsg msg;
    bool is_changed = change == NULL;
    int rv = 0;

    for (size_t i = 0; rv == 0 && (r = shelf_at(shelf, i)) != NULL; i++) {
        struct record given = *r;
        struct buf value;

        buf_init(&value, RECORD_VALUE_MAX);
        if (!is_changed && r->kind == kind) {
            is_changed = true;
            change_record(r, change, &value);
            given.value = record_bytes(&value);
        }
        rv = service_restore(service, &given, &msg);
        buf_release(&value);
    }
    assert_true(is_changed);
    service_free(service);
    return rv;
}

static void is_refused(const struct shelf *shelf, enum record_kind kind,
                       change_fn *change, size_t i)
{
    int rv = restore_changed(shelf, kind, change);

    if (rv != ERR_CORRUPT) {
        fail_msg("case %zu: %s", i, err_name(rv));
    }
}

static void what_cannot_be_is_refused(void **unused)
{
    static const struct {
        enum record_kind kind;
        change_fn *change;
    } cases[] = {
        {RECORD_JOB, hang_policy},      {RECORD_JOB, state},
        {RECORD_JOB, cause_of_leaving}, {RECORD_JOB, rank_that_hung},
        {RECORD_JOB, exit_code},        {RECORD_JOB, members},
        {RECORD_NODE, nodes_state},     {RECORD_NODE, group_rank},
        {RECORD_NODE, no_group_rank},   {RECORD_NODE, arrival},
        {RECORD_NODE, workers},         {RECORD_CAUSE, hung_rank},
        {RECORD_CAUSE, loop_rank},      {RECORD_CAUSE, way_to_fail},
        {RECORD_CAUSE, first_rank},     {RECORD_CAUSE, first_signal},
    };
    struct stage *st = stage_new();

    (void)unused;
    stage_play(st, running);
    stage_play(st, draining);
    shelf_commit(&st->shelf);
    assert_int_equal(restore_changed(&st->shelf, RECORD_JOB, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        is_refused(&st->shelf, cases[i].kind, cases[i].change, i);
    }
    stage_free(st);
}

/* Nobody is a member then: the rank is nobody's index, and is checked all the same. */
static void rank_of_no_member_is_checked_too(void **unused)
{
    struct stage *st = stage_new();

    (void)unused;
    stage_play(st, running);
    stage_play(st, draining);
    stage_play(st, forming);
    shelf_commit(&st->shelf);
    assert_int_equal(restore_changed(&st->shelf, RECORD_NODE, group_rank), 0);
    assert_int_equal(restore_changed(&st->shelf, RECORD_NODE, no_group_rank),
                     ERR_CORRUPT);
    stage_free(st);
}

static void end_of_a_job_that_cannot_be_is_refused(void **unused)
{
    struct stage *st = stage_new();

    (void)unused;
    stage_play(st, running);
    stage_play(st, over);
    shelf_commit(&st->shelf);
    assert_int_equal(shelf_count(&st->shelf, RECORD_FINISHED), 1);
    assert_int_equal(restore_changed(&st->shelf, RECORD_FINISHED, NULL), 0);
    assert_int_equal(
        restore_changed(&st->shelf, RECORD_FINISHED, exit_code_of_the_past),
        ERR_CORRUPT);
    assert_int_equal(restore_changed(&st->shelf, RECORD_FINISHED, members_of_the_past),
                     ERR_CORRUPT);
    stage_free(st);
}

static void report_that_cannot_be_is_refused(void **unused)
{
    struct stage *st = stage_new();

    (void)unused;
    stage_play(st, running);
    stage_play(st, draining);
    stage_play(st, forming);
    shelf_commit(&st->shelf);
    assert_int_equal(shelf_count(&st->shelf, RECORD_REPORT), 1);
    assert_int_equal(restore_changed(&st->shelf, RECORD_REPORT, NULL), 0);
    assert_int_equal(restore_changed(&st->shelf, RECORD_REPORT, reported_rank),
                     ERR_CORRUPT);
    assert_int_equal(restore_changed(&st->shelf, RECORD_REPORT, reported_signal),
                     ERR_CORRUPT);
    stage_free(st);
}

/* Or the next start would refuse what a peer has made us save. */
static void what_would_be_refused_is_not_let_in(void **unused)
{
    struct stage *st = stage_new();

    (void)unused;
    stage_play(st, "a hello rank=-5\n"
                   "> a REFUSED 2: job job: --nnodes=2, --nproc-per-node=1, "
                   "--node-rank=-5 do not fit together (at most 16384 nodes and "
                   "1048576 ranks)\n"
                   "> a (closed)\n"
                   "b hello group=-2\n"
                   "> b REFUSED 2: job job: what this node says of itself is none of "
                   "what ctrun says\n"
                   "> b (closed)\n"
                   "e hello job=\n"
                   "> e REFUSED 2: a job and a host have a name each\n"
                   "> e (closed)\n"
                   "d hello commit=1:9223372036854775808:aa\n"
                   "> d REFUSED 2: job job: what this node says of itself is none of "
                   "what ctrun says\n"
                   "> d (closed)\n"
                   "shape on_hang=7\n"
                   "c hello\n"
                   "> c REFUSED 2: job job: what this node says of itself is none of "
                   "what ctrun says\n"
                   "> c (closed)\n");
    stage_free(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(rank_of_no_member_is_checked_too),
        cmocka_unit_test(end_of_a_job_that_cannot_be_is_refused),
        cmocka_unit_test(report_that_cannot_be_is_refused),
        cmocka_unit_test(what_would_be_refused_is_not_let_in),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
