/* Whether who follows comes again when its server is gone, on a clock of our own. */

#include "launcher/verbs/following.h"
#include "tests/lib/cmocka.h"

enum { BEGIN_MS = 5000 };

static struct following begin(bool is_ephemeral)
{
    const struct msg_welcome w = {.cluster = 7, .ephemeral = is_ephemeral};
    struct following f = {0};

    assert_false(following_met(&f, &w));
    return f;
}

static void server_without_memory_does_not_come_back(void **state)
{
    struct following f = begin(true);

    (void)state;
    assert_int_equal(following_ended(&f, TALK_BROKEN, BEGIN_MS), FOLLOWING_NEVER);
    assert_false(f.is_lost);
}

static void server_that_never_answered_is_not_waited_for(void **state)
{
    struct following f = {0};

    (void)state;
    assert_int_equal(following_ended(&f, TALK_NOBODY, BEGIN_MS), FOLLOWING_NEVER);
}

static void what_was_answered_or_refused_is_the_end(void **state)
{
    static const enum talk_end ends[] = {TALK_ANSWERED, TALK_SAID_NO, TALK_REFUSED,
                                         TALK_OTHER, TALK_UNREAD};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        struct following f = begin(false);

        assert_int_equal(following_ended(&f, ends[i], BEGIN_MS), FOLLOWING_NEVER);
        (void)following_ended(&f, TALK_BROKEN, BEGIN_MS);
        assert_int_equal(following_ended(&f, ends[i], BEGIN_MS), FOLLOWING_NEVER);
    }
}

static void
server_that_is_away_is_looked_for_ever_more_seldom_for_a_minute(void **state)
{
    struct following f = begin(false);
    uint64_t now_ms = BEGIN_MS;
    uint64_t delay_ms = following_ended(&f, TALK_BROKEN, now_ms);
    uint64_t before_ms = 0;
    unsigned n = 0;

    (void)state;
    for (; delay_ms != FOLLOWING_NEVER; n++) {
        bool is_last = now_ms + delay_ms == BEGIN_MS + FOLLOWING_PATIENCE_MS;

        assert_true(f.is_lost);
        assert_in_range(delay_ms, 1, FOLLOWING_LAST_MS);
        assert_true(delay_ms >= before_ms || is_last);
        before_ms = delay_ms;
        now_ms += delay_ms;
        delay_ms = following_ended(&f, TALK_NOBODY, now_ms);
    }
    assert_int_equal(now_ms, BEGIN_MS + FOLLOWING_PATIENCE_MS);
    assert_in_range(n, 30, 40);
}

static void server_that_is_back_may_go_again(void **state)
{
    const struct msg_welcome w = {.cluster = 7};
    struct following f = begin(false);
    uint64_t now_ms = BEGIN_MS;

    (void)state;
    for (int i = 0; i < 3; i++) {
        uint64_t lost_ms = now_ms;

        assert_int_equal(following_ended(&f, TALK_BROKEN, now_ms), FOLLOWING_FIRST_MS);
        assert_int_equal(f.lost_ms, lost_ms);
        now_ms += FOLLOWING_PATIENCE_MS - 1;
        assert_int_equal(following_ended(&f, TALK_NOBODY, now_ms), 1);
        assert_true(following_met(&f, &w));
        assert_false(f.is_lost);
        now_ms += FOLLOWING_PATIENCE_MS;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(server_without_memory_does_not_come_back),
        cmocka_unit_test(server_that_never_answered_is_not_waited_for),
        cmocka_unit_test(what_was_answered_or_refused_is_the_end),
        cmocka_unit_test(
            server_that_is_away_is_looked_for_ever_more_seldom_for_a_minute),
        cmocka_unit_test(server_that_is_back_may_go_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
