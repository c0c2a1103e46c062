/* The judge of hangs, on a virtual clock (tests/lib/hang_rig.h): what is slow, asleep or
 * saving and no hang, and how long it is waited for. */

#include "tests/lib/cmocka.h"
#include "tests/lib/hang_rig.h"

#include "common/check.h"

enum { HOUR_MS = 3600 * 1000 };

static void an_hour_of_steps_that_vary_threefold_has_no_alarm(void **state)
{
    static const uint64_t least_ms[] = {20, 100, 500, 700, 1000, 3000, 10000};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(least_ms); i++) {
        struct hang_rig r;

        hang_rig_open(&r, 3, least_ms[i], 3 * least_ms[i]);
        hang_rig_pass(&r, HOUR_MS);
        assert_int_equal(r.n_verdicts, 0);
        assert_true(r.step > 100 + HOUR_MS / (4 * least_ms[i]));
        hang_rig_close(&r);
    }
}

/* The median is the short step, each long one takes three of them. */
static void rare_long_steps_are_no_alarm(void **state)
{
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 2, 1000, 1000);
    for (int i = 0; i < 100; i++) {
        r.least_ms = r.most_ms = i % 5 == 4 ? 3000 : 1000;
        hang_rig_pass(&r, r.least_ms);
    }
    assert_int_equal(r.n_verdicts, 0);
    hang_rig_close(&r);
}

/* The others are done at once, and stand still from then on. */
static void rare_long_steps_of_one_rank_are_no_alarm(void **state)
{
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 3, 10, 10);
    for (int i = 0; i < 100; i++) {
        uint64_t step = r.step;

        r.rank[1].until_ms = r.now_ms + (i % 5 == 4 ? 3000 : 1000);
        while (r.step == step) {
            hang_rig_turn(&r);
        }
    }
    assert_int_equal(r.n_verdicts, 0);
    assert_true(r.n_asked > 0);
    hang_rig_close(&r);
}

static void between_who_saves_and_who_computes_nobody_decides(void **state)
{
    (void)state;
    for (int tells_waits = 0; tells_waits < 2; tells_waits++) {
        struct hang_rig r;

        hang_rig_open(&r, 3, 50, 150);
        r.tells_waits = tells_waits;
        hang_rig_pass(&r, 20000);
        while (r.rank[0].deed != COMPUTES || r.rank[1].deed != COMPUTES) {
            hang_rig_pass(&r, HANG_RIG_TURN_MS);
        }
        r.rank[0].deed = SAVES;
        r.rank[0].until_ms = r.now_ms + 300000;
        r.rank[1].is_spinning = true;
        hang_rig_pass(&r, 60000);
        assert_int_equal(r.n_verdicts, 0);
        assert_true(r.n_asked > 0);
        hang_rig_close(&r);
    }
}

static void who_saves_for_minutes_is_not_waited_for_in_vain(void **state)
{
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 3, 50, 150);
    hang_rig_pass(&r, 20000);
    hang_rig_until(&r, 0, COMPUTES);
    r.rank[0].deed = SAVES;
    r.rank[0].until_ms = r.now_ms + 300000;
    hang_rig_pass(&r, 320000);
    assert_int_equal(r.n_verdicts, 0);
    assert_true(r.n_asked > 0);
    hang_rig_close(&r);
}

static void who_is_stopped_while_it_saves_is_found(void **state)
{
    uint64_t since_ms;
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 3, 50, 150);
    hang_rig_pass(&r, 20000);
    hang_rig_until(&r, 0, COMPUTES);
    r.rank[0].deed = SAVES;
    r.rank[0].until_ms = r.now_ms + 300000;
    hang_rig_pass(&r, 1000);
    r.rank[0].is_stopped = true;
    since_ms = r.now_ms;
    hang_rig_pass(&r, 20000);
    hang_rig_expect_found(&r, 0, since_ms, 10000);
    hang_rig_close(&r);
}

static void who_waits_for_a_device_gets_half_a_minute(void **state)
{
    uint64_t since_ms;
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 3, 50, 150);
    for (int i = 0; i < 20; i++) {
        hang_rig_pass(&r, 20000);
        hang_rig_until(&r, 2, COMPUTES);
        r.rank[2].is_reading = true;
        hang_rig_pass(&r, 1300 * (uint64_t)(i + 1));
        r.rank[2].is_reading = false;
    }
    assert_int_equal(r.n_verdicts, 0);
    assert_true(r.n_asked > 20);
    hang_rig_pass(&r, 20000);
    hang_rig_until(&r, 2, COMPUTES);
    since_ms = r.now_ms;
    r.rank[2].is_reading = true;
    hang_rig_pass(&r, 60000);
    hang_rig_expect_found(&r, 2, since_ms, 36000);
    assert_true(r.verdict_ms - since_ms > 30000);
    hang_rig_close(&r);
}

static void nothing_is_judged_before_steps_are_known(void **state)
{
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 3, 100000, 300000); /* the first step compiles, say */
    hang_rig_pass(&r, 400000);
    assert_int_equal(r.n_verdicts, 0);
    hang_rig_close(&r);
}

static void a_rank_that_never_reported_is_not_judged(void **state)
{
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 3, 50, 150);
    r.rank[2].is_stopped = true;
    hang_rig_pass(&r, 60000);
    assert_int_equal(r.n_verdicts, 0);
    assert_int_equal(r.n_asked, 0);
    assert_int_equal(hang_deadline(&r.h, &r.p), UINT64_MAX);
    hang_rig_close(&r);
}

