/* The report's text, whole, and error.json: the first sample below was written by
 * torch 2.15's
 * @record (folders shortened). */

#include "launcher/report.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char path[] = "/tmp/ctrun-error-XXXXXX";

static struct msg_report sample(void)
{
    struct msg_report r = {
        .generation = 4,
        .final = 1,
        .failures = 4,
        .max_restarts = 3,
        .exit_code = 137,
        .rank = 5,
        .local_rank = 1,
        .pid = 4711,
        .signal = 9,
        .wall_ms = 1700000000123,
        .host = "node1",
        .program = "ctrun-worker",
        .log_path = "/runs/x/log/4/rank5.log",
        .text = "rank 5 on node1 was killed; 3 of 3 restarts are used up: the job ends",
        .tail = "step 7\nstep 8\n",
    };

    return r;
}

static void assert_report(const struct msg_report *r, const char *expected)
{
    char *text = report_format(r);

    assert_string_equal(text, expected);
    mem_free(text);
}

#define DOUBLE_RULE "============================================================\n"
#define RULE        "------------------------------------------------------------\n"

static void final_report_has_torchruns_layout_and_names_the_first_cause(void **state)
{
    struct msg_report r = sample();

    (void)state;
    assert_report(
        &r, DOUBLE_RULE
        "ctrun-worker FAILED\n" RULE "Failures:\n  <NO_OTHER_FAILURES>\n" RULE
        "Root Cause (first observed failure):\n"
        "[5]:\n"
        "  time      : 2023-11-14_22:13:20\n"
        "  host      : node1\n"
        "  rank      : 5 (local_rank: 1)\n"
        "  generation: 4\n"
        "  exitcode  : -9 (pid: 4711)  (SIGKILL)\n"
        "  log       : /runs/x/log/4/rank5.log\n"
        "  traceback : Signal 9 (SIGKILL) received by PID 4711\n"
        "  last lines:\n"
        "    step 7\n"
        "    step 8\n" RULE
        "rank 5 on node1 was killed; 3 of 3 restarts are used up: the job ends\n"
        "restarts: 3 of 3; exit code 137\n" DOUBLE_RULE);
}

static void traceback_and_other_failures_are_indented(void **state)
{
    struct msg_report r = sample();

    (void)state;
    r.signal = 0;
    r.code = 1;
    r.exit_code = 1;
    r.failures = 1;
    r.max_restarts = 0;
    r.log_path[0] = '\0';
    r.tail[0] = '\0';
    (void)snprintf(r.message, sizeof(r.message),
                   "Traceback:\n  File \"t.py\"\nValueError: x\n");
    (void)snprintf(
        r.others, sizeof(r.others),
        "rank 0 on node0: stopped because of rank 5\nrank 1 on node0: SIGABRT");
    assert_report(
        &r, DOUBLE_RULE
        "ctrun-worker FAILED\n" RULE "Failures:\n"
        "  rank 0 on node0: stopped because of rank 5\n"
        "  rank 1 on node0: SIGABRT\n" RULE "Root Cause (first observed failure):\n"
        "[5]:\n"
        "  time      : 2023-11-14_22:13:20\n"
        "  host      : node1\n"
        "  rank      : 5 (local_rank: 1)\n"
        "  generation: 4\n"
        "  exitcode  : 1 (pid: 4711)\n"
        "  log       : <N/A>\n"
        "  traceback : Traceback:\n"
        "      File \"t.py\"\n"
        "    ValueError: x\n" RULE
        "rank 5 on node1 was killed; 3 of 3 restarts are used up: the job ends\n"
        "restarts: 0 of 0; exit code 1\n" DOUBLE_RULE);
}

static void job_without_a_guilty_rank_says_why_and_no_more(void **state)
{
    struct msg_report r = {.final = 1, .rank = -1, .exit_code = 2, .max_restarts = 1};

    (void)state;
    (void)snprintf(r.text, sizeof(r.text), "c.yaml:3:5: unknown key model.dimm");
    assert_report(&r, DOUBLE_RULE "the job FAILED\n" RULE
                                  "c.yaml:3:5: unknown key model.dimm\n"
                                  "restarts: 0 of 1; exit code 2\n" DOUBLE_RULE);
}

