/* The ranks of a large job, told page by page (tests/lib/operator_rig.h). */

#include "rendezvous/job.h"
#include "rendezvous/registry.h"
#include "rendezvous/view.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/operator_rig.h"

#include "common/exit_code.h"

#include <string.h>

enum { HALF = 2000, PAGE = VIEW_MAX_PAGE };

static void large_job_begins(void)
{
    agent_says_hello(3, "gamma", "large", HALF);
    agent_says_hello(4, "delta", "large", HALF);
}

static size_t ranks_told(uint64_t conn)
{
    const struct buf *text = &answer_of(conn)->text;
    const char *end = (const char *)buf_bytes(text) + buf_len(text);
    const char *at = (const char *)buf_bytes(text);
    size_t n = 0;

    while ((at = memmem(at, (size_t)(end - at), "\"rank\":", 7)) != NULL) {
        at += 7;
        n++;
    }
    return n;
}

static void go_on(void)
{
    struct operators *o = operator_rig.operators;

    assert_true(operators_deadline(o) > OPERATOR_RIG_NOW_MS);
    operators_go_on(o, operators_deadline(o));
}

static void ranks_of_a_large_job_come_page_by_page_as_one_object(void **state)
{
    uint64_t conn = open_as(NULL);
    size_t told;
    json_t *json;
    const json_t *list;

    (void)state;
    large_job_begins();
    (void)ask_with(conn, make_ask("ps", ""));
    for (told = PAGE; told < 2 * HALF + 4; told += PAGE) { /* and four of "train" */
        assert_int_equal(ranks_told(conn), told);
        assert_false(answer_of(conn)->is_whole);
        operators_go_on(operator_rig.operators, OPERATOR_RIG_NOW_MS); /* too early */
        assert_int_equal(ranks_told(conn), told);
        go_on();
    }
    json = json_of(answer_of(conn));
    assert_int_equal(json_object_size(json), 1);
    list = json_object_get(json, "ranks");
    assert_int_equal(json_array_size(list), 2 * HALF + 4);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *rank = json_array_get(list, i);
        bool is_large = i < (size_t)2 * HALF;

        assert_int_equal(json_integer_value(json_object_get(rank, "rank")),
                         is_large ? i : i - (size_t)2 * HALF);
        assert_string_equal(json_string_value(json_object_get(rank, "job")),
                            is_large ? "large" : "train");
        assert_int_equal(json_integer_value(json_object_get(rank, "generation")), 1);
    }
    json_decref(json);
    assert_true(operators_deadline(operator_rig.operators) == UINT64_MAX);
}

static void who_does_not_read_is_told_no_more_ranks(void **state)
{
    uint64_t conn = open_as(NULL);

    (void)state;
    large_job_begins();
    operator_rig.is_behind = true;
    (void)ask_with(conn, make_ask("ps", "large"));
    for (int i = 0; i < 5; i++) {
        go_on();
    }
    assert_int_equal(ranks_told(conn), PAGE);
    operator_rig.is_behind = false;
    while (!answer_of(conn)->is_whole) {
        go_on();
    }
    json_decref(json_of(answer_of(conn)));
    assert_int_equal(ranks_told(conn), 2 * HALF);
}

static void one_page_at_a_time_is_told_and_all_get_theirs(void **state)
{
    uint64_t conn[3];
    size_t total = 0;

    (void)state;
    large_job_begins();
    for (size_t i = 0; i < 3; i++) {
        conn[i] = open_as(NULL);
        (void)ask_with(conn[i], make_ask("ps", "large"));
    }
    for (size_t n = 1; n <= 3; n++) {
        go_on();
        total = 0;
        for (size_t i = 0; i < 3; i++) {
            total += ranks_told(conn[i]);
        }
        assert_int_equal(total, (3 + n) * PAGE);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ranks_told(conn[i]), 2 * PAGE);
    }
    json_decref(json_of(ask_about("ps", "train"))); /* at once */
}

static void ranks_of_two_generations_are_not_told_as_one(void **state)
{
    uint64_t conn = open_as(NULL);

    (void)state;
    large_job_begins();
    (void)ask_with(conn, make_ask("ps", "large"));
    registry_find(service_jobs(operator_rig.service), "large")->job->generation++;
    go_on();
    expect_failure(answer_of(conn), EXIT_RENDEZVOUS,
                   "generation 1 of job large has ended while its ranks were shown: "
                   "ask again");
}

static void ranks_of_a_job_that_goes_meanwhile_are_not_told_in_part(void **state)
{
    uint64_t conn = open_as(NULL);
    const struct msg leave = {.type = MSG_LEAVE};

    (void)state;
    large_job_begins();
    (void)ask_with(conn, make_ask("ps", "large"));
    for (uint64_t agent = 3; agent <= 4; agent++) {
        const struct msg stopped = {.type = MSG_STOPPED,
                                    .u.stopped = {.generation = 1}};

        agent_says(agent, &leave);
        agent_says(agent, &stopped);
        service_closed(operator_rig.service, agent, OPERATOR_RIG_NOW_MS);
    }
    go_on();
    expect_failure(answer_of(conn), EXIT_RENDEZVOUS, "ask again");
}

int main(void)
{
#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, operator_rig_set_up, operator_rig_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(ranks_of_a_large_job_come_page_by_page_as_one_object),
        CASE(who_does_not_read_is_told_no_more_ranks),
        CASE(one_page_at_a_time_is_told_and_all_get_theirs),
        CASE(ranks_of_two_generations_are_not_told_as_one),
        CASE(ranks_of_a_job_that_goes_meanwhile_are_not_told_in_part),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
