/* Those who ask and steer, in front of a service with a job of two nodes. */

#include "rendezvous/history.h"
#include "rendezvous/operator.h"
#include "rendezvous/service.h"
#include "tests/lib/cmocka.h"

#include "common/err.h"
#include "common/exit_code.h"
#include "common/identity.h"
#include "common/mem.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_TEXT = 1 << 20,
    MAX_INSPECTS = 64,
    FIRST_ASKER = 1000,
    NOW_MS = 5000,
    WALL_MS = 1000000,
};

/* What one operator was told. */
struct answer {
    struct buf text;
    uint32_t exit_code;
    bool is_welcome, is_refused, is_whole, is_closed;
};

static struct service *service;
static struct history history;
static struct operators *operators;
static struct answer answers[OPERATORS_MAX + 2]; /* of FIRST_ASKER … */
static struct msg_inspect inspects[MAX_INSPECTS];
static uint64_t inspected_conn[MAX_INSPECTS];
static size_t n_inspects;
static size_t n_drained, n_closed, n_stops;
static uint32_t closed_code;
static bool is_behind;
static uint64_t session_of[5]; /* of agents 1 … */

/* ---- the service's shell ---- */

static void on_send(void *arg, uint64_t conn, const struct msg *m)
{
    (void)arg;
    if (m->type == MSG_WELCOME) {
        session_of[conn] = m->u.welcome.session;
    } else if (m->type == MSG_INSPECT && n_inspects < MAX_INSPECTS) {
        inspected_conn[n_inspects] = conn;
        inspects[n_inspects++] = m->u.inspect;
    } else if (m->type == MSG_DRAIN) {
        n_drained++;
    } else if (m->type == MSG_STOP) {
        n_stops += m->u.stop.mode == STOP_LEAVE;
    } else if (m->type == MSG_CLOSED) {
        n_closed++;
        closed_code = m->u.closed.exit_code;
    }
}

static void on_close(void *arg, uint64_t conn)
{
    (void)arg;
    (void)conn;
}

static void on_note(void *arg, const struct job_event *e)
{
    (void)arg;
    (void)history_note(&history, e, WALL_MS);
}

static void on_inspected(void *arg, uint64_t session, const struct msg_inspected *m)
{
    (void)arg;
    operators_inspected(operators, session, m, NOW_MS);
}

/* ---- the operators' shell ---- */

static struct answer *answer_of(uint64_t conn)
{
    return &answers[conn - FIRST_ASKER];
}

static void on_answer(void *arg, uint64_t conn, const struct msg *m)
{
    struct answer *a = answer_of(conn);
    int rv;

    (void)arg;
    a->is_welcome = a->is_welcome || m->type == MSG_WELCOME;
    a->is_refused = a->is_refused || m->type == MSG_REFUSED;
    if (m->type == MSG_ANSWER) {
        rv = buf_append(&a->text, m->u.answer.body.data, m->u.answer.body.size);
        assert_int_equal(rv, 0);
        a->exit_code = m->u.answer.exit_code;
        a->is_whole = !m->u.answer.more;
    }
}

static void on_answered(void *arg, uint64_t conn)
{
    (void)arg;
    answer_of(conn)->is_closed = true;
}

static bool on_is_behind(void *arg, uint64_t conn)
{
    (void)arg;
    (void)conn;
    return is_behind;
}

/* ---- scenes ---- */

static void say(uint64_t conn, const struct msg *m)
{
    assert_int_equal(service_message(service, conn, m, NOW_MS), 0);
}

static void agent_says_hello(uint64_t conn, const char *host, const char *job,
                             uint32_t nproc)
{
    struct msg m = {.type = MSG_HELLO,
                    .u.hello = {.version = MSG_VERSION,
                                .agent_id = conn,
                                .group_rank = -1,
                                .node_rank = (int32_t)(conn - 1) % 2,
                                .min_nodes = 2,
                                .max_nodes = 2,
                                .nproc = nproc,
                                .last_call_ms = 1000}};

    (void)snprintf(m.u.hello.job, sizeof(m.u.hello.job), "%s", job);
    (void)snprintf(m.u.hello.host, sizeof(m.u.hello.host), "%s", host);
    service_opened(service, conn, "127.0.0.1", NOW_MS);
    say(conn, &m);
    m = (struct msg){.type = MSG_JOIN, .u.join = {.port = 1}};
    (void)snprintf(m.u.join.addr, sizeof(m.u.join.addr), "127.0.0.1");
    say(conn, &m);
}

