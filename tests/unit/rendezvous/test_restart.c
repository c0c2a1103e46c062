/* A service that is started anew from its records: who is away, for how long it is
 * waited for, what is saved, and what is refused. That nothing else is different is
 * tested with every scene of the other files (stage.h). */

#include "rendezvous/record_fields.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/shelf.h"
#include "tests/lib/stage.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

static const char two_nodes[] = "shape nodes=2 restarts=3\n"
                                "a enters\n"
                                "b enters\n"
                                "> a,b ROUND g=1 a b failures=0\n";

static const struct scene scenes[] = {
    {"a_restart_alone_changes_nothing", two_nodes,
     "service dies 500\n"
     "a returns\n"
     "b returns\n"
     "wait 10000\n"
     "a done\n"
     "b done\n"
     "> a,b CLOSED 0\n"},

    {"a_session_that_comes_back_is_the_same", two_nodes,
     "service dies 500\n"
     "trace all\n"
     "a returns\n"
     "> a welcome\n"},

    {"who_does_not_come_back_is_lost_after_a_lease", two_nodes,
     "service dies 60000\n"
     "b returns\n"
     "wait 2999\n"
     "wait 376\n" /* a quarter of the lease is spread over the two */
     "> b STOP g=1 abort: node a was lost: it did not come back\n"},

    {"ends_of_leases_are_spread_over_a_quarter", two_nodes,
     "service dies 500\n"
     "wait 3374\n"
     "wait 1\n"
     "b enters\n" /* its lease was the last, and is over */
     "a enters\n"
     "> a,b ROUND g=2 a b failures=0\n"},

    {"a_round_waits_for_those_who_were_there", NULL,
     "shape nodes=1:3\n"
     "a enters\n"
     "b enters\n"
     "wait 2900\n"
     "service dies 500\n"
     "a returns\n"
     "wait 2000\n" /* 3 s after the last join were over long ago */
     "b returns\n"
     "> a,b ROUND g=1 a b failures=0\n"},

    {"a_round_waits_no_longer_than_their_lease", NULL,
     "shape nodes=1:3\n"
     "a enters\n"
     "b enters\n"
     "service dies 500\n"
     "b returns\n"
     "wait 2999\n"
     "wait 376\n" /* a quarter of the lease is spread over the two */
     "> b ROUND g=1 b failures=0\n"},

    {"a_round_of_max_nodes_waits_too", NULL,
     "shape nodes=2\n"
     "a enters\n"
     "service dies 500\n"
     "b enters\n"
     "c enters\n"
     "wait 1000\n"
     "a returns\n"
     "> a,b ROUND g=1 a b failures=0\n"
     "> c STANDBY generation 1 runs with 2 nodes and can use no more; standing by to "
     "take over\n"},

    {"another_agent_does_not_take_a_session_over", two_nodes,
     "service dies 500\n"
     "b returns\n"
     "x enters host=a id=99\n"
     "> x STANDBY generation 1 runs with 2 nodes and can use no more; standing by to "
     "take over\n"
     "a returns\n"},

    {"a_connection_that_ends_after_the_return_is_a_loss", two_nodes,
     "service dies 500\n"
     "a returns\n"
     "b returns\n"
     "a gone\n"
     "> b STOP g=1 abort: node a was lost: its connection ended\n"},

    {"generations_go_on_from_where_they_were", two_nodes,
     "service dies 500\n"
     "wait 4000\n"
     "c enters\n"
     "d enters\n"
     "> c,d ROUND g=2 c d failures=0\n"},

    {"the_last_commit_is_known", two_nodes,
     "a resumed\n"
     "> a DECISION g=1 #1 accepted\n"
     "a commit step=5\n"
     "> a DECISION g=1 #2 accepted\n"
     "service dies 500\n"
     "a returns\n"
     "a commit step=5\n"
     "> a DECISION g=1 #2 accepted\n"
     "a commit step=4\n"
     "> a DECISION g=1 #2 refused: this step or a later one is committed already\n"
     "wait 4000\n"
     "> a STOP g=1 abort: node b was lost: it did not come back\n"
     "a stopped\n"
     "> a REPORT g=1 again failures=0/3 commit=1:5:h: node b was lost: it did not come "
     "back; "
     "re-forming (not counted as a failure)\n"
     "a join\n"
     "b enters\n"
     "> a,b ROUND g=2 a b failures=0 commit=1:5:h\n"},

    {"a_job_that_ended_is_known", NULL,
     "shape nodes=1\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "a ended code=3\n"
     "> a STOP g=1 abort: rank 0 on a failed\n"
     "a stopped\n"
     "> a REPORT g=1 final failures=1/0 exit=3 rank 0 on a code=3 signal=0: not "
     "restarting: --max-restarts is 0\n"
     "> a CLOSED 3\n"
     "a gone\n"
     "service dies 500\n"
     "a enters\n"
     "> a REFUSED 3: job job is over: it ended with exit code 3\n"
     "> a (closed)\n"},

    {"a_job_that_is_over_closes_those_who_come_back", two_nodes,
     "a done\n"
     "b done\n"
     "> a,b CLOSED 0\n"
     "service dies 500\n"
     "a returns\n"
     "> a CLOSED 0\n"
     "wait 4000\n"
     "a gone\n"},

    {"the_third_crash_in_a_row_is_counted_over_a_restart", NULL,
     "shape nodes=1 restarts=9\n"
     "a enters\n"
     "> a ROUND g=1 a failures=0\n"
     "a ended code=1 step=7\n"
     "> a STOP g=1 abort: rank 0 on a failed\n"
     "a stopped\n"
     "> a REPORT g=1 again failures=1/9 rank 0 on a code=1 signal=0: restarting (1 of "
     "9)\n"
     "a join\n"
     "> a ROUND g=2 a failures=1\n"
     "a ended code=1 step=7\n"
     "> a STOP g=2 abort: rank 0 on a failed\n"
     "a stopped\n"
     "> a REPORT g=2 again failures=2/9 rank 0 on a code=1 signal=0: restarting (2 of "
     "9)\n"
     "service dies 500\n"
     "a returns\n"
     "> a REPORT g=2 again failures=2/9 rank 0 on a code=1 signal=0: restarting (2 of "
     "9)\n"
     "a join\n"
     "> a ROUND g=3 a failures=2\n"
     "a ended code=1 step=7\n"
     "> a STOP g=3 abort: rank 0 on a failed\n"
     "service dies 500\n"
     "a returns\n"
     "> a REPORT g=2 again failures=2/9 rank 0 on a code=1 signal=0: restarting (2 of "
     "9)\n"
     "> a STOP g=3 abort: rank 0 on a failed\n"
     "a stopped\n"
     "> a REPORT g=3 final failures=3/9 exit=93 rank 0 on a code=1 signal=0: the same "
     "rank ended the same way at the same step three times running: not restarting\n"
     "> a CLOSED 93\n"},

    /* --- nodes that go while there is no service: it began at 1000 --- */

    {"an_operators_cancel_is_not_forgotten", two_nodes,
     "operator cancels\n"
     "> a,b STOP g=1 leave: cancelled by op\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b CLOSED 143: job job was cancelled by op\n"
     "a gone\n"
     "b gone\n"},

    {"a_cancelled_job_ends_when_none_of_its_nodes_comes_back", two_nodes,
     "operator cancels\n"
     "> a,b STOP g=1 leave: cancelled by op\n"
     "service dies 500\n"
     "wait 3375\n"
     "a hello gen=1\n"
     "> a REFUSED 143: job job is over: it ended with exit code 143: cancelled by op\n"
     "> a (closed)\n"},

    {"a_job_is_cancelled_before_its_first_generation", NULL,
     "shape nodes=2\n"
     "a enters\n"
     "operator cancels\n"
     "> a CLOSED 143: job job was cancelled by op\n"
     "a gone\n"
     "b hello\n"
     "> b REFUSED 143: job job is over: it ended with exit code 143: cancelled by op; "
     "this node came too late for it (to run it again, give it another --rdzv-id, or "
     "wait 60 s)\n"
     "> b (closed)\n"},

    {"a_node_that_is_lost_while_its_job_is_cancelled_is_not_why_it_ends", two_nodes,
     "operator cancels\n"
     "> a,b STOP g=1 leave: cancelled by op\n"
     "b gone\n"
     "> a STOP g=1 abort: node b was lost: its connection ended\n"
     "a stopped\n"
     "> a CLOSED 143: job job was cancelled by op\n"},

    {"an_operators_drain_is_not_forgotten", two_nodes,
     "operator drains a\n"
     "> a drain\n"
     "a leave\n"
     "> b STOP g=1 leave: node a leaves: preempted by SIGTERM\n"
     "a stopped\n"
     "b stopped\n"
     "> a,b REPORT g=1 again failures=0/3: node a leaves: preempted by SIGTERM; "
     "re-forming (not counted as a failure)\n"},

    {"a_drain_reaches_who_lost_its_connection_before_it", two_nodes,
     "unkilled now\n"
     "operator drains b\n"
     "> b drain\n"
     "b gone\n"
     "> a STOP g=1 abort: node b was lost: its connection ended\n"
     "c hello\n" /* another agent */
     "b hello\n"
     "> b drain\n"
     "b leave\n"
     "b gone\n" /* it has heard of it */
     "b hello\n"},
};

