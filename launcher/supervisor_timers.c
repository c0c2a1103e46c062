/* torch's file timers: the FIFO, and the signal when one has expired (timers.h decides).
 * On where TORCHELASTIC_ENABLE_FILE_TIMER=1. A worker can write what it likes there: a
 * turn reads READ_MAX at most, after much the FIFO rests, and only processes that
 * descend from the keeper are ever sent anything. */

#include "launcher/report.h"
#include "launcher/supervisor_core.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    READ_MAX = 65536, /* all that is in a FIFO, unless a worker has made it larger */
    MUCH = 4096,
    REST_MS = 50,
};

struct supervisor_timers {
    struct supervisor *supervisor;
    uv_poll_t poll;
    uv_timer_t timer; /* the next one expires, or the FIFO has rested */
    int fd;
    unsigned n_open; /* handles, while closing */
    char path[PATH_MAX];
    struct timers timers;
    char bytes[READ_MAX];
};

static void on_fifo(uv_poll_t *poll, int status, int events);

static struct slot *slot_of(const struct supervisor *s, pid_t pid)
{
    for (uint32_t i = 0; i < s->nproc; i++) {
        if (s->slots[i].channel && (pid_t)s->slots[i].pid == pid) {
            return &s->slots[i];
        }
    }
    return NULL;
}

static uint64_t age_of(const struct timer *timer)
{
    uint64_t now_ms = clock_ms();

    return now_ms - MIN(now_ms, timer->since_ms);
}

/* Not another that has its number by now. */
static bool is_there(void *arg, const struct timer *timer)
{
    (void)arg;
    return keeper_has_age(timer->pid, age_of(timer));
}

static void expire(struct supervisor_timers *t, const struct timer *timer)
{
    struct supervisor *s = t->supervisor;
    struct slot *slot = slot_of(s, timer->pid);
    int rv = keeper_signal(s->keeper, timer->pid, age_of(timer), timer->signal);
    char *scope = report_escape(timer->scope);
    char name[SIGNALS_NAME_MAX];
    char text[512];

    signals_name(timer->signal, name);
    if (rv < 0) {
        log_debug(
            "a file timer has expired, but its process is not there, or no worker "
            "of ours",
            "pid=%d error=%s", timer->pid, err_name(rv));
    } else {
        (void)snprintf(text, sizeof(text),
                       "the file timer '%s' of process %d has expired: sent it %s",
                       scope, timer->pid, name);
        log_warn(text, "%s", "");
        if (slot) {
            memcpy(slot->expired, text, sizeof(slot->expired));
        }
    }
    mem_free(scope);
}

static void read_fifo(struct supervisor_timers *t)
{
    ssize_t n = read(t->fd, t->bytes, sizeof(t->bytes));
    const char *trouble;

    if (n <= 0) {
        return; /* EAGAIN: it is empty */
    }
    if (timers_are_many(&t->timers)) { /* the children of workers end unseen */
        timers_prune(&t->timers, is_there, t);
    }
    timers_feed(&t->timers, t->bytes, (size_t)n, clock_wall_ms(), clock_ms());
    trouble = timers_trouble(&t->timers);
    if (trouble) {
        log_warn(trouble, "%s", "");
    }
    if (n > MUCH) {
        (void)uv_poll_stop(&t->poll); /* always 0 */
    }
}

static void on_timer(uv_timer_t *handle);

/* For whichever is next. */
static void arm(struct supervisor_timers *t)
{
    uint64_t deadline_ms = timers_deadline(&t->timers);
    uint64_t now_ms = clock_ms();
    uint64_t delay_ms = deadline_ms > now_ms ? deadline_ms - now_ms : 0;

    if (!uv_is_active((const uv_handle_t *)&t->poll)) {
        delay_ms = MIN(delay_ms, REST_MS);
    } else if (deadline_ms == UINT64_MAX) {
        (void)uv_timer_stop(&t->timer); /* always 0 */
        return;
    }
    uv_update_time(&t->supervisor->loop);
    (void)uv_timer_start(&t->timer, on_timer, delay_ms,
                         0); /* fails without a callback only */
}

static void on_fifo(uv_poll_t *poll, int status, int events)
{
    struct supervisor_timers *t = poll->data;

    (void)status; /* read tells */
    (void)events;
    read_fifo(t);
    arm(t);
}

/* A release that lies in the FIFO counts before its timer does. */
static void on_timer(uv_timer_t *handle)
{
    struct supervisor_timers *t = handle->data;
    struct timer timer;

    (void)uv_poll_start(&t->poll, UV_READABLE, on_fifo); /* a good descriptor */
    read_fifo(t);
    while (timers_take(&t->timers, clock_ms(), &timer)) {
        expire(t, &timer);
    }
    arm(t);
}

/* --- start and end --- */

