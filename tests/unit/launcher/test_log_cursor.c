/* Log files that are written while they are read. */

#include "launcher/log_cursor.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"

#include "common/str.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct scratch scratch;
static char path[PATH_MAX];
static char older[PATH_MAX];

static int set_up(void **state)
{
    (void)state;
    scratch_open(&scratch);
    return str_format(path, sizeof(path), "%s/log", scratch.dir) &&
                   str_format(older, sizeof(older), "%s/log.1", scratch.dir)
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    (void)state;
    scratch_close(&scratch);
    return 0;
}

static void add(const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
}

static void begin(struct log_cursor *c, uint64_t from)
{
    assert_true(log_cursor_open(c, path, from));
}

static void expect_in(struct log_cursor *c, bool is_final, size_t size,
                      const char *wanted)
{
    char data[256];
    size_t n = log_cursor_read(c, is_final, data, size);

    assert_int_equal(n, strlen(wanted));
    assert_memory_equal(data, wanted, n);
}

static void expect(struct log_cursor *c, const char *wanted)
{
    expect_in(c, false, 256, wanted);
}

static void lines_come_whole_and_once(void **state)
{
    struct log_cursor c;

    (void)state;
    begin(&c, 0);
    expect(&c, ""); /* it is not there yet */
    add("one\ntwo\nthr");
    expect(&c, "one\ntwo\n");
    expect(&c, "");
    add("ee\n");
    expect(&c, "three\n");
    assert_int_equal(c.offset, strlen("one\ntwo\nthree\n"));
    log_cursor_close(&c);
}

static void last_line_needs_no_end(void **state)
{
    struct log_cursor c;

    (void)state;
    add("one\ntw");
    begin(&c, 0);
    expect_in(&c, true, 256, "one\ntw");
    expect_in(&c, true, 256, "");
    log_cursor_close(&c);
}

static void pieces_end_with_lines_unless_one_is_longer(void **state)
{
    struct log_cursor c;

    (void)state;
    add("one\ntwo\na long line\nx\n");
    begin(&c, 0);
    expect_in(&c, true, 6, "one\n");
    expect_in(&c, true, 6, "two\n");
    expect_in(&c, true, 6, "a long");
    expect_in(&c, true, 6, " line\n");
    expect_in(&c, true, 6, "x\n");
    log_cursor_close(&c);
}

static void file_that_is_begun_anew_is_read_on(void **state)
{
    struct log_cursor c;

    (void)state;
    add("one\n");
    begin(&c, 0);
    expect(&c, "one\n");
    add("two\nhalf");
    assert_int_equal(rename(path, older), 0);
    expect(&c, "two\n"); /* the new one is not there yet */
    add("three\n");
    expect(&c, "half");
    expect(&c, "three\n");
    expect(&c, "");
    log_cursor_close(&c);
}

static void all_of_it_begins_with_the_older_part(void **state)
{
    struct log_cursor c;

    (void)state;
    add("one\n");
    assert_int_equal(rename(path, older), 0);
    add("two\n");
    begin(&c, 0);
    expect(&c, "one\n");
    expect(&c, "two\n");
    log_cursor_close(&c);
}

static void end_is_the_last_lines(void **state)
{
    static char line[1001];
    struct log_cursor c;
    char data[16384];
    size_t n;

    (void)state;
    memset(line, 'x', sizeof(line) - 1);
    line[sizeof(line) - 2] = '\n';
    for (int i = 0; i < 20; i++) {
        add(line);
    }
    begin(&c, LOG_CURSOR_END);
    n = log_cursor_read(&c, false, data, sizeof(data));
    assert_int_equal(n, 8000);
    assert_int_equal(c.offset, 20000);
    log_cursor_close(&c);
}

static void cursor_goes_on_where_another_was(void **state)
{
    struct log_cursor c;

    (void)state;
    add("one\ntwo\n");
    begin(&c, 4);
    expect(&c, "two\n");
    assert_int_equal(c.offset, 8);
    log_cursor_close(&c);
}

static void only_files_are_read(void **state)
{
    struct log_cursor c;

    (void)state;
    assert_true(log_cursor_open(&c, scratch.dir, 0));
    expect(&c, "");
    log_cursor_close(&c);
}

static void a_file_that_is_gone_is_gone_on_with_from_where_it_was(void **state)
{
    struct log_cursor c;

    (void)state;
    begin(&c, 100);
    assert_int_equal(c.offset, 100); /* what is read never has an earlier place */
    add("new\n");
    expect(&c, "new\n");
    assert_int_equal(c.offset, 104);
    log_cursor_close(&c);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(lines_come_whole_and_once),
        CASE(last_line_needs_no_end),
        CASE(pieces_end_with_lines_unless_one_is_longer),
        CASE(file_that_is_begun_anew_is_read_on),
        CASE(all_of_it_begins_with_the_older_part),
        CASE(end_is_the_last_lines),
        CASE(cursor_goes_on_where_another_was),
        CASE(only_files_are_read),
        CASE(a_file_that_is_gone_is_gone_on_with_from_where_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