static void a_job_that_is_stopped_as_a_whole_does_not_hang(void **state)
{
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 3, 50, 150);
    hang_rig_pass(&r, 20000);
    for (uint32_t i = 0; i < r.n; i++) {
        r.rank[i].is_stopped = true;
    }
    hang_rig_pass(&r, 600000);
    assert_int_equal(r.n_verdicts, 0);
    hang_rig_close(&r);
}

static void a_rank_that_has_ended_ends_the_judging(void **state)
{
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 3, 50, 150);
    hang_rig_pass(&r, 20000);
    r.rank[1].is_spinning = true;
    progress_end(&r.p, HANG_RIG_SESSION, 1);
    hang_rig_pass(&r, 60000);
    assert_int_equal(r.n_verdicts, 0);
    hang_rig_close(&r);
}

/* Everybody was: what lies between counts for nothing. */
static void a_service_that_was_asleep_judges_nobody_by_that(void **state)
{
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 2, 50, 150);
    for (int i = 0; i < 20; i++) {
        hang_rig_pass(&r, 5000);
        r.now_ms += 10000;
        hang_excuse(&r.h, r.now_ms);
    }
    assert_int_equal(r.n_verdicts, 0);
    hang_rig_close(&r);
}

/* A node sleeps with its agent: no reports, and an answer that comes when it wakes. */
static void a_node_that_was_asleep_is_not_blamed(void **state)
{
    (void)state;
    for (uint64_t asleep_ms = 1500; asleep_ms < 12000; asleep_ms += 130) {
        struct hang_rig r;

        hang_rig_open(&r, 2, 600, 900);
        hang_rig_pass(&r, 20000);
        r.rank[1].is_stopped = true;
        r.answer_takes_ms = UINT32_MAX;
        hang_rig_pass(&r, asleep_ms);
        r.rank[1].is_stopped = false;
        r.rank[1].until_ms += asleep_ms; /* what is left to do is left to do */
        if (r.answer_ms != 0) {
            r.answer_ms = r.now_ms + HANG_RIG_ANSWER_MS;
        }
        r.answer_takes_ms = HANG_RIG_ANSWER_MS;
        hang_rig_pass(&r, 20000);
        assert_int_equal(r.n_verdicts, 0);
        hang_rig_close(&r);
    }
}

/* A program that says nothing twice does not show that it is back. */
static void an_answer_that_comes_late_blames_nobody(void **state)
{
    (void)state;
    for (uint64_t asleep_ms = 4000; asleep_ms < 20000; asleep_ms += 130) {
        struct hang_rig r;

        hang_rig_open(&r, 2, 600, 900);
        r.tells_news = true;
        hang_rig_pass(&r, 20000);
        hang_rig_until(&r, 1, COMPUTES);
        r.rank[1].is_stopped = true;
        r.answer_takes_ms = UINT32_MAX;
        hang_rig_pass(&r, asleep_ms);
        r.rank[1].is_stopped = false;
        r.rank[1].until_ms += asleep_ms;
        r.answer_ms = r.answer_ms != 0 ? r.now_ms + HANG_RIG_ANSWER_MS : 0;
        r.answer_takes_ms = HANG_RIG_ANSWER_MS;
        hang_rig_pass(&r, 20000);
        assert_int_equal(r.n_verdicts, 0);
        hang_rig_close(&r);
    }
}

static void nobody_is_blamed_before_likelier_ones_have_been_heard(void **state)
{
    struct hang_verdict v;
    struct hang_rig r;

    (void)state;
    hang_rig_open(&r, 3, 50, 150);
    hang_rig_pass(&r, 20000);
    r.rank[1].is_stopped = true;
    r.answer_takes_ms = UINT32_MAX;
    hang_rig_pass(&r, 2400);
    assert_int_equal(r.n_asked, 1);
    assert_int_equal(r.h.suspect[0].rank, 1);
    hang_answer(&r.h, 0, "T", r.now_ms);
    hang_answer(&r.h, 2, "S", r.now_ms);
    assert_int_equal(hang_look(&r.h, &r.p, r.now_ms + 2000, &v), HANG_QUIET);
    hang_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_hour_of_steps_that_vary_threefold_has_no_alarm),
        cmocka_unit_test(rare_long_steps_are_no_alarm),
        cmocka_unit_test(rare_long_steps_of_one_rank_are_no_alarm),
        cmocka_unit_test(between_who_saves_and_who_computes_nobody_decides),
        cmocka_unit_test(who_saves_for_minutes_is_not_waited_for_in_vain),
        cmocka_unit_test(who_is_stopped_while_it_saves_is_found),
        cmocka_unit_test(who_waits_for_a_device_gets_half_a_minute),
        cmocka_unit_test(nothing_is_judged_before_steps_are_known),
        cmocka_unit_test(a_rank_that_never_reported_is_not_judged),
        cmocka_unit_test(a_job_that_is_stopped_as_a_whole_does_not_hang),
        cmocka_unit_test(a_rank_that_has_ended_ends_the_judging),
        cmocka_unit_test(a_service_that_was_asleep_judges_nobody_by_that),
        cmocka_unit_test(a_node_that_was_asleep_is_not_blamed),
        cmocka_unit_test(an_answer_that_comes_late_blames_nobody),
        cmocka_unit_test(nobody_is_blamed_before_likelier_ones_have_been_heard),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
