/* The first cause out of many ends, its exit code, the crash loop, the report. */

#include "rendezvous/cause.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct end {
    uint32_t rank;
    int32_t code, signal;
    uint64_t ended_ms;
    bool engine, stopped;
};

struct cause_case {
    const char *name;
    struct end ends[6]; /* up to one without code and signal */
    uint32_t first;     /* rank */
    bool is_consequence;
    uint32_t exit_code;
};

static const struct cause_case cases[] = {
    {"the_earliest_end_is_the_cause",
     {{0, 1, 0, 200, 0, 0}, {1, 2, 0, 100, 0, 0}},
     1,
     false,
     2},
    {"of_two_at_once_the_first_heard_is",
     {{3, 1, 0, 100, 0, 0}, {1, 2, 0, 100, 0, 0}},
     3,
     false,
     1},
    {"an_engine_that_lost_a_peer_only_reacted",
     {{0, 80, 0, 100, 1, 0}, {1, 0, SIGKILL, 150, 1, 0}},
     1,
     false,
     137},
    {"an_engine_whose_communication_timed_out_only_reacted",
     {{0, 81, 0, 100, 1, 0}, {1, 7, 0, 150, 1, 0}},
     1,
     false,
     7},
    {"another_programs_80_is_its_own",
     {{0, 80, 0, 100, 0, 0}, {1, 7, 0, 150, 0, 0}},
     0,
     false,
     80},
    {"an_engine_killed_by_a_signal_did_not_react",
     {{0, 80, SIGSEGV, 100, 1, 0}},
     0,
     false,
     139},
    {"a_rank_that_was_told_to_stop_is_no_cause",
     {{0, 0, SIGTERM, 100, 0, 1}, {1, 3, 0, 150, 0, 0}},
     1,
     false,
     3},
    {"a_reaction_comes_before_what_was_told_to_stop",
     {{0, 0, SIGTERM, 100, 0, 1}, {1, 80, 0, 150, 1, 0}},
     1,
     true,
     1},
    {"reactions_alone_never_give_their_code",
     {{2, 80, 0, 100, 1, 0}, {1, 81, 0, 90, 1, 0}},
     1,
     true,
     1},
    {"a_left_engine_is_a_consequence", {{2, 83, 0, 100, 1, 0}}, 2, true, 1},
    {"an_end_sent_again_counts_once",
     {{0, 5, 0, 100, 0, 0}, {0, 6, 0, 50, 0, 0}},
     0,
     false,
     5},
    {"a_rank_that_turns_out_to_have_failed_earlier_is_the_cause",
     {{0, 1, 0, 100, 0, 0}, {1, 2, 0, 150, 0, 0}, {1, 2, 0, 90, 0, 0}},
     1,
     false,
     2},
    {"a_rank_told_to_stop_that_turns_out_to_have_failed_before_is_the_cause",
     {{0, 1, 0, 100, 0, 0}, {1, 0, SIGTERM, 150, 0, 1}, {1, 0, SIGTERM, 90, 0, 0}},
     1,
     false,
     143},
    {"a_code_whose_low_byte_is_zero_is_no_success",
     {{0, 256, 0, 100, 0, 0}},
     0,
     false,
     1},
    {"a_signal_gives_128_more", {{0, 0, SIGABRT, 100, 0, 0}}, 0, false, 134},
    {"a_code_beyond_125_is_the_programs_own", {{0, 255, 0, 100, 0, 0}}, 0, false, 255},
    {"a_death_without_a_word_is_before_what_others_say_at_once",
     {{0, 1, 0, 100, 0, 0}, {1, 0, SIGKILL, 119, 0, 0}},
     1,
     false,
     137},
    {"but_not_before_what_was_said_earlier",
     {{1, 0, SIGKILL, 121, 0, 0}, {0, 1, 0, 100, 0, 0}},
     0,
     false,
     1},
    {"nor_one_by_abort_which_is_a_word",
     {{0, 1, 0, 100, 0, 0}, {1, 0, SIGABRT, 101, 0, 0}},
     0,
     false,
     1},
    {"a_shell_tells_of_a_death_by_its_code",
     {{0, 1, 0, 100, 0, 0}, {1, 139, 0, 119, 0, 0}},
     1,
     false,
     139},
    {"other_codes_tell_of_none",
     {{0, 1, 0, 100, 0, 0}, {1, 255, 0, 101, 0, 0}},
     0,
     false,
     1},
    {"a_death_that_was_asked_for_is_before_nobody",
     {{0, 1, 0, 100, 0, 0}, {1, 0, SIGKILL, 90, 0, 1}},
     0,
     false,
     1},
    {"an_end_told_again_is_not_later",
     {{0, 1, 0, 100, 0, 0},
      {1, 2, 0, 110, 0, 0},
      {0, 1, 0, 130, 0, 0},
      {1, 2, 0, 110, 0, 0}},
     0,
     false,
     1},
};

