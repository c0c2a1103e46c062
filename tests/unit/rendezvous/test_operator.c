/* Those who ask and steer (tests/lib/operator_rig.h). */

#include "tests/lib/cmocka.h"
#include "tests/lib/operator_rig.h"

#include "common/err.h"
#include "common/exit_code.h"
#include "common/identity.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

static void job_is_shown_with_nodes_and_ranks(void **state)
{
    json_t *json = json_of(ask_about("status", "train"));
    const json_t *job = json_array_get(json_object_get(json, "jobs"), 0);

    (void)state;
    assert_string_equal(json_string_value(json_object_get(job, "state")), "running");
    assert_int_equal(json_array_size(json_object_get(job, "nodes_list")), 2);
    json_decref(json);
    agent_says_hello(3, "gamma", "begun", 1);
    agent_says_hello(4, "delta", "begun", 1);
    json = json_of(ask_about("ps", ""));
    assert_int_equal(json_array_size(json_object_get(json, "ranks")), 6);
    job = json_array_get(json_object_get(json, "ranks"), 0); /* by name */
    assert_string_equal(json_string_value(json_object_get(job, "job")), "begun");
    json_decref(json);
    json = json_of(ask_about("history", ""));
    assert_int_equal(json_array_size(json_object_get(json, "jobs")), 0);
    json_decref(json);
}

static void what_is_not_there_has_an_exit_code(void **state)
{
    static const char *const verbs[] = {"status", "ps",     "events",
                                        "logs",   "cancel", "history"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        expect_failure(ask_about(verbs[i], "other"), EXIT_NO_SUCH, "no job other");
    }
    expect_failure(ask_about("dance", ""), EXIT_MISTAKE, "verb dance");
}

static void one_question_is_all(void **state)
{
    uint64_t conn = open_as(NULL);
    struct msg m = make_ask("events", "train");

    (void)state;
    m.u.ask.follow = 1;
    assert_false(ask_with(conn, m)->is_whole);
    assert_int_equal(
        operators_message(operator_rig.operators, conn, &m, OPERATOR_RIG_NOW_MS),
        ERR_PROTOCOL);
    m = (struct msg){.type = MSG_HEARTBEAT};
    assert_int_equal(operators_message(operator_rig.operators, open_as(NULL), &m,
                                       OPERATOR_RIG_NOW_MS),
                     ERR_PROTOCOL);
}

static void crowd_is_turned_away(void **state)
{
    struct msg_operator m = {.version = MSG_VERSION};
    uint64_t extra;

    (void)state;
    operator_rig.n_opened = 0;
    for (int i = 0; i < OPERATORS_MAX; i++) {
        (void)open_as(NULL);
    }
    extra = OPERATOR_RIG_FIRST + OPERATORS_MAX;
    assert_false(operators_open(operator_rig.operators, extra, &m, NULL));
    assert_true(answer_of(extra)->is_refused && answer_of(extra)->is_closed);
    operators_closed(operator_rig.operators, OPERATOR_RIG_FIRST);
    assert_true(operators_open(operator_rig.operators, extra, &m, NULL));
    m.version = MSG_VERSION + 1;
    operators_closed(operator_rig.operators, extra);
    assert_false(operators_open(operator_rig.operators, extra + 1, &m, NULL));
    operator_rig.n_opened = 0;
}

/* That many with that key come, and then one too many, who is told that. */
static void come_until_refused(const struct identity *who, size_t n, const char *why)
{
    struct msg_operator m = {.version = MSG_VERSION};
    uint64_t extra;

    for (size_t i = 0; i < n; i++) {
        (void)open_as(who);
    }
    extra = OPERATOR_RIG_FIRST + operator_rig.n_opened;
    buf_clear(&answer_of(extra)->text);
    assert_false(operators_open(operator_rig.operators, extra, &m, who));
    assert_true(answer_of(extra)->is_refused && answer_of(extra)->is_closed);
    expect_told(extra, why);
}

