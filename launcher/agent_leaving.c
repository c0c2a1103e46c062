/* PURE. This node goes and the job may go on: a signal, a scheduler's notice, or the
 * service's word (drain). The workers finish their step, save and leave; who does not
 * know how gets the signal, its time, and KILL. */

#include "launcher/agent_core.h"
#include "launcher/options/signals.h"

#include "common/exit_code.h"

#include <signal.h>
#include <stdio.h>

struct told { /* EVENT_SIGNAL's detail */
    int signal;
    bool was_noticed; /* a notice had come before */
    bool is_again;    /* one of the others had */
};

int leaving_exit_code(const struct agent *a)
{
    return a->is_drained ? 0 : (int)EXIT_SIGNAL + a->leaving;
}

void leaving_tell(struct agent *a, uint64_t generation)
{
    struct msg m = {.type = MSG_LEAVE,
                    .u.leave = {.generation = generation,
                                .signal = a->is_drained ? 0 : a->leaving,
                                .told_ms = a->told_ms}};

    agent_send(a, &m);
}

void leaving_now(struct agent *a, const void *detail)
{
    (void)detail;
    leaving_tell(a, 0);
    agent_finish(a, leaving_exit_code(a));
}

/* Why this node goes: a signal, or the service's word as long as no signal has come. */
static void name_reason(const struct agent *a, char ret[SIGNALS_NAME_MAX])
{
    if (a->is_drained && a->was_warned) {
        (void)snprintf(ret, SIGNALS_NAME_MAX, "drain");
    } else {
        signals_name(a->leaving, ret);
    }
}

/* What ends our patience, as agent_signal has it. */
static const char *name_haste(const struct agent *a)
{
    return a->leaving == SIGHUP ? "SIGTERM"
           : a->was_warned      ? "SIGTERM twice"
                                : "once more";
}

/* At once: the workers' step, or their clean-up, may take long. */
static void say_leaving(struct agent *a, const char *what)
{
    char name[SIGNALS_NAME_MAX];

    name_reason(a, name);
    agent_say(a, LOG_LEVEL_INFO, "%s: %s; %s to kill them now", name, what,
              name_haste(a));
}

static void say_passed_on(struct agent *a)
{
    char what[96];

    (void)snprintf(what, sizeof(what),
                   "passed it on to the workers, which have %llu s to end",
                   (unsigned long long)a->config.shutdown_ms / 1000);
    say_leaving(a, what);
}

void leaving_begin(struct agent *a, const void *detail)
{
    const struct told *told = detail;
    bool has_programs = workers_live(a, false) > 0;
    bool has_engines = workers_live(a, true) > 0;

    leaving_tell(a, a->generation);
    agent_stop(a, STOP_LEAVE, told->signal);
    if (has_programs) {
        say_passed_on(a);
    } else if (has_engines) {
        say_leaving(a, a->link == LINK_UP
                           ? "asked the workers to finish their step, save and leave"
                           : "asked the workers to finish their step, save and leave, "
                             "which waits for the rendezvous to answer");
    } else {
        say_leaving(a, "the workers are ending already");
    }
}

void leaving_say_cancelled(struct agent *a, const char *why)
{
    char what[96] = "asked the workers to finish their step, save and leave";

    if (workers_live(a, false) > 0) {
        (void)snprintf(what, sizeof(what), "told the workers, which have %llu s to end",
                       (unsigned long long)a->config.shutdown_ms / 1000);
    }
    agent_say(a, LOG_LEVEL_INFO, "job %s is %s: %s; SIGTERM twice to kill them now",
              a->config.job, why, what);
}

static void kill_impatiently(struct agent *a, int signal)
{
    bool is_same = signal == a->leaving;
    char first[SIGNALS_NAME_MAX];
    char name[SIGNALS_NAME_MAX];

    if (workers_kill(a) == 0) {
        return; /* nobody is left, or it was said */
    }
    signals_name(a->leaving, first);
    signals_name(signal, name);
    agent_say(a, LOG_LEVEL_INFO, "%s %s%s: killed the workers", name,
              is_same ? "once more" : "after ", is_same ? "" : first);
}