static void agent_joins(uint64_t conn, const char *host)
{
    agent_says_hello(conn, host, "train", 2);
}

static int set_up(void **state)
{
    const struct service_sink sink = {
        .send = on_send, .close = on_close, .note = on_note, .inspected = on_inspected};

    (void)state;
    n_inspects = n_drained = n_closed = n_stops = 0;
    is_behind = false;
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        answers[i] = (struct answer){0};
        buf_init(&answers[i].text, MAX_TEXT);
    }
    history_init(&history, &(struct history_config){.seed = 1});
    service = service_new(&(struct service_config){.cluster = 11,
                                                   .boot = 1,
                                                   .ephemeral = true,
                                                   .lease_ms = 3000,
                                                   .seed = 1,
                                                   .sink = sink});
    operators = operators_new(&(struct operators_config){.service = service,
                                                         .history = &history,
                                                         .welcome = {.cluster = 11},
                                                         .send = on_answer,
                                                         .close = on_answered,
                                                         .is_behind = on_is_behind});
    agent_joins(1, "alpha");
    agent_joins(2, "beta");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    operators_free(operators);
    service_free(service);
    history_release(&history);
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        buf_release(&answers[i].text);
    }
    return 0;
}

static uint64_t n_opened;

static uint64_t open_as(const struct identity *who)
{
    struct msg_operator m = {.version = MSG_VERSION, .who = "eve@home"};
    uint64_t conn = FIRST_ASKER + n_opened++ % ARRAY_LEN(answers);

    answer_of(conn)->is_closed = false;
    buf_clear(&answer_of(conn)->text);
    assert_true(operators_open(operators, conn, &m, who));
    assert_true(answer_of(conn)->is_welcome);
    return conn;
}

static struct msg make_ask(const char *verb, const char *job)
{
    struct msg m = {.type = MSG_ASK, .u.ask = {.request = 7, .rank = -1}};

    (void)snprintf(m.u.ask.verb, sizeof(m.u.ask.verb), "%s", verb);
    (void)snprintf(m.u.ask.job, sizeof(m.u.ask.job), "%s", job);
    return m;
}

static const struct answer *ask_with(uint64_t conn, struct msg m)
{
    assert_int_equal(operators_message(operators, conn, &m, NOW_MS), 0);
    return answer_of(conn);
}

static const struct answer *ask(const char *verb, const char *job)
{
    return ask_with(open_as(NULL), make_ask(verb, job));
}

static json_t *json_of(const struct answer *a)
{
    json_t *json =
        json_loadb((const char *)buf_bytes(&a->text), buf_len(&a->text), 0, NULL);

    assert_true(a->is_whole && a->is_closed);
    assert_int_equal(a->exit_code, 0);
    assert_non_null(json);
    return json;
}

static void expect_failure(const struct answer *a, uint32_t exit_code, const char *text)
{
    assert_true(a->is_whole && a->is_closed);
    assert_int_equal(a->exit_code, exit_code);
    assert_non_null(memmem(buf_bytes(&a->text), buf_len(&a->text), text, strlen(text)));
}

static void expect_said(const struct answer *a, const char *text)
{
    expect_failure(a, 0, text);
}

/* So far. */
static void expect_told(uint64_t conn, const char *text)
{
    const struct buf *told = &answer_of(conn)->text;

    assert_non_null(memmem(buf_bytes(told), buf_len(told), text, strlen(text)));
}

/* ---- cases ---- */

