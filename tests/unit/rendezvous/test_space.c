/* How full a disk is for the state, and what it needs. */

#include "rendezvous/space.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"

enum { RESERVE = 64 << 20, EIGHTH = RESERVE / 8 };

static enum durable_space level(uint64_t eighths, enum durable_space before)
{
    return space_level(eighths * EIGHTH, RESERVE, true, before);
}

static void levels_are_parts_of_the_reserve(void **state)
{
    (void)state;
    assert_int_equal(level(16, SPACE_FINE), SPACE_FINE);
    assert_int_equal(level(15, SPACE_FINE), SPACE_LOW);
    assert_int_equal(level(4, SPACE_LOW), SPACE_LOW);
    assert_int_equal(level(3, SPACE_LOW), SPACE_SCARCE);
    assert_int_equal(level(1, SPACE_SCARCE), SPACE_SCARCE);
    assert_int_equal(level(0, SPACE_SCARCE), SPACE_SPENT);
}

static void coming_back_takes_a_quarter_more(void **state)
{
    (void)state;
    assert_int_equal(level(17, SPACE_LOW), SPACE_LOW);
    assert_int_equal(level(18, SPACE_LOW), SPACE_FINE);
    assert_int_equal(level(5, SPACE_SCARCE), SPACE_SCARCE);
    assert_int_equal(level(6, SPACE_SCARCE), SPACE_LOW);
    assert_int_equal(level(2, SPACE_SPENT), SPACE_SPENT);
    assert_int_equal(level(3, SPACE_SPENT), SPACE_SCARCE);
    assert_int_equal(level(18, SPACE_SPENT), SPACE_FINE);
}

static void reserve_of_which_some_was_given_up_is_not_fine(void **state)
{
    (void)state;
    assert_int_equal(space_level(99ULL * RESERVE, RESERVE, false, SPACE_FINE),
                     SPACE_LOW);
}

/* Who makes that room is told the truth: then, and not before, all is as it was. */
static void what_is_wanted_is_enough_and_not_too_much(void **state)
{
    static const uint64_t lefts[] = {0, EIGHTH, 4 * EIGHTH, RESERVE};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lefts); i++) {
        uint64_t room = lefts[i] + space_wanted(RESERVE, lefts[i]);

        assert_int_equal(space_level(room, RESERVE, true, SPACE_SPENT), SPACE_FINE);
        assert_int_equal(space_level(room - 1, RESERVE, true, SPACE_SPENT), SPACE_LOW);
    }
}

static void without_a_reserve_all_is_fine(void **state)
{
    (void)state;
    assert_int_equal(space_level(0, 0, true, SPACE_FINE), SPACE_FINE);
    assert_int_equal(space_wanted(0, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_are_parts_of_the_reserve),
        cmocka_unit_test(coming_back_takes_a_quarter_more),
        cmocka_unit_test(reserve_of_which_some_was_given_up_is_not_fine),
        cmocka_unit_test(what_is_wanted_is_enough_and_not_too_much),
        cmocka_unit_test(without_a_reserve_all_is_fine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
