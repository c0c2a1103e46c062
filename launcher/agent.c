/* PURE. The agent's life: a table of state × event, drawn in agent.h. Every move is
 * checked against `moves` and traced. */

#include "launcher/agent.h"

#include "launcher/agent_core.h"

#include "common/err.h"
#include "common/exit_code.h"
#include "common/mem.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { EXIT_NODE_LOST = 1 };

static const char *const state_names[AGENT_STATE_COUNT] = {
    [AGENT_CONNECTING] = "connecting", [AGENT_JOINING] = "joining",
    [AGENT_RUNNING] = "running",       [AGENT_STOPPING] = "stopping",
    [AGENT_WAITING] = "waiting",       [AGENT_LEAVING] = "leaving",
    [AGENT_CLOSED] = "closed",
};

static const bool moves[AGENT_STATE_COUNT][AGENT_STATE_COUNT] = {
    [AGENT_CONNECTING] =
        {[AGENT_JOINING] = true, [AGENT_LEAVING] = true, [AGENT_CLOSED] = true},
    [AGENT_JOINING] = {[AGENT_RUNNING] = true, [AGENT_CLOSED] = true},
    [AGENT_RUNNING] =
        {[AGENT_STOPPING] = true, [AGENT_WAITING] = true, [AGENT_CLOSED] = true},
    [AGENT_STOPPING] = {[AGENT_CONNECTING] = true,
                        [AGENT_JOINING] = true,
                        [AGENT_LEAVING] = true,
                        [AGENT_CLOSED] = true},
    [AGENT_WAITING] = {[AGENT_JOINING] = true,
                       [AGENT_CONNECTING] = true,
                       [AGENT_LEAVING] = true,
                       [AGENT_CLOSED] = true},
    [AGENT_LEAVING] = {[AGENT_CLOSED] = true},
};

static void move(struct agent *a, enum agent_state to)
{
    ASSERT(moves[a->state][to]);
    log_trace("agent", "", state_names[a->state], state_names[to]);
    a->state = to;
}

void agent_say(struct agent *a, enum log_level level, const char *fmt, ...)
{
    char text[MSG_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args); /* cut is fine */
    va_end(args);
    a->config.actions.say(a->config.actions.arg, level, text);
}

/* Once for a generation that ends without a report: why. */
static void explain(struct agent *a, const char *text)
{
    agent_say(a, LOG_LEVEL_WARN, "generation %llu ends here: %s%s%s",
              (unsigned long long)a->generation, text,
              a->why[0] != '\0' && text[0] != '\0' ? "; before that: " : "", a->why);
    a->why[0] = '\0';
}

void agent_arm(struct agent *a, enum agent_timer timer, uint64_t delay_ms)
{
    a->timer[timer] = MAX(a->now_ms + delay_ms, 1);
}

void agent_disarm(struct agent *a, enum agent_timer timer)
{
    a->timer[timer] = 0;
}

struct agent *agent_new(const struct agent_config *config)
{
    struct agent *a = mem_zalloc(sizeof(*a));

    a->config = *config;
    a->rng = config->agent_id;
    a->group_rank = -1;
    a->closing = -1;
    a->workers = mem_array(config->nproc, sizeof(*a->workers));
    return a;
}

void agent_free(struct agent *a)
{
    if (!a) {
        return;
    }
    workers_release(a);
    mem_free(a->workers);
    mem_free(a);
}

bool agent_was_closed(const struct agent *a)
{
    return a->was_closed;
}

bool agent_is_leaving(const struct agent *a)
{
    return a->leaving != 0;
}

bool agent_is_drained(const struct agent *a)
{
    return a->is_drained;
}

void agent_start(struct agent *a, uint64_t now_ms)
{
    a->now_ms = now_ms;
    notice_begin(a);
    agent_arm(a, TIMER_PATIENCE, a->config.join_timeout_ms);
    link_open(a);
}

void agent_finish(struct agent *a, int exit_code)
{
    move(a, AGENT_CLOSED);
    memset(a->timer, 0, sizeof(a->timer));
    a->config.actions.relay_close(a->config.actions.arg);
    a->config.actions.end(a->config.actions.arg, exit_code);
}

/* --- joining --- */

static void send_join(struct agent *a)
{
    struct msg m = {.type = MSG_JOIN,
                    .u.join = {.after = a->generation,
                               .port = a->relay.port,
                               .max_world = a->max_world}};

    memcpy(m.u.join.addr, a->relay.addr, sizeof(m.u.join.addr));
    (void)snprintf(m.u.join.role, sizeof(m.u.join.role), "%s", a->config.role);
    agent_send(a, &m);
}

