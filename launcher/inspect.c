#include "launcher/inspect.h"

#include "launcher/proc_file.h"
#include "launcher/tracer.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/str.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    APART_MS = 250, /* the two looks */
    MANY_FRAMES = 24,
    NOTE_SIZE = 64, /* of inspect_no_stack */
};

struct look {
    char state;     /* as proc(5) has it; 0: there is no process */
    uint64_t ticks; /* of CPU time, all threads */
};

/* Behind the program's name, which may hold anything: state, and from there on numbers,
 * the 11th and 12th of which are the times in user and kernel mode. */
static struct look look_at(pid_t pid)
{
    struct look look = {0};
    char text[1024];
    char *at =
        proc_file_read(pid, "stat", text, sizeof(text)) ? strrchr(text, ')') : NULL;
    char *word;

    if (!at || at[1] == '\0' || at[2] == '\0') {
        return look;
    }
    at += 2;
    look.state = *at;
    for (int i = 0; at && i <= 12; i++) {
        word = strsep(&at, " ");
        look.ticks += i >= 11 ? strtoull(word, NULL, 10) : 0;
    }
    return look;
}

static void pause_ms(unsigned ms)
{
    struct timespec t = {.tv_nsec = (long)ms * 1000000};

    (void)nanosleep(&t, NULL); /* a shorter one will do */
}

/* More than a quarter of a core: on a crowded machine there is no more to be had. */
static bool has_computed(const struct look *a, const struct look *b)
{
    uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);

    return (b->ticks - a->ticks) * 4 * 1000 > hz * APART_MS;
}

static bool is_stop(char state)
{
    return state == 'T' || state == 't';
}

/* Where a process sleeps that writes to a pipe or terminal that nobody reads, or reads
 * from a terminal at which nobody types. */
static bool is_held(const char *where)
{
    static const char *const places[] = {"pipe_write", "anon_pipe_write", "n_tty_write",
                                         "n_tty_read"};

    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        if (strcmp(where, places[i]) == 0) {
            return true;
        }
    }
    return false;
}

void inspect_state(pid_t pid, char ret[INSPECT_STATE_SIZE])
{
    struct look first = look_at(pid);
    struct look second;
    char where[INSPECT_STATE_SIZE] = "";
    char tracer[TRACER_SIZE];

    pause_ms(APART_MS);
    second = look_at(pid);
    ret[0] = '\0';
    if (first.state == 0 || second.state == 0) {
        return;
    }
    if (tracer_find(pid, tracer)) {
        (void)snprintf(ret, INSPECT_STATE_SIZE, "%c %s",
                       is_stop(first.state) && is_stop(second.state) ? 't' : 'P',
                       tracer);
        return;
    }
    if (is_stop(second.state) && first.state != second.state) {
        second.state = 'S'; /* it has just been stopped, or is let go now and then */
    }
    if (!is_stop(second.state) && has_computed(&first, &second)) {
        second.state = 'R';
    }
    if (second.state == 'S' || second.state == 'D') {
        (void)proc_file_read(pid, "wchan", where, sizeof(where) - 2);
    }
    if (is_held(where)) {
        second.state = 'O';
    }
    (void)snprintf(ret, INSPECT_STATE_SIZE, "%c%s%.28s", second.state,
                   where[0] != '\0' && where[0] != '0' ? " " : "",
                   where[0] != '0' ? where : "");
}

bool inspect_catches(pid_t pid, int signal)
{
    static const char key[] = "\nSigCgt:";
    char text[4096];
    const char *at =
        proc_file_read(pid, "status", text, sizeof(text)) ? strstr(text, key) : NULL;
    uint64_t caught = at ? strtoull(at + sizeof(key) - 1, NULL, 16) : 0;

    return (caught >> (signal - 1) & 1) != 0;
}

/* --- the stack --- */

void inspect_kernel(pid_t pid, char ret[INSPECT_KERNEL_SIZE])
{
    static const char title[] = "in the kernel:\n";
    const size_t len = sizeof(title) - 1;

    memcpy(ret, title, len);
    if (!proc_file_read(pid, "stack", ret + len, INSPECT_KERNEL_SIZE - len)) {
        ret[0] = '\0';
    }
}

/* The lines of `text`, which are cut apart. */
static void split_lines(char *text, char **ret, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ret[i] = strsep(&text, "\n"); /* NULL behind the last */
    }
}

