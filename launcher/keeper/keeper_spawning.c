/* How the keeper starts a worker (keeper_process.h): its image out of the memfd, a fork
 * with signals blocked, and what exec says through a pipe. */

#include "launcher/keeper/keeper_process.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct keeper_worker *add_worker(struct keeper_process *p, uint32_t id)
{
    struct keeper_worker *w;

    p->workers = mem_grow(p->workers, p->n_workers + 1, sizeof(*p->workers));
    p->polls =
        mem_grow(p->polls, KEEPER_FIXED_POLLS + p->n_workers + 1, sizeof(*p->polls));
    w = &p->workers[p->n_workers++];
    *w = (struct keeper_worker){.id = id, .error_fd = -1};
    return w;
}

static void fail_worker(struct keeper_worker *w, int error)
{
    w->state = OVER;
    w->error = error;
    w->end_is_due = true;
}

/* With all signals blocked: one that comes for the child before it has its
 * dispositions back waits until then. */
static pid_t fork_blocked(void)
{
    sigset_t all;
    sigset_t before;
    pid_t pid;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* fails for bad numbers only */
    pid = fork();
    if (pid != 0) {
        int error = errno;

        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        errno = error;
    }
    return pid;
}

static int fork_worker(struct keeper_worker *w, struct keeper_child *child)
{
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) < 0) {
        return -errno;
    }
    pid = fork_blocked();
    if (pid == 0) {
        child->error_fd = ends[1];
        keeper_child_run(child);
    }
    (void)close(ends[1]);
    if (pid < 0) {
        int error = -errno;

        (void)close(ends[0]);
        return error;
    }
    w->pid = pid;
    w->error_fd = ends[0];
    return 0;
}

static int read_image(int fd, char *image, size_t size)
{
    size_t done = 0;

    while (done < size) {
        ssize_t n = pread(fd, image + done, size - done, (off_t)done);

        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        if (n == 0) {
            return -EIO; /* the agent has written less than it says */
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* The texts into p->texts, with a NULL behind argv's and env's. */
static int split_image(struct keeper_process *p, const struct keeper_image *head,
                       size_t size)
{
    size_t n = (size_t)head->argc + head->envc + 2;
    char *at = p->image + sizeof(*head);

    if (n - 2 > size - sizeof(*head)) {
        return -EINVAL; /* each text has a terminator, at least */
    }
    p->texts = mem_grow(p->texts, n, sizeof(*p->texts));
    for (size_t i = 0; i < n; i++) {
        bool is_end = i == head->argc || i + 1 == n;

        if (!is_end && at >= p->image + size) {
            return -EINVAL; /* more texts than there are */
        }
        p->texts[i] = is_end ? NULL : at;
        at += is_end ? 0 : strlen(at) + 1;
    }
    return 0;
}

/* Fills in argv and env, which are good until the next spawn. */
static int take_image(struct keeper_process *p, int fd, struct keeper_child *child)
{
    struct keeper_image head;
    struct stat st;
    size_t size;
    int rv;

    if (fstat(fd, &st) < 0) {
        return -errno;
    }
    size = (size_t)st.st_size;
    if (size < sizeof(head)) {
        return -EINVAL;
    }
    p->image = mem_grow(p->image, size + 1, 1);
    rv = read_image(fd, p->image, size);
    if (rv < 0) {
        return rv;
    }
    p->image[size] = '\0'; /* whatever comes, the texts end */
    memcpy(&head, p->image, sizeof(head));
    rv = split_image(p, &head, size);
    if (rv < 0) {
        return rv;
    }
    child->argv = p->texts;
    child->env = p->texts + head.argc + 1;
    child->cpus = head.cpus;
    return 0;
}

void keeper_spawn_worker(struct keeper_process *p, const struct keeper_request *request,
                         const int *fds)
{
    struct keeper_child child = {.origin = p->origin};
    struct keeper_worker *w = add_worker(p, request->id);
    bool is_complete = fds[0] >= 0;
    size_t next = 1;
    int rv;

    for (unsigned i = 0; i < KEEPER_FDS; i++) {
        bool is_sent = (request->fd_mask >> i & 1) != 0;

        child.fds[i] = is_sent ? fds[next++] : -1;
        is_complete = is_complete && (!is_sent || child.fds[i] >= 0);
    }
    if (!is_complete || p->n_workers > KEEPER_MAX_WORKERS) {
        fail_worker(w, -EMFILE); /* the kernel drops what does not fit in */
        return;
    }
    rv = take_image(p, fds[0], &child);
    rv = rv < 0 ? rv : fork_worker(w, &child);
    if (rv < 0) {
        fail_worker(w, rv);
    }
}

void keeper_take_folder(struct keeper_process *p, int fd)
{
    struct keeper_child image = {0};

    if (fd >= 0 && take_image(p, fd, &image) == 0 && p->texts[0] &&
        p->n_folders < KEEPER_FOLDERS) {
        p->folders[p->n_folders++] = mem_strdup(p->texts[0]);
    }
}

void keeper_on_exec(struct keeper_worker *w)
{
    int error = 0;
    ssize_t n = read(w->error_fd, &error, sizeof(error));

    if (n < 0 && errno == EINTR) {
        return;
    }
    (void)close(w->error_fd);
    w->error_fd = -1;
    if (n == (ssize_t)sizeof(error)) {
        (void)waitpid(w->pid, NULL, 0); /* on its way out */
        fail_worker(w, -error);
        return;
    }
    w->state = RUNNING; /* or dead by a signal before exec: then its end follows */
    w->spawned_is_due = true;
}