/* --- how much is saved --- */

struct crowd {
    struct service *service;
    struct shelf shelf;
    size_t n_rounds;
};

static void on_send(void *arg, uint64_t conn, const struct msg *m)
{
    struct crowd *crowd = arg;

    (void)conn;
    crowd->n_rounds += m->type == MSG_ROUND;
}

static void on_close(void *arg, uint64_t conn)
{
    (void)arg;
    (void)conn;
}

static void on_save(void *arg, const struct record *r)
{
    struct crowd *crowd = arg;

    shelf_save(&crowd->shelf, r);
}

static void start(struct crowd *crowd)
{
    crowd->service = service_new(&(struct service_config){
        .cluster = 3,
        .boot = 1,
        .lease_ms = 3000,
        .seed = 5,
        .sink = {.arg = crowd, .send = on_send, .close = on_close, .save = on_save}});
}

static void enter(struct crowd *crowd, uint64_t conn, uint32_t n)
{
    struct msg m = {.type = MSG_HELLO,
                    .u.hello = {.version = MSG_VERSION,
                                .job = "job",
                                .agent_id = conn,
                                .group_rank = -1,
                                .node_rank = -1,
                                .min_nodes = n,
                                .max_nodes = n,
                                .nproc = 8}};

    (void)snprintf(m.u.hello.host, sizeof(m.u.hello.host), "host%u", (unsigned)conn);
    service_opened(crowd->service, conn, "10.0.0.1", 1000);
    assert_int_equal(service_message(crowd->service, conn, &m, 1000), 0);
    m = (struct msg){.type = MSG_JOIN, .u.join = {.addr = "10.0.0.1"}};
    assert_int_equal(service_message(crowd->service, conn, &m, 1000), 0);
    shelf_commit(&crowd->shelf);
}