static void owners_leave_room_for_each_other_and_for_who_sees_all(void **state)
{
    struct identity who = {.kind = IDENTITY_PSK, .role = IDENTITY_AGENT};
    const struct identity sees_all = {.kind = IDENTITY_PSK, .role = IDENTITY_OPERATOR};
    struct identity keys[OPERATORS_MAX];

    (void)state;
    operator_rig.n_opened = 0;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        keys[i] = who;
        (void)snprintf(keys[i].owner, sizeof(keys[i].owner), "secret %zu", i);
    }
    come_until_refused(&keys[0], 16, "16 operators with this key (secret 0)");
    come_until_refused(&keys[1], 16, "16 operators with this key (secret 1)");
    (void)open_as(NULL);
    (void)open_as(&sees_all);
    for (size_t i = 2; i < 17; i++) {
        (void)open_as(&keys[i]);
    }
    come_until_refused(&keys[17], 1, "48 operators who see their own jobs alone");
    operators_closed(operator_rig.operators, OPERATOR_RIG_FIRST);
    come_until_refused(&keys[18], 1, "48 operators who see their own jobs alone");
    for (size_t i = 0; i < 7; i++) {
        (void)open_as(NULL);
    }
    come_until_refused(&sees_all, 7, "64 operators are here already");
    operators_stop(operator_rig.operators); /* the keys end here */
    operator_rig.n_opened = 0;
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
    operators_stop(operator_rig.operators);
    mem_free(key);
    json_decref(json_of(ask_about("cancel", "train")));
    operators_go_on(operator_rig.operators, OPERATOR_RIG_NOW_MS);
    assert_int_equal(buf_len(&answer_of(conn)->text), told);
    assert_int_equal(operators_deadline(operator_rig.operators), UINT64_MAX);
}

static void cancel_tells_all_nodes_to_leave_and_ends_with_143(void **state)
{
    struct msg m = {.type = MSG_STOPPED, .u.stopped = {.generation = 1}};
    json_t *json = json_of(ask_about("cancel", ""));

    (void)state;
    assert_string_equal(json_string_value(json_object_get(json, "job")), "train");
    assert_string_equal(json_string_value(json_object_get(json, "state")), "draining");
    json_decref(json);
    assert_int_equal(operator_rig.n_stops, 2);
    assert_int_equal(operator_rig.n_closed, 0);
    agent_says(1, &m);
    agent_says(2, &m);
    assert_int_equal(operator_rig.n_closed, 2);
    assert_int_equal(operator_rig.closed_code, 143);
    expect_failure(ask_about("cancel", "train"), EXIT_NO_SUCH, "job train is over");
    service_closed(operator_rig.service, 1, OPERATOR_RIG_NOW_MS);
    service_closed(operator_rig.service, 2, OPERATOR_RIG_NOW_MS);
    expect_failure(ask_about("cancel", "train"), EXIT_NO_SUCH, "does not run any more");
    expect_failure(ask_about("cancel", "other"), EXIT_NO_SUCH, "no job other");
}

static void job_that_is_done_in_spite_of_it_is_done(void **state)
{
    struct msg m = {.type = MSG_STOPPED, .u.stopped = {.generation = 1, .done = 1}};

    (void)state;
    json_decref(json_of(ask_about("cancel", "train")));
    agent_says(1, &m);
    agent_says(2, &m);
    assert_int_equal(operator_rig.n_closed, 2);
    assert_int_equal(operator_rig.closed_code, 0);
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
    assert_int_equal(operator_rig.n_drained, 2);
    (void)snprintf(m.u.ask.arg, sizeof(m.u.ask.arg), "gamma");
    expect_failure(ask_with(open_as(NULL), m), EXIT_NO_SUCH, "a node gamma");
    assert_int_equal(operator_rig.n_drained, 2);
}

