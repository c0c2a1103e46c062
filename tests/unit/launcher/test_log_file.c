/* Log files that are written while they are read. */

#include "launcher/log_file.h"
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

/* One who reads it, from one place on. */
struct reader {
    struct log_file file;
    uint64_t at;
};

static void begin(struct reader *r, uint64_t from)
{
    assert_true(log_file_open(&r->file, path));
    r->at = from;
}

static void expect_in(struct reader *r, bool is_final, size_t size, const char *wanted)
{
    char data[256];
    size_t n = log_file_read(&r->file, &r->at, is_final, data, size);

    assert_int_equal(n, strlen(wanted));
    assert_memory_equal(data, wanted, n);
    r->at += n;
}

static void expect_from(struct reader *r, uint64_t at, const char *wanted)
{
    r->at = at;
    expect_in(r, false, 256, wanted);
}

static void rotate(void)
{
    assert_int_equal(rename(path, older), 0);
}

static void expect(struct reader *r, const char *wanted)
{
    expect_in(r, false, 256, wanted);
}

static void lines_come_whole_and_once(void **state)
{
    struct reader r;

    (void)state;
    begin(&r, 0);
    expect(&r, ""); /* it is not there yet */
    add("one\ntwo\nthr");
    expect(&r, "one\ntwo\n");
    expect(&r, "");
    add("ee\n");
    expect(&r, "three\n");
    assert_int_equal(r.at, strlen("one\ntwo\nthree\n"));
    log_file_close(&r.file);
}

static void last_line_needs_no_end(void **state)
{
    struct reader r;

    (void)state;
    add("one\ntw");
    begin(&r, 0);
    expect_in(&r, true, 256, "one\ntw");
    expect_in(&r, true, 256, "");
    log_file_close(&r.file);
}

static void pieces_end_with_lines_unless_one_is_longer(void **state)
{
    struct reader r;

    (void)state;
    add("one\ntwo\na long line\nx\n");
    begin(&r, 0);
    expect_in(&r, true, 6, "one\n");
    expect_in(&r, true, 6, "two\n");
    expect_in(&r, true, 6, "a long");
    expect_in(&r, true, 6, " line\n");
    expect_in(&r, true, 6, "x\n");
    log_file_close(&r.file);
}

static void file_that_is_begun_anew_is_read_on(void **state)
{
    struct reader r;

    (void)state;
    add("one\n");
    begin(&r, 0);
    expect(&r, "one\n");
    add("two\nhalf");
    rotate();
    expect(&r, "two\n"); /* the new one is not there yet */
    add("three\n");
    expect(&r, "half");
    expect(&r, "three\n");
    expect(&r, "");
    log_file_close(&r.file);
}

static void all_of_it_begins_with_the_older_part(void **state)
{
    struct reader r;

    (void)state;
    add("one\n");
    rotate();
    add("two\n");
    begin(&r, 0);
    expect(&r, "one\n");
    expect(&r, "two\n");
    log_file_close(&r.file);
}

static void end_is_the_last_lines(void **state)
{
    static char line[1001];
    struct reader r;
    char data[16384];
    size_t n;

    (void)state;
    memset(line, 'x', sizeof(line) - 1);
    line[sizeof(line) - 2] = '\n';
    for (int i = 0; i < 20; i++) {
        add(line);
    }
    begin(&r, LOG_FILE_END);
    n = log_file_read(&r.file, &r.at, false, data, sizeof(data));
    assert_int_equal(n, 8000);
    assert_int_equal(r.at, 12000);
    log_file_close(&r.file);
}

static void what_is_too_much_is_skipped_to_where_a_line_begins(void **state)
{
    struct reader r;

    (void)state;
    add("one\ntwo\nthree\n");
    begin(&r, 0);
    assert_int_equal(log_file_skip(&r.file, 0, 100), 0);
    assert_int_equal(log_file_skip(&r.file, 4, 10), 4);
    assert_int_equal(log_file_skip(&r.file, 0, 8), 8);  /* within two's */
    assert_int_equal(log_file_skip(&r.file, 0, 11), 4); /* at one's end */
    rotate();
    add("four\n");
    assert_int_equal(log_file_skip(&r.file, 0, 13), 8); /* within two's, in the older */
    assert_int_equal(log_file_skip(&r.file, 19, 100), 19);
    log_file_close(&r.file);
}

static void reader_goes_on_where_another_was(void **state)
{
    struct reader r;

    (void)state;
    add("one\ntwo\n");
    begin(&r, 4);
    expect(&r, "two\n");
    assert_int_equal(r.at, 8);
    log_file_close(&r.file);
}

static void only_files_are_read(void **state)
{
    struct reader r;

    (void)state;
    assert_true(log_file_open(&r.file, scratch.dir));
    r.at = 0;
    expect(&r, "");
    log_file_close(&r.file);
}

static void a_file_that_is_gone_is_gone_on_with_from_where_it_was(void **state)
{
    struct reader r;

    (void)state;
    begin(&r, 100);
    assert_int_equal(r.at, 100); /* what is read never has an earlier place */
    add("new\n");
    expect(&r, "new\n");
    assert_int_equal(r.at, 104);
    log_file_close(&r.file);
}

static void reader_that_comes_again_goes_on_from_its_place(void **state)
{
    struct reader r;

    (void)state;
    begin(&r, 0);
    add("one\ntwo\n");
    expect(&r, "one\ntwo\n");
    expect_from(&r, 4, "two\n");
    rotate();
    add("three\n");
    expect_from(&r, 4, "two\n");
    expect(&r, "three\n");
    rotate();
    add("four\n");
    expect_from(&r, 8, "three\n");
    expect(&r, "four\n");
    expect_from(&r, 0, "three\n"); /* the rest is gone */
    assert_int_equal(r.at, strlen("one\ntwo\nthree\n"));
    log_file_close(&r.file);
}

static void end_and_beginning_count_from_the_same_place(void **state)
{
    struct reader r;

    (void)state;
    add("one\n");
    rotate();
    add("two\n");
    begin(&r, LOG_FILE_END);
    expect(&r, "two\n");
    assert_int_equal(r.at, 8);
    expect_from(&r, 0, "one\n");
    expect(&r, "two\n");
    log_file_close(&r.file);
}

static void
what_was_renamed_twice_before_it_was_looked_at_is_read_as_far_as_it_is_there(
    void **state)
{
    struct reader r;

    (void)state;
    add("one\n");
    begin(&r, 0);
    expect(&r, "one\n");
    rotate();
    add("two\n");
    rotate();
    add("three\n");
    expect(&r, "two\n");
    expect(&r, "three\n");
    expect(&r, "");
    log_file_close(&r.file);
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
        CASE(what_is_too_much_is_skipped_to_where_a_line_begins),
        CASE(reader_goes_on_where_another_was),
        CASE(only_files_are_read),
        CASE(reader_that_comes_again_goes_on_from_its_place),
        CASE(end_and_beginning_count_from_the_same_place),
        CASE(
            what_was_renamed_twice_before_it_was_looked_at_is_read_as_far_as_it_is_there),
        CASE(a_file_that_is_gone_is_gone_on_with_from_where_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
