/* What ranks report: whose it is, since when, how long a step takes. */

#include "rendezvous/progress.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"

#include <stdio.h>
#include <string.h>

enum { FIRST = 11, SECOND = 22 }; /* sessions */

/* Two nodes, of two ranks and of one. */
static void open_two(struct progress *p)
{
    *p = (struct progress){0};
    progress_begin(p, 5, 2);
    progress_add_node(p, FIRST, "a", 2);
    progress_add_node(p, SECOND, "b", 1);
    progress_start(p);
}

static struct msg_progress report_of(uint32_t rank, uint64_t step, const char *phase)
{
    struct msg_progress m = {
        .generation = 5, .rank = rank, .step = step, .waits_for = -1, .pid = 100};

    (void)snprintf(m.phase, sizeof(m.phase), "%s", phase);
    return m;
}

static void say(struct progress *p, uint32_t rank, uint64_t step, const char *phase,
                uint64_t now_ms)
{
    struct msg_progress m = report_of(rank, step, phase);

    assert_true(progress_note(p, rank < 2 ? FIRST : SECOND, &m, now_ms));
}

static void a_report_is_dated_back_by_its_age(void **state)
{
    struct msg_progress m = report_of(1, 7, "forward");
    struct progress p;

    (void)state;
    open_two(&p);
    m.age_ms = 200;
    m.tok_s = 512;
    (void)snprintf(m.loss, sizeof(m.loss), "2.5");
    assert_true(progress_note(&p, FIRST, &m, 1000));
    assert_int_equal(p.rank[1].said_ms, 800);
    assert_int_equal(p.rank[1].since_ms, 800);
    assert_int_equal(p.rank[1].step, 7);
    assert_int_equal(p.rank[1].tok_s, 512);
    assert_int_equal(p.rank[1].pid, 100);
    assert_string_equal(p.rank[1].phase, "forward");
    assert_string_equal(p.rank[1].loss, "2.5");
    assert_int_equal(p.n_reporting, 1);
    assert_int_equal(p.rank[0].said_ms, 0);
    progress_release(&p);
}

static void a_rank_belongs_to_its_node_alone(void **state)
{
    struct msg_progress m = report_of(2, 1, "");
    struct progress p;

    (void)state;
    open_two(&p);
    assert_false(progress_note(&p, FIRST, &m, 1000));
    assert_true(progress_note(&p, SECOND, &m, 1000));
    m.rank = 3;
    assert_false(progress_note(&p, SECOND, &m, 1000));
    m.rank = UINT32_MAX;
    assert_false(progress_note(&p, SECOND, &m, 1000));
    assert_string_equal(progress_node_of(&p, 2)->host, "b");
    assert_int_equal(progress_node_of(&p, 1)->first_rank, 0);
    assert_null(progress_node_of(&p, 3));
    progress_release(&p);
    assert_false(progress_note(&p, SECOND, &m, 1000)); /* no table, no rank */
}

static void the_same_again_does_not_change_since_when(void **state)
{
    struct progress p;

    (void)state;
    open_two(&p);
    say(&p, 0, 7, "forward", 1000);
    say(&p, 0, 7, "forward", 2000);
    assert_int_equal(p.rank[0].since_ms, 1000);
    assert_int_equal(p.rank[0].said_ms, 2000);
    assert_int_equal(p.moved_ms, 1000);
    assert_true(p.rank[0].repeats);
    say(&p, 0, 7, "reduce", 3000);
    assert_int_equal(p.rank[0].since_ms, 3000);
    assert_int_equal(p.moved_ms, 3000);
    progress_release(&p);
}

static void who_comes_back_after_a_silence_begins_anew(void **state)
{
    struct progress p;

    (void)state;
    open_two(&p);
    say(&p, 0, 7, "forward", 1000);
    say(&p, 0, 7, "forward", 6000); /* it was asleep, or its agent */
    assert_int_equal(p.rank[0].since_ms, 6000);
    assert_int_equal(p.moved_ms, 6000);
    progress_release(&p);
}

static void being_started_is_no_report(void **state)
{
    struct progress p;

    (void)state;
    open_two(&p);
    say(&p, 0, 0, "", 1000);
    assert_int_equal(p.rank[0].pid, 100);
    assert_int_equal(p.n_reporting, 0);
    say(&p, 0, 0, "load", 1000);
    assert_int_equal(p.n_reporting, 1);
    progress_release(&p);
}

