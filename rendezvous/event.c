#include "rendezvous/event.h"

#include "common/check.h"
#include "common/log.h"
#include "common/msg.h"

#include <stdio.h>

enum { MAX_WHY = 512 };

static const char *const kind_names[JOB_EVENT_COUNT] = {
    [JOB_HAS_FORMED] = "formed",
    [JOB_RESTARTS] = "restarting",
    [JOB_HAS_FAILED] = "failed",
    [JOB_IS_DONE] = "done",
    [JOB_IS_CANCELLED] = "cancelled",
    [JOB_IS_STOPPED] = "stopped",
    [JOB_HAS_COMMITTED] = "committed",
    [JOB_PROGRESSES] = "progress",
    [NODE_HAS_JOINED] = "node_joined",
    [NODE_STANDS_BY] = "node_standby",
    [NODE_IS_LOST] = "node_lost",
    [NODE_HAS_LEFT] = "node_left",
    [NODE_IS_REFUSED] = "refused",
    [JOB_HANGS] = "hang",
    [JOB_HANGS_NO_MORE] = "hang_over",
    [OPERATOR_ACTS] = "operator",
    [SERVICE_HAS_STARTED] = "service_started",
};

static const char *const cause_names[RESTART_CAUSE_COUNT] = {
    [RESTART_FAILURE] = "failure",
    [RESTART_NODE_LOST] = "node_lost",
    [RESTART_NODE_JOINED] = "node_joined",
    [RESTART_NODE_LEFT] = "node_left",
    [RESTART_HANG] = "hang",
    [RESTART_PREEMPTION] = "preemption",
    [RESTART_REFUSAL] = "smaller_world",
};

const char *event_kind_name(enum job_event_kind kind)
{
    ASSERT(kind < JOB_EVENT_COUNT);
    return kind_names[kind];
}

const char *event_cause_name(enum restart_cause cause)
{
    ASSERT(cause < RESTART_CAUSE_COUNT);
    return cause_names[cause];
}

/* One line, whatever is in it: it stands in quotes. */
static void clean(char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f || *text == '"') {
            *text = *text == '"' ? '\'' : ' ';
        }
    }
}

/* What people look for is told at info; the rest is in the history. */
static void log_detail(const struct job_event *e, const char *job, const char *why)
{
    char node[MSG_ID_MAX + 3];

    log_debug(event_kind_name(e->kind),
              "job=%s generation=%llu node=%s step=%llu text=\"%s\"", job,
              (unsigned long long)e->generation,
              e->node ? log_value(e->node, node, sizeof(node)) : "",
              (unsigned long long)e->step, why);
}

static void log_refusal(const struct job_event *e, const char *job, const char *why)
{
    char node[MSG_ID_MAX + 3] = "";

    if (e->node) {
        (void)log_value(e->node, node, sizeof(node));
    }
    log_warn("turned a node away", "job=%s node=%s cause=\"%s\"", job, node, why);
}

void event_log(const struct job_event *e)
{
    unsigned long long generation = e->generation;
    char why[MAX_WHY];
    char job[MSG_ID_MAX + 3] = "";

    if (e->job) {
        (void)log_value(e->job, job, sizeof(job));
    }
    (void)snprintf(why, sizeof(why), "%s", e->why ? e->why : "");
    clean(why);
    switch (e->kind) {
    case JOB_HAS_FORMED:
        log_info("job formed", "job=%s generation=%llu nodes=%zu ranks=%u", job,
                 generation, e->nodes, e->ranks);
        break;
    case JOB_RESTARTS:
        log_info("job restarting", "job=%s generation=%llu cause=\"%s\"", job,
                 generation, why);
        break;
    case JOB_HAS_FAILED:
        log_info("job failed", "job=%s generation=%llu exit_code=%u cause=\"%s\"", job,
                 generation, e->exit_code, why);
        break;
    case JOB_IS_DONE:
        log_info("job done", "job=%s generation=%llu", job, generation);
        break;
    case JOB_IS_CANCELLED:
        log_info("job cancelled", "job=%s generation=%llu exit_code=%u cause=\"%s\"",
                 job, generation, e->exit_code, why);
        break;
    case JOB_IS_STOPPED:
        log_info("job stopped", "job=%s generation=%llu cause=\"%s\"", job, generation,
                 why);
        break;
    case JOB_HANGS:
        log_warn("job hangs", "job=%s generation=%llu cause=\"%s\"", job, generation,
                 why);
        break;
    case JOB_HANGS_NO_MORE:
        log_info("job hangs no more", "job=%s generation=%llu text=\"%s\"", job,
                 generation, why);
        break;
    case OPERATOR_ACTS:
        log_info("an operator acts", "job=%s text=\"%s\"", job, why);
        break;
    case NODE_IS_REFUSED:
        log_refusal(e, job, why);
        break;
    case JOB_HAS_COMMITTED:
    case NODE_HAS_JOINED:
    case NODE_STANDS_BY:
    case NODE_IS_LOST:
    case NODE_HAS_LEFT:
        log_detail(e, job, why);
        break;
    case JOB_PROGRESSES:
    case SERVICE_HAS_STARTED:
    case JOB_EVENT_COUNT:
        break; /* main.c says how it starts */
    }
}
