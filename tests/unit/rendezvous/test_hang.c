/* The judge of hangs, on a virtual clock (tests/lib/hang_rig.h): what is found. Whom it
 * leaves alone: test_hang_no_alarm.c. */

#include "tests/lib/cmocka.h"
#include "tests/lib/hang_rig.h"

static void a_stopped_rank_is_found_within_three_seconds_wherever_it_is(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 300; seed++) {
        uint32_t n = 2 + seed % 3;
        uint32_t victim = seed % n;
        uint64_t since_ms;
        struct hang_rig r;

        hang_rig_open(&r, n, 20 + seed % 400, 60 + seed % 500);
        r.seed = seed;
        hang_rig_pass(&r, 20000 + 10 * seed);
        assert_int_equal(r.n_verdicts, 0);
        since_ms = r.now_ms;
        r.rank[victim].is_stopped = true;
        hang_rig_pass(&r, 20000);
        hang_rig_expect_found(&r, victim, since_ms, 3000);
        assert_string_equal(r.verdict.state, "T");
        hang_rig_close(&r);
    }
}

static void a_spinning_rank_is_found_by_who_waits_for_it(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 300; seed++) {
        uint32_t n = 2 + seed % 3;
        uint32_t victim = seed % n;
        uint64_t since_ms;
        struct hang_rig r;

        hang_rig_open(&r, n, 50, 150);
        r.seed = seed;
        r.tells_waits = seed % 2 == 0;
        hang_rig_pass(&r, 20000 + 10 * seed);
        hang_rig_until(&r, victim, COMPUTES); /* outside a collective */
        since_ms = r.now_ms;
        r.rank[victim].is_spinning = true;
        hang_rig_pass(&r, 20000);
        hang_rig_expect_found(&r, victim, since_ms, 3000);
        assert_int_equal(r.verdict.n_waiting, n - 1);
        hang_rig_close(&r);
    }
}

static void long_steps_are_given_five_of_them(void **state)
{
    uint64_t since_ms;
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 3, 3800, 4200);
    hang_rig_pass(&r, 200000);
    since_ms = r.now_ms;
    r.rank[1].is_stopped = true;
    hang_rig_pass(&r, 60000);
    hang_rig_expect_found(&r, 1, since_ms, UINT64_C(5) * 4200);
    assert_true(r.verdict_ms - since_ms > UINT64_C(3) * 4200);
    hang_rig_close(&r);
}

static void it_is_told_once_and_again_after_a_move(void **state)
{
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 2, 50, 150);
    hang_rig_pass(&r, 20000);
    r.rank[1].is_stopped = true;
    hang_rig_pass(&r, 60000);
    assert_int_equal(r.n_verdicts, 1);
    r.rank[1].is_stopped = false;
    hang_rig_pass(&r, 20000);
    assert_int_equal(r.n_verdicts, 1);
    r.rank[0].is_stopped = true;
    hang_rig_pass(&r, 20000);
    assert_int_equal(r.n_verdicts, 2);
    assert_int_equal(r.verdict.rank, 0);
    hang_rig_close(&r);
}

static void without_a_word_of_waiting_only_a_stopped_process_is_proof(void **state)
{
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 3, 50, 150);
    r.tells_phases = r.tells_waits = false;
    hang_rig_pass(&r, 20000);
    r.rank[2].is_spinning = true;
    hang_rig_pass(&r, 60000);
    assert_int_equal(r.n_verdicts, 0);
    assert_true(r.n_asked > 0);
    r.rank[2].is_spinning = false;
    r.rank[2].is_stopped = true;
    hang_rig_pass(&r, 20000);
    assert_int_equal(r.n_verdicts, 1);
    assert_int_equal(r.verdict.rank, 2);
    hang_rig_close(&r);
}

static void ranks_that_wait_for_each_other_are_told_of_without_blame(void **state)
{
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 2, 50, 150);
    hang_rig_pass(&r, 20000);
    hang_rig_until(&r, 1, WAITS);
    r.rank[1].is_spinning = true; /* inside the collective */
    hang_rig_pass(&r, 20000);
    assert_int_equal(r.n_verdicts, 1);
    assert_int_equal(r.news, HANG_UNCLEAR);
    hang_rig_close(&r);
}

static void a_process_that_a_debugger_holds_is_told_of(void **state)
{
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 2, 50, 150);
    hang_rig_pass(&r, 20000);
    r.rank[1].is_traced = true;
    hang_rig_pass(&r, 60000);
    assert_int_equal(r.n_verdicts, 1);
    assert_int_equal(r.news, HANG_HELD);
    assert_int_equal(r.verdict.rank, 1);
    hang_rig_close(&r);
}

static void a_process_that_is_let_go_and_hangs_all_the_same_is_found(void **state)
{
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 2, 50, 150);
    hang_rig_pass(&r, 20000);
    r.rank[1].is_traced = true;
    hang_rig_pass(&r, 20000);
    assert_int_equal(r.news, HANG_HELD);
    r.rank[1].is_traced = false;
    r.rank[1].is_stopped = true;
    hang_rig_pass(&r, 20000);
    assert_int_equal(r.n_verdicts, 2);
    assert_int_equal(r.news, HANG_FOUND);
    assert_int_equal(r.verdict.rank, 1);
    hang_rig_close(&r);
}

