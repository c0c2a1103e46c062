/* A program that runs on a terminal finds one in its output. */

#include "launcher/output/output.h"
#include "launcher/output/redirects.h"
#include "tests/lib/child.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/output_rig.h"

#include "common/clock.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

enum { SHOWN_MAX = 65536, ROUNDS = 100 };

/* The user's terminal, which is the console's stdout; stderr is a file. */
static struct {
    int fd; /* what it shows is read here */
    char shown[SHOWN_MAX];
    size_t n;
} terminal;

static void open_terminal(void)
{
    const struct winsize size = {.ws_row = 40, .ws_col = 133};
    struct termios mode;
    int slave;

    CHECK(openpty(&terminal.fd, &slave, NULL, NULL, NULL) == 0);
    CHECK(tcgetattr(slave, &mode) == 0);
    mode.c_oflag &= ~(tcflag_t)OPOST; /* to compare bytes */
    CHECK(tcsetattr(slave, TCSANOW, &mode) == 0);
    CHECK(ioctl(slave, TIOCSWINSZ, &size) == 0);
    CHECK(dup2(slave, STDOUT_FILENO) == STDOUT_FILENO && close(slave) == 0);
    CHECK(fcntl(terminal.fd, F_SETFL, O_NONBLOCK) == 0);
}

/* Turns the loop until the terminal shows so many bytes. */
static void turn_until_shown(struct output_rig *r, size_t n)
{
    uint64_t deadline_ms = clock_ms() + OUTPUT_RIG_BOUND_MS;

    while (terminal.n < n) {
        ssize_t got;

        CHECK(clock_ms() < deadline_ms);
        (void)uv_run(&r->loop, UV_RUN_NOWAIT);
        got = read(terminal.fd, terminal.shown + terminal.n, SHOWN_MAX - terminal.n);
        terminal.n += got > 0 ? (size_t)got : 0;
        if (got <= 0) {
            (void)poll(NULL, 0, 1);
        }
    }
}

static void check_shown(const char *expected, size_t size)
{
    if (terminal.n != size || memcmp(terminal.shown, expected, size) != 0) {
        (void)fprintf(stderr, "shown: \"%.*s\"\n", (int)terminal.n, terminal.shown);
        CHECK(false);
    }
}

static void on_terminal(void)
{
    static const char bytes[] =
        "tab\t nul\0 \003\004\021\023\032 back\r del\177 8bit\377\n";
    struct winsize size;
    struct output_rig r;

    open_terminal();
    output_rig_open(&r, false, output_rig_path("logs"));
    output_rig_start(&r, 0, 0, 1);
    output_rig_start(&r, 1, 1, 1);
    CHECK(isatty(r.out[0]) && isatty(r.out[1]));
    CHECK(!isatty(r.err[0])); /* as ctrun's own */
    CHECK(ioctl(r.out[0], TIOCGWINSZ, &size) == 0);
    CHECK(size.ws_row == 40 && size.ws_col == 133);
    CHECK(write(r.out[0], bytes, sizeof(bytes) - 1) == sizeof(bytes) - 1);
    turn_until_shown(&r, sizeof(bytes) - 1);
    check_shown(bytes, sizeof(bytes) - 1);
    output_rig_end(&r, 0);
    output_rig_end(&r, 1);
    output_rig_close(&r);
    CHECK(output_rig_file_size("logs/attempt_1/0/stdout.log") == sizeof(bytes) - 1);
}

static void worker_has_a_terminal_where_ctrun_has_one_and_no_byte_changes(void **state)
{
    (void)state;
    output_rig_run(on_terminal);
}

static void elsewhere(void)
{
    const struct redirects redirects = {.tee = "0:1", .redirects = "1:1"};
    struct output_config config = {.redirects = &redirects};
    struct output_rig r;

    open_terminal();
    output_rig_open_with(&r, &config);
    output_rig_start(&r, 0, 0, 1);
    output_rig_start(&r, 1, 1, 1);
    CHECK(!isatty(r.out[0]) && !isatty(r.out[1]));
    output_rig_end(&r, 0);
    output_rig_end(&r, 1);
    output_rig_close(&r);
}

static void teed_and_redirected_streams_have_none(void **state)
{
    (void)state;
    output_rig_run(elsewhere);
}

static void count(void *n)
{
    ++*(unsigned *)n;
}

static void resized(void)
{
    const struct winsize larger = {.ws_row = 50, .ws_col = 200};
    unsigned n = 0;
    struct output_config config = {.on_resized = count, .arg = &n};
    struct winsize size;
    struct output_rig r;

    open_terminal();
    output_rig_open_with(&r, &config);
    output_rig_start(&r, 0, 0, 1);
    CHECK(ioctl(terminal.fd, TIOCSWINSZ, &larger) == 0);
    CHECK(raise(SIGWINCH) == 0); /* it is not our controlling terminal */
    output_rig_turn_until(&r, &n, 1);
    CHECK(ioctl(r.out[0], TIOCGWINSZ, &size) == 0);
    CHECK(size.ws_row == 50 && size.ws_col == 200);
    output_rig_end(&r, 0);
    output_rig_close(&r);
}

