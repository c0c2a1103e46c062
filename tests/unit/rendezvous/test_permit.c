/* Who may say which hello, to whom jobs belong, and how refusals are told and counted. */

#include "rendezvous/permit.h"
#include "rendezvous/refusals.h"
#include "rendezvous/service.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

enum { NOW = 1000, CLUSTER = 11 };

/* ---- keys ---- */

static struct identity psk(const char *secret, uint64_t agent_id)
{
    struct identity who = {
        .kind = IDENTITY_PSK, .role = IDENTITY_AGENT, .agent_id = agent_id};

    (void)snprintf(who.owner, sizeof(who.owner), "secret %s", secret);
    return who;
}

static struct identity certificate(const char *uri)
{
    struct identity who = {.kind = IDENTITY_CERTIFICATE, .owner = "ca"};

    assert_int_equal(identity_parse_uri((const uint8_t *)uri, strlen(uri), &who), 0);
    return who;
}

static void certificate_is_good_for_its_job_and_node_alone(void **state)
{
    static const struct {
        const char *uri;
        bool may;
    } cases[] = {
        {"ctrun://job/7/agent/node3", true},  {"ctrun://job/7/agent/2", true},
        {"ctrun://job/*/agent/*", true},      {"ctrun://job/7/agent/*", true},
        {"ctrun://job/8/agent/node3", false}, {"ctrun://job/7/agent/node4", false},
        {"ctrun://job/7/agent/3", false},     {"ctrun://job/7/worker/node3", false},
        {"ctrun://operator/anna", false},
    };
    const struct msg_hello hello = {.job = "7", .host = "node3", .node_rank = 2};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct identity who = certificate(cases[i].uri);
        struct errmsg msg = {""};
        int rv = permit_hello(&who, &hello, &msg);

        assert_int_equal(rv, cases[i].may ? 0 : ERR_REFUSED);
        assert_true(cases[i].may || strstr(msg.text, "does not allow it: show a"));
    }
}

static void agents_key_is_of_no_use_to_another_agent(void **state)
{
    struct identity who = psk("a", 5);
    struct errmsg msg = {""};

    (void)state;
    assert_int_equal(
        permit_hello(&who, &(struct msg_hello){.job = "7", .agent_id = 5}, &msg), 0);
    assert_int_equal(
        permit_hello(&who, &(struct msg_hello){.job = "7", .agent_id = 6}, &msg),
        ERR_REFUSED);
    assert_int_equal(permit_hello(NULL, &(struct msg_hello){.job = "7"}, &msg), 0);
}

static void roles_say_who_may_ask_and_who_may_store(void **state)
{
    struct identity agent = psk("a", 5);
    struct identity operator= psk("operator", 5);
    struct identity certified = certificate("ctrun://job/7/agent/n");
    struct identity worker = certificate("ctrun://job/7/worker/n");
    struct identity anna = certificate("ctrun://operator/anna");
    struct errmsg msg = {""};

    (void)state;
    operator.role = IDENTITY_OPERATOR;
    assert_int_equal(permit_operator(NULL, &msg), 0);
    assert_int_equal(permit_operator(&agent, &msg), 0);
    assert_int_equal(permit_operator(&operator, & msg), 0);
    assert_int_equal(permit_operator(&anna, &msg), 0);
    assert_int_equal(permit_operator(&certified, &msg), ERR_REFUSED);
    assert_int_equal(permit_operator(&worker, &msg), ERR_REFUSED);

    assert_int_equal(permit_entry(&worker, &msg), ERR_REFUSED);
    assert_int_equal(permit_entry(&anna, &msg), 0);
    assert_int_equal(permit_store(&worker, &msg), 0);
    assert_int_equal(permit_store(&agent, &msg), 0);
    assert_int_equal(permit_store(&anna, &msg), ERR_REFUSED);
    assert_int_equal(permit_hello(&operator, &(struct msg_hello){.agent_id = 5}, &msg),
                     ERR_REFUSED);

    assert_true(permit_job(NULL, "7", ""));
    assert_true(permit_job(&agent, "7", "secret a"));
    assert_false(permit_job(&agent, "7", "secret b"));
    assert_true(permit_job(&operator, "7", "secret b"));
    assert_true(permit_job(&anna, "7", "secret b"));
}

/* ---- the service ---- */

struct rig {
    struct service *service;
    struct msg last; /* to the connection `last_conn` */
    uint64_t last_conn;
    enum refusal why;
    unsigned n_refused;
    uint64_t generation; /* that the next hellos have seen */
};

