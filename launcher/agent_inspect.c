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

void inspect_note_past(struct agent *a)
{
    if (a->generation > 0) {
        a->past[a->n_past++ % AGENT_MAX_PAST] =
            (struct agent_past){a->generation, a->first_rank};
    }
}

/* Of what ranks do nothing is left; what they have said is in files. */
static bool is_of_the_past(const struct agent *a, const struct msg_inspect *m,
                           uint32_t *ret_first)
{
    bool is_log = m->what == INSPECT_LOG || m->what == INSPECT_LOG_ERRORS;
    size_t n = is_log ? MIN(a->n_past, (size_t)AGENT_MAX_PAST) : 0;

    for (size_t i = 0; i < n; i++) {
        if (a->past[i].generation == m->generation) {
            *ret_first = a->past[i].first_rank;
            return true;
        }
    }
    return false;
}

void inspect_begin(struct agent *a, const struct msg_inspect *m)
{
    uint32_t first = a->first_rank;
    bool is_ours = m->generation == a->generation || is_of_the_past(a, m, &first);
    uint32_t slot = m->rank - first; /* of a rank before ours: too large */

    if (m->what == INSPECT_HANG) {
        progress_hurry(a); /* it may have moved since we said so last */
    }
    if (is_ours && slot < a->config.nproc) {
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