static void add(struct cause *c, const struct end *e, uint64_t step)
{
    struct msg_rank_ended *m = mem_zalloc(sizeof(*m));
    char host[32];

    m->rank = e->rank;
    m->exit_code = e->code;
    m->signal = e->signal;
    m->ended_ms = e->ended_ms;
    m->engine = e->engine;
    m->stopped = e->stopped;
    m->step = step;
    (void)snprintf(host, sizeof(host), "host%u", e->rank);
    cause_add(c, m, host);
    mem_free(m);
}

static void judge(void **state)
{
    const struct cause_case *test = *state;
    struct cause *c = mem_zalloc(sizeof(*c));
    char host[32];

    for (const struct end *e = test->ends; e->code != 0 || e->signal != 0; e++) {
        add(c, e, 0);
    }
    (void)snprintf(host, sizeof(host), "host%u", test->first);
    assert_int_equal(c->first.rank, test->first);
    assert_string_equal(c->host, host);
    assert_int_equal(cause_is_consequence(c), test->is_consequence);
    assert_int_equal(cause_exit_code(c), test->exit_code);
    cause_release(c);
    mem_free(c);
}

static void without_a_rank_the_exit_code_is_1(void **state)
{
    struct cause *c = mem_zalloc(sizeof(*c));

    (void)state;
    assert_true(cause_is_consequence(c));
    assert_int_equal(cause_exit_code(c), 1);
    mem_free(c);
}

/* One generation after the other: does the last one make a crash loop? */
struct life {
    uint32_t rank;
    int32_t code, signal;
    uint64_t step;
    bool stopped;
};

struct loop_case {
    const char *name;
    struct life lives[6]; /* up to one without code and signal */
    bool is_loop;
};

static const struct loop_case loops[] = {
    {"three_times_the_same_is_a_crash_loop",
     {{1, 9, 0, 5, 0}, {1, 9, 0, 5, 0}, {1, 9, 0, 5, 0}},
     true},
    {"two_times_are_not", {{1, 9, 0, 5, 0}, {1, 9, 0, 5, 0}}, false},
    {"the_own_signal_counts_too",
     {{1, 0, SIGSEGV, 5, 0}, {1, 0, SIGSEGV, 5, 0}, {1, 0, SIGSEGV, 5, 0}},
     true},
    {"a_signal_from_outside_does_not",
     {{1, 0, SIGKILL, 5, 0}, {1, 0, SIGKILL, 5, 0}, {1, 0, SIGKILL, 5, 0}},
     false},
    {"nor_does_a_program_without_steps",
     {{1, 9, 0, 0, 0}, {1, 9, 0, 0, 0}, {1, 9, 0, 0, 0}},
     false},
    {"another_rank_begins_anew",
     {{1, 9, 0, 5, 0}, {1, 9, 0, 5, 0}, {2, 9, 0, 5, 0}},
     false},
    {"another_code_begins_anew",
     {{1, 9, 0, 5, 0}, {1, 9, 0, 5, 0}, {1, 8, 0, 5, 0}},
     false},
    {"another_step_begins_anew",
     {{1, 9, 0, 5, 0}, {1, 9, 0, 5, 0}, {1, 9, 0, 6, 0}},
     false},
    {"progress_between_begins_anew",
     {{1, 9, 0, 5, 0}, {1, 9, 0, 6, 0}, {1, 9, 0, 5, 0}, {1, 9, 0, 5, 0}},
     false},
    {"a_kill_between_begins_anew",
     {{1, 9, 0, 5, 0}, {1, 9, 0, 5, 0}, {1, 0, SIGKILL, 5, 0}, {1, 9, 0, 5, 0}},
     false},
    {"after_a_change_three_times_again",
     {{1, 9, 0, 5, 0}, {2, 9, 0, 5, 0}, {2, 9, 0, 5, 0}, {2, 9, 0, 5, 0}},
     true},
    {"consequences_are_no_loop",
     {{1, 9, 0, 5, 1}, {1, 9, 0, 5, 1}, {1, 9, 0, 5, 1}},
     false},
};