static void on_send(void *arg, uint64_t conn, const struct msg *m)
{
    struct rig *r = arg;

    r->last = *m;
    r->last_conn = conn;
}

static void on_close(void *arg, uint64_t conn)
{
    (void)arg;
    (void)conn;
}

static void on_refused(void *arg, uint64_t conn, enum refusal why, const char *text)
{
    struct rig *r = arg;

    assert_true(conn != 0 && text[0] != '\0');
    r->why = why;
    r->n_refused++;
}

static int setup(void **state)
{
    struct rig *r = mem_zalloc(sizeof(*r));

    r->service = service_new(&(struct service_config){
        .cluster = CLUSTER,
        .boot = 1,
        .lease_ms = 3000,
        .seed = 1,
        .sink = {.arg = r, .send = on_send, .close = on_close, .refused = on_refused}});
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    service_free(r->service);
    mem_free(r);
    return 0;
}

/* Connects as `who` and says hello; the session's number, 0: it was refused. */
static uint64_t hello_to(struct rig *r, const char *job, uint64_t conn,
                         const struct identity *who, uint64_t agent_id,
                         uint64_t session)
{
    struct msg m = {.type = MSG_HELLO,
                    .u.hello = {.version = MSG_VERSION,
                                .host = "node",
                                .agent_id = agent_id,
                                .session = session,
                                .cluster = CLUSTER,
                                .generation = r->generation,
                                .min_nodes = 2,
                                .max_nodes = 2,
                                .nproc = 1,
                                .node_rank = -1,
                                .group_rank = -1}};

    (void)snprintf(m.u.hello.job, sizeof(m.u.hello.job), "%s", job);
    service_opened(r->service, conn, "10.0.0.1", NOW);
    service_identify(r->service, conn, who);
    assert_int_equal(service_message(r->service, conn, &m, NOW), 0);
    assert_true(r->last_conn == conn);
    return r->last.type == MSG_WELCOME ? r->last.u.welcome.session : 0;
}

static uint64_t hello(struct rig *r, uint64_t conn, const struct identity *who,
                      uint64_t agent_id, uint64_t session)
{
    return hello_to(r, "job", conn, who, agent_id, session);
}

static void assert_refused(const struct rig *r, enum refusal why, const char *words)
{
    assert_int_equal(r->last.type, MSG_REFUSED);
    assert_int_equal(r->last.u.refused.exit_code, 94);
    if (!strstr(r->last.u.refused.text, words)) {
        fail_msg("'%s' is not in: %s", words, r->last.u.refused.text);
    }
    assert_int_equal(r->n_refused, 1);
    assert_int_equal(r->why, why);
}

static void job_belongs_to_the_secret_that_began_it(void **state)
{
    struct rig *r = *state;
    struct identity a = psk("a", 1);
    struct identity also_a = psk("a", 2);
    struct identity b = psk("b", 3);

    assert_true(hello(r, 1, &a, 1, 0) != 0);
    assert_true(hello(r, 2, &also_a, 2, 0) != 0);
    assert_true(hello(r, 3, &b, 3, 0) == 0);
    assert_refused(r, REFUSAL_OWNER, "job job belongs to another secret");
}

static void say(struct rig *r, uint64_t conn, const struct msg *m)
{
    assert_int_equal(service_message(r->service, conn, m, NOW), 0);
}

static void nobody_hears_which_jobs_of_another_secret_wait(void **state)
{
    const struct msg join = {.type = MSG_JOIN,
                             .u.join = {.addr = "10.0.0.1", .port = 9}};
    const struct msg beat = {.type = MSG_HEARTBEAT};
    struct rig *r = *state;
    struct identity a = psk("a", 1);
    struct identity also_a = psk("a", 2);
    struct identity b = psk("b", 3);

    assert_true(hello_to(r, "one", 1, &a, 1, 0) != 0);
    assert_true(hello_to(r, "two", 2, &also_a, 2, 0) != 0);
    assert_true(hello_to(r, "secret", 3, &b, 3, 0) != 0);
    say(r, 3, &join);
    say(r, 1, &beat);
    assert_int_equal(r->last.type, MSG_PONG);
    assert_string_equal(r->last.u.pong.also_waiting, "");
    say(r, 2, &join);
    say(r, 1, &beat);
    assert_string_equal(r->last.u.pong.also_waiting, "two");
}

