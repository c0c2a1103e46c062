/* error.json: the first sample was written by torch 2.15's @record (folders shortened).
 */

#include "launcher/error_file.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LARGE = 1024 * 1024 };

static char path[] = "/tmp/ctrun-error-XXXXXX";

static bool read_error(const char *json, size_t size, char *text, size_t text_size)
{
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    assert_int_equal(fwrite(json, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    return error_file_read(path, text, text_size, &(uint64_t){0});
}

static void assert_message(const char *json, const char *expected)
{
    char text[1024] = "untouched";
    bool ok = read_error(json, strlen(json), text, sizeof(text));

    assert_int_equal(ok, expected != NULL);
    assert_string_equal(text, expected ? expected : "untouched");
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
        "\"m\xc3\xbcsli\" \xf0\x9f\x98\x80\n second\tline\n");
}

static void both_forms_are_read_in_any_order_and_others_are_neither(void **state)
{
    (void)state;
    assert_message("{\"message\": \"plain\", \"timestamp\": 1}", "plain");
    assert_message(
        " {\"timestamp\":0,\n\"x\":[1,{\"message\":\"no\"},[]],\"message\":\"yes\"} ",
        "yes");
    assert_message("{\"message\": {\"message\": \"only\"}}", "only");
    assert_message(
        "{\"message\": {\"extraInfo\": {\"py_callstack\": \"st\"}, \"message\": "
        "\"m\", \"errorCode\": -9}}",
        "st");
    assert_message("", NULL);
    assert_message("{}", NULL);
    assert_message("[]", NULL);
    assert_message("\"message\"", NULL);
    assert_message("{\"message\": 3}", NULL);
    assert_message("{\"message\": [\"message\"]}", NULL);
    assert_message("{\"msg\": \"x\"}", NULL);
    assert_message("{\"message\": \"cut", NULL);
    assert_message("{\"message\": \"x\"", NULL);
    assert_message("{\"message\": \"x\"} y", NULL);
    assert_message("{\"message\": \"\\q\"}", NULL);
    assert_message("{\"message\": \"\\u12g4\"}", NULL);
    assert_message("{\"message\" \"x\"}", NULL);
    assert_message("{\"message\": \"\\ud800x\"}", NULL); /* half a character */
    assert_message("{\"message\": \"cut\\u0000here\"}", "cut");
    assert_false(
        error_file_read("/nonexistent/error.json", (char[8]){""}, 8, &(uint64_t){0}));
    assert_false(error_file_read("", (char[8]){""}, 8, &(uint64_t){0}));
    assert_false(error_file_read("/tmp", (char[8]){""}, 8, &(uint64_t){0}));
}

/* Each would block, or never end. */
static void only_regular_files_of_a_bounded_size_are_read(void **state)
{
    char text[8];
    char *large = mem_alloc(LARGE);

    (void)state;
    memset(large, ' ', LARGE);
    memcpy(large, "{\"message\": \"x\"}", 16);
    assert_true(read_error(large, LARGE - 1, text, sizeof(text)));
    assert_false(read_error(large, LARGE, text, sizeof(text)));
    mem_free(large);
    assert_false(error_file_read("/dev/zero", text, sizeof(text), &(uint64_t){0}));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(error_file_read(path, text, sizeof(text), &(uint64_t){0}));
    assert_int_equal(unlink(path), 0);
}

static void every_cut_of_a_file_is_refused_and_read_within_bounds(void **state)
{
    static const char json[] =
        "{\"message\": {\"message\": \"a\\u00e9\\ud83d\\ude00\", "
        "\"extraInfo\": {\"py_callstack\": \"b\", \"t\": [1, -2e3]}}}";
    char text[64];

    (void)state;
    for (size_t i = 0; i < sizeof(json) - 1; i++) {
        assert_false(read_error(json, i, text, sizeof(text)));
    }
    assert_true(read_error(json, sizeof(json) - 1, text, sizeof(text)));
    assert_string_equal(text, "b");
}

static void deep_nesting_and_long_texts_are_bounded(void **state)
{
    char text[8];
    static char deep[4096];

    (void)state;
    memset(deep, '[', sizeof(deep) - 1);
    (void)snprintf(deep, sizeof(deep), "{\"message\":");
    deep[strlen(deep)] = '[';
    assert_false(read_error(deep, sizeof(deep) - 1, text, sizeof(text)));
    assert_true(
        read_error("{\"message\": \"abcdef\xc3\xa9gh\"}", 25, text, sizeof(text)));
    assert_string_equal(text, "abcdef"); /* no half of a character */
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
        cmocka_unit_test(both_forms_are_read_in_any_order_and_others_are_neither),
        cmocka_unit_test(every_cut_of_a_file_is_refused_and_read_within_bounds),
        cmocka_unit_test(deep_nesting_and_long_texts_are_bounded),
        cmocka_unit_test(only_regular_files_of_a_bounded_size_are_read),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