static void a_step_takes_what_the_median_took_without_the_first(void **state)
{
    struct progress p;

    (void)state;
    open_two(&p);
    say(&p, 0, 10, "load", 1000);
    say(&p, 0, 11, "", 61000); /* a slow first one */
    say(&p, 0, 12, "", 61100);
    say(&p, 1, 12, "", 61150); /* the front only counts */
    say(&p, 0, 13, "", 61200);
    assert_int_equal(p.median_ms, 0);
    say(&p, 0, 14, "", 61400);
    assert_int_equal(p.median_ms, 100);
    say(&p, 0, 16, "", 61800); /* two at once */
    say(&p, 0, 17, "", 64400);
    assert_int_equal(p.median_ms, 200);
    for (uint64_t i = 0; i < 2 * PROGRESS_STEPS; i++) {
        say(&p, 0, 18 + i, "", 64800 + 400 * i);
    }
    assert_int_equal(p.median_ms, 400);
    progress_release(&p);
}

static void steps_that_are_told_of_together_are_as_good_as_one_by_one(void **state)
{
    struct progress p;

    (void)state;
    open_two(&p);
    say(&p, 0, 1, "", 1000);
    say(&p, 0, 18, "", 2700);
    assert_int_equal(p.median_ms, 100);
    progress_release(&p);
}

static void what_peers_say_is_fit_to_be_shown(void **state)
{
    struct msg_progress m = report_of(0, 1, "a\033[2Jb\xff\"c");
    struct progress p;

    (void)state;
    open_two(&p);
    m.waits_for = 3;
    (void)snprintf(m.loss, sizeof(m.loss), "1\n2");
    assert_true(progress_note(&p, FIRST, &m, 1000));
    assert_string_equal(p.rank[0].phase, "a?[2Jb?\"c");
    assert_string_equal(p.rank[0].loss, "1?2");
    assert_int_equal(p.rank[0].waits_for, -1); /* there is no such rank */
    progress_release(&p);
}

static void the_first_word_of_a_phase_says_what_kind_it_is(void **state)
{
    static const struct {
        const char *phase;
        bool waits, is_excused;
    } cases[] = {
        {"wait", true, false},   {"wait for data", true, false},
        {"reduce", true, false}, {"waiting", false, false},
        {"save", false, true},   {"load weights", false, true},
        {"saved", false, false}, {"forward", false, false},
        {"", false, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct progress_rank r = {.waits_for = -1};

        (void)snprintf(r.phase, sizeof(r.phase), "%s", cases[i].phase);
        assert_int_equal(progress_is_waiting(&r), cases[i].waits);
        assert_int_equal(progress_is_excused(&r), cases[i].is_excused);
        r.waits_for = 0;
        assert_true(progress_is_waiting(&r));
    }
}

static void an_end_is_counted_once(void **state)
{
    struct progress p;

    (void)state;
    open_two(&p);
    progress_end(&p, SECOND, 1); /* not its rank */
    assert_int_equal(p.n_ended, 0);
    progress_end(&p, FIRST, 1);
    progress_end(&p, FIRST, 1);
    assert_int_equal(p.n_ended, 1);
    assert_true(p.rank[1].has_ended);
    progress_release(&p);
}

static void of_a_generation_that_has_ended_what_all_ranks_share_is_kept(void **state)
{
    struct msg_progress m = report_of(1, 7, "forward");
    struct progress p;

    (void)state;
    open_two(&p);
    m.tok_s = 512;
    assert_true(progress_note(&p, FIRST, &m, 1000));
    assert_int_equal(progress_tok_s(&p), 512);
    progress_fold(&p);
    progress_fold(&p);
    assert_null(p.rank);
    assert_string_equal(progress_node_of(&p, 1)->host, "a");
    assert_false(progress_note(&p, FIRST, &m, 2000));
    progress_end(&p, FIRST, 1);
    progress_fold_nodes(&p);
    assert_null(progress_node_of(&p, 1));
    assert_int_equal(p.world, 3);
    assert_int_equal(progress_tok_s(&p), 512);
    assert_int_equal(p.front_step, 7);
    assert_int_equal(p.moved_ms, 1000);
    progress_begin(&p, 6, 1);
    progress_add_node(&p, FIRST, "a", 1);
    progress_start(&p);
    assert_int_equal(progress_tok_s(&p), 0);
    assert_false(p.is_over);
    progress_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_is_dated_back_by_its_age),
        cmocka_unit_test(a_rank_belongs_to_its_node_alone),
        cmocka_unit_test(the_same_again_does_not_change_since_when),
        cmocka_unit_test(who_comes_back_after_a_silence_begins_anew),
        cmocka_unit_test(being_started_is_no_report),
        cmocka_unit_test(a_step_takes_what_the_median_took_without_the_first),
        cmocka_unit_test(steps_that_are_told_of_together_are_as_good_as_one_by_one),
        cmocka_unit_test(what_peers_say_is_fit_to_be_shown),
        cmocka_unit_test(the_first_word_of_a_phase_says_what_kind_it_is),
        cmocka_unit_test(an_end_is_counted_once),
        cmocka_unit_test(of_a_generation_that_has_ended_what_all_ranks_share_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
