/* The lines of ranks, read from their agents for who asks (tests/lib/operator_rig.h). */

#include "rendezvous/job.h"
#include "rendezvous/operator_core.h"
#include "rendezvous/registry.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/operator_rig.h"

#include "common/exit_code.h"

#include <stdio.h>
#include <string.h>

/* The agent's answer to the inspection number i, from that byte on. */
static void tell_at(size_t i, uint64_t offset, const char *text, const char *end)
{
    struct msg m = {.type = MSG_INSPECTED,
                    .u.inspected = {.generation = operator_rig.inspects[i].generation,
                                    .request = operator_rig.inspects[i].request,
                                    .rank = operator_rig.inspects[i].rank,
                                    .offset = offset,
                                    .body = {(const uint8_t *)text, strlen(text)}}};

    (void)snprintf(m.u.inspected.state, sizeof(m.u.inspected.state), "%s", end);
    agent_says(operator_rig.inspected_conn[i], &m);
}

static void tell(size_t i, const char *text, const char *end)
{
    tell_at(i, operator_rig.inspects[i].offset, text, end);
}

static void lines_of_a_rank_come_from_its_agent(void **state)
{
    uint64_t conn = open_as(NULL);
    struct msg m = make_ask("logs", "train");

    (void)state;
    m.u.ask.rank = 3;
    (void)ask_with(conn, m);
    assert_int_equal(operator_rig.n_inspects, 2); /* stdout and stderr */
    assert_int_equal(operator_rig.inspected_conn[0], 2);
    assert_int_equal(operator_rig.inspects[0].rank, 3);
    tell(0, "one\ntwo \xff\n", "");
    assert_int_equal(operator_rig.n_inspects, 3); /* and at once for more */
    assert_int_equal(operator_rig.inspects[2].offset, strlen("one\ntwo x\n"));
    tell(2, "", INSPECT_ENDED);
    assert_false(answer_of(conn)->is_whole);
    tell(1, "bad\n", INSPECT_ENDED);
    assert_true(answer_of(conn)->is_whole);
    expect_said(answer_of(conn), "\"text\":\"one\",");
    expect_said(answer_of(conn), "\"text\":\"two \xef\xbf\xbd\",");
    expect_said(answer_of(conn), "\"stream\":\"stderr\",\"text\":\"bad\",");
    m.u.ask.rank = 4;
    expect_failure(ask_with(open_as(NULL), m), EXIT_NO_SUCH, "no rank 4: it has 4");
}

static void who_follows_waits_for_nodes_that_have_gone(void **state)
{
    struct msg m = make_ask("logs", "train");
    uint64_t conn = open_as(NULL);

    (void)state;
    service_closed(operator_rig.service, 1, OPERATOR_RIG_NOW_MS);
    service_closed(operator_rig.service, 2, OPERATOR_RIG_NOW_MS);
    expect_failure(ask_with(open_as(NULL), m), EXIT_NO_SUCH, "its nodes have gone");
    m.u.ask.rank = 3;
    expect_failure(ask_with(open_as(NULL), m), EXIT_NO_SUCH, "its node has gone");
    m.u.ask.follow = true;
    assert_false(ask_with(conn, m)->is_whole);
    m.u.ask.rank = 4;
    expect_failure(ask_with(open_as(NULL), m), EXIT_NO_SUCH, "no rank 4: it has 4");
    m.u.ask.generation = 1; /* it has seen more ranks, and there may be more again */
    assert_false(ask_with(open_as(NULL), m)->is_whole);
}

static const struct operator_answer *lines_told(const char *first, uint64_t offset,
                                                const char *second)
{
    uint64_t conn = open_as(NULL);
    struct msg m = make_ask("logs", "train");

    m.u.ask.rank = 3;
    (void)ask_with(conn, m);
    tell(0, first, "");
    tell_at(2, offset, second, INSPECT_ENDED);
    tell(1, "", INSPECT_ENDED);
    return answer_of(conn);
}

static void empty_lines_are_lines(void **state)
{
    (void)state;
    expect_said(lines_told("one\n\n", 5, "three\n"), "\"text\":\"\",");
}

static void what_an_agent_leaves_out_is_told(void **state)
{
    (void)state;
    expect_said(lines_told("one\n", 1004, "last\n"),
                "\"note\":\"has said 1000 bytes more before this: ");
}

