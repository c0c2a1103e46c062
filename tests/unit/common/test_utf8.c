/* Bytes of others as text, for JSON and for terminals. */

#include "tests/lib/cmocka.h"

#include "common/err.h"
#include "common/utf8.h"

#include <string.h>

typedef int (*make_cb)(struct buf *out, const void *data, size_t size);

static void expect_bytes(make_cb make, const char *in, size_t size, const char *wanted)
{
    struct buf out;

    buf_init(&out, 4096);
    assert_int_equal(make(&out, in, size), 0);
    assert_int_equal(buf_len(&out), strlen(wanted));
    assert_memory_equal(buf_len(&out) > 0 ? buf_bytes(&out) : (const uint8_t *)"",
                        wanted, strlen(wanted));
    buf_release(&out);
}

static void expect(make_cb make, const char *in, const char *wanted)
{
    expect_bytes(make, in, strlen(in), wanted);
}

static void text_is_left_as_it_is(void **state)
{
    (void)state;
    expect(utf8_clean, "", "");
    expect(utf8_clean, "loss 3.2 ± 0.1 Größe 損失 😀\x1b[31m\n",
           "loss 3.2 ± 0.1 Größe 損失 😀\x1b[31m\n");
    expect(utf8_tame, "Größe 損失 😀", "Größe 損失 😀");
}

static void name_is_what_people_can_see_of_it(void **state)
{
    static const char *const others[] = {
        "\xff\xfe",      "a\xc3" /* cut */, "a\nb",      "\x7f",       "\xc2\x85",
        "\u202egnp.exe", "a\u2066b",        "a\u200f",   "\u061c",     "a\u2028b",
        "a\u2029b",      "a\u200bb",        "\ufeffjob", "a\u00adb",   "\u2060",
        "\u3164",        "a\u206a",         "\ufff9",    "\U000e0041",
    };

    (void)state;
    assert_true(utf8_is_name(""));
    assert_true(utf8_is_name("job-7 Größe 損失 😀 ❤\ufe0f مثال שלום"));
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        assert_false(utf8_is_name(others[i]));
    }
}

static void bytes_that_are_no_text_are_replaced(void **state)
{
    (void)state;
    expect(utf8_clean,
           "a\xff"
           "b",
           "a\xef\xbf\xbd"
           "b");
    expect(utf8_clean, "\xc3", "\xef\xbf\xbd");                 /* cut */
    expect(utf8_clean, "\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"); /* overlong */
    expect(utf8_clean, "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    expect(utf8_clean, "\xf4\x90\x80\x80",
           "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    expect_bytes(utf8_clean, "a\0b", 3,
                 "a\xef\xbf\xbd"
                 "b");
}

static void nothing_wild_reaches_a_terminal(void **state)
{
    (void)state;
    expect(utf8_tame, "\x1b]0;owned\x07\x1b[2J", "?]0;owned??[2J");
    expect(utf8_tame, "a\tb\nc\rd\x7f", "a b c?d?");
    expect(utf8_tame,
           "\xc2\x9b"
           "31m",
           "?31m"); /* CSI as one character of C1 */
    expect(utf8_tame,
           "\xe2\x80\xae"
           "evil",
           "?evil"); /* right to left */
    expect(utf8_tame, "a\u061c\u200e\u2066\u2069\u2028\u2029", "a??????");
    expect(utf8_tame, "👨\u200d👩 می\u200cخواهم", "👨\u200d👩 می\u200cخواهم");
    expect(utf8_tame, "\x9b", "\xef\xbf\xbd");
    expect_bytes(utf8_tame, "a\0b", 3, "a?b");
}

static void columns_are_those_of_a_terminal(void **state)
{
    static const struct {
        const char *text;
        size_t columns;
    } cases[] = {{"", 0}, {"abc", 3}, {"Größe", 5}, {"損失", 4}, {"e\xcc\x81", 1}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(utf8_columns(cases[i].text, strlen(cases[i].text)),
                         cases[i].columns);
    }
}

static void buffer_that_is_full_says_so(void **state)
{
    struct buf out;

    (void)state;
    buf_init(&out, 4);
    assert_int_equal(utf8_clean(&out, "\xff\xff", 2), ERR_TOO_LARGE);
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_left_as_it_is),
        cmocka_unit_test(name_is_what_people_can_see_of_it),
        cmocka_unit_test(bytes_that_are_no_text_are_replaced),
        cmocka_unit_test(nothing_wild_reaches_a_terminal),
        cmocka_unit_test(columns_are_those_of_a_terminal),
        cmocka_unit_test(buffer_that_is_full_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
