/* The forked child of the keeper, on its way to become a worker (keeper_wire.h). Every
 * page it writes to is copied first, every call delays the program: what can be prepared
 * once is. */

#include "launcher/keeper/keeper.h"
#include "launcher/keeper/keeper_wire.h"

#include "common/check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    SCRATCH_FD = 16, /* above all that is moved */
    OOM_STEP = 200,  /* by how much rather a worker is killed than the agent */
    OOM_MAX = 1000,
};

static void note_differences(struct keeper_origin *origin)
{
    for (int i = 1; i < _NSIG; i++) {
        struct sigaction now;

        origin->differs[i] = sigaction(i, NULL, &now) == 0 &&
                             (now.sa_handler == SIG_IGN) != origin->is_ignored[i];
    }
}

static void choose_oom_score(struct keeper_origin *origin)
{
    int fd = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);
    char text[sizeof(origin->oom_score)] = "";
    long score;

    if (fd >= 0) {
        (void)!read(fd, text, sizeof(text) - 1); /* "": 0, as most often */
        (void)close(fd);
    }
    score = MIN(strtol(text, NULL, 10) + OOM_STEP, OOM_MAX);
    origin->oom_size =
        (size_t)snprintf(origin->oom_score, sizeof(origin->oom_score), "%ld", score);
}

void keeper_child_prepare(struct keeper_origin *origin)
{
    note_differences(origin);
    choose_oom_score(origin);
}

_Noreturn static void fail(const struct keeper_child *c, int error)
{
    /* Nothing is left to do when even this fails: the pipe's end then looks like
     * success, and the exit that follows tells. */
    (void)!write(c->error_fd, &error, sizeof(error));
    _exit(127);
}

/* Out of the way of the descriptors 0 … 4. */
static int move_up(const struct keeper_child *c, int fd)
{
    int moved = fd < KEEPER_FDS ? fcntl(fd, F_DUPFD_CLOEXEC, SCRATCH_FD) : fd;

    if (moved < 0) {
        fail(c, errno);
    }
    return moved;
}

static void place_descriptors(struct keeper_child *c)
{
    c->error_fd = move_up(c, c->error_fd);
    for (int i = 0; i < KEEPER_FDS; i++) {
        if (c->fds[i] >= 0) {
            c->fds[i] = move_up(c, c->fds[i]);
        }
    }
    for (int i = 0; i < KEEPER_FDS; i++) {
        if (c->fds[i] >= 0 && dup2(c->fds[i], i) < 0) {
            fail(c, errno);
        }
        if (c->fds[i] < 0 && i >= KEEPER_CONTROL_FD) {
            (void)close(i); /* most often not open at all */
        }
    }
    if (close_range(KEEPER_FDS, ~0U, CLOSE_RANGE_CLOEXEC) < 0 && errno != ENOSYS &&
        errno != EINVAL) {
        fail(c, errno); /* an old kernel's: everything is CLOEXEC anyway */
    }
}

static void restore_signals(const struct keeper_origin *origin)
{
    for (int i = 1; i < _NSIG; i++) {
        if (origin->differs[i]) { /* never KILL or STOP, nor libc's own */
            (void)signal(i, origin->is_ignored[i] ? SIG_IGN : SIG_DFL);
        }
    }
    (void)pthread_sigmask(SIG_SETMASK, &origin->mask, NULL);
}

/* Short of memory, the kernel shall choose a worker, not the agent. Without /proc, or
 * where it is forbidden, the choice stays the kernel's. */
static void raise_oom_score(const struct keeper_origin *origin)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        (void)!write(fd, origin->oom_score, origin->oom_size);
        (void)close(fd);
    }
}

/* Before exec, so that the program's first page is near its CPUs already. */
static void bind_to_cpus(const struct keeper_child *c)
{
    const void *mask = &c->cpus;

    if (cpuset_next(&c->cpus, 0) >= 0 &&
        sched_setaffinity(0, sizeof(c->cpus), mask) < 0) {
        fail(c, errno);
    }
}

_Noreturn void keeper_child_run(struct keeper_child *c)
{
    (void)setsid(); /* cannot fail: a fresh process leads no group */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) {
        fail(c, errno);
    }
    if (getppid() != c->origin->keeper) {
        _exit(127); /* the keeper died before the line above */
    }
    place_descriptors(c);
    bind_to_cpus(c);
    raise_oom_score(c->origin);
    if (setrlimit(RLIMIT_NOFILE, &c->origin->files) < 0) {
        fail(c, errno);
    }
    restore_signals(c->origin);
    (void)execve(c->argv[0], c->argv, c->env);
    fail(c, errno);
}