static json_t *ask_about_node(const char *verb, const char *job, const char *node)
{
    struct msg m = make_ask(verb, job);

    (void)snprintf(m.u.ask.arg, sizeof(m.u.ask.arg), "%s", node);
    return json_of(ask_with(open_as(NULL), m));
}

static void who_would_be_drained_is_told_and_stays(void **state)
{
    json_t *json;
    const json_t *node;

    (void)state;
    agent_says_hello(3, "beta", "other", 1);
    json = ask_about_node("drainable", "", "beta");
    assert_int_equal(json_array_size(json_object_get(json, "meant")), 2);
    node = json_array_get(json_object_get(json, "meant"), 1);
    assert_string_equal(json_string_value(json_object_get(node, "job")), "train");
    assert_int_equal(json_integer_value(json_object_get(node, "group_rank")), 1);
    node = json_array_get(json_object_get(json, "meant"), 0);
    assert_int_equal(json_integer_value(json_object_get(node, "group_rank")), -1);
    json_decref(json);
    json = ask_about_node("drainable", "", "alpha"); /* one alone stays, too */
    assert_int_equal(json_array_size(json_object_get(json, "meant")), 1);
    json_decref(json);
    assert_int_equal(operator_rig.n_drained, 0);
}

/* Who asks for one may have been told of one: another has come since. */
static void
of_several_that_are_meant_none_is_drained_where_one_is_asked_for(void **state)
{
    json_t *json;

    (void)state;
    agent_says_hello(3, "beta", "other", 1);
    json = ask_about_node("drain_one", "", "beta");
    assert_int_equal(json_array_size(json_object_get(json, "meant")), 2);
    assert_null(json_object_get(json, "nodes"));
    json_decref(json);
    assert_int_equal(operator_rig.n_drained, 0);
    json = ask_about_node("drain_one", "other", "beta");
    assert_int_equal(json_array_size(json_object_get(json, "nodes")), 1);
    assert_null(json_object_get(json, "meant"));
    json_decref(json);
    assert_int_equal(operator_rig.n_drained, 1);
}

static void all_nodes_of_a_host_are_drained_where_that_is_asked_for(void **state)
{
    json_t *json;

    (void)state;
    agent_says_hello(3, "beta", "other", 1);
    json = ask_about_node("drain", "", "beta");
    assert_int_equal(json_array_size(json_object_get(json, "nodes")), 2);
    json_decref(json);
    assert_int_equal(operator_rig.n_drained, 2);
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
    agent_says(1, &m);
    agent_says(2, &m);
    operators_go_on(operator_rig.operators, OPERATOR_RIG_NOW_MS);
    expect_said(answer_of(conn), "\"kind\":\"done\"");
}

static void followed_events_end_when_all_nodes_were_told_to_leave(void **state)
{
    uint64_t conn = open_as(NULL);
    struct msg question = make_ask("events", "train");

    (void)state;
    question.u.ask.follow = 1;
    (void)ask_with(conn, question);
    all_agents_leave();
    operators_go_on(operator_rig.operators, OPERATOR_RIG_NOW_MS);
    expect_said(answer_of(conn), "\"kind\":\"stopped\"");
    conn = open_as(NULL);
    expect_said(ask_with(conn, question), "\"kind\":\"stopped\"");
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
    operator_rig.is_behind = true;
    json_decref(json_of(ask_about("cancel", "train")));
    operators_go_on(operator_rig.operators, OPERATOR_RIG_NOW_MS);
    assert_int_equal(buf_len(&answer_of(conn)->text), before);
    operator_rig.is_behind = false;
    operators_go_on(operator_rig.operators, operators_deadline(operator_rig.operators));
    expect_told(conn, "cancelled by eve@home");
    assert_true(operators_deadline(operator_rig.operators) == UINT64_MAX);
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
    assert_int_equal(operator_rig.n_stops + operator_rig.n_inspects, 0);
}

