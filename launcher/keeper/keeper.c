/* The agent's side of the keeper. */

#include "launcher/keeper/keeper.h"

#include "launcher/keeper/keeper_wire.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SEND_MS = 5000,  /* how long a busy keeper is waited for … */
    DOUBT_MS = 1000, /* … and how long without a look whether it is stopped */
    STOP_MS = 10000,
    PAUSE_MS = 5,
    KEEPER_FD = 3, /* in the keeper */
    MAX_DEPTH = 64,
    /* What another thread has started (gdb) is that thread's to wait for: whom we have
     * adopted is the main thread's, as the keeper is. */
    OURS = WEXITED | WNOHANG | __WNOTHREAD,
};

/* What ctrun was started with, before anything of it changes. */
static struct keeper_origin origin;

static void remember_origin(void)
{
    for (int i = 1; i < _NSIG; i++) {
        struct sigaction action;

        origin.is_ignored[i] =
            sigaction(i, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
    }
    (void)pthread_sigmask(SIG_SETMASK, NULL, &origin.mask);
    (void)getrlimit(RLIMIT_NOFILE, &origin.files);
}

/* Over the words of the command line, which the kernel has put one behind the other. */
static void write_name(char **argv)
{
    char *end = argv[0];

    for (size_t i = 0; argv[i] == end; i++) {
        end += strlen(end) + 1;
        if (!argv[i + 1]) {
            break;
        }
    }
    memset(argv[0], 0, (size_t)(end - argv[0]));
    memcpy(argv[0], KEEPER_NAME, MIN(sizeof(KEEPER_NAME), (size_t)(end - argv[0])) - 1);
}

/* In the fork: nothing that ctrun was started with is held open but the standard
 * streams. */
_Noreturn static void become_keeper(int fd, char **argv)
{
    if (argv && argv[0] && argv[0][0] != '\0') {
        write_name(argv);
    }
    if (fd != KEEPER_FD) {
        if (dup3(fd, KEEPER_FD, O_CLOEXEC) < 0) {
            _exit(1);
        }
    }
    if (close_range(KEEPER_FD + 1, ~0U, 0) < 0) {
        for (int i = KEEPER_FD + 1; i < (int)MIN(origin.files.rlim_cur, 65536); i++) {
            (void)close(i); /* a kernel before 5.9 */
        }
    }
    keeper_run(KEEPER_FD, &origin);
}

int keeper_start(struct keeper *ret, char **argv, struct errmsg *msg)
{
    int ends[2];
    pid_t pid;

    remember_origin();
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        return errmsg_set(msg, -errno, "starting the keeper: %s", err_text(-errno));
    }
    pid = fork();
    if (pid == 0) {
        (void)close(ends[0]);
        become_keeper(ends[1], argv);
    }
    (void)close(ends[1]);
    if (pid < 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0) {
        int error = -errno;

        (void)close(ends[0]);
        return errmsg_set(msg, error, "starting the keeper: %s", err_text(error));
    }
    *ret = (struct keeper){.fd = ends[0], .pid = pid};
    return 0;
}

/* Nobody, once it is reaped (keeper_clean_up): its number may be another's. */
static void signal_keeper(const struct keeper *k, int signal)
{
    if (keeper_parent_of(k->pid) == getpid()) {
        (void)kill(k->pid, signal);
    }
}

void keeper_continue(const struct keeper *k)
{
    char state = keeper_state_of(k->pid);

    if ((state == 'T' || state == 't') && keeper_parent_of(k->pid) == getpid()) {
        log_warn("the keeper of the workers was stopped by somebody: let it go on",
                 "keeper=%d", (int)k->pid);
    }
    signal_keeper(k, SIGCONT);
}

/* The keeper never waits for us, so it soon takes what it is sent; one that does not is
 * waited for once (keeper_watch.h). */
