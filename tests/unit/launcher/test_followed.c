/* Whether the service that answers is the one that this node has followed. */

#include "launcher/followed.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"

/* Start 2, up to transaction 103, and generation 4. */
static const struct followed seen = {
    .cluster = 5, .boot = 2, .start = 0xab, .kept = 103, .generation = 4, .job = "j"};

static const char *object(const struct followed *f, const struct msg_welcome *w)
{
    static char text[384];

    followed_object(f, w, text, sizeof(text));
    return text;
}

static void state_that_has_all_that_was_seen_is_the_one(void **state)
{
    const struct msg_welcome welcomes[] = {
        /* the same start: another connection */
        {.cluster = 5, .boot = 2, .start = 0xab, .had = 103, .kept = 103},
        /* … later ones */
        {.cluster = 5, .boot = 3, .start = 0xcd, .had = 103, .kept = 104},
        {.cluster = 5, .boot = 900, .start = 0xef, .had = 110, .kept = 90000},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(welcomes); i++) {
        struct msg_welcome w = welcomes[i];

        w.generation = 4;
        assert_string_equal(object(&seen, &w), "");
        w.generation = 9;
        assert_string_equal(object(&seen, &w), "");
    }
}

static void state_that_lacks_something_is_refused_whatever_it_has_become(void **state)
{
    static const struct {
        struct msg_welcome welcome;
        const char *text;
    } cases[] = {
        {{.cluster = 6, .had = 103, .generation = 4},
         "another service answers there (cluster 0000000000000006, not "
         "0000000000000005)"},
        {{.cluster = 5, .lacks = 1, .generation = 4},
         "an older state of the service answers there, or a copy that went its own way "
         "(it lacks start 2, 00000000000000ab, that this node has seen)"},
        {{.cluster = 5, .had = 102, .generation = 4},
         "an older state of the service answers there, or a copy that went its own way "
         "(it has transaction 102 of start 2, this node has seen 103)"},
        {{.cluster = 5, .had = 103, .generation = 3},
         "an older state of the service answers there, or a copy that went its own way "
         "(generation 3 of job j, this node has seen 4)"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (uint64_t boot = 1; boot < 2000; boot++) { /* of a copy that is started */
            struct msg_welcome w = cases[i].welcome;

            w.boot = boot;
            w.start = 1000 + boot;
            w.kept = 99 * boot;
            assert_string_equal(object(&seen, &w), cases[i].text);
        }
    }
}

/* Of a server that keeps no state nothing is expected. */
static void after_a_service_without_a_state_any_other_will_do(void **state)
{
    struct followed f = seen;

    (void)state;
    f.start = 0;
    assert_string_equal(object(&f, &(struct msg_welcome){.cluster = 6, .lacks = 1}),
                        "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_that_has_all_that_was_seen_is_the_one),
        cmocka_unit_test(state_that_lacks_something_is_refused_whatever_it_has_become),
        cmocka_unit_test(after_a_service_without_a_state_any_other_will_do),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
