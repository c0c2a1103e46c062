/* The service's lines, with stderr a pipe. */

#include "rendezvous/log_queue.h"
#include "tests/lib/child.h"
#include "tests/lib/cmocka.h"

#include "common/log.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    N_LINES = 1000,
    TOO_MANY = 64 * 1024,
    SMALL_PIPE = 4096,
    LATE_MS = 100,
    SOON_MS = 5,
};

/* stderr becomes a pipe; its reading end. */
static FILE *redirect(void)
{
    int ends[2];
    FILE *reader;

    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    CHECK(fcntl(ends[1], F_SETPIPE_SZ, SMALL_PIPE) == SMALL_PIPE);
    CHECK(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    CHECK(close(ends[1]) == 0);
    reader = fdopen(ends[0], "re");
    CHECK(reader);
    return reader;
}

static void begin(void)
{
    log_setup("t", "", LOG_LEVEL_INFO);
    log_queue_start();
}

static void unread(void)
{
    FILE *reader = redirect();

    begin();
    for (int i = 0; i < TOO_MANY; i++) { /* more than the pipe and the queue take */
        log_info("a line of some length that nobody will ever read", "i=%d", i);
    }
    CHECK(!log_queue_stop());
    log_info("a line that would hang", "%s", "");
    CHECK(fclose(reader) == 0);
}

static void lines_that_nobody_reads_hold_nobody(void **state)
{
    (void)state;
    child_run(unread);
}

static void *read_all(void *arg)
{
    char line[256];
    int n = 0;
    int lost = 0;

    while (fgets(line, sizeof(line), arg) && strcmp(line, "t: the last\n") != 0) {
        int number = -1;

        if (sscanf(line, "t: error: lines are missing here: %*[^=]=%d", &number) == 1) {
            lost += number;
        } else {
            CHECK(sscanf(line, "t: line %*[x] i=%d", &number) == 1);
            CHECK(lost > 0 || number == n);
            n++;
        }
    }
    CHECK(n + lost == TOO_MANY);
    CHECK(lost > 0);
    return NULL;
}

static void read_too_late(void)
{
    FILE *reader = redirect();
    pthread_t thread;

    begin();
    for (int i = 0; i < TOO_MANY; i++) {
        log_info("line xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "i=%d", i);
    }
    CHECK(pthread_create(&thread, NULL, read_all, reader) == 0);
    CHECK(log_queue_stop());
    log_info("the last", "%s", ""); /* by itself again */
    CHECK(pthread_join(thread, NULL) == 0);
}

static void each_line_is_read_or_counted_as_missing(void **state)
{
    (void)state;
    child_run(read_too_late);
}

static void *count_all(void *arg)
{
    char line[256];
    int n = 0;

    while (fgets(line, sizeof(line), arg) && strcmp(line, "t: the last\n") != 0) {
        int lost = 1; /* it is a line itself */

        (void)sscanf(line, "t: error: lines are missing here: %*[^=]=%d", &lost);
        n += lost;
    }
    CHECK(n == TOO_MANY);
    return NULL;
}

static void *log_many(void *arg)
{
    for (int i = 0; i < TOO_MANY; i++) {
        log_info("line", "i=%d", i);
    }
    return arg;
}

static void end_meanwhile(void)
{
    FILE *reader = redirect();
    pthread_t reading;
    pthread_t logging;

    begin();
    CHECK(pthread_create(&reading, NULL, count_all, reader) == 0);
    CHECK(pthread_create(&logging, NULL, log_many, NULL) == 0);
    (void)poll(NULL, 0, SOON_MS);
    CHECK(log_queue_stop());
    CHECK(pthread_join(logging, NULL) == 0);
    log_info("the last", "%s", "");
    CHECK(pthread_join(reading, NULL) == 0);
}

static void so_is_each_that_comes_while_it_ends(void **state)
{
    (void)state;
    child_run(end_meanwhile);
}

static void *read_in_order(void *arg)
{
    char line[64];
    char expected[64];

    for (int i = 0; i < N_LINES; i++) {
        (void)snprintf(expected, sizeof(expected), "t: line i=%d\n", i);
        CHECK(fgets(line, sizeof(line), arg));
        CHECK(strcmp(line, expected) == 0);
    }
    return NULL;
}

static void read_late(void)
{
    FILE *reader = redirect();
    pthread_t thread;

    begin();
    for (int i = 0; i < N_LINES; i++) {
        log_info("line", "i=%d", i);
    }
    CHECK(pthread_create(&thread, NULL, read_in_order, reader) == 0);
    CHECK(log_queue_stop());
    CHECK(pthread_join(thread, NULL) == 0);
}

static void the_end_waits_for_all_lines_in_order(void **state)
{
    (void)state;
    child_run(read_late);
}

static void die(void)
{
    begin();
    for (int i = 0; i < N_LINES; i++) { /* more than the pipe takes */
        log_info("line", "i=%d", i);
    }
    abort();
}

static void read_the_dead(void)
{
    FILE *reader = redirect();
    pid_t pid = fork();
    int status;

    CHECK(pid >= 0);
    if (pid == 0) {
        die();
    }
    (void)poll(NULL, 0, LATE_MS);
    (void)read_in_order(reader);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void an_abort_waits_for_the_last_words(void **state)
{
    (void)state;
    child_run(read_the_dead);
}

static void be_aborted(void)
{
    FILE *reader = redirect();
    pid_t pid = fork();
    char line[64] = "";
    int status;

    CHECK(pid >= 0);
    if (pid == 0) {
        begin();
        log_info("line", "%s", "");
        for (;;) {
            (void)pause();
        }
    }
    CHECK(fgets(line, sizeof(line), reader) && strcmp(line, "t: line\n") == 0);
    CHECK(kill(pid, SIGABRT) == 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(fclose(reader) == 0);
}

static void an_abort_by_the_watchdog_kills(void **state)
{
    (void)state;
    child_run(be_aborted);
}

static void write_to_file(void)
{
    FILE *file = tmpfile();
    char line[64] = "";

    CHECK(file && dup2(fileno(file), STDERR_FILENO) == STDERR_FILENO);
    begin();
    log_info("line", "%s", "");
    rewind(file);
    CHECK(fgets(line, sizeof(line), file) && strcmp(line, "t: line\n") == 0);
    CHECK(log_queue_stop());
}

static void in_a_file_a_line_is_there_at_once(void **state)
{
    (void)state;
    child_run(write_to_file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_that_nobody_reads_hold_nobody),
        cmocka_unit_test(each_line_is_read_or_counted_as_missing),
        cmocka_unit_test(so_is_each_that_comes_while_it_ends),
        cmocka_unit_test(the_end_waits_for_all_lines_in_order),
        cmocka_unit_test(an_abort_waits_for_the_last_words),
        cmocka_unit_test(an_abort_by_the_watchdog_kills),
        cmocka_unit_test(in_a_file_a_line_is_there_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
