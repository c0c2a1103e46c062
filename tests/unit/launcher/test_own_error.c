/* ctrun's own error file: what stands in it, and how it comes there. */

#include "launcher/error_file.h"
#include "launcher/own_error.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct msg_report sample(void)
{
    return (struct msg_report){.generation = 4,
                               .final = 1,
                               .exit_code = 137,
                               .rank = 5,
                               .local_rank = 1,
                               .pid = 4711,
                               .signal = SIGKILL,
                               .wall_ms = 1796052603999,
                               .host = "b",
                               .text = "not restarting",
                               .others = "rank 0: stopped because of rank 5\n"};
}

static void assert_text(const struct msg_report *r, const char *expected)
{
    char *text = own_error_of_report(r);

    assert_string_equal(text, expected);
    mem_free(text);
}

static void exception_is_written_as_torch_does_and_says_whose_it_was(void **state)
{
    struct msg_report r = sample();

    (void)state;
    r.signal = 0;
    r.code = 1;
    (void)snprintf(r.message, sizeof(r.message), "Traceback:\nE: m\xc3\xbcsli\n");
    (void)snprintf(r.error, sizeof(r.error), "E: m\xc3\xbcsli");
    assert_text(&r, "{\"message\": {\"message\": \"E: m\\u00fcsli\", \"extraInfo\": "
                    "{\"py_callstack\": \"Traceback:\\nE: m\\u00fcsli\\n\", "
                    "\"timestamp\": \"1796052603\", \"rank\": 5, \"local_rank\": 1, "
                    "\"host\": \"b\", \"generation\": 4}, \"errorCode\": 1}}");
}

static void who_left_no_word_is_named_with_its_last_lines(void **state)
{
    struct msg_report r = sample();

    (void)state;
    (void)snprintf(r.tail, sizeof(r.tail), "step 7\n");
    assert_text(
        &r, "{\"message\": {\"message\": \"rank 5 (local_rank: 1) on b: exitcode -9 "
            "(pid: 4711) (SIGKILL)\", \"extraInfo\": {\"py_callstack\": \"rank 5 "
            "(local_rank: 1) on b: exitcode -9 (pid: 4711) (SIGKILL)\\nlast "
            "lines:\\nstep 7\\n\", \"timestamp\": \"1796052603\", \"rank\": 5, "
            "\"local_rank\": 1, \"host\": \"b\", \"generation\": 4}, \"errorCode\": "
            "-9}}");
}

static void signal_without_a_short_name_is_named_too(void **state)
{
    struct msg_report r = sample();
    char *text;

    (void)state;
    r.signal = 37;
    text = own_error_of_report(&r);
    assert_non_null(strstr(text, "exitcode -37 (pid: 4711) (SIGRTMIN+3)"));
    mem_free(text);
}

static void where_no_rank_is_to_blame_the_reason_stands(void **state)
{
    struct msg_report r = sample();
    char *text = own_error_of_text("no rendezvous", 94, 1796052603000);

    (void)state;
    assert_string_equal(text, "{\"message\": {\"message\": \"no rendezvous\", "
                              "\"extraInfo\": {\"py_callstack\": \"no rendezvous\", "
                              "\"timestamp\": \"1796052603\"}, \"errorCode\": 94}}");
    mem_free(text);
    r.rank = -1;
    r.exit_code = 1;
    assert_text(&r, "{\"message\": {\"message\": \"not restarting\", \"extraInfo\": "
                    "{\"py_callstack\": \"not restarting\\nrank 0: stopped because of "
                    "rank 5\\n\", \"timestamp\": \"1796052603\"}, \"errorCode\": 1}}");
}