static void lines_of_those_behind_a_node_that_has_gone_are_theirs(void **state)
{
    struct msg m = make_ask("logs", "train");

    (void)state;
    service_closed(operator_rig.service, 1, OPERATOR_RIG_NOW_MS);
    m.u.ask.rank = 2;
    (void)ask_with(open_as(NULL), m);
    assert_int_equal(operator_rig.n_inspects, 2);
    assert_int_equal(operator_rig.inspected_conn[0], 2);
    assert_int_equal(operator_rig.inspects[0].rank, 2);
    m.u.ask.rank = 1;
    expect_failure(ask_with(open_as(NULL), m), EXIT_NO_SUCH, "its node has gone");
}

static void nothing_is_read_for_who_is_behind(void **state)
{
    struct msg m = make_ask("logs", "train");

    (void)state;
    operator_rig.is_behind = true;
    (void)ask_with(open_as(NULL), m);
    assert_int_equal(operator_rig.n_inspects, 0);
    operator_rig.is_behind = false;
    operators_go_on(operator_rig.operators, operators_deadline(operator_rig.operators));
    assert_int_equal(operator_rig.n_inspects, 8);
}

/* As after a start of the service: they would not hear it. */
static void nothing_is_read_while_nodes_are_away(void **state)
{
    struct job *j = registry_find(service_jobs(operator_rig.service), "train")->job;

    (void)state;
    j->n_away = 1;
    (void)ask_with(open_as(NULL), make_ask("logs", "train"));
    assert_int_equal(operator_rig.n_inspects, 0);
    j->n_away = 0;
    operators_go_on(operator_rig.operators, operators_deadline(operator_rig.operators));
    assert_int_equal(operator_rig.n_inspects, 8);
}

static void agent_that_does_not_answer_is_not_waited_for(void **state)
{
    uint64_t conn = open_as(NULL);
    struct msg m = make_ask("logs", "train");
    uint64_t now_ms = OPERATOR_RIG_NOW_MS;

    (void)state;
    m.u.ask.rank = 0;
    (void)ask_with(conn, m);
    for (int i = 0; i < 8 && !answer_of(conn)->is_whole; i++) {
        now_ms = operators_deadline(operator_rig.operators);
        operators_go_on(operator_rig.operators, now_ms);
    }
    expect_said(answer_of(conn), "its node does not answer");
    assert_in_range(now_ms, OPERATOR_RIG_NOW_MS + 1000, OPERATOR_RIG_NOW_MS + 60000);
}

static void a_late_answer_and_the_next_one_are_told_once(void **state)
{
    uint64_t conn = open_as(NULL);
    struct msg m = make_ask("logs", "train");
    uint64_t now_ms = OPERATOR_RIG_NOW_MS;
    struct buf *told = &answer_of(conn)->text;
    size_t size;

    (void)state;
    m.u.ask.rank = 0;
    m.u.ask.follow = 1;
    (void)ask_with(conn, m);
    for (int i = 0; i < 8 && operator_rig.n_inspects < 3; i++) {
        now_ms = operators_deadline(operator_rig.operators);
        operators_go_on(operator_rig.operators, now_ms);
    }
    assert_int_equal(operator_rig.inspects[2].request,
                     operator_rig.inspects[0].request);
    tell_at(0, 0, "one\n", "");
    size = buf_len(told);
    tell_at(2, 0, "one\n", "");
    assert_int_equal(buf_len(told), size);
    tell_at(2, 0, "one\ntwo\n", "");
    expect_told(conn, "\"two\"");
    assert_null(memmem(buf_bytes(told) + size, buf_len(told) - size, "one", 3));
}

/* The questions about that rank, of the last one who asks. */
static void expect_offsets(size_t from, uint32_t rank, uint64_t out, uint64_t err)
{
    size_t n = 0;

    for (size_t i = from; i < operator_rig.n_inspects; i++) {
        const struct msg_inspect *m = &operator_rig.inspects[i];

        if (m->rank == rank) {
            assert_int_equal(m->offset, m->what == INSPECT_LOG ? out : err);
            n++;
        }
    }
    assert_int_equal(n, 2);
}

static struct msg come_again(uint64_t generation, struct buf *places)
{
    static const struct msg_place known[] = {{0, INSPECT_LOG, 20},
                                             {2, INSPECT_LOG_ERRORS, 30},
                                             {9, INSPECT_LOG, 40},
                                             {3, INSPECT_LOG, 50}}; /* out of order */
    struct msg m = make_ask("logs", "train");

    m.u.ask.follow = 1;
    m.u.ask.generation = generation;
    buf_init(places, 1024);
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        assert_int_equal(msg_place_encode(&known[i], places), 0);
    }
    m.u.ask.places = (struct bytes){buf_bytes(places), buf_len(places) - 1};
    return m;
}