/* Told while the workers are going already: the first time it is only said; after a
 * notice it is passed on, too; after that there is no patience left. */
void leaving_again(struct agent *a, const void *detail)
{
    const struct told *told = detail;

    if (told->is_again) {
        kill_impatiently(a, told->signal);
        return;
    }
    leaving_tell(a, a->generation);
    if (told->was_noticed && workers_tell_again(a, told->signal) > 0) {
        say_passed_on(a);
    } else {
        say_leaving(a, "the workers are ending already");
    }
}

/* --- the workers are gone, and the service is away --- */

/* One that hears nothing takes this node for lost. Where the job can have no others, or
 * is over, nobody suffers from it; what a server without memory knew is gone with it. */
bool leaving_has_to_wait(const struct agent *a)
{
    return a->link != LINK_UP && !a->is_ephemeral && a->has_stopped && !a->is_over &&
           a->closing < 0 && a->config.max_nodes > 1 && a->leave_by_ms > a->now_ms;
}

void leaving_wait(struct agent *a)
{
    char name[SIGNALS_NAME_MAX];
    char why[sizeof(a->trouble)];
    uint64_t left_ms = a->leave_by_ms - a->now_ms;

    agent_disarm(a, TIMER_NOTICE);
    agent_arm(a, TIMER_PATIENCE, left_ms);
    name_reason(a, name);
    notice_describe_trouble(a, why, sizeof(why));
    agent_say(a, LOG_LEVEL_INFO,
              "%s: the workers have ended; waiting for the rendezvous at %s (%s), to "
              "tell it that this node leaves, for %llu s at most; %s to leave now",
              name, a->config.endpoint, why, (unsigned long long)(left_ms + 999) / 1000,
              name_haste(a));
}

void leaving_give_up(struct agent *a, const void *detail)
{
    (void)detail;
    agent_say(a, LOG_LEVEL_WARN,
              "leaving without a word to the rendezvous at %s, which does not answer: "
              "the job will take this node for lost",
              a->config.endpoint);
    agent_finish(a, leaving_exit_code(a));
}

void leaving_impatient(struct agent *a, const void *detail)
{
    const struct told *told = detail;

    if (told->is_again || a->leave_by_ms <= a->now_ms) {
        leaving_give_up(a, NULL);
    } else { /* it follows a notice: say what is waited for, and how long still */
        leaving_wait(a);
    }
}

/* --- the word --- */

void leaving_date(struct agent *a)
{
    if (a->leaving != 0 && a->told_ms == 0) {
        a->told_ms = link_service_ms(a, a->leave_by_ms - a->config.shutdown_ms);
    }
}

/* The first counts: when the end follows a notice, the workers have no more time
 * either. */
static void take_word(struct agent *a, int signal)
{
    if (a->leaving == 0) {
        a->leave_by_ms = a->now_ms + a->config.shutdown_ms;
    }
    a->leaving = signal;
    leaving_date(a);
}

void agent_signal(struct agent *a, int signal, uint64_t now_ms)
{
    bool was_told = a->leaving != 0;
    bool was_noticed = was_told && a->was_warned;
    struct told told = {signal, was_noticed, was_told && !was_noticed};
    bool is_noise = told.is_again ? signal == SIGHUP || signals_is_notice(signal)
                                  : was_noticed && signals_is_notice(signal);

    a->now_ms = now_ms;
    if (a->state == AGENT_CLOSED || is_noise) {
        return; /* terminals and systemd send HUP after the first, Slurm USR1 to many */
    }
    if (!told.is_again) {
        take_word(a, signal);
        a->was_warned = signals_is_notice(signal);
    }
    agent_fire(a, EVENT_SIGNAL, &told);
}

void agent_drain(struct agent *a, const char *why)
{
    const struct told told = {SIGTERM, false, false};

    if (a->leaving != 0) {
        return; /* it goes already */
    }
    take_word(a, SIGTERM);
    a->was_warned = true;
    a->is_drained = true;
    if (why[0] != '\0') {
        agent_say(a, LOG_LEVEL_INFO, "this node is drained: %s", why);
    }
    agent_fire(a, EVENT_SIGNAL, &told);
}