static void key_of_a_job_shows_what_has_become_of_its_own(void **state)
{
    const struct identity mine = {
        .kind = IDENTITY_PSK, .role = IDENTITY_AGENT, .owner = "mine"};
    static const char *const owners[] = {"mine", "other"};
    json_t *json;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(owners); i++) {
        (void)history_note(&operator_rig.history,
                           &(struct job_event){.kind = JOB_HAS_FAILED,
                                               .job = owners[i],
                                               .owner = owners[i],
                                               .why = "it broke"},
                           OPERATOR_RIG_WALL_MS);
    }
    json = json_of(ask_with(open_as(&mine), make_ask("history", "")));
    assert_int_equal(json_array_size(json_object_get(json, "jobs")), 1);
    json_decref(json);
    json = json_of(ask_about("history", ""));
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

static void others_of_its_name_do_not_hide_ones_own_past_job(void **state)
{
    const struct identity mine = {
        .kind = IDENTITY_PSK, .role = IDENTITY_AGENT, .owner = "mine"};
    static const char *const owners[] = {"mine", "other"};
    static const char *const verbs[] = {"status", "history", "events"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(owners); i++) {
        (void)history_note(&operator_rig.history,
                           &(struct job_event){.kind = JOB_HAS_FAILED,
                                               .job = "same",
                                               .owner = owners[i],
                                               .why = owners[i]},
                           OPERATOR_RIG_WALL_MS);
    }
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        const struct operator_answer *a =
            ask_with(open_as(&mine), make_ask(verbs[i], "same"));

        expect_said(a, "\"mine\"");
        assert_null(memmem(buf_bytes(&a->text), buf_len(&a->text), "other", 5));
    }
}

static void job_that_has_the_name_of_ones_own_past_one_is_not_shown(void **state)
{
    const struct identity mine = {
        .kind = IDENTITY_PSK, .role = IDENTITY_AGENT, .owner = "mine"};

    (void)state;
    (void)history_note(
        &operator_rig.history,
        &(struct job_event){
            .kind = JOB_HAS_FAILED, .job = "train", .owner = "mine", .why = "it broke"},
        OPERATOR_RIG_WALL_MS);
    expect_said(ask_with(open_as(&mine), make_ask("history", "train")), "it broke");
    expect_failure(ask_with(open_as(&mine), make_ask("status", "train")), EXIT_NO_SUCH,
                   "no job train of yours runs");
    expect_said(ask_with(open_as(&mine), make_ask("ps", "train")), "\"ranks\":[]");
}

int main(void)
{
#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, operator_rig_set_up, operator_rig_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(job_is_shown_with_nodes_and_ranks),
        CASE(what_is_not_there_has_an_exit_code),
        CASE(one_question_is_all),
        CASE(crowd_is_turned_away),
        CASE(owners_leave_room_for_each_other_and_for_who_sees_all),
        CASE(who_follows_is_forgotten_with_its_key_when_the_server_stops),
        CASE(cancel_tells_all_nodes_to_leave_and_ends_with_143),
        CASE(job_that_is_done_in_spite_of_it_is_done),
        CASE(node_is_drained_by_name_or_group_rank),
        CASE(who_would_be_drained_is_told_and_stays),
        CASE(of_several_that_are_meant_none_is_drained_where_one_is_asked_for),
        CASE(all_nodes_of_a_host_are_drained_where_that_is_asked_for),
        CASE(followed_events_end_with_the_job),
        CASE(followed_events_end_when_all_nodes_were_told_to_leave),
        CASE(followed_events_wait_for_who_is_behind),
        CASE(key_of_a_job_shows_its_own_jobs),
        CASE(key_of_a_job_shows_what_has_become_of_its_own),
        CASE(others_of_its_name_do_not_hide_ones_own_past_job),
        CASE(job_that_has_the_name_of_ones_own_past_one_is_not_shown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
