#include "worker/control_client.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/thread.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LOOK_MS = 250,   /* between two looks at what the rank does */
    REPEAT_MS = 500, /* what stays the same is said again */
};

struct control_client {
    int fd;        /* -1: no launcher */
    int signal_fd; /* those that mean LEAVE */
    int wake_fd;   /* eventfd: closing */
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows; sending needs none */
    pthread_cond_t changed;
    bool has_started;
    struct control start;
    struct control resumed; /* the last DECISION of each kind */
    struct control commit;
    bool has_resumed;
    bool has_commit;
    _Atomic(const char *) phase; /* NULL: not said yet */
    _Atomic uint32_t waiting[CONTROL_GROUPS];
    pthread_mutex_t said_lock; /* so that a later report is sent later; guards: */
    struct control said;       /* the last PROGRESS */
    uint64_t said_ms;          /* … when it was sent */
    atomic_bool should_leave;
    atomic_bool is_closing;
};

static void receive(struct control_client *c, const struct control *m)
{
    switch (m->type) {
    case CONTROL_ABORT:
        _exit(EXIT_LOST_PEER); /* at once: nothing of this generation counts any more */
    case CONTROL_LEAVE:
        atomic_store(&c->should_leave, true);
        break;
    case CONTROL_START:
        c->start = *m;
        c->has_started = true;
        break;
    case CONTROL_DECISION:
        if (m->is_commit) {
            c->commit = *m;
            c->has_commit = true;
        } else {
            c->resumed = *m;
            c->has_resumed = true;
        }
        break;
    case CONTROL_HELLO:
    case CONTROL_REFUSE:
    case CONTROL_RESUMED:
    case CONTROL_PROGRESS:
    case CONTROL_COMMIT:
        break; /* ours, not the agent's */
    }
}

/* False when the channel has ended because we are closing. */
static bool read_channel(struct control_client *c)
{
    uint8_t packet[CONTROL_MAX];
    struct control m;
    ssize_t n;

    n = recv(c->fd, packet, sizeof(packet), MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        return true;
    }
    if (atomic_load(&c->is_closing)) {
        return false;
    }
    if (n <= 0) {
        _exit(EXIT_LOST_PEER); /* the agent is gone */
    }
    if (control_decode(packet, (size_t)n, &m) < 0) {
        return true; /* of a newer agent: not for us */
    }
    (void)pthread_mutex_lock(&c->lock);
    receive(c, &m);
    (void)pthread_cond_broadcast(&c->changed);
    (void)pthread_mutex_unlock(&c->lock);
    return true;
}

static void read_signal(struct control_client *c)
{
    struct signalfd_siginfo info;

    if (read(c->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        atomic_store(&c->should_leave, true);
    }
}

/* The agent's death shows in the reading thread, so a failed send needs no answer. */
static void send_packet(struct control_client *c, const struct control *m, int flags)
{
    struct buf packet;
    ssize_t n;

    if (c->fd < 0) {
        return;
    }
    buf_init(&packet, CONTROL_MAX);
    if (control_encode(m, &packet) == 0) {
        do {
            n = send(c->fd, buf_bytes(&packet), buf_len(&packet), flags | MSG_NOSIGNAL);
        } while (n < 0 && errno == EINTR);
    }
    buf_release(&packet);
}

static uint32_t awaited(struct control_client *c)
{
    uint32_t rank = 0;

    for (int i = 0; i < CONTROL_GROUPS && rank == 0; i++) {
        rank = atomic_load_explicit(&c->waiting[i], memory_order_relaxed);
    }
    return rank;
}

/* Says what the rank does, if that is news, or was said a while ago. */
static void report(struct control_client *c, uint64_t now_ms)
{
    const char *phase = atomic_load(&c->phase);
    uint32_t waits_for = awaited(c);
    bool is_news;

    if (!phase) {
        return;
    }
    (void)pthread_mutex_lock(&c->said_lock);
    is_news = c->said.waits_for != waits_for || strcmp(c->said.phase, phase) != 0;
    if (is_news || now_ms - c->said_ms >= REPEAT_MS) {
        c->said.waits_for = waits_for;
        (void)snprintf(c->said.phase, sizeof(c->said.phase), "%s", phase);
        c->said_ms = now_ms;
        send_packet(c, &c->said, MSG_DONTWAIT);
    }
    (void)pthread_mutex_unlock(&c->said_lock);
}

static void *run_thread(void *arg)
{
    struct control_client *c = arg;
    uint64_t looked_ms = 0;
    uint64_t now_ms;
    struct pollfd fds[] = {
        {.fd = c->wake_fd, .events = POLLIN},
        {.fd = c->signal_fd, .events = POLLIN},
        {.fd = c->fd, .events = POLLIN}, /* -1 is left out by poll */
    };

    while (!atomic_load(&c->is_closing)) {
        if (poll(fds, ARRAY_LEN(fds), c->fd < 0 ? -1 : LOOK_MS) < 0) {
            continue; /* EINTR */
        }
        now_ms = clock_ms();
        if (now_ms - looked_ms >= LOOK_MS) {
            looked_ms = now_ms;
            report(c, now_ms);
        }
        if (fds[1].revents) {
            read_signal(c);
        }
        if (fds[2].revents && !read_channel(c)) {
            break;
        }
    }
    return NULL;
}

/* Slurm sends its warning, and its end, to every process of a step, not to the agent
 * alone. They are read from a descriptor, and blocked in this and every later thread: a
 * handler must never run in a compute thread, since oneDNN's generated code points the
 * stack register at its data, and the signal's frame would be written over it. */
static int take_signals(struct control_client *c, struct errmsg *msg)
{
    static const int leaving[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
    sigset_t set;

    (void)sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(leaving); i++) {
        (void)sigaddset(&set, leaving[i]);
    }
    if (pthread_sigmask(SIG_BLOCK, &set, NULL) != 0) {
        return errmsg_set(msg, -EINVAL, "cannot block signals");
    }
    c->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->signal_fd < 0 || c->wake_fd < 0) {
        return errmsg_set(msg, -errno, "signalfd: %s", err_text(-errno));
    }
    return 0;
}

