/* A keeper that does not answer. */

#include "launcher/keeper/keeper_watch.h"
#include "tests/lib/cmocka.h"

/* Asked so often without an answer; what was to be done the last time. */
static enum keeper_deed ask(struct keeper_watch *w, char state, unsigned n)
{
    enum keeper_deed deed = KEEPER_LEAVE;

    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(deed, KEEPER_LEAVE);
        deed = keeper_watch_ask(w, state);
    }
    return deed;
}

static void keeper_that_answers_is_left_alone_whatever_its_state(void **state)
{
    struct keeper_watch w = {0};

    (void)state;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(ask(&w, 'T', 2), KEEPER_LEAVE);
        keeper_watch_answered(&w);
    }
}

static void stopped_keeper_is_continued_once_and_then_killed_once(void **state)
{
    struct keeper_watch w = {0};

    (void)state;
    assert_int_equal(ask(&w, 'T', 3), KEEPER_CONTINUE);
    assert_int_equal(ask(&w, 't', 2), KEEPER_KILL);
    assert_int_equal(ask(&w, 't', 100), KEEPER_LEAVE);
}

static void keeper_that_went_on_may_be_stopped_again(void **state)
{
    struct keeper_watch w = {0};

    (void)state;
    assert_int_equal(ask(&w, 'T', 3), KEEPER_CONTINUE);
    keeper_watch_answered(&w);
    assert_int_equal(ask(&w, 'T', 3), KEEPER_CONTINUE);
}

static void keeper_that_is_held_up_is_told_of_once_and_not_killed(void **state)
{
    struct keeper_watch w = {0};

    (void)state;
    assert_int_equal(ask(&w, 'D', 10), KEEPER_TELL);
    assert_int_equal(ask(&w, 'R', 1000), KEEPER_LEAVE);
    assert_int_equal(ask(&w, 'T', 2), KEEPER_CONTINUE); /* first */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeper_that_answers_is_left_alone_whatever_its_state),
        cmocka_unit_test(stopped_keeper_is_continued_once_and_then_killed_once),
        cmocka_unit_test(keeper_that_went_on_may_be_stopped_again),
        cmocka_unit_test(keeper_that_is_held_up_is_told_of_once_and_not_killed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
