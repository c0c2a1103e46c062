/* The keeper's own process (keeper.h): one thread, one poll loop, no libuv.
 *
 * A worker's life, one struct each:
 *
 *   STARTING ──exec worked──► RUNNING ──leader died──► ENDING ──group reaped──► over
 *       │ exec failed
 *       └──────────────────────────────────────────────► over
 *
 * ENDING: the leader is a zombie, kept so that its number stays taken; its group and
 * session have been sent KILL. The end is told once the keeper has no other child of
 * that session, or after ENDING_MS, when something there hangs in the kernel. With the
 * last worker go all whom the keeper has adopted, whatever their session: the next
 * generation finds its devices and ports free. Replies
 * that the socket does not take now wait in the struct: nothing here blocks but poll.
 */

#include "launcher/keeper/keeper_process.h"

#include "launcher/keeper/keeper.h"
#include "launcher/keeper/private_dir.h"

#include "common/clock.h"
#include "common/mem.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ENDING_MS = 1000,
    RETRY_MS = 10, /* while a reply waits or a session empties */
    FOLDERS_S = 2, /* for removing them, at the end */
    /* Of one turn. Each fork copies, and its exec closes, the pipes of all workers that
     * are still starting: those that have started are seen in between. */
    REQUESTS = 8,
};

/* To the leader's group; to the leader alone before it has one. */
static void kill_group(const struct keeper_worker *w, int signal_number)
{
    if (kill(-w->pid, signal_number) < 0 && errno == ESRCH) {
        (void)kill(w->pid, signal_number); /* may be over, too */
    }
}

static struct keeper_worker *worker_of_pid(struct keeper_process *p, pid_t pid)
{
    for (size_t i = 0; i < p->n_workers; i++) {
        if (p->workers[i].state != OVER && p->workers[i].pid == pid) {
            return &p->workers[i];
        }
    }
    return NULL;
}

/* ---- ending ---- */

static void on_leader_died(struct keeper_worker *w, const siginfo_t *info)
{
    /* Back from waitid's two numbers to waitpid's one. */
    w->status = info->si_code == CLD_EXITED   ? (info->si_status & 0xff) << 8
                : info->si_code == CLD_DUMPED ? info->si_status | 0x80
                                              : info->si_status;
    w->state = ENDING;
    w->ended_ms = clock_ms();
    kill_group(w, SIGKILL);
}

static void look_at_leader(struct keeper_worker *w)
{
    siginfo_t info = {0};

    if (w->state == RUNNING &&
        waitid(P_PID, (id_t)w->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid != 0) {
        on_leader_died(w, &info);
    }
}

/* A child of the keeper: a leader is left alone, a dead orphan is reaped, a living one
 * is killed when it belongs to a session whose leader has died, or when nobody lives
 * any more to whom it could belong. */
static void on_child(pid_t pid, void *arg)
{
    struct keeper_process *p = arg;
    siginfo_t info = {0};
    struct keeper_worker *leader;

    if (worker_of_pid(p, pid) ||
        (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG) == 0 &&
         info.si_pid == pid)) {
        return;
    }
    leader = worker_of_pid(p, getsid(pid));
    for (size_t i = 0; i < p->n_workers; i++) {
        struct keeper_worker *w = &p->workers[i];

        if (w->state == ENDING && (w == leader || p->is_emptying)) {
            w->has_members = true;
            (void)kill(pid, SIGKILL); /* not permitted: ENDING_MS is the bound */
        }
    }
}

static void finish_ending(struct keeper_process *p)
{
    for (size_t i = 0; i < p->n_workers; i++) {
        struct keeper_worker *w = &p->workers[i];

        if (w->state != ENDING ||
            (w->has_members && clock_ms() - w->ended_ms < ENDING_MS)) {
            continue;
        }
        (void)waitid(P_PID, (id_t)w->pid, NULL, WEXITED); /* a zombie: at once */
        w->state = OVER;
        w->end_is_due = true;
    }
}