static void heartbeats(struct crowd *crowd, uint32_t n)
{
    struct msg m = {.type = MSG_HEARTBEAT};

    for (uint64_t conn = 1; conn <= n; conn++) {
        assert_int_equal(service_message(crowd->service, conn, &m, 1500), 0);
    }
}

static size_t save_crowd(uint32_t n)
{
    struct crowd crowd = {0};
    size_t bytes;

    start(&crowd);
    for (uint64_t conn = 1; conn <= n; conn++) {
        enter(&crowd, conn, n);
    }
    assert_int_equal(crowd.n_rounds, n);
    bytes = crowd.shelf.bytes_saved;
    heartbeats(&crowd, n);
    assert_int_equal(crowd.shelf.bytes_saved, bytes);
    service_free(crowd.service);
    shelf_release(&crowd.shelf);
    return bytes;
}

static void a_node_that_joins_writes_no_more_in_a_crowd(void **state)
{
    size_t few = save_crowd(10) / 10;
    size_t many = save_crowd(1000) / 1000;

    (void)state;
    assert_true(many < 2 * few);
    assert_true(many < 4096);
}

/* --- what nobody has written --- */

static int give(struct service *s, enum record_kind kind, struct bytes key,
                struct bytes value, struct errmsg *msg)
{
    return service_restore(
        s,
        &(struct record){
            .kind = kind, .job = "job", .key = key, .value = value, .generation = 0},
        msg);
}

