/* The output of programs that are no engine of ours. */

#include "launcher/output/output.h"
#include "tests/lib/child.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/output_rig.h"

#include "common/clock.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FLOOD_LINES = 60000, FLOOD_RANKS = 3 };

static void foreign(void)
{
    struct output_rig r;

    output_rig_open(&r, false, output_rig_path("logs"));
    output_rig_start(&r, 0, 4, 7);
    output_rig_start(&r, 1, 5, 7);
    output_rig_say(r.out[0], "a1\na2");
    output_rig_say(r.out[1], "b1\n");
    output_rig_say(r.err[0], "e1\n");
    output_rig_end(&r, 0);
    CHECK(strcmp(output_tail(r.output, 0), "a1\na2e1\n") == 0 ||
          strcmp(output_tail(r.output, 0), "a1\ne1\na2") == 0);
    CHECK(strcmp(output_log_path(r.output, 0), output_rig_path("logs/attempt_7/0")) ==
          0);
    output_rig_end(&r, 1);
    output_rig_close(&r);
    CHECK_FILE("logs/attempt_7/0/stdout.log", "a1\na2"); /* as it was said */
    CHECK_FILE("logs/attempt_7/0/stderr.log", "e1\n");
    CHECK_FILE("logs/attempt_7/1/stdout.log", "b1\n");
    CHECK_FILE("logs/attempt_7/1/stderr.log", "");
    CHECK_FILE("console.err", "e1\n");
    CHECK(strstr(output_rig_contents("console.out", NULL), "a2\n") !=
          NULL); /* a line of its own */
    CHECK(output_rig_file_size("console.out") == 9);
}

static void other_programs_speak_from_all_ranks_and_have_a_file_per_stream(void **state)
{
    (void)state;
    output_rig_run(foreign);
}

static void keep(void)
{
    static char large[OUTPUT_KEPT_MAX + 1];
    struct output_rig r;

    output_rig_open(&r, false, output_rig_path("logs"));
    output_rig_start(&r, 0, 4, 7);
    output_rig_end(&r, 0);
    CHECK(strcmp(output_keep(r.output, 0, "error.json", "why\n", 4),
                 output_rig_path("logs/attempt_7/0/error.json")) == 0);
    CHECK(*output_keep(r.output, 0, "large", large, sizeof(large)) == '\0');
    CHECK(*output_keep(r.output, 9, "error.json", "why\n", 4) ==
          '\0'); /* no such slot */
    output_rig_close(&r);
    CHECK_FILE("logs/attempt_7/0/error.json", "why\n");
    CHECK(output_rig_file_size("logs/attempt_7/0/large") == 0);
    output_rig_open(&r, false, NULL);
    output_rig_start(&r, 0, 4, 7);
    output_rig_end(&r, 0);
    CHECK(*output_keep(r.output, 0, "error.json", "why\n", 4) == '\0'); /* no folder */
    output_rig_close(&r);
}

static void what_a_rank_leaves_is_put_beside_its_output(void **state)
{
    (void)state;
    output_rig_run(keep);
}

static void prompt(void)
{
    struct output_rig r;

    output_rig_open(&r, false, NULL);
    output_rig_start(&r, 0, 0, 1);
    output_rig_say(r.out[0], "(Pdb) ");
    output_rig_turn_until_size(&r, "console.out", 6); /* though nothing ends the line */
    CHECK_FILE("console.out", "(Pdb) ");
    CHECK(strcmp(output_log_path(r.output, 0), "") == 0);
    output_rig_say(r.out[0], "done");
    output_rig_end(&r, 0);
    output_rig_close(&r);
    CHECK_FILE("console.out", "(Pdb) done"); /* not a byte more than it said */
}

static void lone_programs_prompt_is_seen_at_once(void **state)
{
    (void)state;
    output_rig_run(prompt);
}

static void binary(void)
{
    enum { SIZE = 200000 };
    struct output_rig r;
    uint8_t *data = mem_alloc(SIZE);
    size_t size;
    char *text;
    pid_t pid;

    for (size_t i = 0; i < SIZE; i++) {
        data[i] = (uint8_t)(i * 31 + i / 256);
    }
    output_rig_open(&r, false, output_rig_path("logs"));
    output_rig_start(&r, 0, 0, 2);
    pid = output_rig_fork();
    if (pid == 0) {
        CHECK(write(r.out[0], data, SIZE) == SIZE);
        _exit(0);
    }
    output_rig_turn_until_size(&r, "console.out", SIZE);
    CHECK(waitpid(pid, NULL, 0) == pid);
    output_rig_end(&r, 0);
    output_rig_close(&r);
    text = output_rig_contents("logs/attempt_2/0/stdout.log", &size);
    CHECK(size == SIZE && memcmp(text, data, SIZE) == 0);
    text = output_rig_contents("console.out", &size);
    CHECK(size == SIZE && memcmp(text, data, SIZE) == 0);
}