static void job_is_shown_with_nodes_and_ranks(void **state)
{
    json_t *json = json_of(ask("status", "train"));
    const json_t *job = json_array_get(json_object_get(json, "jobs"), 0);

    (void)state;
    assert_string_equal(json_string_value(json_object_get(job, "state")), "running");
    assert_int_equal(json_array_size(json_object_get(job, "nodes_list")), 2);
    json_decref(json);
    agent_says_hello(3, "gamma", "begun", 1);
    agent_says_hello(4, "delta", "begun", 1);
    json = json_of(ask("ps", ""));
    assert_int_equal(json_array_size(json_object_get(json, "ranks")), 6);
    job = json_array_get(json_object_get(json, "ranks"), 0); /* by name */
    assert_string_equal(json_string_value(json_object_get(job, "job")), "begun");
    json_decref(json);
    json = json_of(ask("history", ""));
    assert_int_equal(json_array_size(json_object_get(json, "jobs")), 0);
    json_decref(json);
}

static void what_is_not_there_has_an_exit_code(void **state)
{
    static const char *const verbs[] = {"status", "ps",     "events",
                                        "logs",   "cancel", "history"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        expect_failure(ask(verbs[i], "other"), EXIT_NO_SUCH, "no job other");
    }
    expect_failure(ask("dance", ""), EXIT_MISTAKE, "verb dance");
}

static void one_question_is_all(void **state)
{
    uint64_t conn = open_as(NULL);
    struct msg m = make_ask("events", "train");

    (void)state;
    m.u.ask.follow = 1;
    assert_false(ask_with(conn, m)->is_whole);
    assert_int_equal(operators_message(operators, conn, &m, NOW_MS), ERR_PROTOCOL);
    m = (struct msg){.type = MSG_HEARTBEAT};
    assert_int_equal(operators_message(operators, open_as(NULL), &m, NOW_MS),
                     ERR_PROTOCOL);
}

static void crowd_is_turned_away(void **state)
{
    struct msg_operator m = {.version = MSG_VERSION};
    uint64_t extra;

    (void)state;
    n_opened = 0;
    for (int i = 0; i < OPERATORS_MAX; i++) {
        (void)open_as(NULL);
    }
    extra = FIRST_ASKER + OPERATORS_MAX;
    assert_false(operators_open(operators, extra, &m, NULL));
    assert_true(answer_of(extra)->is_refused && answer_of(extra)->is_closed);
    operators_closed(operators, FIRST_ASKER);
    assert_true(operators_open(operators, extra, &m, NULL));
    m.version = MSG_VERSION + 1;
    operators_closed(operators, extra);
    assert_false(operators_open(operators, extra + 1, &m, NULL));
    n_opened = 0;
}

static void who_follows_is_forgotten_with_its_key_when_the_server_stops(void **state)
{
    struct identity *key = mem_zalloc(sizeof(*key)); /* the connection's */
    struct msg m = make_ask("events", "train");
    uint64_t conn;
    size_t told;

    (void)state;
    key->kind = IDENTITY_PSK;
    key->role = IDENTITY_OPERATOR;
    conn = open_as(key);
    m.u.ask.follow = 1;
    told = buf_len(&ask_with(conn, m)->text);
    operators_stop(operators);
    mem_free(key);
    json_decref(json_of(ask("cancel", "train")));
    operators_go_on(operators, NOW_MS);
    assert_int_equal(buf_len(&answer_of(conn)->text), told);
    assert_int_equal(operators_deadline(operators), UINT64_MAX);
}

static void cancel_tells_all_nodes_to_leave_and_ends_with_143(void **state)
{
    struct msg m = {.type = MSG_STOPPED, .u.stopped = {.generation = 1}};
    json_t *json = json_of(ask("cancel", ""));

    (void)state;
    assert_string_equal(json_string_value(json_object_get(json, "job")), "train");
    json_decref(json);
    assert_int_equal(n_stops, 2);
    assert_int_equal(n_closed, 0);
    say(1, &m);
    say(2, &m);
    assert_int_equal(n_closed, 2);
    assert_int_equal(closed_code, 143);
    expect_failure(ask("cancel", "train"), EXIT_NO_SUCH, "job train is over");
    service_closed(service, 1, NOW_MS);
    service_closed(service, 2, NOW_MS);
    expect_failure(ask("cancel", "train"), EXIT_NO_SUCH, "does not run any more");
    expect_failure(ask("cancel", "other"), EXIT_NO_SUCH, "no job other");
}

static void job_that_is_done_in_spite_of_it_is_done(void **state)
{
    struct msg m = {.type = MSG_STOPPED, .u.stopped = {.generation = 1, .done = 1}};

    (void)state;
    json_decref(json_of(ask("cancel", "train")));
    say(1, &m);
    say(2, &m);
    assert_int_equal(n_closed, 2);
    assert_int_equal(closed_code, 0);
}