static pid_t start_gdb(pid_t pid, int out)
{
    char arguments[96];
    char variables[] = "PATH=/usr/local/bin:/usr/bin:/bin\nLC_ALL=C\nDEBUGINFOD_URLS=";
    char *argv[9];
    char *env[4];
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none;
    sigset_t all;
    pid_t child = -1;

    (void)snprintf(arguments, sizeof(arguments),
                   "gdb\n-nx\n-q\n-batch\n-ex\nbt %d\n-p\n%d", MANY_FRAMES, (int)pid);
    split_lines(arguments, argv, ARRAY_LEN(argv));
    split_lines(variables, env, ARRAY_LEN(env));
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&files, out, 1);
    (void)posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    (void)posix_spawnattr_init(&attr);
    (void)posix_spawnattr_setsigmask(&attr, &none);
    (void)posix_spawnattr_setsigdefault(&attr, &all);
    (void)posix_spawnattr_setpgroup(&attr, 0);
    (void)posix_spawnattr_setflags(
        &attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    if (posix_spawnp(&child, "gdb", &files, &attr, argv, env) != 0) {
        child = -1;
    }
    (void)posix_spawnattr_destroy(&attr);
    (void)posix_spawn_file_actions_destroy(&files);
    return child;
}

/* Until the other end is closed, or the time is up; there may be more than has room. */
static size_t read_all(int fd, char *ret, size_t size, uint64_t until_ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    char rest[1024];
    size_t used = 0;
    uint64_t now_ms;
    ssize_t n = 1;

    while (n > 0 && (now_ms = clock_ms()) < until_ms) {
        bool has_room = used < size;

        if (poll(&poll_fd, 1, (int)(until_ms - now_ms)) <= 0) {
            break; /* EINTR does not happen here: signals go to the main thread */
        }
        n = read(fd, has_room ? ret + used : rest,
                 has_room ? size - used : sizeof(rest));
        used += n > 0 && has_room ? (size_t)n : 0;
    }
    return used;
}

/* The frames alone, without what gdb says of itself. */
static void keep_frames(char *text, char *ret, size_t size)
{
    size_t used = 0;
    const char *line;
    size_t len;

    while ((line = strsep(&text, "\n")) != NULL) {
        len = strlen(line);
        if (*line == '#' && used + len + 2 < size) {
            memcpy(ret + used, line, len);
            used += len;
            ret[used++] = '\n';
        }
    }
    ret[used] = '\0';
}

static bool has_ended(int pidfd, uint64_t until_ms)
{
    struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};
    uint64_t now_ms = clock_ms();

    return poll(&poll_fd, 1, now_ms < until_ms ? (int)(until_ms - now_ms) : 0) > 0;
}

/* Nobody has reaped it: its number is its own. */
static bool is_there(pid_t child)
{
    siginfo_t info;

    return waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

enum gdb_end { GDB_IS_DONE, GDB_WAS_KILLED, GDB_IS_LATE };

/* When its time is up, it is killed: the kernel lets the process go, while gdb
 * itself, told to quit before it knows that it has attached, kills it. One that has not
 * come to its own end, as far as is known, may leave the process stopped, with the signal
 * by which it was attached still to come: SIGCONT takes that away. */
static enum gdb_end end_gdb(pid_t gdb, pid_t pid, bool was_stopped, uint64_t until_ms)
{
    int pidfd = pidfd_open(gdb, 0);
    bool is_in_time = !is_there(gdb) || (pidfd >= 0 && has_ended(pidfd, until_ms));
    bool is_known;
    int status = 0;

    if (!is_in_time) {
        (void)kill(gdb, SIGKILL);
    }
    is_known = waitpid(gdb, &status, 0) == gdb; /* only then has it let go */
    if (!was_stopped && !(is_in_time && is_known && WIFEXITED(status))) {
        (void)kill(pid, SIGCONT);
    }
    if (pidfd >= 0) {
        (void)close(pidfd);
    }
    if (!is_in_time) {
        return GDB_IS_LATE;
    }
    return is_known && WIFSIGNALED(status) ? GDB_WAS_KILLED : GDB_IS_DONE;
}

void inspect_no_stack(unsigned limit_ms, char *ret, size_t size)
{
    (void)snprintf(ret, size, "(gdb has not come to its end within %u ms)\n", limit_ms);
}

void inspect_stack(pid_t pid, unsigned limit_ms, char ret[INSPECT_STACK_SIZE])
{
    bool was_stopped = is_stop(look_at(pid).state);
    uint64_t until_ms = clock_ms() + limit_ms;
    char text[16 * 1024];
    size_t used = 0;
    enum gdb_end end = GDB_IS_DONE;
    pid_t child;
    int ends[2];

    ret[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) < 0) {
        return;
    }
    child = start_gdb(pid, ends[1]);
    (void)close(ends[1]);
    if (child > 0) {
        used = read_all(ends[0], text, sizeof(text) - 1, until_ms);
        end = end_gdb(child, pid, was_stopped, until_ms);
    }
    (void)close(ends[0]);
    text[used] = '\0';
    keep_frames(text, ret, INSPECT_STACK_SIZE - NOTE_SIZE);
    if (end == GDB_IS_LATE) {
        inspect_no_stack(limit_ms, ret + strlen(ret), NOTE_SIZE);
    } else if (end == GDB_WAS_KILLED) {
        (void)snprintf(ret + strlen(ret), NOTE_SIZE,
                       "(gdb was killed before it came to its end)\n");
    }
}
