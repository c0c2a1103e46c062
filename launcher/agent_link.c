/* PURE. The agent's connection: open, hello, heartbeats, reconnect with back-off.
 *
 * Happy path: connect → HELLO → WELCOME → (agent.c) → heartbeats and messages.
 * Failures: no connection, or it ends → reconnect after a back-off of at most a second
 * (ten, while one side refuses the other), for as long as TIMER_PATIENCE allows; an
 * ephemeral server's end → EVENT_GONE; no WELCOME in time → reconnect; a stranger on our
 * own port → exit 2. */

#include "launcher/agent_core.h"
#include "launcher/followed.h"

#include "common/err.h"
#include "common/exit_code.h"
#include "common/lease.h"

#include <stdio.h>
#include <string.h>

enum {
    BACKOFF_MIN_MS = 20,
    BACKOFF_MAX_MS = 1000,
    REFUSED_MIN_MS = 1000, /* refused again for the same reason */
    REFUSED_MAX_MS = 10000,
    HELLO_TIMEOUT_MS = 4000,
    DEFAULT_LEASE_MS = 3000,
    MAX_STRANGERS = 3,
    TAKEN_MS = 5000,        /* a rendezvous that only starts answers within it */
    CLOCK_KEEP_MS = 300000, /* an old sample yields to a slower, newer one */
};

#define NO_ANSWER "it accepts connections, but does not answer"