static void binary_bytes_arrive_as_they_are(void **state)
{
    (void)state;
    output_rig_run(binary);
}

/* Lines "r<rank> <i> aaa…" of lengths that differ. */
static void flood(int fd, int rank)
{
    char line[512];

    for (int i = 0; i < FLOOD_LINES; i++) {
        int n = snprintf(line, sizeof(line), "r%d %d ", rank, i);
        int pad = i * 37 % 300;

        memset(line + n, 'a' + rank, (size_t)pad);
        line[n + pad] = '\n';
        n += pad + 1;
        for (int done = 0; done < n;) {
            ssize_t got = write(fd, line + done, (size_t)(n - done));

            CHECK(got > 0);
            done += (int)got;
        }
    }
    _exit(0);
}

/* Every line whole, and each rank's in order. */
static void check_flood(const char *name, int n_ranks)
{
    int next[FLOOD_RANKS] = {0};
    char *text = output_rig_contents(name, NULL);
    char *line = text;

    while (*line != '\0') {
        size_t len = strcspn(line, "\n");
        int rank = line[1] - '0';
        char head[32];
        int n;

        CHECK(line[0] == 'r' && rank >= 0 && rank < FLOOD_RANKS && line[len] == '\n');
        n = snprintf(head, sizeof(head), "r%d %d ", rank, next[rank]);
        CHECK(strncmp(line, head, (size_t)n) == 0);
        CHECK(len == (size_t)n + (size_t)(next[rank] * 37 % 300));
        for (size_t i = (size_t)n; i < len; i++) {
            CHECK(line[i] == 'a' + rank);
        }
        next[rank]++;
        line += len + 1;
    }
    for (int i = 0; i < FLOOD_RANKS; i++) {
        CHECK(next[i] == 0 || next[i] == FLOOD_LINES);
        n_ranks -= next[i] == FLOOD_LINES;
    }
    CHECK(n_ranks == 0);
    mem_free(text);
}

static void start_flood(struct output_rig *r)
{
    for (uint32_t i = 0; i < FLOOD_RANKS; i++) {
        output_rig_start(r, i, i, 3);
        if (output_rig_fork() == 0) {
            flood(i == 1 ? r->err[i] : r->out[i], (int)i);
        }
        CHECK(close(r->out[i]) == 0 && close(r->err[i]) == 0);
    }
}

static void close_all(struct output_rig *r)
{
    for (uint32_t i = 0; i < FLOOD_RANKS; i++) {
        output_close_rank(r->output, i, output_rig_on_closed, &r->n_closed);
    }
}

static void floods(void)
{
    struct output_rig r;

    output_rig_open(&r, false, output_rig_path("logs"));
    start_flood(&r);
    for (unsigned i = 0; i < FLOOD_RANKS;) {
        (void)uv_run(&r.loop, UV_RUN_NOWAIT);
        i += waitpid(-1, NULL, WNOHANG) > 0;
    }
    close_all(&r);
    output_rig_turn_until(&r, &r.n_closed, FLOOD_RANKS);
    output_rig_close(&r);
    check_flood("console.out", 2);
    check_flood("console.err", 1);
    check_flood("logs/attempt_3/0/stdout.log", 1);
    check_flood("logs/attempt_3/1/stderr.log", 1);
    check_flood("logs/attempt_3/2/stdout.log", 1);
}

static void every_line_is_whole_under_floods_from_several_ranks(void **state)
{
    (void)state;
    output_rig_run(floods);
}

/* What is in the FIFO goes into the file `copy`. */
static size_t copy_console(int console, int copy)
{
    char data[65536];
    ssize_t n = read(console, data, sizeof(data));

    if (n <= 0) {
        return 0;
    }
    CHECK(write(copy, data, (size_t)n) == n);
    return (size_t)n;
}

static void close_all_after(struct output_rig *r, int n_ended)
{
    if (n_ended == FLOOD_RANKS) {
        close_all(r);
    }
}