static int send_request(struct keeper *k, const struct keeper_request *request,
                        const int *fds, size_t n_fds)
{
    uint64_t deadline_ms = clock_ms() + (k->is_mute ? 0 : SEND_MS);
    bool has_doubts = k->is_mute;
    int rv;

    for (;;) {
        struct pollfd poll_fd = {k->fd, POLLOUT, 0};

        rv = keeper_send(k->fd, request, sizeof(*request), fds, n_fds);
        if (rv == -EPIPE || rv == -ECONNRESET) {
            return ERR_CLOSED;
        }
        if (rv != -EAGAIN && rv != -ETOOMANYREFS && rv != -EINTR) {
            return rv;
        }
        if (clock_ms() > deadline_ms) {
            k->is_mute = true;
            return rv;
        }
        if (!has_doubts && clock_ms() + SEND_MS > deadline_ms + DOUBT_MS) {
            has_doubts = true;
            keeper_continue(k);
        }
        if (rv ==
            -ETOOMANYREFS) { /* too many descriptors on their way: POLLOUT is no help */
            poll_fd.events = 0;
        }
        (void)poll(&poll_fd, 1, PAUSE_MS);
    }
}

static size_t append_texts(struct buf *image, char *const *texts)
{
    size_t n = 0;

    for (; texts[n]; n++) {
        int rv = buf_append(image, texts[n], strlen(texts[n]) + 1);

        ASSERT(rv == 0);
    }
    return n;
}