static void on_children(struct keeper_process *p)
{
    p->is_emptying = true;
    for (size_t i = 0; i < p->n_workers; i++) {
        struct keeper_worker *w = &p->workers[i];

        look_at_leader(w);
        w->has_members = false;
        p->is_emptying = p->is_emptying && (w->state == ENDING || w->state == OVER);
    }
    keeper_each_child(false, on_child, p);
    finish_ending(p);
}

/* ---- replies ---- */

/* True when it left. */
static bool reply(struct keeper_process *p, const struct keeper_worker *w,
                  enum keeper_event_type type, int value)
{
    struct keeper_reply r = {type, w->id, w->pid, value, w->ended_ms};
    int rv = keeper_send(p->fd, &r, sizeof(r), NULL, 0);

    return rv == 0 || rv == -EPIPE; /* the agent is gone: the loop sees it next */
}

static void send_due(struct keeper_process *p)
{
    const struct keeper_worker nobody = {0};

    p->is_asked = p->is_asked && !reply(p, &nobody, KEEPER_ALIVE, 0);
    for (size_t i = 0; i < p->n_workers; i++) {
        struct keeper_worker *w = &p->workers[i];

        if (w->spawned_is_due) {
            w->spawned_is_due = !reply(p, w, KEEPER_SPAWNED, 0);
        }
        if (w->end_is_due && !w->spawned_is_due) {
            w->end_is_due = !reply(p, w, w->error < 0 ? KEEPER_FAILED : KEEPER_EXITED,
                                   w->error < 0 ? w->error : w->status);
        }
    }
}

static void forget_over(struct keeper_process *p)
{
    size_t kept = 0;

    for (size_t i = 0; i < p->n_workers; i++) {
        struct keeper_worker *w = &p->workers[i];

        if (w->state != OVER || w->end_is_due) {
            p->workers[kept++] = *w;
        }
    }
    p->n_workers = kept;
}

/* ---- the loop ---- */

static void on_request(struct keeper_process *p, const struct keeper_request *request,
                       const int *fds)
{
    if (request->type == KEEPER_REQUEST_SPAWN) {
        keeper_spawn_worker(p, request, fds);
        return;
    }
    if (request->type == KEEPER_REQUEST_FOLDER) {
        keeper_take_folder(p, fds[0]);
        return;
    }
    if (request->type == KEEPER_REQUEST_ALIVE) {
        p->is_asked = true;
        return;
    }
    for (size_t i = 0; i < p->n_workers; i++) {
        struct keeper_worker *w = &p->workers[i];

        if (w->id == request->id && w->state != OVER) {
            kill_group(w, request->signal);
        }
    }
}

