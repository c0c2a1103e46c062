/* error.json: the first sample was written by torch 2.15's @record (folders shortened).
 */

#include "launcher/error_file.h"
#include "tests/lib/cmocka.h"

#include "common/clock.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LARGE = 1024 * 1024 };

static char path[] = "/tmp/ctrun-error-XXXXXX";

static struct worker_error found;

static bool read_path(const char *from)
{
    bool ok;

    found = (struct worker_error){.message = "untouched"};
    ok = error_file_read(from, &found);
    mem_free(found.bytes);
    return ok;
}

static bool read_error(const char *json, size_t size)
{
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    assert_int_equal(fwrite(json, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    return read_path(path);
}

/* NULL: there is nothing to tell. `error` is the exception alone. */
static void assert_message(const char *json, const char *message, const char *error)
{
    assert_int_equal(read_error(json, strlen(json)), message != NULL);
    assert_string_equal(found.message, message ? message : "untouched");
    assert_string_equal(found.error, error);
}

static void torchs_file_gives_the_traceback(void **state)
{
    (void)state;
    assert_message(
        "{\"message\": {\"message\": \"ValueError: bad \\\"m\\u00fcsli\\\" \\ud83d\\ude00\\n "
        "second\\tline\", \"extraInfo\": {\"py_callstack\": \"Traceback (most recent call "
        "last):\\n  File \\\"/tmp/rec.py\\\", line 4, in main\\n    raise ValueError('bad "
        "\\\"m\\u00fcsli\\\" \\\\U0001F600\\\\n second\\\\tline')\\nValueError: bad "
        "\\\"m\\u00fcsli\\\" \\ud83d\\ude00\\n second\\tline\\n\", \"timestamp\": "
        "\"1795982145\"}}}",
        "Traceback (most recent call last):\n  File \"/tmp/rec.py\", line 4, in main\n    raise "
        "ValueError('bad \"m\xc3\xbcsli\" \\U0001F600\\n second\\tline')\nValueError: bad "
        "\"m\xc3\xbcsli\" \xf0\x9f\x98\x80\n second\tline\n",
        "ValueError: bad \"m\xc3\xbcsli\" \xf0\x9f\x98\x80\n second\tline");
}

static void both_forms_are_read_in_any_order(void **state)
{
    (void)state;
    assert_message("{\"message\": \"plain\", \"timestamp\": 1}", "plain", "plain");
    assert_message(
        " {\"timestamp\":0,\n\"x\":[1,{\"message\":\"no\"},[]],\"message\":\"yes\"} ",
        "yes", "yes");
    assert_message("{\"message\": {\"message\": \"only\"}}", "only", "only");
    assert_message("{\"message\": {\"extraInfo\": {\"py_callstack\": \"st\"}}}", "st",
                   "");
    assert_message(
        "{\"message\": {\"extraInfo\": {\"py_callstack\": \"st\"}, \"message\": "
        "\"m\", \"errorCode\": -9}}",
        "st", "m");
    assert_message("{\"message\": \"cut\\u0000here\"}", "cut", "cut");
}

static void a_file_of_neither_form_is_told_as_it_is(void **state)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        "\"message\"",
        "{\"message\": 3}",
        "{\"message\": [\"message\"]}",
        "{\"msg\": \"x\"}",
        "{\"message\": \"cut",
        "{\"message\": \"x\"",
        "{\"message\": \"x\"} y",
        "{\"message\": \"\\q\"}",
        "{\"message\": \"\\u12g4\"}",
        "{\"message\" \"x\"}",
        "{\"message\": \"\\ud800x\"}", /* half a character */
        "no space left on device",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        assert_message(texts[i], texts[i], "");
    }
    assert_message(" \n two\nlines \n\n", "two\nlines", "");
    assert_true(read_error("\0binary\0", 8));
    assert_string_equal(found.message, "?binary?");
}

static void where_there_is_nothing_nothing_is_told(void **state)
{
    (void)state;
    assert_message("", NULL, "");
    assert_message(" \n", NULL, "");
    assert_false(read_path("/nonexistent/error.json"));
    assert_false(read_path(""));
    assert_false(read_path("/tmp"));
}

