/* Where who follows stands, by the lines that it was told. */

#include "launcher/verbs/standing.h"
#include "tests/lib/cmocka.h"

#include <string.h>

static bool take(struct standing *s, const char *text)
{
    json_t *line = json_loads(text, 0, NULL);
    bool is_next;

    assert_non_null(line);
    is_next = standing_take(s, line);
    json_decref(line);
    return is_next;
}

static void expect_places(const struct standing *s, uint64_t generation,
                          const struct msg_place *wanted, size_t n)
{
    struct msg_ask ask = {.after = 3};
    struct msg_place place;
    struct buf places;

    buf_init(&places, 1024);
    standing_tell(s, &ask, &places);
    assert_int_equal(ask.generation, generation);
    assert_int_equal(ask.after, 3);
    for (size_t i = 0; i < n; i++) {
        assert_true(msg_place_take(&ask.places, &place));
        assert_int_equal(place.rank, wanted[i].rank);
        assert_int_equal(place.what, wanted[i].what);
        assert_int_equal(place.offset, wanted[i].offset);
    }
    assert_false(msg_place_take(&ask.places, &place));
    buf_release(&places);
}

static void the_last_event_is_known_by_its_number(void **state)
{
    struct standing s = {0};
    struct msg_ask ask = {.after = 3};
    struct buf places;

    (void)state;
    buf_init(&places, 1024);
    standing_tell(&s, &ask, &places);
    assert_int_equal(ask.after, 3); /* as it was asked first */
    assert_false(take(&s, "{\"number\": 8, \"generation\": 1}"));
    assert_false(take(&s, "{\"number\": 9, \"generation\": 2}"));
    standing_tell(&s, &ask, &places);
    assert_int_equal(ask.after, 9);
    standing_release(&s);
    buf_release(&places);
}

static void streams_are_known_by_what_comes_next_of_each(void **state)
{
    static const struct msg_place wanted[] = {{0, INSPECT_LOG_ERRORS, 7},
                                              {2, INSPECT_LOG, 40}};
    struct standing s = {0};

    (void)state;
    expect_places(&s, 0, NULL, 0);
    assert_false(take(&s, "{\"generation\": 1, \"rank\": 2, \"stream\": \"stdout\", "
                          "\"text\": \"x\", \"next\": 20}"));
    assert_false(take(&s, "{\"generation\": 1, \"rank\": 0, \"stream\": \"stderr\", "
                          "\"text\": \"x\", \"next\": 7}"));
    assert_false(take(&s, "{\"generation\": 1, \"rank\": 2, \"stream\": \"stdout\", "
                          "\"text\": \"x\", \"next\": 40}"));
    assert_false(take(&s, "{\"generation\": 1, \"rank\": 3, \"stream\": \"stdout\", "
                          "\"note\": \"has no log file\"}"));
    expect_places(&s, 1, wanted, ARRAY_LEN(wanted));
    standing_release(&s);
}

static void of_another_generation_nothing_is_known(void **state)
{
    static const struct msg_place wanted[] = {{1, INSPECT_LOG, 5}};
    struct standing s = {0};

    (void)state;
    (void)take(&s, "{\"generation\": 1, \"rank\": 0, \"stream\": \"stdout\", "
                   "\"text\": \"x\", \"next\": 20}");
    assert_true(take(&s, "{\"generation\": 2, \"rank\": 1, \"stream\": \"stdout\", "
                         "\"text\": \"x\", \"next\": 5}"));
    expect_places(&s, 2, wanted, ARRAY_LEN(wanted));
    standing_release(&s);
}

static void numbers_out_of_bounds_are_left_out(void **state)
{
    struct standing s = {0};

    (void)state;
    (void)take(&s, "{\"generation\": 1, \"rank\": -1, \"next\": 20}");
    (void)take(&s, "{\"generation\": 1, \"rank\": 1048576, \"next\": 20}");
    (void)take(&s, "{\"generation\": \"x\", \"rank\": 1e9, \"next\": {}}");
    (void)take(&s, "[]");
    assert_int_equal(s.generation, 0);
    standing_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_event_is_known_by_its_number),
        cmocka_unit_test(streams_are_known_by_what_comes_next_of_each),
        cmocka_unit_test(of_another_generation_nothing_is_known),
        cmocka_unit_test(numbers_out_of_bounds_are_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