static void records_come_in_order(void **state)
{
    static const uint8_t low[] = {0, 0, 0, 0, 0, 0, 0, 1};
    static const uint8_t high[] = {0, 0, 0, 0, 0, 0, 0, 2};
    const struct bytes keys[] = {{low, sizeof(low)}, {high, sizeof(high)}};
    struct crowd crowd = {0};
    struct errmsg msg;

    (void)state;
    start(&crowd);
    assert_int_equal(give(crowd.service, RECORD_EVENT, keys[1], keys[0], &msg), 0);
    assert_int_equal(give(crowd.service, RECORD_EVENT, keys[0], keys[0], &msg),
                     ERR_CORRUPT);
    assert_int_equal(give(crowd.service, RECORD_EVENT, keys[1], keys[0], &msg),
                     ERR_CORRUPT);
    assert_string_equal(msg.text, "the saved state is damaged (job job, event)");
    service_free(crowd.service);
}

static void another_versions_records_are_refused(void **state)
{
    static const uint8_t value[] = {RECORD_JOB_VERSION + 1, 0, 0};
    struct crowd crowd = {0};
    struct errmsg msg;

    (void)state;
    start(&crowd);
    assert_int_equal(give(crowd.service, RECORD_JOB, (struct bytes){0},
                          (struct bytes){value, sizeof(value)}, &msg),
                     ERR_UNSUPPORTED);
    assert_string_equal(msg.text,
                        "the saved state (job job, job) was written by another "
                        "version of ctrun-rendezvous");
    service_free(crowd.service);
}

static int give_another_size(struct service *s, const struct record *r, int more)
{
    struct record other = *r;
    uint8_t *value = mem_zalloc(r->value.size + 1);
    struct errmsg msg;
    int rv;

    memcpy(value, r->value.data, r->value.size);
    other.value.data = value;
    other.value.size = more < 0 ? r->value.size - 1 : r->value.size + 1;
    rv = service_restore(s, &other, &msg);
    mem_free(value);
    return rv;
}

/* What was saved before it is as it was. */
static int restore_with(const struct shelf *shelf, size_t changed, int more)
{
    struct crowd crowd = {0};
    struct errmsg msg;
    int rv;

    start(&crowd);
    for (size_t i = 0; i < changed; i++) {
        assert_int_equal(service_restore(crowd.service, shelf_at(shelf, i), &msg), 0);
    }
    rv = give_another_size(crowd.service, shelf_at(shelf, changed), more);
    service_free(crowd.service);
    return rv;
}

/* Every record of a running job, without one byte, or with one more. */
static void cut_records_are_refused(void **state)
{
    struct crowd crowd = {0};

    (void)state;
    start(&crowd);
    enter(&crowd, 1, 2);
    enter(&crowd, 2, 2);
    service_free(crowd.service);
    assert_int_equal(crowd.shelf.n, 4);
    for (size_t i = 0; i < crowd.shelf.n; i++) {
        assert_int_equal(restore_with(&crowd.shelf, i, -1), ERR_CORRUPT);
        assert_int_equal(restore_with(&crowd.shelf, i, 1), ERR_CORRUPT);
    }
    shelf_release(&crowd.shelf);
}

/* Its ranks would be nobody's. */
static void a_generation_without_members_is_refused(void **state)
{
    struct crowd crowd = {0};
    const struct record *r;
    struct errmsg msg;

    (void)state;
    start(&crowd);
    enter(&crowd, 1, 1);
    service_free(crowd.service);
    start(&crowd);
    for (size_t i = 0; (r = shelf_at(&crowd.shelf, i)) != NULL; i++) {
        if (r->kind != RECORD_NODE) {
            assert_int_equal(service_restore(crowd.service, r, &msg), 0);
        }
    }
    assert_int_equal(service_restored(crowd.service, 2000, &msg), ERR_CORRUPT);
    assert_string_equal(msg.text, "the saved state is damaged (job job, its parts)");
    service_free(crowd.service);
    shelf_release(&crowd.shelf);
}

int main(void)
{
    struct CMUnitTest tests[ARRAY_LEN(scenes) + 5] = {
        cmocka_unit_test(a_node_that_joins_writes_no_more_in_a_crowd),
        cmocka_unit_test(records_come_in_order),
        cmocka_unit_test(another_versions_records_are_refused),
        cmocka_unit_test(cut_records_are_refused),
        cmocka_unit_test(a_generation_without_members_is_refused),
    };

    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        tests[5 + i] = stage_scene(&scenes[i]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
