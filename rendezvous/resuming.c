#include "rendezvous/resuming.h"

#include "rendezvous/draining.h"
#include "rendezvous/forming.h"

#include "common/exit_code.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

static void send(struct job *j, const struct job_node *node, const struct msg *m)
{
    j->sink.send(j->sink.arg, node->session, m);
}

static void tell_report(struct job *j, const struct job_node *node)
{
    struct msg *m;

    if (!j->report || node->arrival >= j->report_arrivals) {
        return; /* it came later */
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

    if (draining_was_cancelled(j)) {
        draining_describe_cancel(j, m.u.closed.text, sizeof(m.u.closed.text));
    } else if (j->state == JOB_FAILED && j->ending.has_refused) {
        memcpy(m.u.closed.text, j->ending.text, sizeof(m.u.closed.text));
    }
    send(j, node, &m);
}

static void tell_stop(struct job *j, const struct job_node *node)
{
    struct msg m = {.type = MSG_STOP,
                    .u.stop = {.generation = j->generation,
                               .mode = STOP_LEAVE,
                               .hung = j->ending.hung}};

    if (j->ending.is_aborting) {
        m.u.stop.mode = STOP_ABORT;
    } else if (node->is_leaving) {
        return;
    }
    memcpy(m.u.stop.text, j->ending.stop_text, sizeof(m.u.stop.text));
    send(j, node, &m);
}

void resuming_tell_drained(struct job *j, const struct job_node *node)
{
    struct msg m = {.type = MSG_DRAIN};

    if (node->drained[0] != '\0' && !node->is_leaving) {
        memcpy(m.u.drain.text, node->drained, sizeof(node->drained));
        send(j, node, &m);
    }
}

static void tell_turned_away(struct job *j, const struct job_node *node)
{
    struct msg m = {.type = MSG_REFUSED, .u.refused = {.exit_code = EXIT_MISTAKE}};

    (void)snprintf(m.u.refused.text, sizeof(m.u.refused.text),
                   "job %s: no room for this node beside the others", j->id);
    send(j, node, &m);
}

/* A member that never heard of its generation has no workers of it. Its ROUND can be
 * made again as long as all members are there: one that is done may have gone. */
static void tell_member(struct job *j, struct job_node *node, bool has_begun)
{
    if (has_begun && j->state == JOB_DRAINING) {
        tell_stop(j, node);
    } else if (!has_begun && j->state == JOB_RUNNING &&
               job_members(j) == j->n_members) {
        forming_tell_round(j, node);
    } else if (!has_begun) {
        job_leave_generation(j, node, false, "never began");
    }
}

/* Now, where it is true, else with the next round. */
static void tell_standby(struct job *j, struct job_node *node)
{
    if (node->standby_told) {
        node->standby_told = false;
        saving_touch(j, node);
        if (j->state == JOB_RUNNING || node->is_flapping || j->waits_for_space) {
            forming_tell_standby(j, node);
        }
    }
}

void resuming_tell(struct job *j, struct job_node *node, const struct msg_hello *hello)
{
    tell_report(j, node);
    if (job_is_over(j)) {
        tell_closed(j, node);
        return;
    }
    resuming_tell_drained(j, node);
    switch (node->state) {
    case NODE_PRESENT:
        if (node->waits_done && hello->generation == j->generation) {
            tell_stop(j, node);
        }
        break;
    case NODE_JOINED:
        tell_standby(j, node);
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