static void send_stopped(struct agent *a)
{
    struct msg m = {
        .type = MSG_STOPPED,
        .u.stopped = {.generation = a->generation, .done = a->was_done},
    };

    a->has_stopped = true;
    agent_send(a, &m);
}

/* With a fresh listener for the workers of the next generation. */
static void join(struct agent *a)
{
    struct errmsg msg = {0};

    if (a->config.actions.relay_open(a->config.actions.arg, &a->relay, &msg) < 0) {
        agent_say(a, LOG_LEVEL_ERROR, "%s", msg.text);
        agent_finish(a, EXIT_RENDEZVOUS);
        return;
    }
    move(a, AGENT_JOINING);
    a->is_standby = false;
    notice_begin(a);
    agent_arm(a, TIMER_PATIENCE, a->config.join_timeout_ms);
    send_join(a);
}

/* No workers, no service: find one. */
static void reconnect(struct agent *a)
{
    move(a, AGENT_CONNECTING);
    notice_begin(a);
    agent_arm(a, TIMER_PATIENCE, a->config.join_timeout_ms);
}

static void join_or_reconnect(struct agent *a)
{
    if (a->link == LINK_UP) {
        join(a);
    } else {
        reconnect(a);
    }
}

static void on_welcomed(struct agent *a, const void *detail)
{
    (void)detail;
    join(a);
}

/* No report can follow the word to stop any more. */
static void explain_lost(struct agent *a, const void *detail)
{
    if (a->why[0] != '\0') {
        explain(a, detail);
    }
}

/* The same service: what we said last may not have reached it. */
static void say_again(struct agent *a)
{
    if (a->has_stopped && !a->is_over) {
        workers_resend(a);
        send_stopped(a);
    }
}

static void on_welcomed_again(struct agent *a, const void *detail)
{
    (void)detail;
    say_again(a);
    join(a);
}

static void rejoin(struct agent *a, const void *detail)
{
    (void)detail;
    a->is_standby = false; /* this service will say so if it is still true */
    send_join(a);
}

/* Whether it stands by has not changed. */
static void reattach_joining(struct agent *a, const void *detail)
{
    (void)detail;
    say_again(a);
    send_join(a);
}

static void start_round(struct agent *a, const void *detail)
{
    const struct msg_round *round = detail;

    if (a->why[0] != '\0') {
        explain(a, "");
    }
    if (workers_start(a, round) < 0) {
        return;
    }
    move(a, AGENT_RUNNING);
    a->is_over = false;
    a->is_standby = false;
    a->has_stopped = false;
    a->was_done = false;
    agent_disarm(a, TIMER_NOTICE);
    agent_arm(a, TIMER_PATIENCE, a->config.join_timeout_ms);
}

/* --- stopping --- */

void agent_stop(struct agent *a, enum stop_mode mode, int signal)
{
    if (a->state == AGENT_RUNNING) {
        move(a, AGENT_STOPPING);
    }
    workers_stop(a, mode, signal);
}

static void on_stop(struct agent *a, const void *detail)
{
    const struct msg_stop *m = detail;
    bool is_news = a->state == AGENT_RUNNING;

    memcpy(a->why, m->text, sizeof(a->why));
    if (m->hung != 0) {
        workers_kill_hung(a, m->hung - 1);
    }
    agent_stop(a, m->mode == STOP_LEAVE ? STOP_LEAVE : STOP_ABORT, SIGTERM);
    if (is_news && strncmp(m->text, STOP_CANCELLED, strlen(STOP_CANCELLED)) == 0) {
        leaving_say_cancelled(a, m->text);
    }
}

/* A rank that was asked to leave by others has saved, and so have its siblings. */
static void on_failed(struct agent *a, const void *detail)
{
    const struct worker *w = detail;
    bool has_left = w->is_engine && w->signal == 0 && w->code == EXIT_LEFT;

    agent_stop(a, has_left ? STOP_LEAVE : STOP_ABORT, SIGTERM);
}

/* The service does not know the generation any more (`detail` says why): its sockets
 * close, nothing of it is sent again. */
static void abandon(struct agent *a, const void *detail)
{
    if (!a->is_over) {
        explain(a, detail);
        a->is_over = true;
        a->config.actions.relay_close(a->config.actions.arg);
    }
    agent_stop(a, STOP_ABORT, SIGTERM);
}

static void abandon_waiting(struct agent *a, const void *detail)
{
    explain(a, detail);
    a->is_over = true;
    a->config.actions.relay_close(a->config.actions.arg);
    join_or_reconnect(a);
}

static void tell_all_again(struct agent *a)
{
    if (a->leaving) {
        leaving_tell(a, a->generation);
    }
    workers_resend(a);
    if (a->has_stopped) {
        send_stopped(a);
    }
}

