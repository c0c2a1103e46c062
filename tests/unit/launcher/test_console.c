/* Lines and progress bars of several streams on one console. */

#include "launcher/output/console.h"
#include "tests/lib/cmocka.h"

#include <string.h>

struct said {
    char who; /* 0: the end */
    const char *text;
};

/* What the console shows of all that is said. */
static void check(bool can_erase, const struct said *said, const char *expected)
{
    struct console c = {.can_erase = can_erase};
    static const char names[128];
    char shown[256] = "";

    for (; said->who != '\0'; said++) {
        (void)strcat(shown, console_join(&c, &names[(int)said->who], said->text,
                                         strlen(said->text)));
        (void)strcat(shown, said->text);
    }
    assert_string_equal(shown, expected);
}

#define ERASED "\r\033[K"
#define SHOWN(can_erase, expected, ...) \
    check(can_erase, (const struct said[]){__VA_ARGS__, {'\0', NULL}}, expected)

static void whole_lines_are_joined_as_they_are(void **state)
{
    (void)state;
    SHOWN(true, "1\n2\n3\n", {'a', "1\n"}, {'b', "2\n"}, {'a', "3\n"});
}

static void line_without_its_end_gets_one_before_anothers(void **state)
{
    (void)state;
    SHOWN(true, "> 1\n", {'a', "> "}, {'a', "1\n"});
    SHOWN(true, "> \n2\n1\n", {'a', "> "}, {'b', "2\n"}, {'a', "1\n"});
    SHOWN(true, "> \n\r10%", {'a', "> "}, {'b', "\r10%"});
    SHOWN(true, "\r10%\nx\ny\n", {'a', "\r10%\nx"}, {'b', "y\n"});
}

static void bar_is_taken_away_from_a_terminal_for_anothers_text(void **state)
{
    (void)state;
    SHOWN(true, "\r10%" ERASED "2\n\r20%", {'a', "\r10%"}, {'b', "2\n"},
          {'a', "\r20%"});
    SHOWN(true, "\r10%" ERASED "\r5%", {'a', "\r10%"}, {'b', "\r5%"});
    SHOWN(true, "10%\r20%\r" ERASED "2\n", {'a', "10%\r"}, {'a', "20%\r"},
          {'b', "2\n"});
    SHOWN(true, "\r10%!" ERASED "2\n", {'a', "\r10%"}, {'a', "!"}, {'b', "2\n"});
}

static void elsewhere_anothers_text_begins_a_line(void **state)
{
    (void)state;
    SHOWN(false, "\r10%\n2\n\r20%\n", {'a', "\r10%"}, {'b', "2\n"}, {'a', "\r20%\n"});
    SHOWN(false, "\r10%\r5%", {'a', "\r10%"}, {'b', "\r5%"}); /* begins one itself */
}

static void owner_of_a_line_is_known(void **state)
{
    struct console c = {.can_erase = false};
    int a = 0;
    int b = 0;

    (void)state;
    assert_false(console_is_mid_line(&c, &a));
    (void)console_join(&c, &a, "x", 1);
    assert_true(console_is_mid_line(&c, &a));
    assert_false(console_is_mid_line(&c, &b));
    (void)console_join(&c, &b, "y\n", 2);
    assert_false(console_is_mid_line(&c, &a));
    assert_false(console_is_mid_line(&c, &b));
}

/* What the bar shows after these pieces. */
static void check_bar(const char *const *pieces, const char *expected)
{
    struct console_bar b = {.size = 0};

    for (; *pieces; pieces++) {
        console_bar_note(&b, *pieces, strlen(*pieces));
    }
    assert_int_equal(b.size, strlen(expected));
    assert_memory_equal(b.text, expected, b.size);
}

#define BAR(expected, ...) check_bar((const char *const[]){__VA_ARGS__, NULL}, expected)

static void bar_is_what_was_drawn_last(void **state)
{
    char large[2 * CONSOLE_BAR_MAX + 1];
    struct console_bar b = {.size = 0};

    (void)state;
    BAR("20%", "\r10%", "\r20%");
    BAR("20%", "10%\r", "20%\r");
    BAR("20%", "\r10%\r20%");
    BAR("10%\033[K", "\r10%", "\033[K");
    BAR("", "text");
    BAR("", "\r10%", "\n");
    BAR("", "\r10%\nnext");
    BAR("5%", "\r10%\n\r5%");
    BAR("10%", "\r10%", "\r"); /* it will be drawn over */
    memset(large, 'x', sizeof(large) - 1);
    large[0] = '\r';
    large[sizeof(large) - 1] = '\0';
    console_bar_note(&b, large, sizeof(large) - 1);
    assert_int_equal(b.size, CONSOLE_BAR_MAX);
    console_bar_note(&b, "more", 4);
    assert_int_equal(b.size, CONSOLE_BAR_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_lines_are_joined_as_they_are),
        cmocka_unit_test(line_without_its_end_gets_one_before_anothers),
        cmocka_unit_test(bar_is_taken_away_from_a_terminal_for_anothers_text),
        cmocka_unit_test(elsewhere_anothers_text_begins_a_line),
        cmocka_unit_test(bar_is_what_was_drawn_last),
        cmocka_unit_test(owner_of_a_line_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
