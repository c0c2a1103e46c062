/* PURE. For what this node waits, and for whom: told after a short while, and again
 * and again, each time after twice as long, up to a minute. And, once, that the service
 * does not answer while a job runs. */

#include "launcher/agent_core.h"

#include "common/lease.h"

#include <stdio.h>
#include <string.h>

enum {
    NOTICE_MS = 1500,       /* within 5 s people know for what it waits */
    NOTICE_ROUND_MS = 4000, /* a round with room closes 3 s after the last join */
    AGAIN_MIN_MS = 5000,    /* an attempt to connect has ended by then */
    AGAIN_MAX_MS = 60000,
    MAX_LINES = 40, /* of a notice */
};

void notice_begin(struct agent *a)
{
    bool has_room = a->config.min_nodes < a->config.max_nodes;

    a->notice_ms = AGAIN_MIN_MS;
    agent_arm(a, TIMER_NOTICE,
              a->state == AGENT_JOINING && has_room ? NOTICE_ROUND_MS : NOTICE_MS);
}

static unsigned long long seconds_left(const struct agent *a)
{
    uint64_t end = MAX(a->timer[TIMER_PATIENCE], a->now_ms);

    return (end - a->now_ms + 999) / 1000;
}

void notice_describe_trouble(const struct agent *a, char *ret, size_t size)
{
    struct agent_route route = {0};
    const char *why = "no answer yet";

    a->config.actions.look(a->config.actions.arg, &route);
    if (a->trouble[0] != '\0') {
        why = a->trouble;
    } else if (route.attempt[0] != '\0') {
        why = route.attempt;
    }
    (void)snprintf(ret, size, "%s", why);
}

static void say_connecting(struct agent *a)
{
    char why[sizeof(a->trouble)];

    notice_describe_trouble(a, why, sizeof(why));
    agent_say(a, LOG_LEVEL_INFO,
              "waiting for the rendezvous at %s (%s), for %llu s at most",
              a->config.endpoint, why, seconds_left(a));
}

/* "1 more of 2 nodes", "the others of 2 to 4 nodes (2 are here)". */
static void describe_wanted(const struct agent *a, uint32_t n, char *ret, size_t size)
{
    const struct agent_config *c = &a->config;
    char all[32];

    if (c->min_nodes == c->max_nodes) {
        (void)snprintf(all, sizeof(all), "%u", c->min_nodes);
    } else {
        (void)snprintf(all, sizeof(all), "%u to %u", c->min_nodes, c->max_nodes);
    }
    if (n < c->min_nodes) {
        (void)snprintf(ret, size, "%u more of %s nodes", c->min_nodes - n, all);
    } else {
        (void)snprintf(ret, size, "the others of %s nodes (%u are here)", all, n);
    }
}

static void say_joining(struct agent *a)
{
    const struct agent_config *c = &a->config;
    uint32_t n = MAX(a->n_joined, 1); /* this one, before the service has said so */
    struct agent_route route = {0};
    char also[MSG_ID_MAX + 32] = "";
    char wanted[96];

    c->actions.look(c->actions.arg, &route);
    describe_wanted(a, n, wanted, sizeof(wanted));
    if (a->also_waiting[0] != '\0') {
        (void)snprintf(also, sizeof(also), " (also waiting here: job %s)",
                       a->also_waiting);
    }
    if (route.is_served_here && n == 1 && a->generation == 0) { /* nobody was lost */
        agent_say(a, LOG_LEVEL_INFO,
                  "this node hosts the rendezvous at %s itself, and nobody else has "
                  "joined job %s%s: --rdzv-endpoint and --rdzv-id must be the same on "
                  "all nodes; waiting for %s, for %llu s at most",
                  c->endpoint, c->job, also, wanted, seconds_left(a));
    } else {
        agent_say(a, LOG_LEVEL_INFO,
                  "joined job %s at %s%s; waiting for %s, for %llu s at most", c->job,
                  c->endpoint, also, wanted, seconds_left(a));
    }
}

/* Further lines, a few, each as a line of ours. */
static void tell_detail(struct agent *a, char *detail)
{
    const char *line;

    for (int i = 0; i < MAX_LINES && (line = strsep(&detail, "\n")) != NULL; i++) {
        if (*line != '\0') {
            agent_say(a, LOG_LEVEL_WARN, "  %s", line);
        }
    }
}

/* Other nodes' words are in it. */
static void clean(char *text)
{
    for (; *text != '\0'; text++) {
        if (((unsigned char)*text < ' ' && *text != '\n') || *text == 0x7f) {
            *text = '?';
        }
    }
}

void notice_tell(struct agent *a, const struct msg_notice *m)
{
    struct msg_notice copy = *m;

    clean(copy.text);
    clean(copy.detail);
    agent_say(a, LOG_LEVEL_WARN, "%s", copy.text);
    tell_detail(a, copy.detail);
}

void notice_tick(struct agent *a)
{
    if (a->link != LINK_UP) {
        say_connecting(a);
    } else {
        say_joining(a);
    }
    agent_arm(a, TIMER_NOTICE, a->notice_ms);
    a->notice_ms = MIN(2 * a->notice_ms, AGAIN_MAX_MS);
}

/* ---- a service that does not answer ---- */

void notice_alone(struct agent *a, const char *what)
{
    agent_say(a, LOG_LEVEL_WARN, "%s; the workers go on without it%s", what,
              workers_live(a, true) > 0 ? ", and commit no checkpoint until it answers"
                                        : "");
}

/* One that is frozen keeps its connections: nothing else would say a word. */
void notice_silence(struct agent *a)
{
    char text[512];

    if (a->state == AGENT_RUNNING && !a->is_silent &&
        lease_is_silence(a->n_unanswered)) {
        a->is_silent = true;
        (void)snprintf(text, sizeof(text), "the rendezvous at %s does not answer",
                       a->config.endpoint);
        notice_alone(a, text);
    }
}

void notice_heard(struct agent *a)
{
    a->n_unanswered = 0;
    if (a->is_silent) {
        notice_answers(a);
    }
}

void notice_answers(struct agent *a)
{
    a->is_silent = false;
    agent_say(a, LOG_LEVEL_INFO, "the rendezvous at %s answers again",
              a->config.endpoint);
}
