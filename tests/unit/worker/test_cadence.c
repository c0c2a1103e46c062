#include "tests/lib/cmocka.h"
#include "worker/cadence.h"
#include "worker/losses.h"

#include "common/check.h"

static void every_nth_step_is_due_and_none_with_0(void **state)
{
    static const struct {
        int64_t every;
        uint64_t step;
        bool is_due, is_due_or_last; /* of ten steps */
    } cases[] = {
        {1, 1, true, true},    {1, 10, true, true},   {3, 1, false, false},
        {3, 3, true, true},    {3, 9, true, true},    {3, 10, false, true},
        {20, 9, false, false}, {20, 10, false, true}, {0, 5, false, false},
        {0, 10, false, false}, {3, 11, false, true},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(cadence_is_due(cases[i].every, cases[i].step),
                         cases[i].is_due);
        assert_int_equal(cadence_is_due_or_last(cases[i].every, cases[i].step, 10),
                         cases[i].is_due_or_last);
    }
}

/* One character a step: what ranks say, and whether a checkpoint begins.
 *
 *   flags  '.' nothing, 's' saving, 'l' leave, 'b' both, 't' due by rank 0's clock,
 *          'T' that while saving
 *   begun  '.' no, 'S' yes
 */
static void expect(int64_t every, const char *flags, const char *begun)
{
    struct save_cadence c = {.every = every, .steps = 10};
    char seen[16] = "";

    for (uint64_t step = 1; flags[step - 1]; step++) {
        char f = flags[step - 1];
        unsigned all = (f == 's' || f == 'b' || f == 'T' ? LOSSES_SAVING : 0U) |
                       (f == 't' || f == 'T' ? LOSSES_SAVE : 0U) |
                       (f == 'l' || f == 'b' ? LOSSES_LEAVE : 0U);

        seen[step - 1] = save_cadence_step(&c, step, all) ? 'S' : '.';
    }
    assert_string_equal(seen, begun);
}

static void checkpoints_begin_on_time_while_none_is_in_work(void **state)
{
    (void)state;
    expect(1, "..........", "SSSSSSSSSS");
    expect(3, "..........", "..S..S..SS");
    expect(20, "..........", ".........S");
    expect(0, "..........", ".........S");
}

static void one_that_falls_due_during_another_is_put_off_until_it_ends(void **state)
{
    (void)state;
    expect(3, "...ss.....", "..S..S..SS"); /* it ended in time */
    expect(3, "...sss....", "..S...S.SS"); /* one step late */
    expect(3, "...sssssss", "..S......S"); /* no answer: nothing more but the end */
    expect(3, "...ssssss.", "..S......S"); /* two were put off: one is made up for */
    expect(1, ".s.s.s.s.s", "S.S.S.S.SS");
    expect(0, "sss.......", ".........S");
}

static void the_last_step_and_a_leave_are_saved_whatever_is_in_work(void **state)
{
    (void)state;
    expect(3, "l", "S");
    expect(0, ".l", ".S");
    expect(3, "...b", "..SS");
    expect(0, ".........s", ".........S");
    expect(1, ".........b", "SSSSSSSSSS");
}

static void what_rank_0_asks_for_begins_on_every_rank(void **state)
{
    (void)state;
    expect(0, "..t.......", "..S......S");
    expect(0, "..ttt.....", "..SSS....S");
    expect(0, "..TTs.....", ".....S...S"); /* put off, once for all */
    expect(4, "..t.......", "..SS...S.S"); /* steps count as ever */
}

/* Steps of 300 ms, a checkpoint every second: by the clock of rank 0 alone. */
static void rank_0_asks_when_the_time_has_passed(void **state)
{
    struct save_cadence leader = {.every_ms = 1000, .steps = 20, .begun_ms = 5000};
    struct save_cadence other = {.every_ms = 1000, .steps = 20, .begun_ms = 0};
    char seen[32] = "";

    (void)state;
    for (uint64_t step = 1; step <= 12; step++) {
        uint64_t now_ms = 5000 + 300 * step;
        unsigned flags = save_cadence_asks(&leader, now_ms) ? LOSSES_SAVE : 0U;
        bool begins = save_cadence_step(&leader, step, flags);

        assert_int_equal(save_cadence_step(&other, step, flags), begins);
        if (begins) {
            save_cadence_begin(&leader, now_ms);
        }
        seen[step - 1] = begins ? 'S' : '.';
    }
    assert_string_equal(seen, "...S...S...S");
}

static void without_a_time_rank_0_never_asks(void **state)
{
    struct save_cadence c = {.every = 3, .steps = 20};

    (void)state;
    assert_false(save_cadence_asks(&c, 0));
    assert_false(save_cadence_asks(&c, UINT64_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_nth_step_is_due_and_none_with_0),
        cmocka_unit_test(checkpoints_begin_on_time_while_none_is_in_work),
        cmocka_unit_test(one_that_falls_due_during_another_is_put_off_until_it_ends),
        cmocka_unit_test(what_rank_0_asks_for_begins_on_every_rank),
        cmocka_unit_test(rank_0_asks_when_the_time_has_passed),
        cmocka_unit_test(without_a_time_rank_0_never_asks),
        cmocka_unit_test(the_last_step_and_a_leave_are_saved_whatever_is_in_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