static void size_of_the_terminal_is_the_workers(void **state)
{
    (void)state;
    output_rig_run(resized);
}

static void last_words(void)
{
    struct output_rig r;
    char expected[32];
    int status;

    open_terminal();
    output_rig_open(&r, false, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        int n = snprintf(expected, sizeof(expected), "line\nlast words %d\n", i);
        pid_t pid;

        terminal.n = 0;
        output_rig_start(&r, 0, 0, (uint64_t)i + 1);
        pid = output_rig_fork();
        if (pid == 0) {
            CHECK(write(r.out[0], expected, (size_t)n) == n);
            (void)raise(SIGKILL);
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
        output_rig_end(&r, 0); /* nothing has been read before */
        turn_until_shown(&r, (size_t)n);
        check_shown(expected, (size_t)n);
    }
    output_rig_close(&r);
}

static void last_words_of_a_killed_worker_are_read_from_its_terminal(void **state)
{
    (void)state;
    output_rig_run(last_words);
}

static void held(void)
{
    struct output_rig r;
    int copy;

    open_terminal();
    output_rig_open(&r, false, NULL);
    output_rig_start(&r, 0, 0, 1);
    copy = fcntl(r.out[0], F_DUPFD_CLOEXEC, 0); /* as a grandchild would */
    output_rig_say(r.out[0], "last words\n");
    output_rig_end(&r, 0);
    turn_until_shown(&r, 11);
    check_shown("last words\n", 11);
    CHECK(write(copy, "x", 1) < 0);
    output_rig_close(&r);
}

static void grandchild_that_keeps_the_terminal_does_not_keep_the_slot(void **state)
{
    (void)state;
    output_rig_run(held);
}

static void prompt(void)
{
    struct output_rig r;

    open_terminal();
    output_rig_open(&r, false, NULL);
    output_rig_start(&r, 0, 0, 1);
    output_rig_start(&r, 1, 1, 1);
    output_rig_say(r.out[0], "sure? ");
    turn_until_shown(&r, 6);
    output_rig_say(r.out[1], "a line\n");
    turn_until_shown(&r, 14);
    check_shown("sure? \na line\n", 14);
    output_rig_end(&r, 0);
    output_rig_end(&r, 1);
    output_rig_close(&r);
}

static void prompt_is_shown_though_there_are_more_ranks(void **state)
{
    (void)state;
    output_rig_run(prompt);
}

static void halves(void)
{
    struct output_rig r;

    open_terminal();
    output_rig_open(&r, false, NULL);
    output_rig_start(&r, 0, 0, 1);
    output_rig_start(&r, 1, 1, 1);
    output_rig_say(r.err[1], "half");
    output_rig_say(r.out[0], "sure? ");
    turn_until_shown(&r, 6); /* as long as a half line is waited for */
    output_rig_say(r.err[0], "a line\n");
    output_rig_turn_until_size(&r, "console.err", 7);
    output_rig_say(r.err[1], " and half\n");
    output_rig_end(&r, 1);
    output_rig_end(&r, 0);
    output_rig_close(&r);
    CHECK_FILE("console.err", "a line\nhalf and half\n");
}

static void half_line_waits_for_its_end_where_there_is_no_terminal(void **state)
{
    (void)state;
    output_rig_run(halves);
}

static void bar(void)
{
    struct output_rig r;

    CHECK(setenv("TERM", "xterm", 1) == 0);
    open_terminal();
    output_rig_open(&r, false, NULL);
    output_rig_start(&r, 0, 0, 1);
    output_rig_start(&r, 1, 1, 1);
    output_rig_say(r.out[0], "\r 10%");
    turn_until_shown(&r, 5);
    output_rig_say(r.out[1], "a line\n");
    turn_until_shown(&r, 16);
    output_rig_say(r.out[0], "\r 20%");
    turn_until_shown(&r, 21);
    output_rig_say(r.out[1], "\r other");
    turn_until_shown(&r, 32);
    output_rig_say(r.out[0], "\n"); /* tqdm's end */
    turn_until_shown(&r, 41);
    check_shown("\r 10%\r\033[Ka line\n\r 20%\r\033[K\r other\r\033[K 20%\n", 41);
    output_rig_end(&r, 0);
    output_rig_end(&r, 1);
    output_rig_close(&r);
}

static void bar_gives_its_place_to_a_line_and_is_whole_at_its_end(void **state)
{
    (void)state;
    output_rig_run(bar);
}

#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, output_rig_set_up, output_rig_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(worker_has_a_terminal_where_ctrun_has_one_and_no_byte_changes),
        CASE(teed_and_redirected_streams_have_none),
        CASE(size_of_the_terminal_is_the_workers),
        CASE(last_words_of_a_killed_worker_are_read_from_its_terminal),
        CASE(grandchild_that_keeps_the_terminal_does_not_keep_the_slot),
        CASE(prompt_is_shown_though_there_are_more_ranks),
        CASE(half_line_waits_for_its_end_where_there_is_no_terminal),
        CASE(bar_gives_its_place_to_a_line_and_is_whole_at_its_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
