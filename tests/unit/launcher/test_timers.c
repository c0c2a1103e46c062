/* Requests of torch's file timers, as workers write them and as they should not. */

#include "launcher/timers.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { NOW_MS = 5000 };
static const uint64_t WALL_MS = 1700000000000;

static void feed(struct timers *t, const char *text)
{
    timers_feed(t, text, strlen(text), WALL_MS, NOW_MS);
}

/* `after_ms` from now, negative: the release. */
static void ask(struct timers *t, int pid, const char *scope, int after_ms, int number)
{
    char line[TIMERS_LINE_MAX * 2];

    (void)snprintf(line, sizeof(line),
                   "{\"version\": 1, \"pid\": %d, \"scope_id\": \"%s\", "
                   "\"expiration_time\": %.3f, \"signal\": %d}\n",
                   pid, scope,
                   after_ms < 0 ? -1.0 : ((double)WALL_MS + after_ms) / 1000, number);
    feed(t, line);
}

static void timer_expires_once_by_the_clock_that_nobody_sets(void **state)
{
    struct timers t;
    struct timer timer;

    (void)state;
    timers_init(&t);
    assert_true(timers_deadline(&t) == UINT64_MAX);
    ask(&t, 10, "save", 250, SIGKILL);
    assert_true(timers_deadline(&t) == NOW_MS + 250);
    assert_false(timers_take(&t, NOW_MS + 249, &timer));
    assert_true(timers_take(&t, NOW_MS + 250, &timer));
    assert_int_equal(timer.pid, 10);
    assert_int_equal(timer.signal, SIGKILL);
    assert_string_equal(timer.scope, "save");
    assert_false(timers_take(&t, UINT64_MAX, &timer));
    assert_null(timers_trouble(&t));
    timers_release(&t);
}

static void released_timer_does_not_expire_and_a_new_time_replaces_the_old(void **state)
{
    struct timers t;
    struct timer timer;

    (void)state;
    timers_init(&t);
    ask(&t, 10, "a", 100, SIGKILL);
    ask(&t, 10, "b", 100, SIGKILL);
    ask(&t, 11, "a", 100, SIGTERM);
    ask(&t, 10, "b", -1, 0);
    ask(&t, 10, "b", -1, 0); /* releasing what is not there is nothing */
    ask(&t, 11, "a", 300, SIGTERM);
    assert_int_equal(t.n, 2);
    assert_true(timers_take(&t, NOW_MS + 200, &timer));
    assert_int_equal(timer.pid, 10);
    assert_false(timers_take(&t, NOW_MS + 200, &timer));
    ask(&t, 11, "a", 300, 0); /* no signal: nothing to do */
    assert_int_equal(t.n, 0);
    timers_release(&t);
}

static void process_is_sent_one_signal_and_forgotten(void **state)
{
    struct timers t;
    struct timer timer;

    (void)state;
    timers_init(&t);
    ask(&t, 10, "late", 20, SIGTERM);
    ask(&t, 10, "early", 10, SIGKILL);
    ask(&t, 10, "never", 1000, SIGKILL);
    ask(&t, 12, "other", 15, SIGUSR1);
    assert_true(timers_take(&t, NOW_MS + 500, &timer));
    assert_string_equal(timer.scope, "early");
    assert_true(timers_take(&t, NOW_MS + 500, &timer));
    assert_string_equal(timer.scope, "other");
    assert_int_equal(t.n, 0);
    ask(&t, 13, "x", 10, SIGKILL);
    ask(&t, 14, "x", 10, SIGKILL);
    timers_forget(&t, 13);
    assert_true(timers_take(&t, NOW_MS + 10, &timer));
    assert_int_equal(timer.pid, 14);
    timers_release(&t);
}

static void times_of_any_size_are_taken(void **state)
{
    static const char *const times[] = {"1e308", "9999999999999999999", "0", "1"};
    struct timers t;

    (void)state;
    timers_init(&t);
    for (size_t i = 0; i < ARRAY_LEN(times); i++) {
        char line[256];

        (void)snprintf(line, sizeof(line),
                       "{\"pid\": 7, \"scope_id\": \"%zu\", \"expiration_time\": %s, "
                       "\"signal\": 9}\n",
                       i, times[i]);
        feed(&t, line);
    }
    /* 9999999999999999999 is no 64-bit integer: that line is none */
    assert_int_equal(t.n, 3);
    assert_true(t.all[0].deadline_ms == UINT64_MAX);
    assert_true(t.all[1].deadline_ms == NOW_MS && t.all[2].deadline_ms == NOW_MS);
    timers_release(&t);
}