static void the_guilty_one_is_left_alone_while_a_debugger_is_attached(void **state)
{
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 3, 50, 150);
    hang_rig_pass(&r, 20000);
    hang_rig_until(&r, 1, COMPUTES);
    r.rank[1].is_spinning = r.rank[1].is_attached = true;
    hang_rig_pass(&r, 60000);
    assert_int_equal(r.n_verdicts, 1);
    assert_int_equal(r.news, HANG_HELD);
    assert_int_equal(r.verdict.rank, 1);
    assert_string_equal(r.verdict.state, "P strace, pid 7");
    r.rank[1].is_attached = false;
    hang_rig_pass(&r, 20000);
    assert_int_equal(r.n_verdicts, 2);
    assert_int_equal(r.news, HANG_FOUND);
    hang_rig_close(&r);
}

static void a_debugger_on_a_rank_that_waits_protects_nobody_else(void **state)
{
    uint64_t since_ms;
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 3, 50, 150);
    r.rank[0].is_attached = true;
    hang_rig_pass(&r, 20000);
    assert_int_equal(r.n_verdicts, 0);
    since_ms = r.now_ms;
    r.rank[2].is_stopped = true;
    hang_rig_pass(&r, 20000);
    hang_rig_expect_found(&r, 2, since_ms, 3000);
    hang_rig_close(&r);
}

static void a_rank_whose_output_nobody_reads_is_told_of(void **state)
{
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 2, 50, 150);
    hang_rig_pass(&r, 20000);
    hang_rig_until(&r, 1, COMPUTES);
    r.rank[1].is_unread = true;
    hang_rig_pass(&r, 60000);
    assert_int_equal(r.n_verdicts, 1);
    assert_int_equal(r.news, HANG_HELD);
    assert_int_equal(r.verdict.rank, 1);
    hang_rig_close(&r);
}

/* What its process did when they were asked is of no use any more. */
static void agents_are_asked_again_after_news_that_a_slow_line_has_held_up(void **state)
{
    struct msg_progress late = {.rank = 1, .waits_for = -1};
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 2, 50, 150);
    r.tells_news = true;
    hang_rig_pass(&r, 20000);
    hang_rig_until(&r, 1, COMPUTES);
    r.rank[1].is_spinning = true;
    while (r.n_asked == 0) {
        hang_rig_pass(&r, HANG_RIG_TURN_MS);
    }
    hang_rig_pass(&r, HANG_RIG_ANSWER_MS + 100);
    late.step = r.step + 1;
    late.age_ms = HANG_RIG_ANSWER_MS + 200; /* from before the question */
    assert_true(progress_note(&r.p, HANG_RIG_SESSION, &late, r.now_ms));
    hang_rig_pass(&r, 20000);
    assert_int_equal(r.n_asked, 2);
    assert_int_equal(r.n_verdicts, 1);
    assert_int_equal(r.verdict.rank, 1);
    hang_rig_close(&r);
}

static void of_ten_thousand_the_one_is_found_at_once(void **state)
{
    enum { N = 10000, GUILTY = 7777 };
    struct msg_progress m = {.generation = 1, .pid = 1};
    struct hang_verdict v;
    struct progress p = {0};
    struct hang h;
    uint64_t now_ms = 1000;

    (void)state;
    progress_begin(&p, 1, 1);
    progress_add_node(&p, HANG_RIG_SESSION, "host", N);
    progress_start(&p);
    hang_begin(&h, now_ms);
    for (uint64_t step = 1; step <= 20; step++, now_ms += 100) {
        for (m.rank = 0; m.rank < N; m.rank++) {
            m.step = step - (step == 20 && m.rank == GUILTY);
            m.waits_for = step == 20 && m.rank != GUILTY ? GUILTY : -1;
            assert_true(progress_note(&p, HANG_RIG_SESSION, &m, now_ms));
        }
    }
    now_ms = hang_deadline(&h, &p);
    assert_int_equal(hang_look(&h, &p, now_ms, &v), HANG_ASK);
    assert_int_equal(h.suspect[0].rank, GUILTY);
    assert_int_equal(h.n_suspects, HANG_SUSPECTS);
    for (uint32_t i = 0; i < h.n_suspects; i++) {
        hang_answer(&h, h.suspect[i].rank, i == 0 ? "R" : "S", now_ms + 300);
    }
    now_ms = hang_deadline(&h, &p);
    assert_int_equal(hang_look(&h, &p, now_ms, &v), HANG_FOUND);
    assert_int_equal(v.rank, GUILTY);
    assert_int_equal(v.n_waiting, N - 1);
    progress_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stopped_rank_is_found_within_three_seconds_wherever_it_is),
        cmocka_unit_test(a_spinning_rank_is_found_by_who_waits_for_it),
        cmocka_unit_test(long_steps_are_given_five_of_them),
        cmocka_unit_test(it_is_told_once_and_again_after_a_move),
        cmocka_unit_test(without_a_word_of_waiting_only_a_stopped_process_is_proof),
        cmocka_unit_test(ranks_that_wait_for_each_other_are_told_of_without_blame),
        cmocka_unit_test(a_process_that_a_debugger_holds_is_told_of),
        cmocka_unit_test(the_guilty_one_is_left_alone_while_a_debugger_is_attached),
        cmocka_unit_test(a_debugger_on_a_rank_that_waits_protects_nobody_else),
        cmocka_unit_test(a_process_that_is_let_go_and_hangs_all_the_same_is_found),
        cmocka_unit_test(a_rank_whose_output_nobody_reads_is_told_of),
        cmocka_unit_test(
            agents_are_asked_again_after_news_that_a_slow_line_has_held_up),
        cmocka_unit_test(of_ten_thousand_the_one_is_found_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