static void end_of_another_secrets_job_ends_nobody_elses(void **state)
{
    const struct msg join = {.type = MSG_JOIN,
                             .u.join = {.addr = "10.0.0.1", .port = 9}};
    const struct msg refuse = {
        .type = MSG_REFUSE,
        .u.refuse = {.generation = 1, .exit_code = 7, .text = "no such file"}};
    struct rig *r = *state;
    struct identity a[] = {psk("a", 1), psk("a", 2), psk("a", 4)};
    struct identity b = psk("b", 3);
    uint64_t conn = 1;

    for (; conn <= 2; conn++) {
        assert_true(hello(r, conn, &a[conn - 1], conn, 0) != 0);
        say(r, conn, &join);
    }
    say(r, 1, &refuse);
    service_closed(r->service, 1, NOW);
    service_closed(r->service, 2, NOW);
    r->generation = 1; /* in it, to all appearance */
    assert_true(hello(r, 3, &a[2], 4, 0) == 0);
    assert_int_equal(r->last.u.refused.exit_code, 7);
    assert_true(hello(r, 4, &b, 3, 0) != 0);
}

static void replayed_session_is_refused(void **state)
{
    struct rig *r = *state;
    struct identity a = psk("a", 1);
    struct identity other = psk("a", 2);
    uint64_t session = hello(r, 1, &a, 1, 0);

    assert_true(session != 0);
    assert_true(hello(r, 2, &other, 2, session) == 0);
    assert_refused(r, REFUSAL_REPLAY, "is another node's");
    assert_true(hello(r, 3, &a, 1, session) != 0); /* its own is as good as before */
}

static void another_certificate_does_not_take_an_agents_place(void **state)
{
    struct rig *r = *state;
    struct identity one = certificate("ctrun://job/job/agent/node");
    struct identity any = certificate("ctrun://job/job/agent/*");

    assert_true(hello(r, 1, &one, 1, 0) != 0);
    assert_true(hello(r, 2, &any, 1, 0) == 0);
    assert_refused(r, REFUSAL_REPLAY, "is another node's");
}

/* ---- refusals ---- */

static void peer_is_worth_one_line_and_is_counted_each_time(void **state)
{
    static struct refusals r;
    uint64_t hidden = 99;

    (void)state;
    assert_true(refusals_note(&r, "10.0.0.1", REFUSAL_KEY, NOW, &hidden));
    assert_true(refusals_note(&r, "10.0.0.1", REFUSAL_ROLE, NOW, &hidden));
    assert_int_equal(hidden, 0);
    for (uint64_t i = 1; i < 100; i++) {
        assert_false(
            refusals_note(&r, "10.0.0.1", REFUSAL_KEY, NOW + i * 1000, &hidden));
    }
    assert_true(refusals_note(&r, "10.0.0.1", REFUSAL_PLAIN, NOW + 200000, &hidden));
    assert_true(refusals_note(&r, "10.0.0.2", REFUSAL_KEY, NOW + 201000, &hidden));
    assert_true(
        refusals_note(&r, "10.0.0.1", REFUSAL_KEY, NOW + REFUSALS_AGAIN_MS, &hidden));
    assert_int_equal(hidden, 99);
    assert_int_equal(r.count[REFUSAL_KEY], 102);
    assert_int_equal(r.count[REFUSAL_PLAIN], 1);
}

static void thousands_of_peers_do_not_flood_the_log(void **state)
{
    static struct refusals r;
    unsigned n_lines = 0;
    uint64_t hidden;

    (void)state;
    for (unsigned i = 0; i < 10000; i++) {
        char peer[MSG_ADDR_MAX];

        (void)snprintf(peer, sizeof(peer), "10.0.%u.%u", i / 250, i % 250);
        n_lines += refusals_note(&r, peer, REFUSAL_KEY, NOW + i, &hidden);
    }
    assert_in_range(n_lines, 10 * REFUSALS_LINES_PER_S,
                    10 * REFUSALS_LINES_PER_S + REFUSALS_LINES_AT_ONCE);
    assert_int_equal(r.count[REFUSAL_KEY], 10000);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certificate_is_good_for_its_job_and_node_alone),
        cmocka_unit_test(agents_key_is_of_no_use_to_another_agent),
        cmocka_unit_test(roles_say_who_may_ask_and_who_may_store),
        CASE(job_belongs_to_the_secret_that_began_it),
        CASE(nobody_hears_which_jobs_of_another_secret_wait),
        CASE(end_of_another_secrets_job_ends_nobody_elses),
        CASE(replayed_session_is_refused),
        CASE(another_certificate_does_not_take_an_agents_place),
        cmocka_unit_test(peer_is_worth_one_line_and_is_counted_each_time),
        cmocka_unit_test(thousands_of_peers_do_not_flood_the_log),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