/* One that a killed launcher has left has no reader. */
static bool has_reader(const char *path)
{
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0) {
        return false;
    }
    (void)close(fd);
    return true;
}

/* The path that TORCHELASTIC_TIMER_FILE gives; in our own folder where there is none, or
 * where it belongs to a launcher around this one, which handed it on. */
static int choose_path(struct supervisor_timers *t, struct errmsg *msg)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets the environment */
    const char *given = getenv("TORCHELASTIC_TIMER_FILE");
    struct supervisor *s = t->supervisor;
    struct stat st;
    bool fits;

    if (given && given[0] != '\0' && lstat(given, &st) == 0) {
        if (!S_ISFIFO(st.st_mode)) {
            return errmsg_set(msg, ERR_INVALID,
                              "TORCHELASTIC_TIMER_FILE=%.200s: there is something that "
                              "is no FIFO; remove it, or leave the variable out",
                              given);
        }
        if (has_reader(given)) {
            given = NULL;
        } else if (unlink(given) < 0) {
            return errmsg_set(msg, -errno, "TORCHELASTIC_TIMER_FILE=%.200s: %s", given,
                              err_text(-errno));
        }
    }
    if (given && given[0] != '\0') {
        fits = str_format(t->path, sizeof(t->path), "%s", given);
    } else {
        fits = supervisor_has_private_dir(s) &&
               str_format(t->path, sizeof(t->path), "%s/timers", s->private_dir);
    }
    return fits
               ? 0
               : errmsg_set(msg, ERR_INVALID,
                            "no place for TORCHELASTIC_TIMER_FILE: is TMPDIR writable, "
                            "and its name short?");
}

/* We hold a writing end, too: no end of the file when the workers have closed theirs. */
static int open_fifo(struct supervisor_timers *t, struct errmsg *msg)
{
    int rv = choose_path(t, msg);

    if (rv < 0) {
        return rv;
    }
    t->fd = mkfifo(t->path, 0600) < 0
                ? -1
                : open(t->path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    return t->fd < 0 ? errmsg_set(msg, -errno, "TORCHELASTIC_TIMER_FILE=%.200s: %s",
                                  t->path, err_text(-errno))
                     : 0;
}

bool supervisor_timers_are_on(void)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets the environment */
    const char *enabled = getenv("TORCHELASTIC_ENABLE_FILE_TIMER");

    return enabled && strcmp(enabled, "1") == 0;
}

int supervisor_timers_make(struct supervisor *s, struct errmsg *msg)
{
    struct supervisor_timers *t;
    int rv;

    if (!supervisor_timers_are_on()) {
        return 0;
    }
    t = mem_zalloc(sizeof(*t));
    t->supervisor = s;
    timers_init(&t->timers);
    rv = open_fifo(t, msg);
    if (rv < 0) {
        mem_free(t);
        return rv;
    }
    s->timers = t;
    return 0;
}

int supervisor_timers_start(struct supervisor *s)
{
    struct supervisor_timers *t = s->timers;
    int rv;

    if (!t) {
        return 0;
    }
    rv = uv_poll_init(&s->loop, &t->poll, t->fd);
    rv = rv < 0 ? rv : uv_timer_init(&s->loop, &t->timer);
    t->poll.data = t;
    t->timer.data = t;
    return rv < 0 ? rv : uv_poll_start(&t->poll, UV_READABLE, on_fifo);
}

static void on_closed(uv_handle_t *handle)
{
    struct supervisor_timers *t = handle->data;

    if (--t->n_open > 0) {
        return;
    }
    (void)close(t->fd);
    timers_release(&t->timers);
    mem_free(t);
}

void supervisor_timers_close(struct supervisor *s)
{
    struct supervisor_timers *t = s->timers;

    if (!t) {
        return;
    }
    s->timers = NULL;
    (void)unlink(t->path);
    t->n_open = 2;
    uv_close((uv_handle_t *)&t->poll, on_closed);
    uv_close((uv_handle_t *)&t->timer, on_closed);
}

void supervisor_timers_abandon(struct supervisor *s)
{
    if (s->timers) {
        (void)unlink(s->timers->path); /* the process ends with the rest */
    }
}

const char *supervisor_timers_path(const struct supervisor *s)
{
    return s->timers ? s->timers->path : NULL;
}

/* What the dead have written is read first: else it would be taken for news later, when
 * their numbers may be others'. */
void supervisor_timers_clear(struct supervisor *s)
{
    if (s->timers) {
        read_fifo(s->timers);
        timers_clear(&s->timers->timers);
        arm(s->timers);
    }
}

void supervisor_timers_forget(struct supervisor *s, pid_t pid)
{
    if (s->timers) {
        read_fifo(s->timers);
        timers_forget(&s->timers->timers, pid);
        arm(s->timers);
    }
}
