#include "tests/lib/output_rig.h"

#include "tests/lib/child.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/str.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

char output_rig_folder[] = "/tmp/ctrun-output-XXXXXX";

static void (*case_body)(void);

const char *output_rig_path(const char *name)
{
    static char paths[8][PATH_MAX];
    static unsigned n;
    char *path = paths[n++ % 8];
    bool fits = str_format(path, PATH_MAX, "%s/%s", output_rig_folder, name);

    CHECK(fits);
    return path;
}

void output_rig_redirect(int fd, const char *name)
{
    int file =
        open(output_rig_path(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(file >= 0);
    CHECK(dup2(file, fd) == fd);
    CHECK(close(file) == 0);
}

/* The whole file; the size where it is asked for. */
char *output_rig_contents(const char *name, size_t *ret_size)
{
    int fd = open(output_rig_path(name), O_RDONLY | O_CLOEXEC);
    struct stat st;
    char *text;
    size_t n = 0;
    ssize_t got;

    CHECK(fd >= 0);
    CHECK(fstat(fd, &st) == 0);
    text = mem_alloc((size_t)st.st_size + 1);
    while ((got = read(fd, text + n, (size_t)st.st_size - n)) > 0) {
        n += (size_t)got;
    }
    text[n] = '\0';
    CHECK(close(fd) == 0);
    if (ret_size) {
        *ret_size = n;
    }
    return text;
}

void output_rig_check_file(const char *name, const char *expected, int line)
{
    char *text = output_rig_contents(name, NULL);

    if (strcmp(text, expected) != 0) {
        (void)printf("line %d: %s is \"%s\", not \"%s\"\n", line, name, text, expected);
        _exit(1);
    }
    mem_free(text);
}

/* ---- the loop ---- */

void output_rig_on_closed(void *n_closed)
{
    ++*(unsigned *)n_closed;
}

static void on_stopped(void *arg)
{
    *(bool *)arg = true;
}

void output_rig_open(struct output_rig *r, bool maybe_engine, const char *log_base)
{
    struct output_config config = {.maybe_engine = maybe_engine, .log_base = log_base};

    output_rig_open_with(r, &config);
}

void output_rig_open_with(struct output_rig *r, struct output_config *config)
{
    *r = (struct output_rig){.n_closed = 0};
    CHECK(uv_loop_init(&r->loop) == 0);
    config->loop = &r->loop;
    CHECK(output_new(config, &r->output, NULL) == 0);
}

void output_rig_start(struct output_rig *r, uint32_t slot, uint32_t rank,
                      uint64_t generation)
{
    int ends[2];

    CHECK(output_open_rank(r->output, slot, rank, generation, ends, NULL) == 0);
    r->out[slot] = ends[0];
    r->err[slot] = ends[1];
    CHECK(fcntl(r->out[slot], F_GETFD) == FD_CLOEXEC);
    CHECK((fcntl(r->out[slot], F_GETFL) & O_NONBLOCK) ==
          0); /* the worker's end blocks */
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer; /* wakes the loop, so that a condition is looked at again */
}

/* Turns the loop until *flag is at least n. */
void output_rig_turn_until(struct output_rig *r, const unsigned *count, unsigned n)
{
    uint64_t deadline_ms = clock_ms() + OUTPUT_RIG_BOUND_MS;
    uv_timer_t tick;

    CHECK(uv_timer_init(&r->loop, &tick) == 0);
    CHECK(uv_timer_start(&tick, on_tick, 1, 1) == 0);
    while (*count < n) {
        CHECK(clock_ms() < deadline_ms);
        (void)uv_run(&r->loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&tick, NULL);
    (void)uv_run(&r->loop, UV_RUN_NOWAIT);
}

size_t output_rig_file_size(const char *name)
{
    struct stat st;

    return stat(output_rig_path(name), &st) == 0 ? (size_t)st.st_size : 0;
}

/* Turns the loop until the file has that many bytes. */
void output_rig_turn_until_size(struct output_rig *r, const char *name, size_t size)
{
    uint64_t deadline_ms = clock_ms() + OUTPUT_RIG_BOUND_MS;

    while (output_rig_file_size(name) < size) {
        CHECK(clock_ms() < deadline_ms);
        (void)uv_run(&r->loop, UV_RUN_NOWAIT);
        (void)poll(NULL, 0, 1);
    }
}

void output_rig_say(int fd, const char *text)
{
    size_t size = strlen(text);

    CHECK(write(fd, text, size) == (ssize_t)size);
}

pid_t output_rig_fork(void)
{
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    }
    return pid;
}

/* The worker is gone: its ends close, then the slot does. */
void output_rig_end(struct output_rig *r, uint32_t slot)
{
    unsigned n = r->n_closed;

    CHECK(close(r->out[slot]) == 0);
    CHECK(close(r->err[slot]) == 0);
    output_close_rank(r->output, slot, output_rig_on_closed, &r->n_closed);
    CHECK(r->n_closed == n); /* never from within */
    output_rig_turn_until(r, &r->n_closed, n + 1);
}

void output_rig_close(struct output_rig *r)
{
    output_stop(r->output, on_stopped, &r->is_stopped);
    CHECK(!r->is_stopped);
    (void)uv_run(&r->loop, UV_RUN_DEFAULT);
    CHECK(r->is_stopped);
    CHECK(uv_loop_close(&r->loop) == 0);
}

int output_rig_set_up(void **state)
{
    (void)state;
    (void)snprintf(output_rig_folder, sizeof(output_rig_folder), "%s",
                   "/tmp/ctrun-output-XXXXXX");
    return mkdtemp(output_rig_folder) ? 0 : -1;
}

int output_rig_tear_down(void **state)
{
    char command[64];
    pid_t pid;

    (void)state;
    (void)snprintf(command, sizeof(command), "%s", output_rig_folder);
    pid = fork();
    if (pid == 0) {
        (void)execlp("rm", "rm", "-rf", command, (char *)NULL);
        _exit(127);
    }
    return waitpid(pid, NULL, 0) == pid ? 0 : -1;
}

static void run_case(void)
{
    output_rig_redirect(STDOUT_FILENO, "console.out");
    output_rig_redirect(STDERR_FILENO, "console.err");
    (void)signal(SIGPIPE, SIG_IGN); /* NOLINT(concurrency-mt-unsafe): one thread yet */
    case_body();
}

void output_rig_run(void (*body)(void))
{
    case_body = body;
    child_run(run_case);
}
