/* The service without a stage: many agents, many jobs, and what is bounded. */

#include "rendezvous/registry.h"
#include "rendezvous/service.h"
#include "tests/lib/body.h"
#include "tests/lib/cmocka.h"

#include "common/err.h"
#include "common/mem.h"
#include "common/tcpstore.h"

#include <stdio.h>
#include <string.h>

struct crowd {
    struct service *service;
    uint64_t n_rounds, n_stops, n_reports, n_closed, n_refused, n_bytes;
    uint64_t n_rest_bytes; /* of tables, beside those for group rank 0 */
    uint64_t n_stored, n_denied;
    uint64_t generation;
    uint32_t exit_code;      /* of the last refusal … */
    char text[MSG_TEXT_MAX]; /* … and its reason */
    uint64_t n_noted;        /* refusals, for the log and the count */
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
        memcpy(crowd->text, m->u.refused.text, sizeof(crowd->text));
    }
    if (m->type == MSG_ROUND) {
        crowd->generation = m->u.round.generation;
        crowd->n_bytes = MAX(crowd->n_bytes, m->u.round.nodes.size);
        crowd->n_rest_bytes += m->u.round.group_rank > 0 ? m->u.round.nodes.size : 0;
    }
}

static void on_note(void *arg, const struct job_event *e)
{
    struct crowd *crowd = arg;

    crowd->n_noted += e->kind == NODE_IS_REFUSED;
}

static void on_close(void *arg, uint64_t conn)
{
    (void)arg;
    (void)conn;
}

static struct crowd *crowd_with_stores(size_t store_max_bytes, size_t job_max_bytes)
{
    struct crowd *crowd = mem_zalloc(sizeof(*crowd));

    crowd->service = service_new(
        &(struct service_config){.lease_ms = 3000,
                                 .store_max_bytes = store_max_bytes,
                                 .job_max_bytes = job_max_bytes,
                                 .seed = 9,
                                 .sink = {crowd, on_send, on_close, on_note}});
    return crowd;
}