/* The worker has its own copies. */
static void close_received(const int fds[KEEPER_MAX_FDS])
{
    for (size_t i = 0; i < KEEPER_MAX_FDS; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
}

/* False at the socket's end. */
static bool receive_requests(struct keeper_process *p)
{
    struct keeper_request request;
    int fds[KEEPER_MAX_FDS];
    int rv;

    for (int i = 0; i < REQUESTS; i++) {
        rv = keeper_recv(p->fd, &request, sizeof(request), fds);
        if (rv < 0) {
            return rv == -EAGAIN || rv == -EINTR;
        }
        on_request(p, &request, fds);
        close_received(fds);
    }
    return true; /* poll tells of the others */
}

/* True when a child has died. */
static bool drain_signals(struct keeper_process *p)
{
    struct signalfd_siginfo info[16];
    bool has_died = false;

    while (read(p->signal_fd, info, sizeof(info)) > 0) {
        has_died = true;
    }
    return has_died;
}

/* Fills the poll entries; returns poll's time-out. */
static int prepare_polls(struct keeper_process *p)
{
    bool is_waiting = p->is_asked;
    bool has_due = p->is_asked;

    for (size_t i = 0; i < p->n_workers; i++) {
        const struct keeper_worker *w = &p->workers[i];

        p->polls[KEEPER_FIXED_POLLS + i] = (struct pollfd){w->error_fd, POLLIN, 0};
        has_due = has_due || w->spawned_is_due || w->end_is_due;
        is_waiting = is_waiting || w->state == ENDING || has_due;
    }
    p->polls[0] = (struct pollfd){p->fd, has_due ? POLLIN | POLLOUT : POLLIN, 0};
    p->polls[1] = (struct pollfd){p->signal_fd, POLLIN, 0};
    return is_waiting ? RETRY_MS : -1;
}

static bool turn(struct keeper_process *p)
{
    size_t n = p->n_workers;
    int timeout_ms = prepare_polls(p);
    bool looks = timeout_ms >= 0;

    if (poll(p->polls, KEEPER_FIXED_POLLS + n, timeout_ms) < 0) {
        return errno == EINTR || errno == EAGAIN || errno == ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        if (p->polls[KEEPER_FIXED_POLLS + i].revents != 0) {
            keeper_on_exec(&p->workers[i]);
            look_at_leader(&p->workers[i]); /* it may have died before it ran */
            looks = looks || p->workers[i].state == ENDING;
        }
    }
    if (drain_signals(p) || looks) {
        on_children(p);
    }
    if (p->polls[0].revents != 0 && !receive_requests(p)) {
        return false;
    }
    send_due(p);
    forget_over(p);
    return true;
}

static void on_child_at_end(pid_t pid, void *arg)
{
    (void)arg;
    (void)kill(-pid, SIGKILL); /* a leader's group; ESRCH for others */
    (void)kill(pid, SIGKILL);
}

/* Whoever dies hands its children to the keeper: kill, reap one, look again. */
static void kill_all(void)
{
    siginfo_t info;

    do {
        keeper_each_child(false, on_child_at_end, NULL);
    } while (waitid(P_ALL, 0, &info, WEXITED) == 0 || errno == EINTR);
}

/* One descriptor for each worker that starts; the workers get back the limit that ctrun
 * had. */
static void raise_file_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* else fewer workers fit */
    }
}

/* Whatever is sent to all processes of a job (a scheduler's XCPU, a user's USR1) is not
 * for the keeper: the agent decides. Only its own faults end it. */
static void ignore_signals(void)
{
    static const int kept[] = {SIGCONT, SIGSEGV, SIGBUS, SIGILL, SIGFPE,
                               SIGTRAP, SIGABRT, SIGSYS, SIGCHLD};

    for (int i = 1; i < _NSIG; i++) {
        bool is_kept = false;

        for (size_t k = 0; k < ARRAY_LEN(kept); k++) {
            is_kept = is_kept || kept[k] == i;
        }
        if (!is_kept) {
            (void)signal(i, SIG_IGN); /* fails for KILL, STOP and libc's own */
        }
    }
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, it would reap by itself */
}

/* For so long: a file system that does not answer ends us, and its folder stays. */
static void remove_folders(const struct keeper_process *p)
{
    (void)signal(SIGALRM, SIG_DFL); /* a known signal */
    (void)alarm(FOLDERS_S);
    for (size_t i = 0; i < p->n_folders; i++) {
        private_dir_remove(p->folders[i]);
    }
}

_Noreturn void keeper_run(int fd, struct keeper_origin *origin)
{
    struct keeper_process p = {.fd = fd, .origin = origin};
    sigset_t mask;

    origin->keeper = getpid();
    (void)prctl(PR_SET_NAME, KEEPER_NAME);
    (void)setpgid(0, 0);
    (void)sigemptyset(&mask);
    (void)sigaddset(&mask, SIGCHLD);
    (void)pthread_sigmask(SIG_SETMASK, &mask, NULL);
    ignore_signals();
    keeper_child_prepare(origin);
    raise_file_limit();
    p.signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    p.polls = mem_array(KEEPER_FIXED_POLLS, sizeof(*p.polls));
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && p.signal_fd >= 0) {
        while (turn(&p)) {
        }
    }
    kill_all();
    remove_folders(&p);
    _exit(0);
}
