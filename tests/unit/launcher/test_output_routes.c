/* Where lines go when options say so: prefixes, files, the console, second copies. */

#include "launcher/output/output.h"
#include "launcher/output/redirects.h"
#include "tests/lib/child.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/output_rig.h"

#include "common/clock.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Two ranks, 4 and 5, of which each says a line on each stream. */
static void run_two(const struct redirects *redirects)
{
    struct output_config config = {.log_base = output_rig_path("logs"),
                                   .redirects = redirects,
                                   .role = "trainer",
                                   .host = "node7"};
    struct output_rig r;

    output_rig_open_with(&r, &config);
    for (uint32_t i = 0; i < 2; i++) {
        output_rig_start(&r, i, 4 + i, 7);
        output_rig_say(r.out[i], i == 0 ? "o4\n" : "o5\n");
        output_rig_say(r.err[i], i == 0 ? "e4\n" : "e5\n");
        output_rig_end(&r, i);
    }
    output_rig_close(&r);
    CHECK_FILE("logs/attempt_7/0/stdout.log", "o4\n");
    CHECK_FILE("logs/attempt_7/0/stderr.log", "e4\n");
    CHECK_FILE("logs/attempt_7/1/stdout.log", "o5\n");
    CHECK_FILE("logs/attempt_7/1/stderr.log", "e5\n");
}

static void redirected(void)
{
    run_two(&(const struct redirects){.redirects = "0:1,1:2"});
    CHECK_FILE("console.out", "o5\n");
    CHECK_FILE("console.err", "e4\n");
}

static void redirected_stream_goes_to_its_file_only(void **state)
{
    (void)state;
    output_rig_run(redirected);
}

static void teed(void)
{
    run_two(&(const struct redirects){.tee = "1"});
    CHECK_FILE("console.out", "[trainer0]:o4\n[trainer1]:o5\n");
    CHECK_FILE("console.err", "e4\ne5\n");
}

static void teed_stream_has_a_prefix_on_the_console_and_none_in_its_file(void **state)
{
    (void)state;
    output_rig_run(teed);
}

static void hidden(void)
{
    run_two(&(const struct redirects){.console = "5"});
    CHECK_FILE("console.out", "o5\n");
    CHECK_FILE("console.err", "e5\n");
}

static void rank_that_the_console_does_not_show_is_in_its_files(void **state)
{
    (void)state;
    output_rig_run(hidden);
}

static void ends(void)
{
    const struct redirects redirects = {.tee = "3"};
    struct output_config config = {
        .redirects = &redirects, .prefix = "${rank}@${hostname}|", .host = "node7"};
    struct output_rig r;

    output_rig_open_with(&r, &config);
    output_rig_start(&r, 0, 0, 1);
    output_rig_say(r.out[0], "no end");
    output_rig_end(&r, 0);
    output_rig_close(&r);
    CHECK_FILE("console.out", "0@node7|no end\n"); /* torchrun: the next runs into it */
}

static void last_line_of_a_teed_stream_is_ended(void **state)
{
    (void)state;
    output_rig_run(ends);
}

static void engine(void)
{
    const struct redirects redirects = {.console = "1"};
    struct output_config config = {.maybe_engine = true, .redirects = &redirects};
    struct output_rig r;

    output_rig_open_with(&r, &config);
    for (uint32_t i = 0; i < 2; i++) {
        output_rig_start(&r, i, i, 1);
        output_is_engine(r.output, i, output_rig_path("run"));
        output_rig_say(r.out[i], i == 0 ? "from 0\n" : "from 1\n");
    }
    output_rig_end(&r, 0);
    output_rig_end(&r, 1);
    output_rig_close(&r);
    CHECK_FILE("console.out", "from 1\n");
    CHECK_FILE("run/rank0.log", "from 0\n");
}

static void engine_speaks_from_the_ranks_that_are_asked_for(void **state)
{
    (void)state;
    output_rig_run(engine);
}

static void late(void)
{
    struct output_config config = {.log_base = output_rig_path("logs"),
                                   .makes_files_late = true};
    struct output_rig r;

    output_rig_open_with(&r, &config);
    output_rig_start(&r, 0, 0, 1);
    output_rig_start(&r, 1, 1, 1);
    output_rig_say(r.err[1], "words\n");
    output_rig_end(&r, 0);
    output_rig_end(&r, 1);
    CHECK(strcmp(output_log_path(r.output, 0), "") == 0);
    CHECK(strcmp(output_log_path(r.output, 1), output_rig_path("logs/attempt_1/1")) ==
          0);
    output_rig_close(&r);
    CHECK_FILE("logs/attempt_1/1/stderr.log", "words\n");
    CHECK(access(output_rig_path("logs/attempt_1/0"), F_OK) < 0);
    CHECK(access(output_rig_path("logs/attempt_1/1/stdout.log"), F_OK) < 0);
}