static void reattach(struct agent *a, const void *detail)
{
    (void)detail;
    if (a->is_over) {
        return;
    }
    tell_all_again(a);
    a->config.actions.relay_resend(a->config.actions.arg);
}

static void all_done(struct agent *a, const void *detail)
{
    (void)detail;
    a->was_done = true;
    move(a, AGENT_WAITING);
    send_stopped(a);
}

/* Without workers; false: there is nobody to wait for. */
static bool wait_to_leave(struct agent *a)
{
    if (!leaving_has_to_wait(a)) {
        return false;
    }
    move(a, AGENT_LEAVING);
    leaving_wait(a);
    return true;
}

static void leave_soon(struct agent *a, const void *detail)
{
    if (!wait_to_leave(a)) {
        leaving_now(a, detail);
    }
}

/* The service that was away is back, and hears why this node has gone. */
static void tell_and_leave(struct agent *a, const void *detail)
{
    (void)detail;
    tell_all_again(a);
    agent_finish(a, leaving_exit_code(a));
}

/* Nobody wants to know any more. */
static void leave(struct agent *a, const void *detail)
{
    (void)detail;
    agent_finish(a, leaving_exit_code(a));
}

/* The last worker is gone after it was told to stop. The generation is over, so there
 * is a next one to join, even if all workers here had come to their end. */
static void settle(struct agent *a, const void *detail)
{
    (void)detail;
    a->was_done = workers_are_done(a);
    if (!a->is_over) {
        send_stopped(a);
    }
    if (a->leaving) {
        if (!wait_to_leave(a)) {
            agent_finish(a, leaving_exit_code(a));
        }
    } else if (a->closing >= 0) {
        agent_finish(a, a->closing);
    } else {
        join_or_reconnect(a);
    }
}

static void join_again(struct agent *a, const void *detail)
{
    (void)detail;
    join(a);
}

/* --- the end --- */

static void close_now(struct agent *a, const void *detail)
{
    (void)detail;
    agent_finish(a, a->closing);
}

static void stop_and_close(struct agent *a, const void *detail)
{
    (void)detail;
    agent_stop(a, STOP_ABORT, SIGTERM);
}

static void give_up_connecting(struct agent *a, const void *detail)
{
    static const char remedy[] =
        "; is the node that serves it up, and --rdzv-endpoint the same everywhere?";
    char why[sizeof(a->trouble)];

    (void)detail;
    notice_describe_trouble(a, why, sizeof(why));
    agent_say(a, LOG_LEVEL_ERROR, "no rendezvous at %s within %llu s (%s)%s",
              a->config.endpoint, (unsigned long long)a->config.join_timeout_ms / 1000,
              why, a->refusals > 0 ? "" : remedy); /* a refusal has its own */
    agent_finish(a, EXIT_RENDEZVOUS);
}

static void give_up_joining(struct agent *a, const void *detail)
{
    if (a->link != LINK_UP) { /* lost since it joined */
        give_up_connecting(a, detail);
        return;
    }
    if (a->generation > 0) {
        agent_say(
            a, LOG_LEVEL_ERROR,
            "job %s has %u of the %u nodes that it needs, and no more came within "
            "%llu s (join_timeout of --rdzv-conf): start it again on the nodes that "
            "were lost, or give it a range (--nnodes=MIN:MAX)",
            a->config.job, MAX(a->n_joined, 1), a->config.min_nodes,
            (unsigned long long)a->config.join_timeout_ms / 1000);
        leaving_tell(a, 0);
        agent_finish(a, EXIT_RENDEZVOUS);
        return;
    }
    agent_say(a, LOG_LEVEL_ERROR,
              "job %s did not get its %u nodes within %llu s (join_timeout of "
              "--rdzv-conf): %u came; --rdzv-id and --rdzv-endpoint must be the same "
              "everywhere%s%s%s",
              a->config.job, a->config.min_nodes,
              (unsigned long long)a->config.join_timeout_ms / 1000,
              MAX(a->n_joined, 1), /* this one, before the service has said so */
              a->also_waiting[0] != '\0' ? " (also waiting here: job " : "",
              a->also_waiting, a->also_waiting[0] != '\0' ? ")" : "");
    leaving_tell(a, 0);
    agent_finish(a, EXIT_RENDEZVOUS);
}

static void say_alone(struct agent *a)
{
    agent_say(a, LOG_LEVEL_ERROR, "no rendezvous at %s for %llu s (%s): giving up",
              a->config.endpoint, (unsigned long long)a->config.join_timeout_ms / 1000,
              a->trouble);
    a->closing = EXIT_RENDEZVOUS;
}

