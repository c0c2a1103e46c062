#include "tests/lib/child.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"

#include "common/err.h"
#include "common/fault.h"
#include "common/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIPE_CAPACITY = 1 << 16, LARGE = 16 * PIPE_CAPACITY };

static int setup(void **state)
{
    static struct scratch scratch;

    scratch_open(&scratch);
    *state = &scratch;
    return 0;
}

static int teardown(void **state)
{
    scratch_close(*state);
    return 0;
}

static bool is_dir(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static void missing_folders_are_made_however_the_path_is_written(void **state)
{
    static const char *const paths[][2] = {
        {"a", "a"},       {"b/c/d", "b/c/d"}, {"e/", "e"},       {"f//g/", "f/g"},
        {"h///i", "h/i"}, {"j/./k", "j/k"},   {"b/c/x", "b/c/x"}};
    struct scratch *s = *state;

    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        assert_int_equal(storage_make_dirs(scratch_path(s, paths[i][0])), 0);
        assert_true(is_dir(scratch_path(s, paths[i][1])));
        assert_int_equal(storage_make_dirs(scratch_path(s, paths[i][0])), 0);
    }
    assert_int_equal(storage_make_dirs("/"), 0);
}

static const char *relative_base;

static void make_relative(void)
{
    CHECK(chdir(relative_base) == 0);
    CHECK(storage_make_dirs("here") == 0 && is_dir("here"));
    CHECK(storage_make_dirs("one/two/") == 0 && is_dir("one/two"));
    CHECK(storage_make_dirs(".") == 0);
}

static void a_relative_path_begins_at_the_working_directory(void **state)
{
    const struct scratch *s = *state;

    relative_base = s->dir;
    child_run(make_relative);
}

static void a_path_is_in_a_folder_by_whole_names(void **state)
{
    char real[PATH_MAX];

    assert_true(storage_is_in("/a/b", "/a/b"));
    assert_true(storage_is_in("/a/b/c", "/a/b"));
    assert_true(storage_is_in("/a", "/"));
    assert_false(storage_is_in("/a/bc", "/a/b"));
    assert_false(storage_is_in("/a", "/a/b"));
    (void)state;
    assert_int_equal(storage_resolve("/none/../../x//./y/", real), 0);
    assert_string_equal(real, "/x/y");
    assert_int_equal(storage_resolve("/", real), 0);
    assert_string_equal(real, "/");
    assert_int_equal(storage_resolve("/dev/null/x", real), -ENOTDIR);
}

static void what_cannot_be_made_is_an_error(void **state)
{
    struct scratch *s = *state;
    char *endless = calloc(1, PATH_MAX + 1);

    assert_non_null(endless);
    (void)scratch_text(s, "file", "");
    assert_int_equal(storage_make_dirs(scratch_path(s, "file/below")), -ENOTDIR);
    assert_int_equal(storage_make_dirs(""), -ENOENT);
    memset(endless, 'x', PATH_MAX);
    assert_int_equal(storage_make_dirs(endless), -ENAMETOOLONG);
    free(endless);
    assert_int_equal(storage_sync_dir(scratch_path(s, "file")), -ENOTDIR);
    assert_int_equal(storage_sync_dir(scratch_path(s, "nothing")), -ENOENT);
    assert_int_equal(storage_sync_dir(s->dir), 0);
}

static void on_signal(int signal)
{
    (void)signal;
}

/* In a child. A signal cuts a write short that has begun. */
static int write_through_signals(int fd, const char *data)
{
    const struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART */

    return sigaction(SIGUSR1, &action, NULL) == 0 &&
                   storage_write_all(fd, data, LARGE) == 0
               ? 0
               : 1;
}

static void a_write_that_is_cut_short_goes_on_where_it_was(void **state)
{
    char *data = malloc(LARGE);
    char *got = malloc(LARGE);
    size_t sum = 0;
    ssize_t n = 1;
    int ends[2];
    int status;
    pid_t pid;

    (void)state;
    assert_true(data && got);
    for (size_t i = 0; i < LARGE; i++) {
        data[i] = (char)(i % 251);
    }
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        _exit(write_through_signals(ends[1], data));
    }
    assert_true(pid > 0);
    assert_int_equal(close(ends[1]), 0);
    while (n > 0 && sum < LARGE) {
        n = read(ends[0], got + sum, LARGE - sum);
        sum += n > 0 ? (size_t)n : 0;
        if (sum > PIPE_CAPACITY) { /* so it is within one write */
            assert_int_equal(kill(pid, SIGUSR1), 0);
        }
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(sum, LARGE);
    assert_memory_equal(got, data, LARGE);
    assert_int_equal(close(ends[0]), 0);
    free(data);
    free(got);
}

static void a_write_that_fails_says_why(void **state)
{
    struct scratch *s = *state;
    int fd = open(scratch_text(s, "file", ""), O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(storage_write_all(fd, "x", 1), -EBADF);
    assert_int_equal(storage_write_all(fd, "", 0), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(storage_sync(fd), -EBADF);
}

#ifdef FAULTS

static void faults_are_passed_on(void **state)
{
    struct scratch *s = *state;
    int fd = open(scratch_text(s, "file", ""), O_WRONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    fault_arm("storage.write", 1, -ENOSPC);
    assert_int_equal(storage_write_all(fd, "x", 1), -ENOSPC);
    fault_arm("storage.fsync", 1, -EIO);
    assert_int_equal(storage_sync(fd), -EIO);
    fault_arm("storage.fsync", 2, -EIO); /* the second name is not durable */
    assert_int_equal(storage_make_dirs(scratch_path(s, "a/b")), -EIO);
    fault_disarm_all();
    assert_int_equal(close(fd), 0);
}

#endif

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(missing_folders_are_made_however_the_path_is_written),
        CASE(a_relative_path_begins_at_the_working_directory),
        CASE(a_path_is_in_a_folder_by_whole_names),
        CASE(what_cannot_be_made_is_an_error),
        CASE(a_write_that_is_cut_short_goes_on_where_it_was),
        CASE(a_write_that_fails_says_why),
#ifdef FAULTS
        CASE(faults_are_passed_on),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