/* A rank that has said nothing leaves its exception. */
static void late_error(void)
{
    struct output_config config = {.log_base = output_rig_path("logs"),
                                   .makes_files_late = true};
    struct output_rig r;

    output_rig_open_with(&r, &config);
    output_rig_start(&r, 0, 0, 1);
    output_rig_end(&r, 0);
    CHECK(strcmp(output_keep(r.output, 0, "error.json", "why\n", 4),
                 output_rig_path("logs/attempt_1/0/error.json")) == 0);
    CHECK(strcmp(output_log_path(r.output, 0), output_rig_path("logs/attempt_1/0")) ==
          0);
    output_rig_close(&r);
    CHECK_FILE("logs/attempt_1/0/error.json", "why\n");
}

static void
exception_of_a_silent_rank_is_kept_though_nobody_asked_for_files(void **state)
{
    (void)state;
    output_rig_run(late_error);
}

static void file_that_nobody_asked_for_comes_with_its_first_line(void **state)
{
    (void)state;
    output_rig_run(late);
}

static void filtered(void)
{
    const struct redirects redirects = {.tee = "0:3", .console = "none"};
    struct output_config config = {.log_base = output_rig_path("logs"),
                                   .redirects = &redirects,
                                   .role = "w",
                                   .filters = {"loss,a,,b", NULL}};
    struct output_rig r;

    output_rig_open_with(&r, &config);
    for (uint64_t g = 1; g <= 2; g++) {
        output_rig_start(&r, 0, 0, g);
        output_rig_start(&r, 1, 1, g);
        output_rig_say(r.out[0], "loss 1\nother\nx a,b\n");
        output_rig_say(r.err[0], "loss on stderr\n");
        output_rig_say(r.out[1], "loss of a rank that is not teed\n");
        output_rig_say(r.out[0], g == 1 ? "loss" : "");
        output_rig_end(&r, 0);
        output_rig_end(&r, 1);
    }
    output_rig_close(&r);
    CHECK_FILE("logs/attempt_1/filtered_stdout.log",
               "[w0]:loss 1\n[w0]:x a,b\n[w0]:loss\n");
    CHECK_FILE("logs/attempt_2/filtered_stdout.log", "[w0]:loss 1\n[w0]:x a,b\n");
    CHECK(access(output_rig_path("logs/attempt_1/filtered_stderr.log"), F_OK) < 0);
}

static void teed_lines_with_one_of_the_texts_are_written_a_second_time(void **state)
{
    (void)state;
    output_rig_run(filtered);
}

static void filtered_alone(void)
{
    const struct redirects redirects = {.tee = "3"};
    struct output_config config = {.log_base = output_rig_path("logs"),
                                   .redirects = &redirects,
                                   .role = "w",
                                   .filters = {"loss 1", NULL}};
    struct output_rig r;

    output_rig_open_with(&r, &config);
    output_rig_start(&r, 0, 0, 1);
    output_rig_say(r.out[0], "lo");
    output_rig_say(r.err[0], "? ");
    output_rig_turn_until_size(&r, "console.err", 7); /* what is not filtered */
    output_rig_say(r.out[0], "ss 1\n");
    output_rig_end(&r, 0);
    output_rig_close(&r);
    CHECK_FILE("logs/attempt_1/filtered_stdout.log", "[w0]:loss 1\n");
    CHECK_FILE("console.out", "[w0]:loss 1\n");
}

static void line_of_a_lone_program_is_whole_where_it_is_looked_at(void **state)
{
    (void)state;
    output_rig_run(filtered_alone);
}

static void rotated(void)
{
    struct output_config config = {.log_base = output_rig_path("logs"), .max_size = 32};
    struct output_rig r;

    output_rig_open_with(&r, &config);
    output_rig_start(&r, 0, 0, 1);
    for (char c = 'a'; c <= 'g'; c++) {
        char line[] = "........ \n"; /* three of these fit */

        line[8] = c;
        output_rig_say(r.out[0], line);
    }
    output_rig_end(&r, 0);
    output_rig_close(&r);
    CHECK_FILE("logs/attempt_1/0/stdout.log", "........g\n");
    CHECK_FILE("logs/attempt_1/0/stdout.log.1", "........d\n........e\n........f\n");
}