static void live(void **state)
{
    const struct loop_case *test = *state;
    struct cause *c = mem_zalloc(sizeof(*c));
    bool is_loop = false;

    for (const struct life *l = test->lives; l->code != 0 || l->signal != 0; l++) {
        struct end e = {l->rank, l->code, l->signal, 100, true, l->stopped};

        assert_false(is_loop);
        cause_clear(c);
        add(c, &e, l->step);
        is_loop = cause_is_crash_loop(c);
    }
    assert_int_equal(is_loop, test->is_loop);
    cause_release(c);
    mem_free(c);
}

/* Three within the 20 ms: who is first does not hang on whose news came first. */
static void the_order_of_the_news_decides_nothing(void **state)
{
    static const struct end ends[][3] = {
        {{0, 1, 0, 100, 0, 0}, {1, 1, 0, 115, 0, 0}, {2, 0, SIGKILL, 130, 0, 0}},
        {{2, 1, 0, 112, 0, 0}, {1, 1, 0, 115, 0, 0}, {0, 0, SIGKILL, 130, 0, 0}},
    };
    static const unsigned orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                         {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ends) * ARRAY_LEN(orders); i++) {
        const struct end *e = ends[i / ARRAY_LEN(orders)];
        struct cause *c = mem_zalloc(sizeof(*c));

        for (size_t k = 0; k < 3; k++) {
            add(c, &e[orders[i % ARRAY_LEN(orders)][k]], 0);
        }
        assert_int_equal(c->first.rank, 0);
        cause_release(c);
        mem_free(c);
    }
}

/* A node's clock of the day may be an hour off, either way. */
static void clocks_of_the_day_decide_nothing(void **state)
{
    enum { HOUR_MS = 3600000 };
    struct msg_report *r = mem_zalloc(sizeof(*r));

    (void)state;
    for (int off = -1; off <= 1; off++) {
        struct cause *c = mem_zalloc(sizeof(*c));
        struct msg_rank_ended *m = mem_zalloc(sizeof(*m));

        *m = (struct msg_rank_ended){
            .exit_code = 1, .ended_ms = 101, .wall_ms = 5000000};
        cause_add(c, m, "a");
        *m = (struct msg_rank_ended){.rank = 1,
                                     .exit_code = 1,
                                     .ended_ms = 100,
                                     .wall_ms = (uint64_t)(5000000 + off * HOUR_MS)};
        cause_add(c, m, "b");
        cause_report(c, r);
        assert_int_equal(r->rank, 1);
        assert_int_equal(r->wall_ms,
                         5000000 + off * HOUR_MS); /* as its own log has it */
        cause_release(c);
        mem_free(m);
        mem_free(c);
    }
    mem_free(r);
}

/* 80 and 81 are never a first cause: one statement, and all of them listed. */
static void where_all_reacted_the_report_names_no_first_cause(void **state)
{
    struct cause *c = mem_zalloc(sizeof(*c));
    struct msg_report *r = mem_zalloc(sizeof(*r));

    (void)state;
    add(c, &(struct end){1, 80, 0, 100, true, false}, 7);
    add(c, &(struct end){2, 80, 0, 90, true, true}, 7);
    assert_null(strstr(cause_reaction_text(c), "comm.timeout"));
    add(c, &(struct end){0, 81, 0, 200, true, false}, 7);
    assert_non_null(strstr(cause_reaction_text(c), "comm.timeout"));
    cause_report(c, r);
    assert_int_equal(r->rank, -1);
    assert_int_equal(r->code, 0);
    assert_string_equal(r->others, "rank 1: lost a peer (exitcode 80)\n"
                                   "rank 0: communication timed out (exitcode 81)\n"
                                   "rank 2: stopped because of the others\n");
    cause_release(c);
    mem_free(r);
    mem_free(c);
}

