#include "rendezvous/resuming.h"

#include "rendezvous/forming.h"

#include "common/exit_code.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

static void send(struct job *j, const struct job_node *node, const struct msg *m)
{
    j->sink.send(j->sink.arg, node->session, m);
}

/* Of a generation in which it was, or the job's end. */
static void tell_report(struct job *j, const struct job_node *node,
                        const struct msg_hello *hello)
{
    struct msg *m;

    if (!j->report ||
        (!j->report->final && hello->generation < j->report->generation)) {
        return;
    }
    m = mem_zalloc(sizeof(*m));
    m->type = MSG_REPORT;
    m->u.report = *j->report;
    send(j, node, m);
    mem_free(m);
}

static void tell_closed(struct job *j, const struct job_node *node)
{
    struct msg m = {.type = MSG_CLOSED, .u.closed = {.exit_code = j->exit_code}};

    if (j->state == JOB_FAILED && j->ending.has_refused) {
        memcpy(m.u.closed.text, j->ending.text, sizeof(m.u.closed.text));
    }
    send(j, node, &m);
}

static void tell_stop(struct job *j, const struct job_node *node)
{
    struct msg m = {.type = MSG_STOP,
                    .u.stop = {.generation = j->generation, .mode = STOP_LEAVE}};

    if (j->ending.is_aborting) {
        m.u.stop.mode = STOP_ABORT;
    } else if (node->is_leaving) {
        return;
    }
    memcpy(m.u.stop.text, j->ending.stop_text, sizeof(m.u.stop.text));
    send(j, node, &m);
}

static void tell_turned_away(struct job *j, const struct job_node *node)
{
    struct msg m = {.type = MSG_REFUSED, .u.refused = {.exit_code = EXIT_MISTAKE}};

    (void)snprintf(m.u.refused.text, sizeof(m.u.refused.text),
                   "job %s: no room for this node beside the others", j->id);
    send(j, node, &m);
}

/* A member that never heard of its generation has no workers of it. */
static void tell_member(struct job *j, struct job_node *node, bool has_begun)
{
    if (j->state == JOB_RUNNING && !has_begun) {
        forming_tell_round(j, node);
    } else if (j->state == JOB_DRAINING && has_begun) {
        tell_stop(j, node);
    } else if (j->state == JOB_DRAINING) {
        job_leave_generation(j, node, false, "never began");
    }
}

void resuming_tell(struct job *j, struct job_node *node, const struct msg_hello *hello)
{
    tell_report(j, node, hello);
    if (job_is_over(j)) {
        tell_closed(j, node);
        return;
    }
    switch (node->state) {
    case NODE_PRESENT:
        break;
    case NODE_JOINED:
        if (node->standby_told) {
            node->standby_told = false;
            forming_tell_standby(j, node);
        }
        break;
    case NODE_RUNNING:
    case NODE_DONE:
        tell_member(j, node, hello->generation >= j->generation);
        break;
    case NODE_LEFT:
        if (!node->is_leaving) {
            tell_turned_away(j, node);
        }
        break;
    case NODE_STATE_COUNT:
        UNREACHABLE();
    }
}