static void each_line_says_where_the_next_begins(void **state)
{
    uint64_t conn = open_as(NULL);
    struct msg m = make_ask("logs", "train");

    (void)state;
    m.u.ask.rank = 0;
    m.u.ask.follow = 1;
    (void)ask_with(conn, m);
    tell_at(0, 0, "one\nhal", "");
    expect_told(conn, "\"text\":\"one\",\"next\":4}");
    expect_told(conn, "\"text\":\"hal\",\"next\":7}");
    tell_at(2, 3, "\nhalf\nx", ""); /* from before the last one's end on */
    expect_told(conn, "\"text\":\"x\",\"next\":10}");
}

static void who_comes_again_goes_on_where_it_was(void **state)
{
    struct buf places;
    struct msg m = come_again(1, &places);

    (void)state;
    (void)ask_with(open_as(NULL), m);
    assert_int_equal(operator_rig.n_inspects, 8);
    expect_offsets(0, 0, 20, 0);
    expect_offsets(0, 1, 0, 0);
    expect_offsets(0, 2, 0, 30);
    expect_offsets(0, 3, 0, 0);
    m.u.ask.after = 1; /* the last lines of what it had none of */
    (void)ask_with(open_as(NULL), m);
    expect_offsets(8, 0, 20, UINT64_MAX);
    buf_release(&places);
}

static void who_comes_again_to_another_generation_gets_all_of_it(void **state)
{
    struct buf places;
    struct msg m = come_again(7, &places);

    (void)state;
    m.u.ask.after = 1;
    (void)ask_with(open_as(NULL), m);
    for (uint32_t rank = 0; rank < 4; rank++) {
        expect_offsets(0, rank, 0, 0);
    }
    buf_release(&places);
}

static uint64_t follow_first_rank(void)
{
    uint64_t conn = open_as(NULL);
    struct msg m = make_ask("logs", "train");

    m.u.ask.follow = 1;
    m.u.ask.rank = 0;
    (void)ask_with(conn, m);
    assert_int_equal(operator_rig.n_inspects, 2);
    return conn;
}

static void go_on_with(uint64_t generation)
{
    struct job *j = registry_find(service_jobs(operator_rig.service), "train")->job;

    j->generation = generation;
    for (size_t i = 0; i < j->n_nodes; i++) {
        j->node[i]->ranked_in = generation;
    }
    operators_go_on(operator_rig.operators, OPERATOR_RIG_NOW_MS);
}

/* The last inspection of that generation's standard output. */
static size_t last_of(uint64_t generation)
{
    size_t i = operator_rig.n_inspects;

    do {
        assert_int_not_equal(i, 0);
        i--;
    } while (operator_rig.inspects[i].generation != generation ||
             operator_rig.inspects[i].what != INSPECT_LOG);
    return i;
}

static void expect_order(uint64_t conn, const char *first, const char *second)
{
    const struct buf *told = &answer_of(conn)->text;
    const char *at = memmem(buf_bytes(told), buf_len(told), first, strlen(first));
    const char *end = (const char *)buf_bytes(told) + buf_len(told);

    assert_non_null(at);
    assert_non_null(memmem(at, (size_t)(end - at), second, strlen(second)));
}

static void generations_follow_each_other_for_who_is_behind(void **state)
{
    uint64_t conn = follow_first_rank();

    (void)state;
    tell(1, "", INSPECT_ENDED);
    tell(0, "one\n", "");
    operator_rig.is_behind = true;
    go_on_with(2);
    assert_int_equal(operator_rig.inspects[last_of(2)].follow, INSPECT_WILL_FOLLOW);
    tell(last_of(2), "second\n", INSPECT_ENDED); /* its last words */
    tell(last_of(2) + 1, "", INSPECT_ENDED);
    go_on_with(3);
    operator_rig.is_behind = false;
    operators_go_on(operator_rig.operators, operators_deadline(operator_rig.operators));
    assert_int_equal(operator_rig.inspects[last_of(1)].offset, 4);
    tell(last_of(1), "more of one\n", INSPECT_ENDED);
    assert_int_equal(operator_rig.inspects[last_of(3)].follow, INSPECT_FOLLOWS);
    tell(last_of(3), "third\n", "");
    expect_order(conn, "more of one", "\"generation\":2,");
    expect_order(conn, "\"second\"", "\"generation\":3,");
    expect_order(conn, "\"second\"", "\"third\"");
    assert_null(memmem(buf_bytes(&answer_of(conn)->text),
                       buf_len(&answer_of(conn)->text), "note", 4));
}