static void file_that_is_full_becomes_the_older_one(void **state)
{
    (void)state;
    output_rig_run(rotated);
}

static void bars(void)
{
    struct output_rig r;

    output_rig_open(&r, false, output_rig_path("logs"));
    output_rig_start(&r, 0, 0, 1);
    output_rig_start(&r, 1, 1, 1); /* not alone: lines are put together */
    output_rig_say(r.out[0], "\r 10%");
    output_rig_turn_until_size(&r, "console.out", 5);
    CHECK_FILE("console.out", "\r 10%");
    output_rig_say(r.out[0], "\r 20%");
    output_rig_turn_until_size(&r, "console.out", 10);
    output_rig_say(r.out[1], "a line\n");
    output_rig_turn_until_size(&r, "console.out", 18);
    output_rig_say(r.out[0], "\r100%\nwhole, ");
    output_rig_turn_until_size(&r, "console.out", 24);
    output_rig_say(r.out[1], "another\n");
    output_rig_turn_until_size(&r, "console.out", 32);
    output_rig_say(r.out[0], "again\n");
    output_rig_end(&r, 0);
    output_rig_end(&r, 1);
    output_rig_close(&r);
    CHECK_FILE("console.out", "\r 10%\r 20%\na line\n\r100%\nanother\nwhole, again\n");
    CHECK_FILE("logs/attempt_1/0/stdout.log", "\r 10%\r 20%\r100%\nwhole, again\n");
}

static void progress_bar_is_seen_as_it_is_drawn(void **state)
{
    (void)state;
    output_rig_run(bars);
}

/* Rank 0 says more than there is room for, while nobody reads the console; rank 1 says
 * little. */
static void flooded(void)
{
    enum { LINES = 100, LINE = 1024 };
    uint64_t deadline_ms = clock_ms() + OUTPUT_RIG_BOUND_MS;
    static char line[LINE];
    struct output_rig r;
    int console;
    pid_t flood;
    pid_t sibling;

    memset(line, 'x', LINE - 1);
    line[LINE - 1] = '\n';
    CHECK(mkfifo(output_rig_path("fifo"), 0600) == 0);
    console = open(output_rig_path("fifo"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    CHECK(console >= 0);
    output_rig_redirect(STDOUT_FILENO, "fifo");
    output_rig_open(&r, false, NULL);
    output_rig_start(&r, 0, 0, 1);
    output_rig_start(&r, 1, 1, 1);
    flood = output_rig_fork();
    if (flood == 0) {
        while (write(r.out[0], line, LINE) == LINE) {
        }
        _exit(0);
    }
    for (int i = 0; i < 300; i++) { /* until the queue is full and the flood stands */
        (void)uv_run(&r.loop, UV_RUN_NOWAIT);
        (void)poll(NULL, 0, 1);
    }
    sibling = output_rig_fork();
    if (sibling == 0) {
        for (int i = 0; i < LINES; i++) {
            CHECK(write(r.out[1], line, LINE) == LINE); /* more than a pipe holds */
        }
        _exit(0);
    }
    while (waitpid(sibling, NULL, WNOHANG) == 0) {
        CHECK(clock_ms() < deadline_ms);
        (void)uv_run(&r.loop, UV_RUN_NOWAIT);
    }
    CHECK(kill(flood, SIGKILL) == 0 && waitpid(flood, NULL, 0) == flood);
}

static void flood_of_a_rank_does_not_hold_up_another(void **state)
{
    (void)state;
    output_rig_run(flooded);
}

#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, output_rig_set_up, output_rig_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(redirected_stream_goes_to_its_file_only),
        CASE(teed_stream_has_a_prefix_on_the_console_and_none_in_its_file),
        CASE(rank_that_the_console_does_not_show_is_in_its_files),
        CASE(last_line_of_a_teed_stream_is_ended),
        CASE(engine_speaks_from_the_ranks_that_are_asked_for),
        CASE(file_that_nobody_asked_for_comes_with_its_first_line),
        CASE(exception_of_a_silent_rank_is_kept_though_nobody_asked_for_files),
        CASE(teed_lines_with_one_of_the_texts_are_written_a_second_time),
        CASE(line_of_a_lone_program_is_whole_where_it_is_looked_at),
        CASE(file_that_is_full_becomes_the_older_one),
        CASE(progress_bar_is_seen_as_it_is_drawn),
        CASE(flood_of_a_rank_does_not_hold_up_another),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