/* The console is a FIFO that nobody reads at first. */
static void slow_console(void)
{
    uint64_t deadline_ms = clock_ms() + OUTPUT_RIG_BOUND_MS;
    struct output_rig r;
    int status = 0;
    int n_ended = 0;
    int console;
    int copy;

    CHECK(mkfifo(output_rig_path("fifo"), 0600) == 0);
    console = open(output_rig_path("fifo"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    copy = open(output_rig_path("copy"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(console >= 0 && copy >= 0);
    output_rig_redirect(STDOUT_FILENO, "fifo");
    output_rig_redirect(STDERR_FILENO, "fifo");
    output_rig_open(&r, false, NULL);
    start_flood(&r);
    /* The queue is full some time, and the pipes are not read any more: the loop still
     * turns, and no worker can end, because each has more to say than all the room
     * there is. */
    for (int i = 0; i < 500; i++) {
        (void)uv_run(&r.loop, UV_RUN_NOWAIT);
        (void)poll(NULL, 0, 1);
    }
    CHECK(waitpid(-1, &status, WNOHANG) == 0);
    while (r.n_closed < FLOOD_RANKS) {
        CHECK(clock_ms() < deadline_ms);
        (void)uv_run(&r.loop, UV_RUN_NOWAIT);
        (void)copy_console(console, copy);
        if (n_ended < FLOOD_RANKS && waitpid(-1, &status, WNOHANG) > 0) {
            CHECK(status == 0);
            close_all_after(&r, ++n_ended);
        }
    }
    while (copy_console(console, copy) > 0) {
    }
    output_rig_close(&r);
    CHECK(output_rig_file_size("copy") > (size_t)24 * 1024 * 1024);
    check_flood("copy", FLOOD_RANKS);
}

static void slow_console_stops_the_reading_and_loses_nothing(void **state)
{
    (void)state;
    output_rig_run(slow_console);
}

static void gone_console(void)
{
    int ends[2];
    struct output_rig r;

    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    CHECK(dup2(ends[1], STDOUT_FILENO) == STDOUT_FILENO);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    output_rig_open(&r, false, output_rig_path("logs"));
    output_rig_start(&r, 0, 0, 1);
    output_rig_say(r.out[0], "into the void\n");
    output_rig_end(&r, 0);
    output_rig_close(&r);
    CHECK_FILE("logs/attempt_1/0/stdout.log", "into the void\n");
}

static void console_that_is_gone_costs_nothing_but_its_lines(void **state)
{
    (void)state;
    output_rig_run(gone_console);
}

static void unwritable(void)
{
    struct output_rig r;

    CHECK(close(open(output_rig_path("file"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) ==
          0);
    output_rig_open(&r, false, output_rig_path("file/below"));
    output_rig_start(&r, 0, 0, 1);
    output_rig_say(r.out[0], "still seen\n");
    output_rig_end(&r, 0);
    output_rig_close(&r);
    CHECK_FILE("console.out", "still seen\n");
    CHECK(strstr(output_rig_contents("console.err", NULL), "cannot write a log file") !=
          NULL);
}

static void log_that_cannot_be_written_is_a_warning(void **state)
{
    (void)state;
    output_rig_run(unwritable);
}

static void held_pipe(void)
{
    struct output_rig r;
    int copy;

    output_rig_open(&r, false, NULL);
    output_rig_start(&r, 0, 0, 1);
    copy = fcntl(r.out[0], F_DUPFD_CLOEXEC, 0); /* as a grandchild would */
    output_rig_say(r.out[0], "last words\n");
    output_rig_end(&r, 0);
    CHECK_FILE("console.out", "last words\n");
    CHECK(write(copy, "x", 1) < 0 && errno == EPIPE);
    output_rig_start(&r, 0, 0, 2); /* and the slot is free */
    output_rig_say(r.out[0], "again\n");
    CHECK(strcmp(output_tail(r.output, 0), "") == 0);
    output_rig_end(&r, 0);
    output_rig_close(&r);
    CHECK_FILE("console.out", "last words\nagain\n");
}

static void grandchild_that_keeps_the_pipe_does_not_keep_the_slot(void **state)
{
    (void)state;
    output_rig_run(held_pipe);
}

/* Two ranks write a line of that length at the same time; whether both are whole on the
 * console. They are in the files. */
static bool are_whole_lines(size_t line_size)
{
    struct output_rig r;
    size_t size = line_size + 1;
    char *data[2];
    char *text;
    size_t got;
    bool are_whole;

    output_rig_open(&r, false, output_rig_path("logs"));
    output_rig_start(&r, 0, 0, 1);
    output_rig_start(&r, 1, 1, 1);
    for (int i = 0; i < 2; i++) {
        data[i] = mem_alloc(size);
        memset(data[i], 'a' + i, line_size);
        data[i][line_size] = '\n';
        if (output_rig_fork() == 0) {
            CHECK(write(r.out[i], data[i], size) == (ssize_t)size);
            _exit(0);
        }
    }
    output_rig_turn_until_size(&r, "console.out", 2 * size);
    for (int i = 0; i < 2; i++) {
        CHECK(wait(NULL) > 0);
    }
    output_rig_end(&r, 0);
    output_rig_end(&r, 1);
    CHECK(strlen(output_tail(r.output, 0)) == 8191);
    output_rig_close(&r);
    text = output_rig_contents("logs/attempt_1/0/stdout.log", &got);
    CHECK(got == size && memcmp(text, data[0], size) == 0);
    text = output_rig_contents("logs/attempt_1/1/stdout.log", &got);
    CHECK(got == size && memcmp(text, data[1], size) == 0);
    text = output_rig_contents("console.out", &got);
    are_whole = got == 2 * size &&
                (memcmp(text, data[0], size) == 0 || memcmp(text, data[1], size) == 0);
    return are_whole;
}

static void long_line(void)
{
    CHECK(are_whole_lines(1000000));
}

static void line_of_a_megabyte_is_whole_on_the_console(void **state)
{
    (void)state;
    output_rig_run(long_line);
}

static void too_long_a_line(void)
{
    CHECK(!are_whole_lines(3000000));
}

static void line_of_3_megabytes_comes_in_parts_and_is_whole_in_its_file(void **state)
{
    (void)state;
    output_rig_run(too_long_a_line);
}

/* 40 ranks begin a line, and go on with it: 37.5 MB in the end, of which 32 MiB may
 * wait. */
static void many_long_lines(void)
{
    enum { SIZE = 65536, RANKS = 40, PARTS = 15, MAY_WAIT = 32 * 1024 * 1024 };
    static char data[SIZE];
    struct output_rig r;

    memset(data, 'x', SIZE);
    output_rig_open(&r, false, NULL);
    for (uint32_t i = 0; i < RANKS; i++) {
        output_rig_start(&r, i, i, 1);
    }
    for (int i = 0; i < PARTS * RANKS; i++) {
        int fd = r.out[i % RANKS];
        int waiting = 1;

        CHECK(write(fd, data, SIZE) == SIZE);
        while (waiting > 0) { /* until it is taken */
            (void)uv_run(&r.loop, UV_RUN_NOWAIT);
            CHECK(ioctl(fd, FIONREAD, &waiting) == 0);
        }
        CHECK((i + 1) * SIZE > MAY_WAIT || output_rig_file_size("console.out") == 0);
    }
    output_rig_turn_until_size(&r, "console.out", PARTS * RANKS * SIZE - MAY_WAIT);
    for (uint32_t i = 0; i < RANKS; i++) {
        output_rig_end(&r, i);
    }
    output_rig_close(&r);
    CHECK(output_rig_file_size("console.out") > PARTS * RANKS * SIZE);
}

static void beginnings_of_long_lines_wait_up_to_a_bound_for_all(void **state)
{
    (void)state;
    output_rig_run(many_long_lines);
}

static void tails(void)
{
    struct output_rig r;
    char expected[512];
    size_t n = 0;

    output_rig_open(&r, false, NULL);
    output_rig_start(&r, 0, 0, 1);
    for (int i = 0; i < 50; i++) {
        char line[32];

        (void)snprintf(line, sizeof(line), "line %d\n", i);
        output_rig_say(r.out[0], line);
        if (i >= 30) {
            n += (size_t)snprintf(expected + n, sizeof(expected) - n, "%s", line);
        }
    }
    CHECK(write(r.out[0], "a\0b\n", 4) == 4);
    (void)snprintf(expected + n, sizeof(expected) - n, "a?b\n");
    output_rig_end(&r, 0);
    CHECK(strcmp(output_tail(r.output, 0), expected + strlen("line 30\n")) == 0);
    output_rig_close(&r);
}

static void last_20_lines_are_kept(void **state)
{
    (void)state;
    output_rig_run(tails);
}

#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, output_rig_set_up, output_rig_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(other_programs_speak_from_all_ranks_and_have_a_file_per_stream),
        CASE(what_a_rank_leaves_is_put_beside_its_output),
        CASE(lone_programs_prompt_is_seen_at_once),
        CASE(binary_bytes_arrive_as_they_are),
        CASE(every_line_is_whole_under_floods_from_several_ranks),
        CASE(slow_console_stops_the_reading_and_loses_nothing),
        CASE(console_that_is_gone_costs_nothing_but_its_lines),
        CASE(log_that_cannot_be_written_is_a_warning),
        CASE(grandchild_that_keeps_the_pipe_does_not_keep_the_slot),
        CASE(line_of_a_megabyte_is_whole_on_the_console),
        CASE(line_of_3_megabytes_comes_in_parts_and_is_whole_in_its_file),
        CASE(beginnings_of_long_lines_wait_up_to_a_bound_for_all),
        CASE(last_20_lines_are_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
