/* The prefixes of lines. */

#include "launcher/output/line_prefix.h"
#include "tests/lib/cmocka.h"

#include <string.h>

static const struct line_prefix_values values = {"trainer", 12, 3, "node7", "09:30"};

static void check_format(const char *template, const char *expected)
{
    char text[LINE_PREFIX_MAX];

    assert_int_equal(line_prefix_format(template, &values, text), strlen(expected));
    assert_string_equal(text, expected);
}

static void names_stand_for_their_values(void **state)
{
    (void)state;
    check_format(LINE_PREFIX_DEFAULT, "[trainer3]:");
    check_format("[rank${rank}]: ", "[rank12]: ");
    check_format("${hostname}:${local_rank} ", "node7:3 ");
    check_format("$rank|$local_rank|$role_name", "12|3|trainer");
    check_format("${time} $rank ", "09:30 12 ");
    check_format("", "");
}

static void what_is_unknown_stays_as_it_is(void **state)
{
    (void)state;
    check_format("${ranks} $ranks ${", "${ranks} $ranks ${");
    check_format("${rank $ 5$", "${rank $ 5$");
    check_format("$$rank $${rank}", "$rank ${rank}");
    check_format("$1 ${} $-", "$1 ${} $-");
}

static void longest_prefix_is_cut(void **state)
{
    char template[LINE_PREFIX_MAX + 100];
    char text[LINE_PREFIX_MAX];

    (void)state;
    memset(template, 'x', sizeof(template));
    template[sizeof(template) - 1] = '\0';
    assert_int_equal(line_prefix_format(template, &values, text), LINE_PREFIX_MAX - 1);
    memcpy(template + LINE_PREFIX_MAX - 4, "${hostname}", 11);
    assert_int_equal(line_prefix_format(template, &values, text), LINE_PREFIX_MAX - 1);
    assert_string_equal(text + LINE_PREFIX_MAX - 4, "nod");
}

static void time_is_noticed(void **state)
{
    (void)state;
    assert_true(line_prefix_has_time("$rank ${time}"));
    assert_true(line_prefix_has_time("$time"));
    assert_false(line_prefix_has_time("$$time ${times} $rank"));
}

/* `pieces` are added one after the other, the prefix being "> ". */
static void check_add(const char *const *pieces, const char *expected)
{
    enum line_place place = LINE_START;
    struct buf out;

    buf_init(&out, 1000);
    for (; *pieces; pieces++) {
        line_prefix_add(&out, "> ", 2, *pieces, strlen(*pieces), &place);
    }
    assert_int_equal(buf_len(&out), strlen(expected));
    assert_memory_equal(buf_bytes(&out), expected, buf_len(&out));
    buf_release(&out);
}

#define ADDED(expected, ...) \
    check_add((const char *const[]){__VA_ARGS__, NULL}, expected)

static void every_line_gets_one(void **state)
{
    (void)state;
    ADDED("> a\n> b\n", "a\nb\n");
    ADDED("> \n> \n", "\n\n");
    ADDED("> a\n> bc\n", "a\nb", "c\n");
    ADDED("> a\r\n> b\r\n", "a\r\nb\r\n");
    ADDED("> a\r\n> b", "a\r", "\nb");
}

static void bar_gets_one_each_time_it_is_drawn(void **state)
{
    (void)state;
    ADDED("\r> 10%\r> 20%\n> next\n", "\r10%", "\r20%\nnext\n");
    ADDED("> 10%\r> 20%\r\n", "10%\r", "20%\r\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_stand_for_their_values),
        cmocka_unit_test(what_is_unknown_stays_as_it_is),
        cmocka_unit_test(longest_prefix_is_cut),
        cmocka_unit_test(time_is_noticed),
        cmocka_unit_test(every_line_gets_one),
        cmocka_unit_test(bar_gets_one_each_time_it_is_drawn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
