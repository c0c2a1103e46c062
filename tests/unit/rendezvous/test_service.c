/* Sessions, leases, several jobs, hostile orders; and ten thousand agents. */

#include "rendezvous/service.h"
#include "tests/lib/body.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/stage.h"

#include "common/err.h"
#include "common/mem.h"
#include "common/tcpstore.h"

#include <stdio.h>
#include <string.h>

static const struct scene scenes[] = {
    /* --- sessions --- */

    {"hello_is_welcomed_and_heartbeats_are_answered", NULL,
     "trace all\n"
     "a hello\n"
     "> a welcome\n"
     "a beat\n"
     "> a pong\n"},

    {"another_version_is_refused_with_94", NULL,
     "a hello version=9\n"
     "> a REFUSED 94: this service speaks version 1 of the agent protocol, the node a "
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
     "> c ROUND g=1 c failures=0\n"},

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
     "a hello again\n"
     "> a (ERR_PROTOCOL)\n"
     "> b STOP g=1 abort: node a was lost: its connection ended\n"},

    {"a_message_before_hello_breaks_the_protocol", NULL,
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

/* --- without a stage: many agents --- */

struct crowd {
    struct service *service;
    uint64_t n_rounds, n_stops, n_reports, n_closed, n_refused, n_bytes;
    uint64_t n_stored, n_denied;
    uint64_t generation;
    uint32_t exit_code; /* of the last refusal */
};

static void on_send(void *arg, uint64_t conn, const struct msg *m)
{
    struct crowd *crowd = arg;

    (void)conn;
    crowd->n_rounds += m->type == MSG_ROUND;
    crowd->n_stops += m->type == MSG_STOP;
    crowd->n_reports += m->type == MSG_REPORT;
    crowd->n_closed += m->type == MSG_CLOSED;
    crowd->n_refused += m->type == MSG_REFUSED;
    crowd->n_stored += m->type == MSG_STORE_REPLY && !m->u.store_reply.close;
    crowd->n_denied += m->type == MSG_STORE_REPLY && m->u.store_reply.close;
    if (m->type == MSG_REFUSED) {
        crowd->exit_code = m->u.refused.exit_code;
    }
    if (m->type == MSG_ROUND) {
        crowd->generation = m->u.round.generation;
        crowd->n_bytes = m->u.round.nodes.size;
    }
}

static void on_close(void *arg, uint64_t conn)
{
    (void)arg;
    (void)conn;
}

static struct crowd *crowd_with_store(size_t store_max_bytes)
{
    struct crowd *crowd = mem_zalloc(sizeof(*crowd));

    crowd->service =
        service_new(&(struct service_config){.lease_ms = 3000,
                                             .store_max_bytes = store_max_bytes,
                                             .seed = 9,
                                             .sink = {crowd, on_send, on_close}});
    return crowd;
}

static struct crowd *crowd_new(void)
{
    return crowd_with_store(0);
}

static void crowd_free(struct crowd *crowd)
{
    service_free(crowd->service);
    mem_free(crowd);
}

static void say(const struct crowd *crowd, uint64_t conn, const struct msg *m)
{
    assert_int_equal(service_message(crowd->service, conn, m, 1000), 0);
}

static void say_hello(const struct crowd *crowd, uint64_t conn, const char *host,
                      uint32_t max_nodes)
{
    struct msg m = {.type = MSG_HELLO};

    service_opened(crowd->service, conn, "10.1.2.3", 1000);
    m.u.hello = (struct msg_hello){.version = MSG_VERSION,
                                   .job = "j",
                                   .agent_id = conn,
                                   .min_nodes = max_nodes,
                                   .max_nodes = max_nodes,
                                   .nproc = 8,
                                   .max_restarts = 1,
                                   .node_rank = -1,
                                   .group_rank = -1};
    (void)snprintf(m.u.hello.host, sizeof(m.u.hello.host), "%s", host);
    say(crowd, conn, &m);
}

static void say_join(const struct crowd *crowd, uint64_t conn, const char *addr)
{
    struct msg m = {.type = MSG_JOIN,
                    .u.join = {.after = crowd->generation, .port = 9}};

    (void)snprintf(m.u.join.addr, sizeof(m.u.join.addr), "%s", addr);
    say(crowd, conn, &m);
}

static void say_stopped(const struct crowd *crowd, uint64_t conn)
{
    struct msg m = {.type = MSG_STOPPED};

    m.u.stopped.generation = crowd->generation;
    say(crowd, conn, &m);
}

static void say_failed(const struct crowd *crowd, uint64_t conn)
{
    struct msg m = {.type = MSG_RANK_ENDED};

    m.u.rank_ended.generation = crowd->generation;
    m.u.rank_ended.rank = (uint32_t)conn;
    m.u.rank_ended.exit_code = 1;
    say(crowd, conn, &m);
}

static void ten_thousand_agents_form_fail_and_form_again(void **state)
{
    enum { N = 10000 };
    struct crowd *crowd = crowd_new();
    char host[32];

    (void)state;
    for (uint64_t i = 1; i <= N; i++) {
        (void)snprintf(host, sizeof(host), "node%llu", (unsigned long long)i);
        say_hello(crowd, i, host, N);
        say_join(crowd, i, "10.1.2.3");
    }
    assert_int_equal(crowd->n_rounds, N);
    assert_int_equal(service_sessions(crowd->service), N);
    for (uint64_t i = 1; i <= N; i++) {
        say_failed(crowd, i);
    }
    assert_int_equal(crowd->n_stops, N); /* not once for each failure */
    for (uint64_t i = 1; i <= N; i++) {
        say_stopped(crowd, i);
        say_join(crowd, i, "10.1.2.3");
    }
    assert_int_equal(crowd->n_reports, N);
    assert_int_equal(crowd->n_rounds, 2 * N);
    assert_int_equal(crowd->generation, 2);
    for (uint64_t i = 1; i <= N; i++) {
        service_closed(crowd->service, i, 2000);
    }
    assert_int_equal(service_sessions(crowd->service), 0);
    assert_int_equal(service_active_jobs(crowd->service), 1); /* they may come back */
    crowd_free(crowd);
}

/* Hosts of 255 bytes, addresses of 63: the table is full long before 16,384 nodes. */
static void nodes_that_do_not_fit_into_a_rounds_table_are_refused(void **state)
{
    enum { N = 2000 };
    struct crowd *crowd = crowd_new();
    char host[MSG_ID_MAX];
    char addr[MSG_ADDR_MAX];
    uint64_t n_in, n_refused;

    (void)state;
    memset(host, 'h', sizeof(host));
    memset(addr, '1', sizeof(addr));
    host[sizeof(host) - 1] = '\0';
    addr[sizeof(addr) - 1] = '\0';
    for (uint64_t i = 1; i <= N; i++) {
        say_hello(crowd, i, host, 1500);
        if (crowd->n_refused == 0) {
            say_join(crowd, i, addr);
        }
    }
    n_in = N - crowd->n_refused;
    assert_true(n_in > 1500 && n_in < N);
    assert_int_equal(crowd->n_rounds, 1500);
    assert_true(crowd->n_bytes < MSG_MAX_FRAME);
    n_refused = crowd->n_refused;
    service_closed(crowd->service, 1510, 1000); /* a standby makes room */
    say_hello(crowd, N + 1, host, 1500);
    assert_int_equal(crowd->n_refused, n_refused);
    say_hello(crowd, N + 2, host, 1500);
    say_hello(crowd, N + 3, host, 1500);
    assert_true(crowd->n_refused > n_refused); /* for one or two, not more */
    crowd_free(crowd);
}

/* What is shorter at hello may be longer at the join. */
static void a_node_whose_address_does_not_fit_is_turned_away(void **state)
{
    enum { N = 1800 };
    struct crowd *crowd = crowd_new();
    char host[MSG_ID_MAX];
    char addr[MSG_ADDR_MAX];

    (void)state;
    memset(host, 'h', sizeof(host));
    memset(addr, '1', sizeof(addr));
    host[sizeof(host) - 1] = '\0';
    addr[sizeof(addr) - 1] = '\0';
    for (uint64_t i = 1; i <= N; i++) {
        say_hello(crowd, i, host, N);
    }
    assert_int_equal(crowd->n_refused, 0);
    for (uint64_t i = 1; i <= N; i++) {
        say_join(crowd, i, addr);
    }
    assert_true(crowd->n_refused > 0);
    assert_int_equal(crowd->n_rounds, 0);
    crowd_free(crowd);
}

/* Joins a job of its own, which runs at once. */
static void begin_job(const struct crowd *crowd, uint64_t conn)
{
    struct msg m = {.type = MSG_HELLO};

    m.u.hello = (struct msg_hello){.version = MSG_VERSION,
                                   .agent_id = conn,
                                   .min_nodes = 1,
                                   .max_nodes = 1,
                                   .nproc = 1,
                                   .node_rank = -1};
    (void)snprintf(m.u.hello.job, sizeof(m.u.hello.job), "job%d", (int)conn);
    service_opened(crowd->service, conn, "10.1.2.3", 1000);
    say(crowd, conn, &m);
    say_join(crowd, conn, "10.1.2.3");
}

static void a_job_that_was_told_to_stop_is_not_active(void **state)
{
    struct crowd *crowd = crowd_new();
    struct msg leave = {.type = MSG_LEAVE, .u.leave = {.signal = 15}};

    (void)state;
    begin_job(crowd, 1);
    begin_job(crowd, 2);
    assert_int_equal(service_active_jobs(crowd->service), 2);
    say(crowd, 1, &leave);
    service_closed(crowd->service, 1, 1000);
    service_closed(crowd->service, 2, 1000); /* lost: it may come back */
    assert_int_equal(service_active_jobs(crowd->service), 1);
    crowd_free(crowd);
}

static void idle_jobs_are_bounded(void **state)
{
    enum { N = 1000 };
    struct crowd *crowd = crowd_new();

    (void)state;
    for (uint64_t i = 1; i <= N; i++) {
        begin_job(crowd, i);
        service_closed(crowd->service, i, 1000);
    }
    assert_int_equal(crowd->n_rounds, N);
    assert_int_equal(service_active_jobs(crowd->service), 256);
    crowd_free(crowd);
}

static void jobs_are_bounded_and_one_too_many_is_refused_with_94(void **state)
{
    enum { MAX_JOBS = 1024 };
    struct crowd *crowd = crowd_new();

    (void)state;
    for (uint64_t i = 1; i <= MAX_JOBS; i++) {
        begin_job(crowd, i);
    }
    assert_int_equal(crowd->n_refused, 0);
    begin_job(crowd, MAX_JOBS + 1);
    assert_int_equal(crowd->n_refused, 1);
    assert_int_equal(crowd->exit_code, 94);
    service_closed(crowd->service, 7, 1000); /* idle now: it makes room */
    begin_job(crowd, MAX_JOBS + 2);
    assert_int_equal(crowd->n_refused, 1);
    assert_int_equal(crowd->n_rounds, MAX_JOBS + 1);
    crowd_free(crowd);
}

/* A key of 50,000 bytes' value into the job's store. */
static void store_much(const struct crowd *crowd, uint64_t conn, uint64_t generation)
{
    char value[50000] = "";
    struct msg m = {.type = MSG_STORE};
    struct buf body;

    body_make(&body, "sb", "/k", value, sizeof(value));
    m.u.store = (struct msg_store){.generation = generation,
                                   .client = 1,
                                   .seq = 1,
                                   .op = TCPSTORE_SET,
                                   .body = {buf_bytes(&body), buf_len(&body)}};
    say(crowd, conn, &m);
    buf_release(&body);
}

static void all_jobs_share_one_store_budget(void **state)
{
    struct crowd *crowd = crowd_with_store(120000);

    (void)state;
    for (uint64_t i = 1; i <= 3; i++) {
        begin_job(crowd, i);
        store_much(crowd, i, 1);
    }
    assert_int_equal(crowd->n_stored, 2);
    assert_int_equal(crowd->n_denied, 1);
    service_closed(crowd->service, 1, 1000); /* its key space goes, and makes room */
    begin_job(crowd, 4);
    store_much(crowd, 4, 1);
    assert_int_equal(crowd->n_stored, 3);
    crowd_free(crowd);
}

static void without_sessions_there_is_nothing_to_wait_for(void **state)
{
    struct crowd *crowd = crowd_new();

    (void)state;
    assert_int_equal(service_deadline(crowd->service), UINT64_MAX);
    say_hello(crowd, 1, "a", 2);
    assert_true(service_deadline(crowd->service) > 1000);
    assert_true(service_deadline(crowd->service) <= 1750);
    service_closed(crowd->service, 1, 1000);
    assert_int_equal(service_deadline(crowd->service), UINT64_MAX);
    crowd_free(crowd);
}

static void messages_of_a_connection_that_is_gone_are_ignored(void **state)
{
    struct crowd *crowd = crowd_new();

    (void)state;
    say_join(crowd, 77, "a");
    service_closed(crowd->service, 77, 1000);
    say_hello(crowd, 1, "a", 1);
    service_closed(crowd->service, 1, 1000);
    say_join(crowd, 1, "a");
    assert_int_equal(crowd->n_rounds, 0);
    crowd_free(crowd);
}

int main(void)
{
    static const struct CMUnitTest crowds[] = {
        cmocka_unit_test(ten_thousand_agents_form_fail_and_form_again),
        cmocka_unit_test(nodes_that_do_not_fit_into_a_rounds_table_are_refused),
        cmocka_unit_test(a_node_whose_address_does_not_fit_is_turned_away),
        cmocka_unit_test(a_job_that_was_told_to_stop_is_not_active),
        cmocka_unit_test(idle_jobs_are_bounded),
        cmocka_unit_test(jobs_are_bounded_and_one_too_many_is_refused_with_94),
        cmocka_unit_test(all_jobs_share_one_store_budget),
        cmocka_unit_test(without_sessions_there_is_nothing_to_wait_for),
        cmocka_unit_test(messages_of_a_connection_that_is_gone_are_ignored),
    };
    struct CMUnitTest tests[ARRAY_LEN(scenes) + ARRAY_LEN(crowds)];

    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        tests[i] = stage_scene(&scenes[i]);
    }
    memcpy(&tests[ARRAY_LEN(scenes)], crowds, sizeof(crowds));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
