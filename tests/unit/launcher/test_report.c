/* The report's text, whole. */

#include "launcher/report.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    char *text = report_format(r, "2023-11-14_22:13:20");

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
        "  error_file: <N/A>\n"
        "  log       : /runs/x/log/4/rank5.log\n"
        "  traceback : Signal 9 (SIGKILL) received by PID 4711\n"
        "  hint      : if nobody sent it, the kernel may have been out of memory: "
        "dmesg\n"
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
        "  error_file: <N/A>\n"
        "  log       : <N/A>\n"
        "  traceback : Traceback:\n"
        "      File \"t.py\"\n"
        "    ValueError: x\n" RULE
        "rank 5 on node1 was killed; 3 of 3 restarts are used up: the job ends\n"
        "restarts: 0 of 0; exit code 1\n" DOUBLE_RULE);
}

static void exception_is_told_once(void **state)
{
    static const char stack[] = "Traceback (most recent call last):\n"
                                "  File \"t.py\", line 5, in main\n"
                                "ValueError: no luck\n";
    static const char *const tails[][2] = {
        {"before\nTraceback (most recent call last):\n  File \"t.py\"\n"
         "ValueError: no luck\n",
         "  last lines:\n    before\n" RULE},
        {"before\n[rank0]: Traceback (most recent call last):\n[rank0]:   File\n"
         "[rank0]: ValueError: no luck\n",
         "  last lines:\n    before\n" RULE},
        {"Traceback (most recent call last):\nValueError: no luck\nafter\n",
         "  last lines:\n    after\n" RULE},
        {"Traceback (most recent call last):\nOSError: gone\n"
         "[rank0]: Traceback (most recent call last):\n[rank0]:   File\n"
         "[rank0]: ValueError: no luck\nterminate called\nNCCL WARN timeout\n",
         "  last lines:\n    Traceback (most recent call last):\n    OSError: gone\n"
         "    terminate called\n    NCCL WARN timeout\n" RULE},
        {"before\nTraceback (most recent call last):\nKeyError: 1\n\nDuring handling "
         "of the above exception, another exception occurred:\n\n"
         "Traceback (most recent call last):\nValueError: no luck\n",
         "  last lines:\n    before\n" RULE},
        {"KeyError: 1\n\nThe above exception was the direct cause of the following "
         "exception:\n\nTraceback (most recent call last):\nValueError: no luck\nafter",
         "  last lines:\n    after\n" RULE},
        {"  File \"t.py\"\nValueError: no luck\n", "ValueError: no luck\n" RULE},
        {"something else\n", "  last lines:\n    something else\n" RULE},
    };
    struct msg_report r = sample();

    (void)state;
    r.signal = 0;
    r.code = 1;
    (void)snprintf(r.message, sizeof(r.message), "%s", stack);
    for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
        char *text;
        const char *found;

        (void)snprintf(r.tail, sizeof(r.tail), "%s", tails[i][0]);
        text = report_format(&r, "t");
        found = strstr(text, "no luck");
        assert_non_null(found);
        assert_null(strstr(found + 1, "no luck"));
        assert_non_null(strstr(text, tails[i][1]));
        mem_free(text);
    }
}

/* Words that are alike are no exception that was reported. */
static void what_nobody_reported_stays(void **state)
{
    static const char head[] = "  last lines:\n";
    static const char traceback[] = "Traceback (most recent call last):\nE: x\n";
    static const char *const texts[][3] = {
        {"failed",
         "epoch 3\n2 of 10 uploads failed\nNCCL WARN refused\ncorrupted size\n",
         "    epoch 3\n    2 of 10 uploads failed\n    NCCL WARN refused\n"
         "    corrupted size\n" RULE},
        {"failed", "epoch 3\nfailed\nafter\n",
         "    epoch 3\n    failed\n    after\n" RULE},
        {"E: x", traceback, "    Traceback (most recent call last):\n    E: x\n" RULE},
        {traceback, "epoch 3\nNCCL E: x\nE: xyz\n",
         "    epoch 3\n    NCCL E: x\n    E: xyz\n" RULE},
        {traceback,
         "Traceback (most recent call last):\nE: x\nterminate called\nE: x\n",
         "    terminate called\n    E: x\n" RULE},
    };
    struct msg_report r = sample();

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const char *lines;
        char *text;

        (void)snprintf(r.message, sizeof(r.message), "%s", texts[i][0]);
        (void)snprintf(r.tail, sizeof(r.tail), "%s", texts[i][1]);
        text = report_format(&r, "t");
        lines = strstr(text, head);
        assert_non_null(lines);
        assert_memory_equal(lines + strlen(head), texts[i][2], strlen(texts[i][2]));
        mem_free(text);
    }
}

static void every_report_has_a_line_for_the_traceback(void **state)
{
    static const char *const tails[][2] = {
        {"step 7\n", "\n  traceback : <N/A>\n  last lines:\n    step 7\n"},
        {"Traceback (most recent call last):\nE: x\n",
         "\n  traceback : in the last lines\n  last lines:\n    Traceback"},
        {"", "\n  traceback : <N/A>\n---"},
    };
    struct msg_report r = sample();

    (void)state;
    r.signal = 0;
    r.code = 3;
    for (size_t i = 0; i < ARRAY_LEN(tails); i++) {
        char *text;

        (void)snprintf(r.tail, sizeof(r.tail), "%s", tails[i][0]);
        text = report_format(&r, "t");
        assert_non_null(strstr(text, tails[i][1]));
        mem_free(text);
    }
}