static void report_of_a_restart_is_short(void **state)
{
    struct msg_report r = sample();

    (void)state;
    r.final = 0;
    (void)snprintf(r.text, sizeof(r.text), "restart 1 of 3");
    assert_report(
        &r, "restart 1 of 3\n"
            "  rank 5 (local_rank: 1, pid: 4711) was ended by SIGKILL in generation 4 "
            "on node1; its last lines:\n"
            "    step 7\n    step 8\n");
    r.signal = 0;
    r.code = 3;
    r.tail[0] = '\0';
    assert_report(
        &r, "restart 1 of 3\n"
            "  rank 5 (local_rank: 1, pid: 4711) ended with code 3 in generation 4 "
            "on node1\n");
    r.rank = -1;
    assert_report(&r, "restart 1 of 3\n");
}

static void control_characters_of_workers_and_hosts_are_escaped(void **state)
{
    struct msg_report r = sample();

    (void)state;
    r.final = 0;
    r.code = 1;
    r.signal = 0;
    (void)snprintf(r.text, sizeof(r.text), "a\r\033[2Jb\177");
    (void)snprintf(r.host, sizeof(r.host), "h\nx");
    (void)snprintf(r.tail, sizeof(r.tail),
                   "caf\xc3\xa9\t1\b\n\xc2\x9b"
                   "31m\n\n");
    assert_report(
        &r, "a\\x0d\\x1b[2Jb\\x7f\n"
            "  rank 5 (local_rank: 1, pid: 4711) ended with code 1 in generation 4 "
            "on h\\x0ax; its last lines:\n"
            "    caf\xc3\xa9\t1\\x08\n    \\x9b31m\n    \n");
}

static void largest_report_fits(void **state)
{
    static struct msg_report r;
    char *text;

    (void)state;
    r = sample();
    memset(r.message, '\n', sizeof(r.message) - 1);
    memset(r.tail, '\033', sizeof(r.tail) - 1);
    memset(r.others, '\n', sizeof(r.others) - 1);
    memset(r.text, '\033', sizeof(r.text) - 1);
    memset(r.program, '\033', sizeof(r.program) - 1);
    memset(r.log_path, '\n', sizeof(r.log_path) - 1);
    memset(r.host, '\033', sizeof(r.host) - 1);
    text = report_format(&r);
    assert_non_null(strstr(text, "exit code 137\n"));
    mem_free(text);
}

/* ---- error.json ---- */

static bool read_error(const char *json, size_t size, char *text, size_t text_size)
{
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    assert_int_equal(fwrite(json, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    return report_read_error_file(path, text, text_size);
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
    assert_message("{\"message\": \"\\ud800x \\udc00 \\u0000\"}",
                   "\xef\xbf\xbdx \xef\xbf\xbd \xef\xbf\xbd");
    assert_false(report_read_error_file("/nonexistent/error.json", (char[8]){""}, 8));
    assert_false(report_read_error_file("", (char[8]){""}, 8));
    assert_false(report_read_error_file("/tmp", (char[8]){""}, 8));
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
    if (fd < 0 || close(fd) < 0) {
        return -1;
    }
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
    if (setenv("TZ", "UTC", 1) < 0) {
        return -1;
    }
    tzset();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(final_report_has_torchruns_layout_and_names_the_first_cause),
        cmocka_unit_test(traceback_and_other_failures_are_indented),
        cmocka_unit_test(job_without_a_guilty_rank_says_why_and_no_more),
        cmocka_unit_test(report_of_a_restart_is_short),
        cmocka_unit_test(control_characters_of_workers_and_hosts_are_escaped),
        cmocka_unit_test(largest_report_fits),
        cmocka_unit_test(torchs_file_gives_the_traceback),
        cmocka_unit_test(both_forms_are_read_in_any_order_and_others_are_neither),
        cmocka_unit_test(every_cut_of_a_file_is_refused_and_read_within_bounds),
        cmocka_unit_test(deep_nesting_and_long_texts_are_bounded),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
