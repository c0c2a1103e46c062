#include "tests/lib/operator_rig.h"

#include "tests/lib/cmocka.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { MAX_TEXT = 1 << 20 };

struct operator_rig operator_rig;

/* ---- the service's shell ---- */

static void on_send(void *arg, uint64_t conn, const struct msg *m)
{
    (void)arg;
    if (m->type == MSG_INSPECT && operator_rig.n_inspects < OPERATOR_RIG_INSPECTS) {
        operator_rig.inspected_conn[operator_rig.n_inspects] = conn;
        operator_rig.inspects[operator_rig.n_inspects++] = m->u.inspect;
    } else if (m->type == MSG_DRAIN) {
        operator_rig.n_drained++;
    } else if (m->type == MSG_STOP) {
        operator_rig.n_stops += m->u.stop.mode == STOP_LEAVE;
    } else if (m->type == MSG_CLOSED) {
        operator_rig.n_closed++;
        operator_rig.closed_code = m->u.closed.exit_code;
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
    (void)history_note(&operator_rig.history, e, OPERATOR_RIG_WALL_MS);
}

static void on_inspected(void *arg, uint64_t session, const struct msg_inspected *m)
{
    (void)arg;
    operators_inspected(operator_rig.operators, session, m, OPERATOR_RIG_NOW_MS);
}

/* ---- the operators' shell ---- */

struct operator_answer *answer_of(uint64_t conn)
{
    return &operator_rig.answers[conn - OPERATOR_RIG_FIRST];
}

static void on_answer(void *arg, uint64_t conn, const struct msg *m)
{
    struct operator_answer *a = answer_of(conn);
    int rv;

    (void)arg;
    a->is_welcome = a->is_welcome || m->type == MSG_WELCOME;
    a->is_refused = a->is_refused || m->type == MSG_REFUSED;
    if (m->type == MSG_ANSWER) {
        rv = buf_append(&a->text, m->u.answer.body.data, m->u.answer.body.size);
        assert_int_equal(rv, 0);
        a->exit_code = m->u.answer.exit_code;
        a->is_whole = !m->u.answer.more;
    } else if (m->type == MSG_REFUSED) {
        rv = buf_append(&a->text, m->u.refused.text, strlen(m->u.refused.text));
        assert_int_equal(rv, 0);
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
    return operator_rig.is_behind;
}

/* ---- scenes ---- */

void agent_says(uint64_t conn, const struct msg *m)
{
    assert_int_equal(
        service_message(operator_rig.service, conn, m, OPERATOR_RIG_NOW_MS), 0);
}

void all_agents_leave(void)
{
    const struct msg leave = {.type = MSG_LEAVE, .u.leave = {.signal = SIGTERM}};
    const struct msg stopped = {.type = MSG_STOPPED, .u.stopped = {.generation = 1}};

    for (uint64_t conn = 1; conn <= 2; conn++) {
        agent_says(conn, &leave);
        agent_says(conn, &stopped);
    }
    service_closed(operator_rig.service, 1, OPERATOR_RIG_NOW_MS);
    service_closed(operator_rig.service, 2, OPERATOR_RIG_NOW_MS);
}

void agent_says_hello(uint64_t conn, const char *host, const char *job, uint32_t nproc)
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
    service_opened(operator_rig.service, conn, "127.0.0.1", OPERATOR_RIG_NOW_MS);
    agent_says(conn, &m);
    m = (struct msg){.type = MSG_JOIN, .u.join = {.port = 1}};
    (void)snprintf(m.u.join.addr, sizeof(m.u.join.addr), "127.0.0.1");
    agent_says(conn, &m);
}

void operator_rig_receive(uint64_t boot)
{
    operator_rig.operators = operators_new(
        &(struct operators_config){.service = operator_rig.service,
                                   .history = &operator_rig.history,
                                   .welcome = {.cluster = 11, .boot = boot},
                                   .send = on_answer,
                                   .close = on_answered,
                                   .is_behind = on_is_behind});
}

int operator_rig_set_up(void **state)
{
    const struct service_sink sink = {
        .send = on_send, .close = on_close, .note = on_note, .inspected = on_inspected};

    (void)state;
    operator_rig.n_inspects = operator_rig.n_drained = operator_rig.n_closed =
        operator_rig.n_stops = 0;
    operator_rig.is_behind = false;
    for (size_t i = 0; i < ARRAY_LEN(operator_rig.answers); i++) {
        operator_rig.answers[i] = (struct operator_answer){0};
        buf_init(&operator_rig.answers[i].text, MAX_TEXT);
    }
    history_init(&operator_rig.history, &(struct history_config){.seed = 1});
    operator_rig.service = service_new(&(struct service_config){.cluster = 11,
                                                                .boot = 1,
                                                                .ephemeral = true,
                                                                .lease_ms = 3000,
                                                                .seed = 1,
                                                                .sink = sink});
    operator_rig_receive(1);
    agent_says_hello(1, "alpha", "train", 2);
    agent_says_hello(2, "beta", "train", 2);
    return 0;
}

int operator_rig_tear_down(void **state)
{
    (void)state;
    operators_free(operator_rig.operators);
    service_free(operator_rig.service);
    history_release(&operator_rig.history);
    for (size_t i = 0; i < ARRAY_LEN(operator_rig.answers); i++) {
        buf_release(&operator_rig.answers[i].text);
    }
    return 0;
}

uint64_t open_as(const struct identity *who)
{
    struct msg_operator m = {.version = MSG_VERSION, .who = "eve@home"};
    uint64_t conn =
        OPERATOR_RIG_FIRST + operator_rig.n_opened++ % ARRAY_LEN(operator_rig.answers);

    answer_of(conn)->is_closed = false;
    buf_clear(&answer_of(conn)->text);
    assert_true(operators_open(operator_rig.operators, conn, &m, who));
    assert_true(answer_of(conn)->is_welcome);
    return conn;
}

struct msg make_ask(const char *verb, const char *job)
{
    struct msg m = {.type = MSG_ASK, .u.ask = {.request = 7, .rank = -1}};

    (void)snprintf(m.u.ask.verb, sizeof(m.u.ask.verb), "%s", verb);
    (void)snprintf(m.u.ask.job, sizeof(m.u.ask.job), "%s", job);
    return m;
}

const struct operator_answer *ask_with(uint64_t conn, struct msg m)
{
    assert_int_equal(
        operators_message(operator_rig.operators, conn, &m, OPERATOR_RIG_NOW_MS), 0);
    return answer_of(conn);
}

const struct operator_answer *ask_about(const char *verb, const char *job)
{
    return ask_with(open_as(NULL), make_ask(verb, job));
}

json_t *json_of(const struct operator_answer *a)
{
    json_t *json =
        json_loadb((const char *)buf_bytes(&a->text), buf_len(&a->text), 0, NULL);

    assert_true(a->is_whole && a->is_closed);
    assert_int_equal(a->exit_code, 0);
    assert_non_null(json);
    return json;
}

void expect_failure(const struct operator_answer *a, uint32_t exit_code,
                    const char *text)
{
    assert_true(a->is_whole && a->is_closed);
    assert_int_equal(a->exit_code, exit_code);
    assert_non_null(memmem(buf_bytes(&a->text), buf_len(&a->text), text, strlen(text)));
}

void expect_said(const struct operator_answer *a, const char *text)
{
    expect_failure(a, 0, text);
}

void expect_told(uint64_t conn, const char *text)
{
    const struct buf *told = &answer_of(conn)->text;

    assert_non_null(memmem(buf_bytes(told), buf_len(told), text, strlen(text)));
}
