/* The output of engines: who speaks, and when that is known. */

#include "launcher/output/output.h"
#include "tests/lib/child.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/output_rig.h"

#include "common/clock.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void engines(void)
{
    struct output_rig r;

    output_rig_open(&r, true, NULL);
    output_rig_start(&r, 0, 0, 5);
    output_rig_start(&r, 1, 1, 5);
    output_rig_say(r.out[0], "early 0\n");
    output_rig_say(r.err[1], "early 1\n");
    (void)uv_run(&r.loop, UV_RUN_NOWAIT);
    CHECK(output_rig_file_size("console.out") == 0 &&
          output_rig_file_size("console.err") == 0);
    output_is_engine(r.output, 0, output_rig_path("run/log/2"));
    output_is_engine(r.output, 1, output_rig_path("run/log/2"));
    CHECK(strcmp(output_log_path(r.output, 1),
                 output_rig_path("run/log/2/rank1.log")) == 0);
    output_rig_turn_until_size(&r, "console.out", 8);
    output_rig_say(r.out[0], "step 1\n");
    output_rig_turn_until_size(&r, "console.out", 15);
    output_rig_say(r.err[0], "warning\n");
    output_rig_say(r.out[1], "step 1");
    output_rig_end(&r, 0);
    output_rig_end(&r, 1);
    output_rig_close(&r);
    CHECK_FILE("console.out", "early 0\nstep 1\n");
    CHECK_FILE("console.err", "warning\n");
    CHECK_FILE("run/log/2/rank0.log", "early 0\nstep 1\nwarning\n");
    CHECK_FILE("run/log/2/rank1.log", "early 1\nstep 1");
}

static void
engine_speaks_from_rank_0_and_logs_all_ranks_from_the_first_line(void **state)
{
    (void)state;
    output_rig_run(engines);
}

static void failed_start(void)
{
    static const char *const lines[] = {
        "ctrun-worker: error: c.yaml:3:1: unknown key rank=0\n",
        "ctrun-worker: error: c.yaml:3:1: unknown key rank=1\n",
        "ctrun-worker: error: no memory rank=2\n",
    };
    struct output_rig r;

    output_rig_open(&r, true, NULL);
    for (uint32_t i = 0; i < 3; i++) {
        output_rig_start(&r, i, i, 1);
        output_rig_say(r.err[i], lines[i]);
    }
    for (uint32_t i = 0; i < 3; i++) {
        output_rig_end(&r, i);
        CHECK(strcmp(output_tail(r.output, i), lines[i]) == 0);
    }
    output_rig_start(&r, 0, 0, 2); /* another generation says it anew */
    output_rig_say(r.out[0], lines[0]);
    output_rig_end(&r, 0);
    output_rig_close(&r);
    CHECK_FILE("console.err", "ctrun-worker: error: c.yaml:3:1: unknown key rank=0\n"
                              "ctrun-worker: error: no memory rank=2\n");
    CHECK_FILE("console.out", "ctrun-worker: error: c.yaml:3:1: unknown key rank=0\n");
}

static void mistake_that_all_ranks_find_before_hello_is_seen_once(void **state)
{
    (void)state;
    output_rig_run(failed_start);
}

static void refusal(void)
{
    struct output_rig r;

    output_rig_open(&r, true, NULL);
    for (uint32_t generation = 1; generation <= 2; generation++) {
        output_rig_start(&r, 0, 0, generation);
        output_rig_say(r.err[0], "no such key\n");
        if (generation == 1) {
            output_has_refused(r.output, 0);
        }
        output_rig_end(&r, 0);
        CHECK(strcmp(output_tail(r.output, 0), "no such key\n") == 0);
    }
    output_rig_close(&r);
    CHECK_FILE("console.err", "no such key\n"); /* of the second, which did not */
}

static void words_of_a_worker_that_refused_are_left_to_the_service(void **state)
{
    (void)state;
    output_rig_run(refusal);
}

static void no_engine(void)
{
    char line[1024];
    struct output_rig r;

    memset(line, 'z', sizeof(line) - 2);
    line[sizeof(line) - 2] = '\n';
    line[sizeof(line) - 1] = '\0';
    output_rig_open(&r, true, output_rig_path("logs"));
    output_rig_start(&r, 0, 3, 1);
    for (int i = 0; i < 100; i++) {
        output_rig_say(r.out[0], line);
        (void)uv_run(&r.loop, UV_RUN_NOWAIT);
    }
    output_rig_turn_until_size(&r, "console.out",
                               (size_t)64 * 1024); /* before its end */
    output_rig_end(&r, 0);
    output_rig_close(&r);
    CHECK(output_rig_file_size("console.out") == 100 * (sizeof(line) - 1));
    CHECK(output_rig_file_size("logs/attempt_1/0/stdout.log") ==
          100 * (sizeof(line) - 1));
}

static void after_64_kilobytes_without_hello_it_is_another_program(void **state)
{
    (void)state;
    output_rig_run(no_engine);
}

/* A log that nobody reads, in place of a hung file system. */
static void hung_log(void)
{
    struct output_rig r;

    CHECK(mkfifo(output_rig_path("rank0.log"), 0600) == 0);
    output_rig_open(&r, true, NULL);
    output_rig_start(&r, 0, 0, 1);
    output_is_engine(r.output, 0, output_rig_folder); /* the thread hangs in open */
    output_rig_say(r.out[0], "seen all the same\n");
    output_rig_turn_until_size(&r, "console.out", 18);
    output_rig_end(&r, 0); /* within its bound */
    output_rig_close(&r);
    CHECK_FILE("console.out", "seen all the same\n");
}

static void hung_log_file_holds_neither_loop_nor_end(void **state)
{
    (void)state;
    output_rig_run(hung_log);
}

static void stop_with_open_slots(void)
{
    struct output_rig r;

    output_rig_open(&r, false, NULL);
    output_rig_start(&r, 0, 0, 1);
    output_rig_start(&r, 1, 1, 1);
    output_rig_say(r.out[1], "said\n");
    CHECK(close(r.out[0]) == 0); /* slot 0 ends by itself, slot 1 not at all */
    CHECK(close(r.err[0]) == 0);
    (void)uv_run(&r.loop, UV_RUN_NOWAIT);
    output_rig_close(&r);
    CHECK_FILE("console.out", "said\n");
}

static void stop_flushes_and_closes_what_is_open(void **state)
{
    (void)state;
    output_rig_run(stop_with_open_slots);
}

#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, output_rig_set_up, output_rig_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(mistake_that_all_ranks_find_before_hello_is_seen_once),
        CASE(words_of_a_worker_that_refused_are_left_to_the_service),
        CASE(after_64_kilobytes_without_hello_it_is_another_program),
        CASE(hung_log_file_holds_neither_loop_nor_end),
        CASE(stop_flushes_and_closes_what_is_open),
        CASE(engine_speaks_from_rank_0_and_logs_all_ranks_from_the_first_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