static void what_all_who_are_behind_have_held_is_bounded(void **state)
{
    static char line[400 * 1024];
    const struct operators *o = operator_rig.operators;
    struct msg m = make_ask("logs", "train");
    size_t n_held = 0;

    (void)state;
    m.u.ask.follow = 1;
    m.u.ask.rank = 0;
    memset(line, 'x', sizeof(line) - 2);
    line[sizeof(line) - 2] = '\n';
    for (size_t i = 0; i < 12; i++) {
        (void)ask_with(open_as(NULL), m);
    }
    operator_rig.is_behind = true;
    go_on_with(2);
    for (size_t i = 24; i < operator_rig.n_inspects; i += 2) {
        for (size_t k = 0; k < 10; k++) {
            tell_at(i, k * strlen(line), line, "");
        }
    }
    for (size_t i = 0; i < o->n; i++) {
        n_held += o->list[i].n_held;
    }
    assert_in_range(n_held, OPERATORS_MAX_HELD - sizeof(line), OPERATORS_MAX_HELD);
    operator_rig.is_behind = false;
}

static void what_cannot_be_read_any_more_is_said(void **state)
{
    uint64_t conn = follow_first_rank();

    (void)state;
    tell(0, "one\n", "");
    go_on_with(2);
    tell(last_of(1), "", INSPECT_GONE);
    expect_told(conn,
                "\"note\":\"what else it said in generation 1 is in its log files "
                "only: its node has forgotten where it was\"");
    assert_false(answer_of(conn)->is_whole);
}

static void what_is_not_told_when_the_job_ends_is_said(void **state)
{
    uint64_t conn = follow_first_rank();

    (void)state;
    tell(0, "one\n", "");
    all_agents_leave();
    operators_go_on(operator_rig.operators, OPERATOR_RIG_NOW_MS);
    assert_true(answer_of(conn)->is_whole);
    expect_said(answer_of(conn),
                "\"note\":\"what else it said in generation 1 is in its log files "
                "only: the job has ended\"");
}

static void requests_of_one_start_are_not_those_of_another(void **state)
{
    struct msg m = make_ask("logs", "train");
    uint64_t first;

    (void)state;
    (void)ask_with(open_as(NULL), m);
    first = operator_rig.inspects[0].request;
    operators_free(operator_rig.operators);
    operator_rig_receive(2);
    operator_rig.n_inspects = 0;
    (void)ask_with(open_as(NULL), m);
    assert_true(operator_rig.inspects[0].request >= OPERATOR_REQUESTS);
    assert_true(operator_rig.inspects[0].request > first + 1000000);
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
    operators_go_on(operator_rig.operators, OPERATOR_RIG_NOW_MS);
    expect_failure(answer_of(conn), EXIT_MISTAKE,
                   "job large has 2100 ranks, whose logs are too many to read at once "
                   "(2048): choose one by --rank");
    expect_failure(ask_with(open_as(NULL), m), EXIT_MISTAKE, "choose one by --rank");
}

static void lines_that_are_followed_end_when_all_nodes_were_told_to_leave(void **state)
{
    uint64_t conn = open_as(NULL);
    struct msg m = make_ask("logs", "train");

    (void)state;
    m.u.ask.follow = 1;
    (void)ask_with(conn, m);
    assert_false(answer_of(conn)->is_whole);
    all_agents_leave();
    operators_go_on(operator_rig.operators, OPERATOR_RIG_NOW_MS);
    assert_true(answer_of(conn)->is_whole);
    assert_int_equal(answer_of(conn)->exit_code, 0);
    expect_failure(ask_with(open_as(NULL), m), EXIT_NO_SUCH, "its nodes are gone");
}

int main(void)
{
#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, operator_rig_set_up, operator_rig_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(lines_of_a_rank_come_from_its_agent),
        CASE(who_follows_waits_for_nodes_that_have_gone),
        CASE(empty_lines_are_lines),
        CASE(what_an_agent_leaves_out_is_told),
        CASE(lines_of_those_behind_a_node_that_has_gone_are_theirs),
        CASE(nothing_is_read_for_who_is_behind),
        CASE(nothing_is_read_while_nodes_are_away),
        CASE(agent_that_does_not_answer_is_not_waited_for),
        CASE(a_late_answer_and_the_next_one_are_told_once),
        CASE(each_line_says_where_the_next_begins),
        CASE(who_comes_again_goes_on_where_it_was),
        CASE(who_comes_again_to_another_generation_gets_all_of_it),
        CASE(generations_follow_each_other_for_who_is_behind),
        CASE(what_all_who_are_behind_have_held_is_bounded),
        CASE(what_cannot_be_read_any_more_is_said),
        CASE(what_is_not_told_when_the_job_ends_is_said),
        CASE(requests_of_one_start_are_not_those_of_another),
        CASE(lines_that_are_followed_end_when_all_nodes_were_told_to_leave),
        CASE(more_ranks_than_can_be_read_are_refused_in_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