static void release(struct control_client *c)
{
    const int fds[] = {c->fd, c->signal_fd, c->wake_fd};

    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
    (void)pthread_cond_destroy(&c->changed);
    (void)pthread_mutex_destroy(&c->lock);
    (void)pthread_mutex_destroy(&c->said_lock);
    mem_free(c);
}

int control_client_open(int fd, struct control_client **ret, struct errmsg *msg)
{
    struct control_client *c = mem_zalloc(sizeof(*c));
    int rv;

    c->fd = fd;
    c->signal_fd = -1;
    c->wake_fd = -1;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->changed, NULL);
    (void)pthread_mutex_init(&c->said_lock, NULL);
    c->said.type = CONTROL_PROGRESS;
    rv = take_signals(c, msg);
    if (rv == 0) {
        rv = thread_start(0, run_thread, c, &c->thread);
        if (rv < 0) {
            (void)errmsg_thread(msg, rv, "control channel");
        }
    }
    if (rv < 0) {
        release(c);
        return rv;
    }
    *ret = c;
    return 0;
}

void control_client_close(struct control_client *c)
{
    const uint64_t one = 1;

    if (!c) {
        return;
    }
    atomic_store(&c->is_closing, true);
    if (write(c->wake_fd, &one, sizeof(one)) != (ssize_t)sizeof(one)) {
        UNREACHABLE(); /* a fresh counter takes one */
    }
    (void)pthread_join(c->thread, NULL);
    release(c);
}

void control_client_hello(struct control_client *c, const char *log_folder,
                          uint32_t max_world)
{
    struct control m = {
        .type = CONTROL_HELLO, .max_world = max_world, .phase = "start"};

    (void)snprintf(m.path, sizeof(m.path), "%s", log_folder);
    send_packet(c, &m, 0);
}

void control_client_progress(struct control_client *c, uint64_t step, const char *phase,
                             uint32_t tok_s, double loss)
{
    struct control m = {.type = CONTROL_PROGRESS, .step = step, .tok_s = tok_s};

    (void)snprintf(m.phase, sizeof(m.phase), "%s", phase);
    if (!isnan(loss)) {
        (void)snprintf(m.loss, sizeof(m.loss), "%.6g", loss);
    }
    (void)pthread_mutex_lock(&c->said_lock);
    c->said = m;
    c->said_ms = clock_ms();
    send_packet(c, &m, MSG_DONTWAIT);
    (void)pthread_mutex_unlock(&c->said_lock);
}

void control_client_phase(struct control_client *c, const char *phase)
{
    atomic_store_explicit(&c->phase, phase, memory_order_relaxed);
}

_Atomic uint32_t *control_client_waiting(struct control_client *c, int i)
{
    ASSERT(i >= 0 && i < CONTROL_GROUPS);
    return &c->waiting[i];
}

void control_client_refuse(struct control_client *c, int code, uint32_t max_world,
                           const char *text)
{
    struct control m = {
        .type = CONTROL_REFUSE, .code = (uint32_t)code, .max_world = max_world};

    if (!c || c->fd < 0) {
        (void)fprintf(stderr, "ctrun-worker: %s\n", text);
        return;
    }
    (void)snprintf(m.text, sizeof(m.text), "ctrun-worker: %s", text);
    send_packet(c, &m, 0);
}

void control_client_start(struct control_client *c, struct control *ret)
{
    if (c->fd < 0) {
        *ret = (struct control){.type = CONTROL_START};
        return;
    }
    (void)pthread_mutex_lock(&c->lock);
    while (!c->has_started) {
        (void)pthread_cond_wait(&c->changed, &c->lock);
    }
    *ret = c->start;
    (void)pthread_mutex_unlock(&c->lock);
}

/* Waits until *has is set with a decision about `step`, and takes it. */
static int wait_decision(struct control_client *c, const bool *has,
                         const struct control *decision, uint64_t step,
                         struct errmsg *msg)
{
    int rv = 0;

    (void)pthread_mutex_lock(&c->lock);
    while (!*has || decision->step != step) {
        (void)pthread_cond_wait(&c->changed, &c->lock);
    }
    if (!decision->accepted) {
        rv = errmsg_set(msg, ERR_REFUSED, "%s", decision->text);
    }
    (void)pthread_mutex_unlock(&c->lock);
    return rv;
}

int control_client_resumed(struct control_client *c, uint32_t run, uint64_t step,
                           struct errmsg *msg)
{
    struct control m = {.type = CONTROL_RESUMED, .run = run, .step = step};

    if (c->fd < 0) {
        return 0;
    }
    send_packet(c, &m, 0);
    return wait_decision(c, &c->has_resumed, &c->resumed, step, msg);
}

int control_client_commit(struct control_client *c, uint32_t run, uint64_t step,
                          const char *hash, struct errmsg *msg)
{
    struct control m = {.type = CONTROL_COMMIT, .run = run, .step = step};

    if (c->fd < 0) {
        return 0;
    }
    (void)snprintf(m.hash, sizeof(m.hash), "%s", hash);
    send_packet(c, &m, 0);
    return wait_decision(c, &c->has_commit, &c->commit, step, msg);
}

bool control_client_should_leave(const struct control_client *c)
{
    return atomic_load(&c->should_leave);
}