static void add_words(struct cause *c, uint32_t rank, uint64_t ended_ms,
                      const char *words)
{
    struct msg_rank_ended *m = mem_zalloc(sizeof(*m));

    m->rank = rank;
    m->exit_code = 1;
    m->ended_ms = ended_ms;
    (void)snprintf(m->tail, sizeof(m->tail), "%s", words);
    (void)snprintf(m->message, sizeof(m->message), "%s", words);
    (void)snprintf(m->log_path, sizeof(m->log_path), "%s", words);
    cause_add(c, m, "host");
    mem_free(m);
}

/* An end is told at once, and again when the rank's output has been read. */
static void the_first_causes_words_may_come_later(void **state)
{
    struct cause *c = mem_zalloc(sizeof(*c));
    struct msg_report *r = mem_zalloc(sizeof(*r));

    (void)state;
    add_words(c, 4, 100, "");
    add_words(c, 5, 90, "");
    add_words(c, 4, 100, "four");
    add_words(c, 5, 90, "five");
    add_words(c, 4, 100, "four");
    cause_report(c, r);
    assert_int_equal(r->rank, 5);
    assert_string_equal(r->tail, "five");
    assert_string_equal(r->message, "five");
    assert_string_equal(r->log_path, "five");
    assert_string_equal(r->others,
                        "rank 4 (local_rank: 0) on host: exitcode 1 (pid: 0), "
                        "also failed at the same time\n");
    cause_release(c);
    mem_free(r);
    mem_free(c);
}

static void that_a_rank_hangs_is_news_of_one_that_was_heard_of(void **state)
{
    const struct end first = {.rank = 1, .code = 3, .ended_ms = 100};
    const struct end stopped = {
        .rank = 2, .signal = SIGTERM, .ended_ms = 150, .stopped = true};
    struct msg_rank_ended *end = mem_zalloc(sizeof(*end));
    struct cause *c = mem_zalloc(sizeof(*c));

    (void)state;
    add(c, &first, 0);
    add(c, &stopped, 0);
    c->has_changed = false; /* it was saved */
    *end = (struct msg_rank_ended){
        .rank = 2, .signal = SIGTERM, .ended_ms = 160, .stopped = 1};
    cause_hang(c, end, "host2");
    assert_true(c->is_hang && c->hung_rank == 2 && c->has_changed);
    cause_release(c);
    mem_free(c);
    mem_free(end);
}

static void without_a_rank_the_report_names_none(void **state)
{
    struct cause *c = mem_zalloc(sizeof(*c));
    struct msg_report *r = mem_zalloc(sizeof(*r));

    (void)state;
    cause_report(c, r);
    assert_int_equal(r->rank, -1);
    assert_string_equal(r->others, "");
    mem_free(r);
    mem_free(c);
}

int main(void)
{
    struct CMUnitTest tests[ARRAY_LEN(cases) + ARRAY_LEN(loops) + 7];
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        tests[n++] = (struct CMUnitTest){cases[i].name, judge, NULL, NULL,
                                         (void *)(uintptr_t)&cases[i]};
    }
    for (size_t i = 0; i < ARRAY_LEN(loops); i++) {
        tests[n++] = (struct CMUnitTest){loops[i].name, live, NULL, NULL,
                                         (void *)(uintptr_t)&loops[i]};
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(without_a_rank_the_exit_code_is_1);
    tests[n++] =
        (struct CMUnitTest)cmocka_unit_test(without_a_rank_the_report_names_none);
    tests[n++] =
        (struct CMUnitTest)cmocka_unit_test(the_first_causes_words_may_come_later);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(
        that_a_rank_hangs_is_news_of_one_that_was_heard_of);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(
        where_all_reacted_the_report_names_no_first_cause);
    tests[n++] =
        (struct CMUnitTest)cmocka_unit_test(the_order_of_the_news_decides_nothing);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(clocks_of_the_day_decide_nothing);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