static void node_is_drained_by_name_or_group_rank(void **state)
{
    struct msg m = make_ask("drain", "train");
    json_t *json;

    (void)state;
    (void)snprintf(m.u.ask.arg, sizeof(m.u.ask.arg), "beta");
    json = json_of(ask_with(open_as(NULL), m));
    assert_int_equal(json_array_size(json_object_get(json, "nodes")), 1);
    json_decref(json);
    (void)snprintf(m.u.ask.arg, sizeof(m.u.ask.arg), "0");
    json_decref(json_of(ask_with(open_as(NULL), m)));
    assert_int_equal(n_drained, 2);
    (void)snprintf(m.u.ask.arg, sizeof(m.u.ask.arg), "gamma");
    expect_failure(ask_with(open_as(NULL), m), EXIT_NO_SUCH, "a node gamma");
    assert_int_equal(n_drained, 2);
}

static json_t *who_would_be_drained(const char *node)
{
    struct msg m = make_ask("drainable", "");

    (void)snprintf(m.u.ask.arg, sizeof(m.u.ask.arg), "%s", node);
    return json_of(ask_with(open_as(NULL), m));
}

static void who_would_be_drained_is_told_and_stays(void **state)
{
    json_t *json;
    const json_t *node;

    (void)state;
    agent_says_hello(3, "beta", "other", 1);
    json = who_would_be_drained("beta");
    assert_int_equal(json_array_size(json_object_get(json, "nodes")), 2);
    node = json_array_get(json_object_get(json, "nodes"), 1);
    assert_string_equal(json_string_value(json_object_get(node, "job")), "train");
    assert_int_equal(json_integer_value(json_object_get(node, "group_rank")), 1);
    node = json_array_get(json_object_get(json, "nodes"), 0);
    assert_int_equal(json_integer_value(json_object_get(node, "group_rank")), -1);
    json_decref(json);
    json_decref(who_would_be_drained("beta")); /* still */
    assert_int_equal(n_drained, 0);
}

/* The agent's answer to the inspection number i, from that byte on. */
static void tell_at(size_t i, uint64_t offset, const char *text, const char *end)
{
    struct msg m = {.type = MSG_INSPECTED,
                    .u.inspected = {.generation = inspects[i].generation,
                                    .request = inspects[i].request,
                                    .rank = inspects[i].rank,
                                    .offset = offset,
                                    .body = {(const uint8_t *)text, strlen(text)}}};

    (void)snprintf(m.u.inspected.state, sizeof(m.u.inspected.state), "%s", end);
    say(inspected_conn[i], &m);
}

static void tell(size_t i, const char *text, const char *end)
{
    tell_at(i, inspects[i].offset, text, end);
}

static void lines_of_a_rank_come_from_its_agent(void **state)
{
    uint64_t conn = open_as(NULL);
    struct msg m = make_ask("logs", "train");

    (void)state;
    m.u.ask.rank = 3;
    (void)ask_with(conn, m);
    assert_int_equal(n_inspects, 2); /* stdout and stderr */
    assert_int_equal(inspected_conn[0], 2);
    assert_int_equal(inspects[0].rank, 3);
    tell(0, "one\ntwo \xff\n", "");
    assert_int_equal(n_inspects, 3); /* and at once for more */
    assert_int_equal(inspects[2].offset, strlen("one\ntwo x\n"));
    tell(2, "", INSPECT_ENDED);
    assert_false(answer_of(conn)->is_whole);
    tell(1, "bad\n", INSPECT_ENDED);
    assert_true(answer_of(conn)->is_whole);
    expect_said(answer_of(conn), "\"text\":\"one\"}\n");
    expect_said(answer_of(conn), "\"text\":\"two \xef\xbf\xbd\"}\n");
    expect_said(answer_of(conn), "\"stream\":\"stderr\",\"text\":\"bad\"}\n");
    m.u.ask.rank = 4;
    expect_failure(ask_with(open_as(NULL), m), EXIT_NO_SUCH, "no rank 4: it has 4");
}

