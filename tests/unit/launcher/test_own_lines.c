/* ctrun's own lines, with stderr a pipe. */

#include "launcher/output/own_lines.h"
#include "tests/lib/child.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"
#include "common/log.h"
#include "common/mem.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    N_LINES = 5000,
    LINE_SIZE = 64,
    TOO_MANY = 64 * 1024,
    CHUNK = 4096,
    GOT_MAX = 8 * 1024 * 1024,
};

/* stderr becomes a pipe; its reading end. */
static int redirect(void)
{
    int ends[2];

    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    CHECK(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    CHECK(close(ends[1]) == 0);
    return ends[0];
}

static void unread(void)
{
    int fd = redirect();

    log_setup("t", "", LOG_LEVEL_INFO);
    own_lines_start();
    for (int i = 0; i < TOO_MANY; i++) { /* more than the pipe and the queue take */
        log_info("a line of some length that nobody will ever read", "i=%d", i);
    }
    own_lines_put("a report\n");
    own_lines_stop();
    log_info("a line that would hang", "%s", "");
    CHECK(close(fd) == 0);
}

static void lines_that_nobody_reads_hold_nobody(void **state)
{
    (void)state;
    child_run(unread);
}

static void *read_all(void *arg)
{
    FILE *f = fdopen(*(int *)arg, "re");
    char line[LINE_SIZE];
    char expected[LINE_SIZE];

    CHECK(f);
    for (int i = 0; i < N_LINES; i++) {
        (void)snprintf(expected, sizeof(expected), "t: line i=%d\n", i);
        CHECK(fgets(line, sizeof(line), f));
        CHECK(strcmp(line, expected) == 0);
    }
    CHECK(fgets(line, sizeof(line), f));
    CHECK(strcmp(line, "a report\n") == 0);
    CHECK(fgets(line, sizeof(line), f));
    CHECK(strcmp(line, "t: after\n") == 0);
    CHECK(fclose(f) == 0);
    return NULL;
}

static void read_late(void)
{
    int fd = redirect();
    pthread_t reader;

    log_setup("t", "", LOG_LEVEL_INFO);
    own_lines_start();
    for (int i = 0; i < N_LINES; i++) {
        log_info("line", "i=%d", i);
    }
    own_lines_put("a report\n");
    CHECK(pthread_create(&reader, NULL, read_all, &fd) == 0);
    own_lines_stop();
    log_info("after", "%s", ""); /* by itself again */
    CHECK(pthread_join(reader, NULL) == 0);
}

static void all_lines_arrive_in_order_and_the_end_waits_for_them(void **state)
{
    (void)state;
    child_run(read_late);
}

/* stdout and stderr are one pipe: a worker stops within a line on either. */
static void after_half_lines(void)
{
    static const char expected[] = "\nt: one\nt: two\n\na report\nt: three\n";
    char got[sizeof(expected)] = "";
    int fd = redirect();
    size_t n = 0;
    ssize_t rv = 1;

    CHECK(dup2(STDERR_FILENO, STDOUT_FILENO) == STDOUT_FILENO);
    log_setup("t", "", LOG_LEVEL_INFO);
    own_lines_start();
    own_lines_console(STDOUT_FILENO, true);
    log_info("one", "%s", "");
    log_info("two", "%s", "");
    own_lines_console(STDERR_FILENO, true);
    own_lines_put("a report\n");
    own_lines_console(STDOUT_FILENO, true);
    own_lines_console(STDOUT_FILENO, false);
    log_info("three", "%s", "");
    own_lines_stop();
    while (n < sizeof(expected) - 1 && rv > 0) {
        rv = read(fd, got + n, sizeof(expected) - 1 - n);
        n += rv > 0 ? (size_t)rv : 0;
    }
    CHECK(strcmp(got, expected) == 0);
}

static void own_lines_begin_on_a_fresh_line(void **state)
{
    (void)state;
    child_run(after_half_lines);
}

/* A line that is lost does not take the fresh line from the next. */
static void after_a_lost_line(void)
{
    static const char kept[] = "\n\nkept\n";
    const char *found = NULL;
    char *got = mem_alloc(GOT_MAX);
    int fd = redirect();
    size_t n = 0;
    ssize_t rv;

    log_setup("t", "", LOG_LEVEL_INFO);
    own_lines_start();
    for (int i = 0; i < TOO_MANY; i++) { /* more than the pipe and the queue take */
        log_info("a line of some length that is read too late", "i=%d", i);
    }
    own_lines_console(STDERR_FILENO, true);
    while (!found) {
        own_lines_put("kept\n"); /* lost until there is room */
        CHECK(n < GOT_MAX);
        rv = read(fd, got + n, MIN(GOT_MAX - n, (size_t)CHUNK));
        CHECK(rv > 0);
        n += (size_t)rv;
        found = memmem(got, n, "kept\n", strlen("kept\n"));
    }
    CHECK(found - got >= 2 && memcmp(found - 2, kept, strlen(kept)) == 0);
    CHECK(close(fd) == 0);
    own_lines_stop();
    mem_free(got);
}

static void a_lost_line_leaves_the_fresh_one_to_the_next(void **state)
{
    (void)state;
    child_run(after_a_lost_line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_that_nobody_reads_hold_nobody),
        cmocka_unit_test(own_lines_begin_on_a_fresh_line),
        cmocka_unit_test(a_lost_line_leaves_the_fresh_one_to_the_next),
        cmocka_unit_test(all_lines_arrive_in_order_and_the_end_waits_for_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