static uint64_t next_random(struct agent *a)
{
    a->rng += 0x9E3779B97F4A7C15U; /* splitmix64 */
    uint64_t z = a->rng;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

void link_open(struct agent *a)
{
    ASSERT(a->link == LINK_DOWN);
    a->link = LINK_OPENING;
    a->config.actions.connect(a->config.actions.arg);
}

/* Down; tries again after half to all of a delay that has doubled n times. */
static void pause_link(struct agent *a, uint64_t delay, unsigned n, uint64_t max)
{
    for (unsigned i = 0; i < n && delay < max; i++) {
        delay *= 2;
    }
    delay = MIN(delay, max);
    a->link = LINK_DOWN;
    agent_disarm(a, TIMER_HELLO);
    agent_disarm(a, TIMER_HEARTBEAT);
    agent_arm(a, TIMER_RECONNECT, delay / 2 + next_random(a) % (delay / 2 + 1));
}

static void go_down(struct agent *a)
{
    a->refusals = 0;
    pause_link(a, BACKOFF_MIN_MS, a->attempts++, BACKOFF_MAX_MS);
}

void agent_send(struct agent *a, const struct msg *m)
{
    if (a->link == LINK_UP) {
        a->config.actions.send(a->config.actions.arg, m);
    }
}

void agent_relay(struct agent *a, const struct msg *m)
{
    if (a->state != AGENT_CLOSED) {
        agent_send(a, m);
    }
}

static void send_hello(struct agent *a)
{
    const struct agent_config *c = &a->config;
    struct msg m = {.type = MSG_HELLO,
                    .u.hello = {.version = MSG_VERSION,
                                .agent_id = c->agent_id,
                                .session = a->session,
                                .cluster = a->cluster,
                                .boot = a->boot,
                                .start = a->start,
                                .kept = a->kept,
                                .generation = a->generation,
                                .group_rank = a->group_rank,
                                .failures = a->failures,
                                .commit_run = a->commit_run,
                                .commit_step = a->commit_step,
                                .min_nodes = c->min_nodes,
                                .max_nodes = c->max_nodes,
                                .nproc = c->nproc,
                                .max_restarts = c->max_restarts,
                                .node_rank = c->node_rank,
                                .last_call_ms = c->last_call_ms,
                                .on_hang = (uint8_t)c->on_hang}};

    (void)snprintf(m.u.hello.job, sizeof(m.u.hello.job), "%s", c->job);
    (void)snprintf(m.u.hello.host, sizeof(m.u.hello.host), "%s", c->host);
    memcpy(m.u.hello.commit_hash, a->commit_hash, sizeof(m.u.hello.commit_hash));
    c->actions.send(c->actions.arg, &m);
}

void agent_connected(struct agent *a, const char *taken, uint64_t now_ms)
{
    a->now_ms = now_ms;
    if (a->state == AGENT_CLOSED || a->link != LINK_OPENING) {
        return;
    }
    a->link = LINK_HELLO;
    a->taken_ms = 0;
    (void)snprintf(a->taken, sizeof(a->taken), "%s", taken);
    (void)snprintf(a->trouble, sizeof(a->trouble), "%s", NO_ANSWER);
    agent_arm(a, TIMER_HELLO, HELLO_TIMEOUT_MS);
    send_hello(a);
}

/* Slow: only where somebody is told of it, and never while a job runs. */
static void name_holder(struct agent *a)
{
    a->config.actions.name_holder(a->config.actions.arg, a->taken, sizeof(a->taken));
}

/* Our own port is held by somebody who does not answer there. */
static void on_taken(struct agent *a)
{
    if (a->taken_ms == 0) {
        a->taken_ms = MAX(a->now_ms, 1);
        name_holder(a);
        agent_say(
            a, LOG_LEVEL_WARN,
            "%s (nobody answers there; waiting %u s for a rendezvous that starts)",
            a->taken, TAKEN_MS / 1000);
    }
    if (a->now_ms - a->taken_ms < TAKEN_MS) {
        go_down(a);
        return;
    }
    name_holder(a);
    agent_say(a, LOG_LEVEL_ERROR,
              "the rendezvous cannot be served at %s, and nobody answers there: %s",
              a->config.endpoint, a->taken);
    agent_finish(a, EXIT_MISTAKE);
}

void agent_port_taken(struct agent *a, const char *text, const char *taken,
                      uint64_t now_ms)
{
    a->now_ms = now_ms;
    if (a->state == AGENT_CLOSED || a->link != LINK_OPENING) {
        return;
    }
    (void)snprintf(a->trouble, sizeof(a->trouble), "%s; %s", text, taken);
    (void)snprintf(a->taken, sizeof(a->taken), "%s", taken);
    if (a->session != 0) {
        go_down(a); /* of a job that runs: the other may go again */
    } else {
        on_taken(a);
    }
}

/* Why one side does not let the other in; false: that was said. */
static bool learn_refusal(struct agent *a, const char *text)
{
    char last[sizeof(a->refusal)];

    memcpy(last, a->refusal, sizeof(last));
    (void)snprintf(a->refusal, sizeof(a->refusal), "%s", text);
    memcpy(a->trouble, a->refusal, sizeof(a->trouble));
    if (strcmp(last, a->refusal) == 0) {
        return false;
    }
    a->refusals = 0;
    return true;
}

/* It is tried again and again, for that may be mended: ever more seldom while the reason
 * stays the same. */
static void go_down_refused(struct agent *a)
{
    a->taken_ms = 0;
    pause_link(a, REFUSED_MIN_MS, a->refusals++, REFUSED_MAX_MS);
}

/* A job that runs may see better times. */
static void give_up(struct agent *a, const char *text, int exit_code, uint64_t now_ms)
{
    a->now_ms = now_ms;
    if (a->state == AGENT_CLOSED || a->link != LINK_OPENING) {
        return;
    }
    if (a->session == 0 || learn_refusal(a, text)) {
        agent_say(a, LOG_LEVEL_ERROR, "cannot connect to the rendezvous at %s: %s",
                  a->config.endpoint, text);
    }
    if (a->session == 0) {
        agent_finish(a, exit_code);
    } else {
        go_down_refused(a);
    }
}

void agent_cannot_connect(struct agent *a, const char *text, uint64_t now_ms)
{
    give_up(a, text, EXIT_MISTAKE, now_ms);
}

void agent_refused(struct agent *a, const char *text, uint64_t now_ms)
{
    give_up(a, text, EXIT_RENDEZVOUS, now_ms);
}

void agent_connect_failed(struct agent *a, const char *text, uint64_t now_ms)
{
    a->now_ms = now_ms;
    if (a->state == AGENT_CLOSED || a->link != LINK_OPENING) {
        return;
    }
    a->taken_ms = 0;
    (void)snprintf(a->trouble, sizeof(a->trouble), "%s", text);
    go_down(a);
}

static void blame_stranger(struct agent *a)
{
    agent_say(a, LOG_LEVEL_ERROR,
              "the rendezvous cannot be served at %s, and what answers there does not "
              "speak ctrun's protocol: %s",
              a->config.endpoint, a->taken);
    agent_finish(a, EXIT_MISTAKE);
}

/* A connection that never came to WELCOME. On this host's own port, that somebody else
 * holds, it is the user's mistake; elsewhere it may be a server that starts, and a mute
 * ctrun is one that was stopped for a while. */
static void lost_stranger(struct agent *a, enum agent_loss loss)
{
    static const char *const troubles[] = {
        [LOSS_CLOSED] = "it accepts connections and closes them: is it a rendezvous of "
                        "ctrun?",
        [LOSS_SILENT] = NO_ANSWER,
        [LOSS_FOREIGN] = "what answers there does not speak ctrun's protocol",
    };
    bool is_mute = loss == LOSS_SILENT;

    if (a->taken[0] != '\0' && a->session == 0) {
        name_holder(a);
        a->strangers +=
            is_mute && !strstr(a->taken, "ctrun") ? MAX_STRANGERS : !is_mute;
        if (a->strangers >= MAX_STRANGERS) {
            blame_stranger(a);
            return;
        }
    }
    (void)snprintf(a->trouble, sizeof(a->trouble), "%s%s%s", troubles[loss],
                   a->taken[0] != '\0' ? "; " : "", a->taken);
    go_down(a);
}

void agent_disconnected(struct agent *a, enum agent_loss loss, uint64_t now_ms)
{
    bool is_silent = loss == LOSS_SILENT;
    enum agent_link was = a->link;
    char text[1024];

    a->now_ms = now_ms;
    if (a->state == AGENT_CLOSED || was == LINK_DOWN) {
        return;
    }
    if (was != LINK_UP) {
        lost_stranger(a, loss);
        return;
    }
    (void)snprintf(a->trouble, sizeof(a->trouble), "%s",
                   is_silent ? "it does not answer" : "it closed the connection");
    go_down(a);
    if (a->state == AGENT_JOINING && a->is_standby) {
        notice_begin(a); /* it was told for what it waits; now it is for the service */
    }
    if (a->is_ephemeral && !is_silent) {
        (void)snprintf(text, sizeof(text),
                       "the connection to the rendezvous at %s has ended (%s)",
                       a->config.endpoint, a->trouble);
        agent_fire(a, EVENT_GONE, text);
    } else if (a->state == AGENT_RUNNING && !a->is_silent) {
        (void)snprintf(text, sizeof(text), "lost the rendezvous at %s (%s)",
                       a->config.endpoint, a->trouble);
        notice_alone(a, text);
    }
}

static void send_heartbeat(struct agent *a)
{
    struct msg m = {.type = MSG_HEARTBEAT, .u.heartbeat = {.sent_ms = a->now_ms}};

    a->n_unanswered++;
    agent_send(a, &m);
    agent_arm(a, TIMER_HEARTBEAT, lease_heartbeat_ms(a->lease_ms));
}

void link_tick(struct agent *a, enum agent_timer timer)
{
    if (timer == TIMER_RECONNECT) {
        link_open(a);
    } else if (timer == TIMER_HEARTBEAT) {
        notice_silence(a);
        send_heartbeat(a);
    } else if (timer == TIMER_HELLO) {
        a->config.actions.disconnect(a->config.actions.arg);
        lost_stranger(a, LOSS_SILENT);
    }
}

/* The right one may come back. */
static void refuse_service(struct agent *a, const char *objection)
{
    char text[sizeof(a->refusal)];

    (void)snprintf(text, sizeof(text), "%s; start it with the state that it had",
                   objection);
    if (learn_refusal(a, text)) {
        agent_say(a, LOG_LEVEL_ERROR, "the rendezvous at %s is refused: %s",
                  a->config.endpoint, text);
    }
    a->config.actions.disconnect(a->config.actions.arg);
    go_down_refused(a);
}

/* Our service is there: what it makes wait for is its own affair, but for a round. */
static void be_patient(struct agent *a)
{
    if (a->state != AGENT_CONNECTING && (a->state != AGENT_JOINING || a->is_standby)) {
        agent_arm(a, TIMER_PATIENCE, a->config.join_timeout_ms);
    }
}

static int on_welcome(struct agent *a, const struct msg_welcome *w)
{
    bool is_known =
        a->session != 0 && w->session == a->session && w->cluster == a->cluster;
    bool was_lost = a->session != 0;
    bool is_same_life = is_known && w->boot == a->boot;
    const struct followed followed = {a->cluster, a->boot,       a->start,
                                      a->kept,    a->generation, a->config.job};
    char objection[384];

    followed_object(&followed, w, objection, sizeof(objection));
    if (objection[0] != '\0') {
        refuse_service(a, objection);
        return 0;
    }
    if (w->session == 0) {
        return ERR_PROTOCOL;
    }
    a->refusal[0] = '\0';
    a->refusals = 0;
    a->link = LINK_UP;
    a->attempts = 0;
    a->strangers = 0;
    a->session = w->session;
    a->cluster = w->cluster;
    a->boot = w->boot;
    a->start = w->ephemeral ? 0 : w->start;
    a->kept = w->kept;
    a->is_ephemeral = w->ephemeral != 0;
    a->lease_ms = w->lease_ms ? w->lease_ms : DEFAULT_LEASE_MS;
    a->n_unanswered = 0;
    agent_disarm(a, TIMER_HELLO);
    if (!is_same_life) {
        a->clock_sample_ms = 0; /* another machine's clock, maybe */
    }
    send_heartbeat(a);
    if (a->is_silent ||
        (was_lost && a->state != AGENT_JOINING && a->state != AGENT_CONNECTING)) {
        notice_answers(a);
    }
    be_patient(a);
    agent_fire(a, is_known ? EVENT_ATTACHED : EVENT_NEW_SESSION,
               "the rendezvous does not know it any more");
    return 0;
}

void agent_keeps(struct agent *a, uint64_t kept)
{
    if (a->link == LINK_UP) {
        a->kept = MAX(a->kept, kept);
        notice_heard(a);
    }
}

static int on_pong(struct agent *a, const struct msg_pong *pong)
{
    uint64_t trip;

    if (pong->sent_ms > a->now_ms) {
        return ERR_PROTOCOL;
    }
    a->n_joined = pong->n_joined;
    agent_keeps(a, pong->kept);
    memcpy(a->also_waiting, pong->also_waiting, sizeof(a->also_waiting));
    trip = a->now_ms - pong->sent_ms;
    if (a->clock_sample_ms == 0 || trip <= a->clock_trip_ms ||
        a->now_ms - a->clock_sample_ms > CLOCK_KEEP_MS) {
        a->clock_trip_ms = trip;
        a->clock_sample_ms = MAX(a->now_ms, 1);
        a->clock_offset = pong->service_ms - (pong->sent_ms + trip / 2);
        leaving_date(a);
    }
    return 0;
}

uint64_t link_service_ms(const struct agent *a, uint64_t ours_ms)
{
    if (a->clock_sample_ms == 0) {
        return 0; /* nothing to compare with yet */
    }
    return ours_ms + a->clock_offset;
}

/* Its first word stands: workers may take a while to stop, and it is asked again when
 * the connection ends meanwhile. */
static int on_closing(struct agent *a, uint32_t exit_code, const char *text)
{
    if (a->was_closed) {
        return 0;
    }
    if (text[0] != '\0') {
        agent_say(a, exit_code == 0 ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR, "%s", text);
    } else if (exit_code == 0 && a->is_standby && a->generation == 0) {
        agent_say(a, LOG_LEVEL_INFO,
                  "job %s has ended well; this node stood by, and nothing was run here",
                  a->config.job);
    }
    a->closing = (int)MIN(exit_code, 255);
    a->was_closed = true;
    agent_fire(a, EVENT_CLOSED, NULL);
    return 0;
}

/* In the place of WELCOME: nothing more is to be told or heard there, however long the
 * workers take to stop. */
static int on_refused(struct agent *a, const struct msg_refused *refused)
{
    int rv = on_closing(a, refused->exit_code, refused->text);

    if (a->state != AGENT_CLOSED) {
        a->config.actions.disconnect(a->config.actions.arg);
        a->link = LINK_DOWN;
        agent_disarm(a, TIMER_HELLO);
        agent_disarm(a, TIMER_PATIENCE);
    }
    return rv;
}

static int on_round(struct agent *a, const struct msg_round *round)
{
    if (round->generation <= a->generation || a->state != AGENT_JOINING) {
        return 0; /* an old one, or sent again */
    }
    agent_fire(a, EVENT_ROUND, round);
    return a->state == AGENT_JOINING ? ERR_PROTOCOL : 0; /* it made no sense */
}

/* The user of a job of one node hardly means another's standby. */
static void on_standby(struct agent *a, const struct msg_standby *standby)
{
    const struct agent_config *c = &a->config;

    if (a->state == AGENT_JOINING && !a->is_standby) {
        agent_say(a, LOG_LEVEL_INFO, "job %s at %s: %s%s", c->job, c->endpoint,
                  standby->text,
                  c->max_nodes > 1 || a->generation > 0
                      ? ""
                      : " (a job of its own needs another --rdzv-id)");
        a->is_standby = true;
        agent_disarm(a, TIMER_NOTICE);
    }
}

/* Of this generation, by whichever node; the next service may know no more than we. */
static void learn_commit(struct agent *a, const struct msg_report *report)
{
    bool is_newer =
        report->commit_run > a->commit_run ||
        (report->commit_run == a->commit_run && report->commit_step > a->commit_step);

    if (report->commit_hash[0] != '\0' && (a->commit_hash[0] == '\0' || is_newer)) {
        a->commit_run = report->commit_run;
        a->commit_step = report->commit_step;
        memcpy(a->commit_hash, report->commit_hash, sizeof(a->commit_hash));
    }
}

static int on_report(struct agent *a, const struct msg_report *report)
{
    if (!msg_is_end(report->code, report->signal)) {
        return ERR_PROTOCOL;
    }
    learn_commit(a, report);
    a->why[0] = '\0'; /* the report has it */
    if (a->generation == 0 && !a->is_standby && report->final == 0) {
        return 0; /* a newcomer's own coming has ended it */
    }
    if (report->generation != 0 && report->generation == a->reported &&
        (report->final != 0) == a->was_final) {
        return 0; /* said again */
    }
    a->reported = report->generation;
    a->was_final = report->final != 0;
    a->config.actions.report(a->config.actions.arg, report);
    return 0;
}

/* Once welcomed. */
static int on_message(struct agent *a, const struct msg *m)
{
    switch (m->type) {
    case MSG_PONG:
        return on_pong(a, &m->u.pong);
    case MSG_ROUND:
        return on_round(a, &m->u.round);
    case MSG_STANDBY:
        on_standby(a, &m->u.standby);
        return 0;
    case MSG_STOP:
        if (m->u.stop.generation == a->generation) {
            agent_fire(a, EVENT_STOP, &m->u.stop);
        }
        return 0;
    case MSG_DECISION:
        requests_decide(a, &m->u.decision);
        return 0;
    case MSG_REPORT:
        return on_report(a, &m->u.report);
    case MSG_REFUSED:
        return on_closing(a, m->u.refused.exit_code, m->u.refused.text);
    case MSG_CLOSED:
        return on_closing(a, m->u.closed.exit_code, m->u.closed.text);
    case MSG_DRAIN:
        agent_drain(a, m->u.drain.text);
        return 0;
    case MSG_INSPECT:
        inspect_begin(a, &m->u.inspect);
        return 0;
    case MSG_NOTICE:
        notice_tell(a, &m->u.notice);
        return 0;
    case MSG_HELLO:
    case MSG_WELCOME:
    case MSG_JOIN:
    case MSG_HEARTBEAT:
    case MSG_RANK_ENDED:
    case MSG_REFUSE:
    case MSG_STOPPED:
    case MSG_LEAVE:
    case MSG_RESUMED:
    case MSG_COMMIT:
    case MSG_PROGRESS:
    case MSG_STORE:
    case MSG_STORE_CLOSE:
    case MSG_STORE_REPLY:
    case MSG_OPERATOR:
    case MSG_ASK:
    case MSG_ANSWER:
    case MSG_INSPECTED:
        break;
    }
    return ERR_PROTOCOL;
}

int agent_message(struct agent *a, const struct msg *m, uint64_t now_ms)
{
    a->now_ms = now_ms;
    if (a->state == AGENT_CLOSED || a->link == LINK_DOWN || a->link == LINK_OPENING) {
        return 0;
    }
    if (a->link == LINK_UP) {
        be_patient(a);
        notice_heard(a);
        return on_message(a, m);
    }
    if (m->type == MSG_WELCOME) {
        return on_welcome(a, &m->u.welcome);
    }
    if (m->type == MSG_REFUSED) {
        return on_refused(a, &m->u.refused);
    }
    return ERR_PROTOCOL;
}