static void lines_of_those_behind_a_node_that_has_gone_are_theirs(void **state)
{
    struct msg m = make_ask("logs", "train");

    (void)state;
    service_closed(service, 1, NOW_MS);
    m.u.ask.rank = 2;
    (void)ask_with(open_as(NULL), m);
    assert_int_equal(n_inspects, 2);
    assert_int_equal(inspected_conn[0], 2);
    assert_int_equal(inspects[0].rank, 2);
    m.u.ask.rank = 1;
    expect_failure(ask_with(open_as(NULL), m), EXIT_NO_SUCH, "its node has gone");
}

static void nothing_is_read_for_who_is_behind(void **state)
{
    struct msg m = make_ask("logs", "train");

    (void)state;
    is_behind = true;
    (void)ask_with(open_as(NULL), m);
    assert_int_equal(n_inspects, 0);
    is_behind = false;
    operators_go_on(operators, operators_deadline(operators));
    assert_int_equal(n_inspects, 8);
}

static void agent_that_does_not_answer_is_not_waited_for(void **state)
{
    uint64_t conn = open_as(NULL);
    struct msg m = make_ask("logs", "train");
    uint64_t now_ms = NOW_MS;

    (void)state;
    m.u.ask.rank = 0;
    (void)ask_with(conn, m);
    for (int i = 0; i < 8 && !answer_of(conn)->is_whole; i++) {
        now_ms = operators_deadline(operators);
        operators_go_on(operators, now_ms);
    }
    expect_said(answer_of(conn), "its node does not answer");
    assert_in_range(now_ms, NOW_MS + 1000, NOW_MS + 60000);
}

static void a_late_answer_and_the_next_one_are_told_once(void **state)
{
    uint64_t conn = open_as(NULL);
    struct msg m = make_ask("logs", "train");
    uint64_t now_ms = NOW_MS;
    struct buf *told = &answer_of(conn)->text;
    size_t size;

    (void)state;
    m.u.ask.rank = 0;
    m.u.ask.follow = 1;
    (void)ask_with(conn, m);
    for (int i = 0; i < 8 && n_inspects < 3; i++) {
        now_ms = operators_deadline(operators);
        operators_go_on(operators, now_ms);
    }
    assert_int_equal(inspects[2].request, inspects[0].request);
    tell_at(0, 0, "one\n", "");
    size = buf_len(told);
    tell_at(2, 0, "one\n", "");
    assert_int_equal(buf_len(told), size);
    tell_at(2, 0, "one\ntwo\n", "");
    expect_told(conn, "\"two\"");
    assert_null(memmem(buf_bytes(told) + size, buf_len(told) - size, "one", 3));
}

static void more_ranks_than_can_be_read_are_refused_in_words(void **state)
{
    uint64_t conn = open_as(NULL);
    struct msg m = make_ask("logs", "large");

    (void)state;
    m.u.ask.follow = 1;
    agent_says_hello(3, "gamma", "large", 2000);
    (void)ask_with(conn, m); /* it waits for a second node */
    assert_false(answer_of(conn)->is_whole);
    agent_says_hello(4, "delta", "large", 100);
    operators_go_on(operators, NOW_MS);
    expect_failure(answer_of(conn), EXIT_MISTAKE,
                   "job large has 2100 ranks, whose logs are too many to read at once "
                   "(2048): choose one by --rank");
    expect_failure(ask_with(open_as(NULL), m), EXIT_MISTAKE, "choose one by --rank");
}

static void followed_events_end_with_the_job(void **state)
{
    struct msg m = {.type = MSG_STOPPED, .u.stopped = {.generation = 1, .done = 1}};
    uint64_t conn = open_as(NULL);
    struct msg question = make_ask("events", "train");

    (void)state;
    question.u.ask.follow = 1;
    (void)ask_with(conn, question);
    assert_false(answer_of(conn)->is_whole);
    say(1, &m);
    say(2, &m);
    operators_go_on(operators, NOW_MS);
    expect_said(answer_of(conn), "\"kind\":\"done\"");
}

