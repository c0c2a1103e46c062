/* Lines that are written a second time. */

#include "launcher/output/line_filter.h"
#include "tests/lib/cmocka.h"

#include <string.h>

static bool matches(const char *list, const char *line)
{
    struct line_filter f;
    bool matches;

    line_filter_init(&f, list);
    matches = line_filter_matches(&f, line, strlen(line));
    line_filter_release(&f);
    return matches;
}

static void line_with_one_of_the_texts_matches(void **state)
{
    (void)state;
    assert_true(matches("apple,orange", "an orange\n"));
    assert_true(matches("apple,orange", "apple"));
    assert_false(matches("apple,orange", "a pear\n"));
    assert_false(matches("apple", "appl"));
}

static void doubled_comma_is_one_of_the_text(void **state)
{
    (void)state;
    assert_true(matches("a,,b", "1a,b2"));
    assert_false(matches("a,,b", "a b"));
    assert_true(matches(",,", "x,y"));
    assert_true(matches("a,,,b", "b")); /* "a," or "b" */
    assert_true(matches("a,,,b", "a,"));
    assert_false(matches("a,,,b", "a"));
}

static void empty_text_matches_nothing(void **state)
{
    struct line_filter f;

    (void)state;
    assert_false(matches("", "x"));
    assert_false(matches(NULL, "x"));
    assert_false(matches(",a", "x"));
    assert_true(matches("b,", "b"));
    line_filter_init(&f, ",");
    assert_true(line_filter_is_empty(&f));
    line_filter_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(line_with_one_of_the_texts_matches),
        cmocka_unit_test(doubled_comma_is_one_of_the_text),
        cmocka_unit_test(empty_text_matches_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