static void what_is_no_request_is_told_once_and_the_next_line_counts(void **state)
{
    static const char *const lines[] = {
        "\n",
        "nonsense\n",
        "[]\n",
        "{}\n",
        "{\"pid\": 0, \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 9}\n",
        "{\"pid\": -4, \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 9}\n",
        "{\"pid\": 4294967297, \"scope_id\": \"a\", \"expiration_time\": 1, "
        "\"signal\": 9}\n",
        "{\"pid\": 1.5, \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 9}\n",
        "{\"pid\": 3, \"scope_id\": null, \"expiration_time\": 1, \"signal\": 9}\n",
        "{\"pid\": 3, \"scope_id\": \"a\", \"expiration_time\": NaN, \"signal\": 9}\n",
        "{\"pid\": 3, \"scope_id\": \"a\", \"expiration_time\": \"1\", \"signal\": 9}\n",
        "{\"pid\": 3, \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 65}\n",
        "{\"pid\": 3, \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": -9}\n",
        "{\"pid\": 3, \"scope_id\": \"a\", \"expiration_time\": 1}\n",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        struct timers t;

        timers_init(&t);
        feed(&t, lines[i]);
        assert_int_equal(t.n, 0);
        assert_non_null(timers_trouble(&t));
        feed(&t, lines[i]);
        assert_null(timers_trouble(&t));
        ask(&t, 3, "a", 1, 9);
        assert_int_equal(t.n, 1);
        timers_release(&t);
    }
}

static void
lines_are_whole_however_they_are_cut_and_too_long_ones_are_none(void **state)
{
    static const char text[] = "{\"pid\": 3, \"scope_id\": \"\\u00e4\", "
                               "\"expiration_time\": 1, \"signal\": 9}\n";
    char scope[TIMERS_LINE_MAX];
    struct timers t;

    (void)state;
    timers_init(&t);
    for (size_t i = 0; i < sizeof(text) - 1; i++) {
        assert_int_equal(t.n, 0);
        timers_feed(&t, text + i, 1, WALL_MS, NOW_MS);
    }
    assert_int_equal(t.n, 1);
    timers_clear(&t);
    memset(scope, 'x', sizeof(scope) - 1);
    scope[sizeof(scope) - 1] = '\0';
    ask(&t, 3, scope, 1, 9);
    ask(&t, 3, scope, 1, 9);
    assert_int_equal(t.n, 0);
    assert_non_null(timers_trouble(&t));
    scope[3000] = '\0';
    scope[0] = 'y';
    ask(&t, 3, scope, 1, 9);
    assert_int_equal(t.n, 1);
    assert_int_equal(strlen(t.all[0].scope), TIMERS_SCOPE_MAX - 1);
    ask(&t, 3, scope, -1, 0); /* found again by what was kept */
    assert_int_equal(t.n, 0);
    timers_release(&t);
}

static void more_timers_than_are_kept_are_told_once(void **state)
{
    struct timers t;

    (void)state;
    timers_init(&t);
    for (int i = 1; i <= TIMERS_MAX + 10; i++) {
        ask(&t, i, "a", 10, 9);
    }
    assert_int_equal(t.n, TIMERS_MAX);
    assert_non_null(timers_trouble(&t));
    ask(&t, 1, "a", 20, 9); /* one that is kept may still be changed … */
    ask(&t, 2, "a", -1, 0); /* … and released */
    assert_int_equal(t.n, TIMERS_MAX - 1);
    ask(&t, 99999, "a", 20, 9);
    assert_int_equal(t.n, TIMERS_MAX);
    assert_null(timers_trouble(&t));
    timers_release(&t);
}

static bool is_odd(void *n_asked, const struct timer *timer)
{
    ++*(int *)n_asked;
    return timer->pid % 2 == 1;
}

static void timers_of_processes_that_are_gone_make_room_for_others(void **state)
{
    struct timers t;
    int n_asked = 0;

    (void)state;
    timers_init(&t);
    for (int i = 1; i <= TIMERS_MAX / 2; i++) {
        ask(&t, i, "a", 10, 9);
    }
    assert_false(timers_are_many(&t));
    ask(&t, 9999, "a", 10, 9);
    assert_true(timers_are_many(&t));
    assert_true(t.all[0].since_ms == NOW_MS);
    timers_prune(&t, is_odd, &n_asked);
    assert_int_equal(n_asked, TIMERS_MAX / 2 + 1);
    assert_int_equal(t.n, TIMERS_MAX / 4 + 1);
    timers_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timer_expires_once_by_the_clock_that_nobody_sets),
        cmocka_unit_test(
            released_timer_does_not_expire_and_a_new_time_replaces_the_old),
        cmocka_unit_test(process_is_sent_one_signal_and_forgotten),
        cmocka_unit_test(times_of_any_size_are_taken),
        cmocka_unit_test(what_is_no_request_is_told_once_and_the_next_line_counts),
        cmocka_unit_test(
            lines_are_whole_however_they_are_cut_and_too_long_ones_are_none),
        cmocka_unit_test(more_timers_than_are_kept_are_told_once),
        cmocka_unit_test(timers_of_processes_that_are_gone_make_room_for_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
