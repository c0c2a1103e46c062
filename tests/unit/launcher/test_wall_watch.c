#include "launcher/wall_watch.h"
#include "tests/lib/cmocka.h"

enum { HOUR_MS = 3600 * 1000, WALL_MS = 1000000000 };

static void what_is_dated_by_a_clock_that_runs_on_is_known(void **state)
{
    struct wall_watch w = {0};

    (void)state;
    wall_watch_look(&w, 1000, WALL_MS);
    wall_watch_look(&w, 9000, WALL_MS + 8000);
    assert_int_equal(wall_watch_date(&w, 9000, 0), 9000);
    assert_int_equal(wall_watch_date(&w, 9000, 50), 8950);
    assert_int_equal(wall_watch_date(&w, 9000, 8000), 1000);
    assert_int_equal(wall_watch_date(&w, 9000, 8001), 0); /* before anybody looked */
}

static void a_clock_that_was_set_dates_only_what_came_after(void **state)
{
    static const int64_t steps[] = {HOUR_MS, -HOUR_MS, 1000, -1000};
    (void)state;

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        struct wall_watch w = {0};
        uint64_t wall = WALL_MS + (uint64_t)steps[i];

        wall_watch_look(&w, 1000, WALL_MS);
        wall_watch_look(&w, 2000, wall + 1000);
        assert_int_equal(wall_watch_date(&w, 2000, 0), 2000);
        assert_int_equal(wall_watch_date(&w, 2000, 10), 0);
        wall_watch_look(&w, 3000, wall + 2000);
        assert_int_equal(wall_watch_date(&w, 3000, 900), 2100);
        assert_int_equal(wall_watch_date(&w, 3000, HOUR_MS), 0);
    }
}

static void clocks_that_are_not_read_at_quite_the_same_time_were_not_set(void **state)
{
    struct wall_watch w = {0};

    (void)state;
    wall_watch_look(&w, 1000, WALL_MS);
    for (uint64_t t = 2000; t < 100000; t += 1000) {
        wall_watch_look(&w, t, WALL_MS + t - 1000 + t % 7 * 10);
    }
    assert_int_equal(wall_watch_date(&w, 99000, 98000), 1000);
}

static void nobody_looked_and_nothing_is_known(void **state)
{
    struct wall_watch w = {0};

    (void)state;
    assert_int_equal(wall_watch_date(&w, 5000, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_dated_by_a_clock_that_runs_on_is_known),
        cmocka_unit_test(a_clock_that_was_set_dates_only_what_came_after),
        cmocka_unit_test(clocks_that_are_not_read_at_quite_the_same_time_were_not_set),
        cmocka_unit_test(nobody_looked_and_nothing_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
