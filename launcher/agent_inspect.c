/* PURE. The service asks what a rank of this node does or says; the shell finds out. */

#include "launcher/agent_core.h"

#include <stdio.h>

static void answer_gone(struct agent *a, const struct msg_inspect *m)
{
    struct msg answer = {.type = MSG_INSPECTED,
                         .u.inspected = {.generation = m->generation,
                                         .request = m->request,
                                         .rank = m->rank,
                                         .what = m->what}};

    (void)snprintf(answer.u.inspected.state, sizeof(answer.u.inspected.state), "%s",
                   INSPECT_GONE);
    agent_send(a, &answer);
}

void inspect_begin(struct agent *a, const struct msg_inspect *m)
{
    uint32_t slot = m->rank - a->first_rank; /* of a rank before ours: too large */

    if (m->what == INSPECT_HANG) {
        progress_hurry(a); /* it may have moved since we said so last */
    }
    if (m->generation == a->generation && slot < a->config.nproc) {
        a->config.actions.inspect(a->config.actions.arg, slot, m);
    } else {
        answer_gone(a, m);
    }
}

void agent_inspected(struct agent *a, const struct msg_inspected *m)
{
    struct msg answer = {.type = MSG_INSPECTED, .u.inspected = *m};

    agent_send(a, &answer);
}
