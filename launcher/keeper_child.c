/* The forked child of the keeper, on its way to become a worker (keeper_wire.h). The
 * keeper has one thread, so the child may allocate. */

#include "launcher/keeper.h"
#include "launcher/keeper_wire.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SCRATCH_FD = 16, /* above all that is moved */
    OOM_STEP = 200,  /* by how much rather a worker is killed than the agent */
    OOM_MAX = 1000,
};

_Noreturn static void fail(const struct keeper_child *c, int error)
{
    /* Nothing is left to do when even this fails: the pipe's end then looks like
     * success, and the exit that follows tells. */
    (void)!write(c->error_fd, &error, sizeof(error));
    _exit(127);
}

/* What may be above 15 stays out of the way of the descriptors 0 … 4. */
static int move_up(const struct keeper_child *c, int fd)
{
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, SCRATCH_FD);

    if (moved < 0) {
        fail(c, errno);
    }
    return moved;
}

static void place_descriptors(struct keeper_child *c)
{
    c->error_fd = move_up(c, c->error_fd);
    c->image_fd = move_up(c, c->image_fd);
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
    struct sigaction action = {.sa_handler = SIG_DFL};

    for (int i = 1; i < _NSIG; i++) {
        action.sa_handler = origin->is_ignored[i] ? SIG_IGN : SIG_DFL;
        (void)sigaction(i, &action, NULL); /* KILL, STOP and libc's own refuse */
    }
    (void)pthread_sigmask(SIG_SETMASK, &origin->mask, NULL);
}

/* Short of memory, the kernel shall choose a worker, not the agent. Without /proc, or
 * where it is forbidden, the choice stays the kernel's. */
static void raise_oom_score(void)
{
    int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    char text[16];
    ssize_t n;

    if (fd < 0) {
        return;
    }
    n = read(fd, text, sizeof(text) - 1);
    if (n > 0) {
        long score;
        int len;

        text[n] = '\0';
        score = MIN(strtol(text, NULL, 10) + OOM_STEP, OOM_MAX);
        len = snprintf(text, sizeof(text), "%ld", score);
        (void)!write(fd, text, (size_t)len);
    }
    (void)close(fd);
}

/* n texts from *at on as a NULL-terminated array; the array is exec's, so nobody's to
 * free. */
static char **take_texts(char **at, uint32_t n)
{
    char **texts = mem_array((size_t)n + 1, sizeof(*texts));

    for (uint32_t i = 0; i < n; i++) {
        texts[i] = *at;
        *at += strlen(*at) + 1;
    }
    return texts;
}

_Noreturn static void exec_image(const struct keeper_child *c)
{
    struct keeper_image image;
    struct stat st;
    char **argv;
    char **env;
    void *map;
    char *at;

    if (fstat(c->image_fd, &st) < 0) {
        fail(c, errno);
    }
    map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE,
               c->image_fd, 0);
    if (map == MAP_FAILED) {
        fail(c, errno);
    }
    memcpy(&image, map, sizeof(image));
    at = (char *)map + sizeof(image);
    argv = take_texts(&at, image.argc);
    env = take_texts(&at, image.envc);
    (void)execve(argv[0], argv, env);
    fail(c, errno);
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
    raise_oom_score();
    if (setrlimit(RLIMIT_NOFILE, &c->origin->files) < 0) {
        fail(c, errno);
    }
    restore_signals(c->origin);
    exec_image(c);
}
