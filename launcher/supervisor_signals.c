/* Signals: those that stop the job go to the agent; of the children only the keeper is
 * awaited, all others are reaped here (as PID 1 ctrun inherits every orphan). */

#include "launcher/output/own_lines.h"
#include "launcher/supervisor_core.h"

#include "common/clock.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static void on_signal(uv_signal_t *handle, int signal_number)
{
    const struct supervisor *s = handle->data;

    if ((signal_number == SIGINT || signal_number == SIGQUIT) &&
        isatty(STDERR_FILENO)) {
        own_lines_console(STDERR_FILENO, true); /* where it shows the ^C */
    }
    agent_signal(s->agent, signal_number, clock_ms());
}

static void on_child(uv_signal_t *handle, int signal_number)
{
    const struct supervisor *s = handle->data;

    (void)signal_number;
    keeper_reap_others(s->keeper);
}

static int watch(struct supervisor *s, int signal_number, uv_signal_cb on)
{
    uv_signal_t *handle = &s->signals[s->n_signals];
    int rv = uv_signal_init(&s->loop, handle);

    if (rv < 0) {
        return rv;
    }
    handle->data = s;
    s->n_signals++;
    return uv_signal_start(handle, on, signal_number);
}

static bool was_ignored(int signal_number)
{
    struct sigaction old;

    return sigaction(signal_number, NULL, &old) == 0 && old.sa_handler == SIG_IGN;
}

static sigset_t stopping(const struct supervisor *s)
{
    sigset_t set;

    (void)sigemptyset(&set);
    for (int i = 1; i <= SIGNALS_LAST; i++) {
        if (signals_has(&s->options->signals, i)) {
            (void)sigaddset(&set, i);
        }
    }
    return set;
}

void supervisor_hold_signals(const struct supervisor *s)
{
    sigset_t set = stopping(s);

    if (getpid() == 1) {
        (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    }
}

/* Our other threads take no signals: one that comes now waits, and goes with us. By its
 * default action it would end us before our folders are removed. */
void supervisor_close_signals(struct supervisor *s)
{
    sigset_t set = stopping(s);

    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    for (unsigned i = 0; i < s->n_signals; i++) {
        uv_close((uv_handle_t *)&s->signals[i], NULL);
    }
}

/* What was ignored at the start (nohup) stays ignored. */
int supervisor_watch_signals(struct supervisor *s)
{
    sigset_t set = stopping(s);
    int rv = watch(s, SIGCHLD, on_child);

    for (int i = 1; i <= SIGNALS_LAST && rv == 0; i++) {
        if (signals_has(&s->options->signals, i) && !was_ignored(i)) {
            rv = watch(s, i, on_signal);
        }
    }
    if (getpid() == 1) {
        (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    }
    keeper_reap_others(s->keeper); /* who died before we watched */
    return rv;
}