static void followed_events_wait_for_who_is_behind(void **state)
{
    uint64_t conn = open_as(NULL);
    struct msg m = make_ask("events", "");
    size_t before;

    (void)state;
    m.u.ask.follow = 1;
    (void)ask_with(conn, m);
    before = buf_len(&answer_of(conn)->text);
    is_behind = true;
    json_decref(json_of(ask("cancel", "train")));
    operators_go_on(operators, NOW_MS);
    assert_int_equal(buf_len(&answer_of(conn)->text), before);
    is_behind = false;
    operators_go_on(operators, operators_deadline(operators));
    expect_told(conn, "cancelled by eve@home");
    assert_true(operators_deadline(operators) == UINT64_MAX);
}

static void key_of_a_job_shows_its_own_jobs(void **state)
{
    const struct identity other = {
        .kind = IDENTITY_PSK, .role = IDENTITY_AGENT, .owner = "other"};
    const struct identity chief = {.kind = IDENTITY_CERTIFICATE,
                                   .role = IDENTITY_OPERATOR};
    json_t *json = json_of(ask_with(open_as(&other), make_ask("status", "")));

    (void)state;
    assert_int_equal(json_array_size(json_object_get(json, "jobs")), 0);
    json_decref(json);
    expect_failure(ask_with(open_as(&other), make_ask("cancel", "train")), EXIT_NO_SUCH,
                   "no job train");
    expect_failure(ask_with(open_as(&other), make_ask("logs", "train")), EXIT_NO_SUCH,
                   "no job train");
    json = json_of(ask_with(open_as(&chief), make_ask("status", "")));
    assert_int_equal(json_array_size(json_object_get(json, "jobs")), 1);
    json_decref(json);
    assert_int_equal(n_stops + n_inspects, 0);
}

static void key_of_a_job_shows_what_has_become_of_its_own(void **state)
{
    const struct identity mine = {
        .kind = IDENTITY_PSK, .role = IDENTITY_AGENT, .owner = "mine"};
    static const char *const owners[] = {"mine", "other"};
    json_t *json;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(owners); i++) {
        (void)history_note(&history,
                           &(struct job_event){.kind = JOB_HAS_FAILED,
                                               .job = owners[i],
                                               .owner = owners[i],
                                               .why = "it broke"},
                           WALL_MS);
    }
    json = json_of(ask_with(open_as(&mine), make_ask("history", "")));
    assert_int_equal(json_array_size(json_object_get(json, "jobs")), 1);
    json_decref(json);
    json = json_of(ask("history", ""));
    assert_int_equal(json_array_size(json_object_get(json, "jobs")), 2);
    json_decref(json);
    json = json_of(ask_with(open_as(&mine), make_ask("events", ""))); /* the only one */
    assert_string_equal(json_string_value(json_object_get(json, "job")), "mine");
    json_decref(json);
    expect_said(ask_with(open_as(&mine), make_ask("status", "mine")), "it broke");
    expect_failure(ask_with(open_as(&mine), make_ask("status", "other")), EXIT_NO_SUCH,
                   "no job other");
    expect_failure(ask_with(open_as(&mine), make_ask("history", "other")), EXIT_NO_SUCH,
                   "no job other");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(job_is_shown_with_nodes_and_ranks),
        CASE(what_is_not_there_has_an_exit_code),
        CASE(one_question_is_all),
        CASE(crowd_is_turned_away),
        CASE(who_follows_is_forgotten_with_its_key_when_the_server_stops),
        CASE(cancel_tells_all_nodes_to_leave_and_ends_with_143),
        CASE(job_that_is_done_in_spite_of_it_is_done),
        CASE(node_is_drained_by_name_or_group_rank),
        CASE(who_would_be_drained_is_told_and_stays),
        CASE(lines_of_a_rank_come_from_its_agent),
        CASE(lines_of_those_behind_a_node_that_has_gone_are_theirs),
        CASE(nothing_is_read_for_who_is_behind),
        CASE(agent_that_does_not_answer_is_not_waited_for),
        CASE(a_late_answer_and_the_next_one_are_told_once),
        CASE(more_ranks_than_can_be_read_are_refused_in_words),
        CASE(followed_events_end_with_the_job),
        CASE(followed_events_wait_for_who_is_behind),
        CASE(key_of_a_job_shows_its_own_jobs),
        CASE(key_of_a_job_shows_what_has_become_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