static void what_is_written_can_be_read_whatever_the_bytes(void **state)
{
    static struct msg_report r;
    static struct worker_error found;
    struct scratch s;
    const char *path;

    (void)state;
    scratch_open(&s);
    path = scratch_path(&s, "error.json");
    for (int c = 1; c < 256; c++) {
        const char shown[] = {(char)c, '\0'};
        const char *first = c < 0x80 ? shown : "\xef\xbf\xbd"; /* U+FFFD */
        size_t n = strlen(first);
        struct errmsg msg = {0};
        char *text;

        r = sample();
        memset(r.message, c, sizeof(r.message) - 1);
        memset(r.error, c, sizeof(r.error) - 1);
        memset(r.host, c, sizeof(r.host) - 1);
        text = own_error_of_report(&r);
        assert_int_equal(own_error_write(path, text, &msg), 0);
        assert_true(error_file_read(path, &found));
        assert_int_equal(strlen(found.message), (sizeof(r.message) - 1) / n * n);
        assert_memory_equal(found.error, first, n);
        mem_free(found.bytes);
        mem_free(text);
    }
    scratch_close(&s);
}

static void file_is_replaced_whole(void **state)
{
    struct errmsg msg = {0};
    struct scratch s;
    char old[16] = "";
    char *text;
    int fd;

    (void)state;
    scratch_open(&s);
    fd = open(scratch_text(&s, "error.json", "old"), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(own_error_write(s.path, "new", &msg), 0);
    assert_int_equal(read(fd, old, sizeof(old) - 1), 3);
    assert_string_equal(old, "old"); /* a reader has one or the other */
    assert_int_equal(close(fd), 0);
    text = scratch_read(&s, "error.json");
    assert_string_equal(text, "new");
    free(text);
    assert_int_equal(unlink(s.path), 0);
    assert_int_equal(rmdir(s.dir), 0); /* nothing else was left there */
}

static void what_cannot_be_replaced_is_written_in_place(void **state)
{
    char name[NAME_MAX + 1]; /* no room for another name beside it */
    struct errmsg msg = {0};
    struct scratch s;
    struct stat st;
    char path[600];
    char *text;

    (void)state;
    scratch_open(&s);
    memset(name, 'x', NAME_MAX);
    name[NAME_MAX] = '\0';
    (void)scratch_text(&s, name, "something old");
    assert_int_equal(own_error_write(s.path, "new", &msg), 0);
    text = scratch_read(&s, name);
    assert_string_equal(text, "new");
    free(text);
    (void)snprintf(path, sizeof(path), "%s/link", s.dir);
    assert_int_equal(symlink("target", path), 0);
    assert_int_equal(own_error_write(path, "through", &msg), 0);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    text = scratch_read(&s, "target");
    assert_string_equal(text, "through");
    free(text);
    scratch_close(&s);
}

static void pipe_stays_a_pipe_and_without_a_reader_nobody_waits(void **state)
{
    struct errmsg msg = {0};
    char got[16] = "";
    struct scratch s;
    const char *path;
    struct stat st;
    int fd;

    (void)state;
    scratch_open(&s);
    path = scratch_path(&s, "pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(own_error_write(path, "new", &msg), -ENXIO);
    assert_non_null(strstr(msg.text, path));
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    assert_true(fd >= 0);
    assert_int_equal(own_error_write(path, "new", &msg), 0);
    assert_int_equal(read(fd, got, sizeof(got) - 1), 3);
    assert_int_equal(close(fd), 0);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    scratch_close(&s);
}

static void folder_that_is_not_there_is_said(void **state)
{
    struct errmsg msg = {0};

    (void)state;
    assert_int_equal(own_error_write("/nonexistent/error.json", "x", &msg), -ENOENT);
    assert_string_equal(msg.text, "cannot write TORCHELASTIC_ERROR_FILE "
                                  "/nonexistent/error.json: No such file or directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exception_is_written_as_torch_does_and_says_whose_it_was),
        cmocka_unit_test(who_left_no_word_is_named_with_its_last_lines),
        cmocka_unit_test(signal_without_a_short_name_is_named_too),
        cmocka_unit_test(where_no_rank_is_to_blame_the_reason_stands),
        cmocka_unit_test(what_is_written_can_be_read_whatever_the_bytes),
        cmocka_unit_test(file_is_replaced_whole),
        cmocka_unit_test(what_cannot_be_replaced_is_written_in_place),
        cmocka_unit_test(pipe_stays_a_pipe_and_without_a_reader_nobody_waits),
        cmocka_unit_test(folder_that_is_not_there_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