static int write_image(int fd, const struct buf *image)
{
    size_t done = 0;

    while (done < buf_len(image)) {
        ssize_t n = write(fd, buf_bytes(image) + done, buf_len(image) - done);

        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* argv and env in a memfd (keeper_wire.h). */
static int make_image(const struct keeper_spawn *spawn)
{
    struct keeper_image head = {0};
    struct buf image;
    int rv;
    int fd;

    buf_init(&image, SIZE_MAX / 2); /* ours, and exec has a limit of its own */
    rv = buf_append(&image, &head, sizeof(head));
    ASSERT(rv == 0);
    head.argc = (uint32_t)append_texts(&image, spawn->argv);
    head.envc = (uint32_t)append_texts(&image, spawn->env);
    if (spawn->cpus) {
        head.cpus = *spawn->cpus;
    }
    memcpy(image.data + image.start, &head, sizeof(head));
    fd = memfd_create("ctrun-spawn", MFD_CLOEXEC);
    rv = fd < 0 ? -errno : write_image(fd, &image);
    buf_release(&image);
    if (rv < 0 && fd >= 0) {
        (void)close(fd);
    }
    return rv < 0 ? rv : fd;
}

int keeper_spawn(struct keeper *k, const struct keeper_spawn *spawn, struct errmsg *msg)
{
    struct keeper_request request = {.type = KEEPER_REQUEST_SPAWN, .id = spawn->id};
    int fds[KEEPER_MAX_FDS];
    size_t n = 1;
    int rv;

    fds[0] = make_image(spawn);
    if (fds[0] < 0) {
        return errmsg_set(msg, fds[0], "starting %s: %s", spawn->argv[0],
                          fds[0] == -EFBIG ? "its arguments and environment are larger "
                                             "than a file may be here: raise the limit "
                                             "(ulimit -f; LimitFSIZE= of systemd)"
                                           : err_text(fds[0]));
    }
    for (unsigned i = 0; i < ARRAY_LEN(spawn->fds); i++) {
        if (spawn->fds[i] >= 0) {
            request.fd_mask |= 1U << i;
            fds[n++] = spawn->fds[i];
        }
    }
    rv = send_request(k, &request, fds, n);
    (void)close(fds[0]);
    if (rv < 0) {
        return errmsg_set(msg, rv, "starting %s: the keeper: %s", spawn->argv[0],
                          err_text(rv));
    }
    return 0;
}

int keeper_give_folder(struct keeper *k, const char *path)
{
    struct keeper_request request = {.type = KEEPER_REQUEST_FOLDER};
    char *copy = mem_strdup(path);
    char *argv[] = {copy, NULL};
    struct keeper_spawn image = {.argv = argv, .env = argv + 1};
    int fd = make_image(&image);
    int rv = fd < 0 ? fd : send_request(k, &request, &fd, 1);

    if (fd >= 0) {
        (void)close(fd);
    }
    mem_free(copy);
    return rv;
}

int keeper_kill(struct keeper *k, uint32_t id, int signal)
{
    struct keeper_request request = {KEEPER_REQUEST_KILL, id, signal, 0};

    return send_request(k, &request, NULL, 0);
}

static bool is_below(pid_t pid, pid_t ancestor)
{
    for (int depth = 0; depth < MAX_DEPTH && pid > 1; depth++) {
        pid = keeper_parent_of(pid);
        if (pid == ancestor) {
            return true;
        }
    }
    return false;
}

/* The descriptor first: then it is this process that is looked at, or nobody is sent
 * anything. */
int keeper_signal(const struct keeper *k, pid_t pid, uint64_t age_ms, int signal)
{
    int fd = pidfd_open(pid, 0);
    int rv = 0;

    if (fd < 0) {
        return -errno;
    }
    if (!is_below(pid, k->pid) || !keeper_has_age(pid, age_ms)) {
        rv = ERR_MISSING;
    } else if (pidfd_send_signal(fd, signal, NULL, 0) < 0) {
        rv = -errno;
    }
    (void)close(fd);
    return rv;
}

int keeper_receive(struct keeper *k, struct keeper_event *ret)
{
    struct keeper_reply reply;
    int fds[KEEPER_MAX_FDS];
    int rv;

    rv = keeper_recv(k->fd, &reply, sizeof(reply), fds); /* none come this way */
    if (rv < 0) {
        return rv == -EINTR ? -EAGAIN : rv;
    }
    k->is_mute = false;
    *ret = (struct keeper_event){
        .type = (enum keeper_event_type)reply.type, .id = reply.id, .pid = reply.pid};
    if (ret->type == KEEPER_FAILED) {
        ret->error = reply.value;
    } else {
        ret->status = reply.value;
        ret->ended_ms = reply.ended_ms;
    }
    return 0;
}

void keeper_ask(const struct keeper *k)
{
    struct keeper_request request = {.type = KEEPER_REQUEST_ALIVE};

    /* no room, or gone: then it does not answer */
    (void)!keeper_send(k->fd, &request, sizeof(request), NULL, 0);
}

char keeper_state(const struct keeper *k)
{
    return keeper_state_of(k->pid);
}

void keeper_end(const struct keeper *k)
{
    signal_keeper(k, SIGKILL);
}

static void pause_for(int ms)
{
    (void)poll(NULL, 0, ms);
}

void keeper_dismiss(const struct keeper *k)
{
    (void)shutdown(k->fd, SHUT_RDWR); /* fails when the keeper is gone already */
    keeper_continue(k);
}

/* Until it has ended (and is reaped: true), or STOP_MS have passed. */
static bool wait_for_end(pid_t pid)
{
    uint64_t deadline_ms = clock_ms() + STOP_MS;
    struct pollfd end = {pidfd_open(pid, 0), POLLIN, 0};
    uint64_t now_ms = clock_ms();
    bool is_over;

    while (!(is_over = waitpid(pid, NULL, WNOHANG) != 0) && now_ms < deadline_ms) {
        /* No descriptor, or none that can be waited for (POLLNVAL, POLLERR come at
         * once): look again and again. */
        if (end.fd < 0 || poll(&end, 1, (int)(deadline_ms - now_ms)) <= 0 ||
            !(end.revents & POLLIN)) {
            pause_for(PAUSE_MS);
        }
        now_ms = clock_ms();
    }
    if (end.fd >= 0) {
        (void)close(end.fd);
    }
    return is_over;
}

void keeper_stop(struct keeper *k)
{
    (void)close(k->fd);
    k->fd = -1;
    keeper_continue(k); /* somebody may have stopped it */
    if (!wait_for_end(k->pid)) {
        log_warn(
            "some processes of the workers cannot be killed yet; the keeper waits for "
            "them",
            "keeper=%d", (int)k->pid);
    }
}

void keeper_reap_others(const struct keeper *k)
{
    siginfo_t info = {0};

    while (waitid(P_ALL, 0, &info, OURS | WNOWAIT) == 0 && info.si_pid != 0 &&
           info.si_pid != k->pid) {
        (void)waitid(P_PID, (id_t)info.si_pid, NULL, OURS);
        info.si_pid = 0;
    }
}

static void on_adopted(pid_t pid, void *arg)
{
    (void)arg;
    (void)kill(pid, SIGKILL);
}

void keeper_clean_up(void)
{
    uint64_t deadline_ms = clock_ms() + STOP_MS;
    siginfo_t info;

    for (;;) {
        keeper_each_child(true, on_adopted, NULL);
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, OURS) < 0 && errno == ECHILD) {
            return;
        }
        if (info.si_pid != 0) {
            continue; /* its children are ours now */
        }
        if (clock_ms() > deadline_ms) {
            log_warn("some processes of the workers cannot be killed", "waited_ms=%d",
                     STOP_MS);
            return;
        }
        pause_for(1);
    }
}
