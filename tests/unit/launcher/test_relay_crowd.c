/* Who waits when the workers of a node have sent more than the service has taken. */

#include "launcher/store/relay_crowd.h"
#include "tests/lib/cmocka.h"

enum { LITTLE = RELAY_CROWD_SMALL, MUCH = RELAY_CROWD_SMALL + 1 };

static void nobody_waits_while_there_is_room(void **state)
{
    (void)state;
    assert_int_equal(relay_crowd_of(RELAY_CROWD_LARGE_AT), RELAY_CROWD_NONE);
    assert_false(relay_crowd_must_wait(RELAY_CROWD_NONE, false, MUCH));
}

static void who_holds_much_waits_first(void **state)
{
    (void)state;
    assert_int_equal(relay_crowd_of(RELAY_CROWD_LARGE_AT + 1), RELAY_CROWD_LARGE);
    assert_true(relay_crowd_must_wait(RELAY_CROWD_LARGE, false, MUCH));
    assert_false(relay_crowd_must_wait(RELAY_CROWD_LARGE, false, LITTLE));
}

static void all_wait_at_last(void **state)
{
    (void)state;
    assert_int_equal(relay_crowd_of(RELAY_CROWD_ALL_AT), RELAY_CROWD_LARGE);
    assert_int_equal(relay_crowd_of(RELAY_CROWD_ALL_AT + 1), RELAY_CROWD_ALL);
    assert_true(relay_crowd_must_wait(RELAY_CROWD_ALL, false, 0));
}

static void service_that_takes_no_more_lets_who_holds_much_wait(void **state)
{
    (void)state;
    assert_true(relay_crowd_must_wait(RELAY_CROWD_NONE, true, MUCH));
    assert_false(relay_crowd_must_wait(RELAY_CROWD_NONE, true, LITTLE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_waits_while_there_is_room),
        cmocka_unit_test(who_holds_much_waits_first),
        cmocka_unit_test(all_wait_at_last),
        cmocka_unit_test(service_that_takes_no_more_lets_who_holds_much_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