/* Each would block, or never end. */
static void only_regular_files_are_read_and_not_to_the_end(void **state)
{
    char *large = mem_alloc(LARGE + 1);

    (void)state;
    memset(large, ' ', LARGE + 1);
    memcpy(large, "{\"message\": \"x\"}", 16);
    assert_true(read_error(large, LARGE));
    assert_string_equal(found.error, "x");
    memset(large, 'x', LARGE + 1);
    memcpy(large, "{\"message\": ", 12);
    assert_true(read_error(large, LARGE + 1));
    assert_memory_equal(found.message, "{\"message\": xx", 14);
    assert_int_equal(strlen(found.message), sizeof(found.message) - 1);
    mem_free(large);
    assert_false(read_path("/dev/zero"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(read_path(path));
    assert_int_equal(unlink(path), 0);
}

/* Some keep their errors elsewhere. */
static void a_link_is_followed(void **state)
{
    char link[sizeof(path) + 8];

    (void)state;
    assert_true(read_error("{\"message\": \"x\"}", 16));
    (void)snprintf(link, sizeof(link), "%s.link", path);
    assert_int_equal(symlink(path, link), 0);
    assert_true(read_path(link));
    assert_int_equal(unlink(path), 0);
    assert_false(read_path(link));
    assert_int_equal(unlink(link), 0);
}

static void every_cut_of_a_file_is_read_within_bounds(void **state)
{
    static const char json[] =
        "{\"message\": {\"message\": \"a\\u00e9\\ud83d\\ude00\", "
        "\"extraInfo\": {\"py_callstack\": \"b\", \"t\": [1, -2e3]}}}";

    (void)state;
    for (size_t i = 1; i < sizeof(json) - 1; i++) {
        assert_true(read_error(json, i));
        assert_int_equal(strlen(found.message), json[i - 1] == ' ' ? i - 1 : i);
    }
    assert_true(read_error(json, sizeof(json) - 1));
    assert_string_equal(found.message, "b");
    assert_string_equal(found.error, "a\xc3\xa9\xf0\x9f\x98\x80");
}

static void deep_nesting_and_long_texts_are_bounded(void **state)
{
    enum { LONG = 2 * MSG_TAIL_MAX };
    static char text[LONG];
    int n = snprintf(text, LONG, "{\"message\":");

    (void)state;
    memset(text + n, '[', (size_t)(LONG - n));
    assert_true(read_error(text, LONG));
    n = snprintf(text, LONG, "{\"message\":  \"");
    for (int i = n; i + 2 < LONG; i += 2) {
        memcpy(text + i, "\xc3\xa9", 2);
    }
    memcpy(text + LONG - 2, "\"}", 2);
    assert_true(read_error(text, LONG));
    assert_int_equal(strlen(found.message), MSG_TAIL_MAX - 2); /* no half of one */
    assert_int_equal(strlen(found.error), MSG_TEXT_MAX - 2);
}

/* Files are dated in ticks: never earlier than they were written. */
static void a_file_is_not_older_than_it_is(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        uint64_t before_ms = clock_ms();

        assert_true(read_error("x", 1));
        assert_in_range(found.age_ms, 0, clock_ms() - before_ms);
    }
}

static int set_up(void **state)
{
    int fd = mkstemp(path);

    (void)state;
    return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(path); /* a test may have removed it */
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torchs_file_gives_the_traceback),
        cmocka_unit_test(both_forms_are_read_in_any_order),
        cmocka_unit_test(a_file_of_neither_form_is_told_as_it_is),
        cmocka_unit_test(where_there_is_nothing_nothing_is_told),
        cmocka_unit_test(only_regular_files_are_read_and_not_to_the_end),
        cmocka_unit_test(a_link_is_followed),
        cmocka_unit_test(every_cut_of_a_file_is_read_within_bounds),
        cmocka_unit_test(deep_nesting_and_long_texts_are_bounded),
        cmocka_unit_test(a_file_is_not_older_than_it_is),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