static void give_up_running(struct agent *a, const void *detail)
{
    (void)detail;
    say_alone(a);
    agent_stop(a, STOP_ABORT, SIGTERM);
}

static void give_up_waiting(struct agent *a, const void *detail)
{
    (void)detail;
    say_alone(a);
    agent_finish(a, EXIT_RENDEZVOUS);
}

static void ignore(struct agent *a, const void *detail)
{
    (void)a;
    (void)detail;
}

static void (*const actions[AGENT_STATE_COUNT][EVENT_COUNT])(struct agent *a,
                                                             const void *detail) = {
    [AGENT_CONNECTING] = {[EVENT_ATTACHED] = on_welcomed_again,
                          [EVENT_NEW_SESSION] = on_welcomed,
                          [EVENT_CLOSED] = close_now,
                          [EVENT_SIGNAL] = leave_soon,
                          [EVENT_GIVE_UP] = give_up_connecting},
    [AGENT_JOINING] = {[EVENT_ATTACHED] = reattach_joining,
                       [EVENT_NEW_SESSION] = rejoin,
                       [EVENT_GONE] = explain_lost,
                       [EVENT_ROUND] = start_round,
                       [EVENT_CLOSED] = close_now,
                       [EVENT_SIGNAL] = leaving_now,
                       [EVENT_GIVE_UP] = give_up_joining},
    [AGENT_RUNNING] = {[EVENT_ATTACHED] = reattach,
                       [EVENT_NEW_SESSION] = abandon,
                       [EVENT_GONE] = abandon,
                       [EVENT_STOP] = on_stop,
                       [EVENT_CLOSED] = stop_and_close,
                       [EVENT_FAILED] = on_failed,
                       [EVENT_EMPTY] = all_done,
                       [EVENT_SIGNAL] = leaving_begin,
                       [EVENT_GIVE_UP] = give_up_running},
    [AGENT_STOPPING] = {[EVENT_ATTACHED] = reattach,
                        [EVENT_NEW_SESSION] = abandon,
                        [EVENT_GONE] = abandon,
                        [EVENT_STOP] = on_stop,
                        [EVENT_CLOSED] = stop_and_close,
                        [EVENT_EMPTY] = settle,
                        [EVENT_SIGNAL] = leaving_again,
                        [EVENT_GIVE_UP] = give_up_running},
    [AGENT_WAITING] = {[EVENT_ATTACHED] = reattach,
                       [EVENT_NEW_SESSION] = abandon_waiting,
                       [EVENT_GONE] = abandon_waiting,
                       [EVENT_STOP] = join_again,
                       [EVENT_CLOSED] = close_now,
                       [EVENT_SIGNAL] = leave_soon,
                       [EVENT_GIVE_UP] = give_up_waiting},
    [AGENT_LEAVING] = {[EVENT_ATTACHED] = tell_and_leave,
                       [EVENT_NEW_SESSION] = leave,
                       [EVENT_GONE] = leave,
                       [EVENT_CLOSED] = leave,
                       [EVENT_SIGNAL] = leaving_impatient,
                       [EVENT_GIVE_UP] = leaving_give_up},
};

void agent_fire(struct agent *a, enum agent_event event, const void *detail)
{
    void (*action)(struct agent *, const void *) = actions[a->state][event];

    (action ? action : ignore)(a, detail);
}

void agent_keeper_lost(struct agent *a, uint64_t now_ms)
{
    a->now_ms = now_ms;
    if (a->state == AGENT_CLOSED) {
        return;
    }
    agent_say(
        a, LOG_LEVEL_ERROR,
        "the keeper, the parent of this node's workers, was killed, and they with it: "
        "this node leaves the job");
    a->config.actions.disconnect(a->config.actions.arg);
    agent_finish(a, a->leaving ? EXIT_SIGNAL + a->leaving : EXIT_NODE_LOST);
}

/* --- time --- */

void agent_tick(struct agent *a, uint64_t now_ms)
{
    a->now_ms = now_ms;
    for (int t = 0; t < TIMER_COUNT; t++) {
        if (a->timer[t] == 0 || a->timer[t] > now_ms) {
            continue;
        }
        a->timer[t] = 0;
        if (t == TIMER_NOTICE) {
            notice_tick(a);
        } else if (t == TIMER_PATIENCE) {
            agent_fire(a, EVENT_GIVE_UP, NULL);
        } else {
            link_tick(a, (enum agent_timer)t);
        }
    }
    workers_tick(a);
}

uint64_t agent_deadline(const struct agent *a)
{
    uint64_t first = workers_deadline(a);

    for (int t = 0; t < TIMER_COUNT; t++) {
        if (a->timer[t] != 0) {
            first = MIN(first, a->timer[t]);
        }
    }
    return first;
}