static void every_signal_has_a_name(void **state)
{
    static const struct {
        int signal;
        const char *line;
    } cases[] = {
        {34, "\n  exitcode  : -34 (pid: 4711)  (SIGRTMIN)\n"},
        {37, "\n  traceback : Signal 37 (SIGRTMIN+3) received by PID 4711\n"},
        {33, "\n  exitcode  : -33 (pid: 4711)  (signal 33)\n"},
    };
    struct msg_report r = sample();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *text;

        r.signal = cases[i].signal;
        text = report_format(&r, "t");
        assert_non_null(strstr(text, cases[i].line));
        mem_free(text);
    }
}

static void error_file_is_named_where_there_is_one(void **state)
{
    struct msg_report r = sample();
    char *text;

    (void)state;
    (void)snprintf(r.error_file, sizeof(r.error_file), "/l/attempt_1/0/error.json");
    text = report_format(&r, "t");
    assert_non_null(strstr(text, ")\n  error_file: /l/attempt_1/0/error.json\n  log "));
    mem_free(text);
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

static void ranks_that_only_reacted_are_listed_without_a_first_cause(void **state)
{
    struct msg_report r = {.final = 1, .rank = -1, .exit_code = 1, .failures = 1};

    (void)state;
    (void)snprintf(r.program, sizeof(r.program), "ctrun-worker");
    (void)snprintf(r.others, sizeof(r.others), "rank 0 on node0: exit code 81\n");
    (void)snprintf(r.text, sizeof(r.text), "none failed by itself");
    assert_report(&r, DOUBLE_RULE "ctrun-worker FAILED\n" RULE "Failures:\n"
                                  "  rank 0 on node0: exit code 81\n" RULE
                                  "none failed by itself\n"
                                  "restarts: 0 of 0; exit code 1\n" DOUBLE_RULE);
}

/* The failure that ends the job was not followed by a restart. */
static void restarts_are_those_that_took_place(void **state)
{
    static const struct {
        uint32_t failures, max_restarts;
        const char *line;
    } cases[] = {
        {0, 3, "restarts: 0 of 3;"}, {1, 0, "restarts: 0 of 0;"},
        {1, 9, "restarts: 0 of 9;"}, {3, 9, "restarts: 2 of 9;"},
        {4, 3, "restarts: 3 of 3;"},
    };
    struct msg_report r = sample();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *text;

        r.failures = cases[i].failures;
        r.max_restarts = cases[i].max_restarts;
        text = report_format(&r, "t");
        assert_non_null(strstr(text, cases[i].line));
        mem_free(text);
    }
}

static void control_characters_of_workers_and_hosts_are_escaped(void **state)
{
    struct msg_report r = sample();
    char *text;

    (void)state;
    r.code = 1;
    r.signal = 0;
    (void)snprintf(r.text, sizeof(r.text), "a\r\033[2Jb\177");
    (void)snprintf(r.host, sizeof(r.host), "h\nx");
    (void)snprintf(r.tail, sizeof(r.tail),
                   "caf\xc3\xa9\t1\b\n\xc2\x9b"
                   "31m\n\n");
    text = report_format(&r, "2023-11-14_22:13:20");
    assert_non_null(strstr(text, "  host      : h\\x0ax\n"));
    assert_non_null(strstr(text, "  last lines:\n"
                                 "    caf\xc3\xa9\t1\\x08\n    \\x9b31m\n    \n"));
    assert_non_null(strstr(text, "\na\\x0d\\x1b[2Jb\\x7f\n"));
    mem_free(text);
}

static void marks_of_direction_are_escaped(void **state)
{
    struct msg_report r = sample();
    char *text;

    (void)state;
    (void)snprintf(r.text, sizeof(r.text), "\u202etxe\u2069 caf\xc3\xa9 \xff");
    text = report_format(&r, "2023-11-14_22:13:20");
    assert_non_null(strstr(text, "\n\\u202etxe\\u2069 caf\xc3\xa9 \xff\n"));
    mem_free(text);
}

static void words_for_the_log_are_one_line(void **state)
{
    char *text = report_escape("a\tb\n\033[31mc\xc2\x9b\x7f\xc3\xa4");

    (void)state;
    assert_string_equal(text, "a\tb\\x0a\\x1b[31mc\\x9b\\x7f\xc3\xa4");
    mem_free(text);
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
    memset(r.error_file, '\033', sizeof(r.error_file) - 1);
    text = report_format(&r, "2023-11-14_22:13:20");
    assert_non_null(strstr(text, "exit code 137\n"));
    mem_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(final_report_has_torchruns_layout_and_names_the_first_cause),
        cmocka_unit_test(traceback_and_other_failures_are_indented),
        cmocka_unit_test(exception_is_told_once),
        cmocka_unit_test(what_nobody_reported_stays),
        cmocka_unit_test(every_report_has_a_line_for_the_traceback),
        cmocka_unit_test(every_signal_has_a_name),
        cmocka_unit_test(error_file_is_named_where_there_is_one),
        cmocka_unit_test(ranks_that_only_reacted_are_listed_without_a_first_cause),
        cmocka_unit_test(restarts_are_those_that_took_place),
        cmocka_unit_test(job_without_a_guilty_rank_says_why_and_no_more),
        cmocka_unit_test(control_characters_of_workers_and_hosts_are_escaped),
        cmocka_unit_test(marks_of_direction_are_escaped),
        cmocka_unit_test(words_for_the_log_are_one_line),
        cmocka_unit_test(largest_report_fits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