static struct crowd *crowd_with_store(size_t store_max_bytes)
{
    return crowd_with_stores(store_max_bytes, 0);
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
    assert_true(crowd->n_bytes > MSG_MAX_FRAME / 2 && crowd->n_bytes < MSG_MAX_FRAME);
    assert_true(crowd->n_rest_bytes < 2 * crowd->n_bytes); /* not the square */
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
                                   .host = "h",
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

static void end_job(const struct crowd *crowd, uint64_t conn, uint64_t generation)
{
    struct msg m = {.type = MSG_STOPPED,
                    .u.stopped = {.generation = generation, .done = 1}};

    begin_job(crowd, conn);
    say(crowd, conn, &m);
    service_closed(crowd->service, conn, 1000);
}

static void finished_jobs_are_bounded_and_the_oldest_is_forgotten(void **state)
{
    enum { KEPT = 256 };
    struct crowd *crowd = crowd_new();

    (void)state;
    for (uint64_t i = 1; i <= KEPT + 1; i++) {
        end_job(crowd, i, 1);
    }
    assert_int_equal(crowd->n_closed, KEPT + 1);
    begin_job(crowd, 2);
    assert_int_equal(crowd->generation, 2); /* goes on */
    begin_job(crowd, 1);
    assert_int_equal(crowd->generation, 1); /* begins */
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

/* Says hello to the job `id`, with so many ranks. */
static void say_ranks(const struct crowd *crowd, uint64_t conn, const char *id,
                      uint32_t nodes, uint32_t nproc)
{
    struct msg m = {.type = MSG_HELLO};

    m.u.hello = (struct msg_hello){.version = MSG_VERSION,
                                   .agent_id = conn,
                                   .host = "h",
                                   .min_nodes = nodes,
                                   .max_nodes = nodes,
                                   .nproc = nproc,
                                   .max_restarts = 9,
                                   .node_rank = -1,
                                   .group_rank = -1};
    (void)snprintf(m.u.hello.job, sizeof(m.u.hello.job), "%s", id);
    service_opened(crowd->service, conn, "10.1.2.3", 1000);
    say(crowd, conn, &m);
}

static void ranks_are_bounded_and_those_of_who_is_gone_may_be_had_again(void **state)
{
    struct crowd *crowd = crowd_new();

    (void)state;
    say_ranks(crowd, 1, "one", 1, MSG_MAX_WORLD);
    say_ranks(crowd, 2, "two", 1, MSG_MAX_WORLD);
    assert_int_equal(crowd->n_refused, 0);
    say_ranks(crowd, 3, "small", 1, 1);
    assert_int_equal(crowd->n_refused, 1);
    assert_int_equal(crowd->n_noted, 1);
    assert_int_equal(crowd->exit_code, 94);
    assert_string_equal(crowd->text,
                        "job small: no room for the 1 rank of this node: the jobs of "
                        "this service have 2097152 together, and may have 2097152; "
                        "wait until one has ended, or start another ctrun-rendezvous");
    say_join(crowd, 2, "10.1.2.3"); /* who is in goes on */
    assert_int_equal(crowd->n_rounds, 1);
    service_closed(crowd->service, 2, 1000);
    begin_job(crowd, 4);
    say_ranks(crowd, 5, "two", 1, MSG_MAX_WORLD - 1);
    assert_int_equal(crowd->n_refused, 1);
    say_ranks(crowd, 6, "small", 1, 1);
    assert_int_equal(crowd->n_refused, 2);
    crowd_free(crowd);
}

/* People see them until then, and they are not counted twice when it has ended. */
static void
ranks_of_a_node_that_is_lost_count_until_its_generation_has_ended(void **state)
{
    struct crowd *crowd = crowd_new();

    (void)state;
    say_ranks(crowd, 1, "a", 2, MSG_MAX_WORLD / 2);
    say_ranks(crowd, 2, "a", 2, MSG_MAX_WORLD / 2);
    say_join(crowd, 1, "10.1.2.3");
    say_join(crowd, 2, "10.1.2.3");
    assert_int_equal(crowd->n_rounds, 2);
    service_closed(crowd->service, 2, 1000);
    say_ranks(crowd, 3, "b", 1, MSG_MAX_WORLD - 1);
    say_ranks(crowd, 4, "c", 1, 2);
    assert_int_equal(crowd->n_refused, 1);
    say_stopped(crowd, 1);
    say_ranks(crowd, 5, "a", 2, MSG_MAX_WORLD / 2);
    assert_int_equal(crowd->n_refused, 1);
    say_join(crowd, 1, "10.1.2.3");
    say_join(crowd, 5, "10.1.2.3");
    assert_int_equal(crowd->n_rounds, 4);
    say_ranks(crowd, 6, "c", 1, 2);
    assert_int_equal(crowd->n_refused, 2);
    say_ranks(crowd, 7, "c", 1, 1);
    assert_int_equal(crowd->n_refused, 2);
    crowd_free(crowd);
}

static void a_job_without_nodes_has_no_memory_for_each_of_its_ranks(void **state)
{
    struct crowd *crowd = crowd_new();
    struct msg end = {.type = MSG_RANK_ENDED,
                      .u.rank_ended = {.rank = MSG_MAX_WORLD - 1, .exit_code = 1}};
    const struct job *job;

    (void)state;
    say_ranks(crowd, 1, "a", 1, MSG_MAX_WORLD);
    say_join(crowd, 1, "10.1.2.3");
    job = service_jobs(crowd->service)->entry[0]->job;
    end.u.rank_ended.generation = crowd->generation;
    say(crowd, 1, &end);
    assert_non_null(job->progress.rank);
    assert_int_equal(job->cause.others.n_ranks, MSG_MAX_WORLD);
    service_closed(crowd->service, 1, 1000);
    assert_int_equal(service_active_jobs(crowd->service), 1); /* it may come back */
    assert_null(job->progress.rank);
    assert_null(job->progress.node);
    assert_null(job->cause.others.how);
    assert_int_equal(job->ranks->used, 0);
    crowd_free(crowd);
}

/* A key of 50,000 bytes' value into the job's store, by one of its workers. */
static void store_much_by(const struct crowd *crowd, uint64_t conn, uint64_t generation,
                          uint32_t client)
{
    char value[50000] = "";
    char key[16];
    struct msg m = {.type = MSG_STORE};
    struct buf body;

    (void)snprintf(key, sizeof(key), "/k%u", client);
    body_make(&body, "sb", key, value, sizeof(value));
    m.u.store = (struct msg_store){.generation = generation,
                                   .client = client,
                                   .seq = 1,
                                   .op = TCPSTORE_SET,
                                   .body = {buf_bytes(&body), buf_len(&body)}};
    say(crowd, conn, &m);
    buf_release(&body);
}

static void store_much(const struct crowd *crowd, uint64_t conn, uint64_t generation)
{
    store_much_by(crowd, conn, generation, 1);
}

static void a_job_takes_its_share_and_no_more(void **state)
{
    struct crowd *crowd = crowd_with_stores(1000000, 120000);

    (void)state;
    begin_job(crowd, 1);
    begin_job(crowd, 2);
    for (uint32_t client = 1; client <= 3; client++) {
        store_much_by(crowd, 1, 1, client);
    }
    assert_int_equal(crowd->n_stored, 2);
    assert_int_equal(crowd->n_denied, 1);
    store_much(crowd, 2, 1);
    assert_int_equal(crowd->n_stored, 3);
    service_set_store(crowd->service, 1000000, 60000);
    begin_job(crowd, 3);
    store_much_by(crowd, 3, 1, 1);
    store_much_by(crowd, 3, 1, 2);
    assert_int_equal(crowd->n_stored, 4);
    assert_int_equal(crowd->n_denied, 2);
    crowd_free(crowd);
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
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_thousand_agents_form_fail_and_form_again),
        cmocka_unit_test(nodes_that_do_not_fit_into_a_rounds_table_are_refused),
        cmocka_unit_test(a_node_whose_address_does_not_fit_is_turned_away),
        cmocka_unit_test(a_job_that_was_told_to_stop_is_not_active),
        cmocka_unit_test(idle_jobs_are_bounded),
        cmocka_unit_test(finished_jobs_are_bounded_and_the_oldest_is_forgotten),
        cmocka_unit_test(jobs_are_bounded_and_one_too_many_is_refused_with_94),
        cmocka_unit_test(ranks_are_bounded_and_those_of_who_is_gone_may_be_had_again),
        cmocka_unit_test(
            ranks_of_a_node_that_is_lost_count_until_its_generation_has_ended),
        cmocka_unit_test(a_job_without_nodes_has_no_memory_for_each_of_its_ranks),
        cmocka_unit_test(all_jobs_share_one_store_budget),
        cmocka_unit_test(a_job_takes_its_share_and_no_more),
        cmocka_unit_test(without_sessions_there_is_nothing_to_wait_for),
        cmocka_unit_test(messages_of_a_connection_that_is_gone_are_ignored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
