#include "rendezvous/requests.h"

#include "rendezvous/store.h"

#include <stdio.h>

static void decide(struct job *j, const struct job_node *node,
                   const struct msg_decision *decision)
{
    struct msg m = {.type = MSG_DECISION, .u.decision = *decision};

    j->sink.send(j->sink.arg, node->session, &m);
}

static void answer(struct job *j, const struct job_node *node, uint64_t request,
                   const char *objection)
{
    struct msg_decision decision = {
        .generation = j->generation, .request = request, .accepted = objection == NULL};

    if (objection) {
        (void)snprintf(decision.text, sizeof(decision.text), "%s", objection);
    }
    decide(j, node, &decision);
}

void requests_resumed(struct job *j, const struct job_node *node,
                      const struct msg_resumed *m)
{
    answer(j, node, m->request, fence_resumed(&j->fence, m->run, m->step));
}

bool requests_commit(struct job *j, const struct job_node *node,
                     const struct msg_commit *m)
{
    uint64_t before = j->fence.own.step;

    answer(j, node, m->request, fence_commit(&j->fence, m->run, m->step, m->hash));
    if (j->fence.own.step == before) {
        return false;
    }
    if (store_budget_space(&j->budget) != SPACE_SPENT) {
        saving_commit(j, m); /* history: what counts is in the job's own record */
    }
    job_note(j, (struct job_event){.kind = JOB_HAS_COMMITTED,
                                   .node = node->hello.host,
                                   .step = m->step});
    return true;
}

static void refuse(struct job *j, const struct job_node *node, uint64_t generation,
                   uint64_t request)
{
    struct msg_decision decision = {.generation = generation, .request = request};

    (void)snprintf(decision.text, sizeof(decision.text), "generation %llu is over",
                   (unsigned long long)generation);
    decide(j, node, &decision);
}

void requests_refuse(struct job *j, const struct job_node *node, const struct msg *m)
{
    if (m->type == MSG_COMMIT) {
        refuse(j, node, m->u.commit.generation, m->u.commit.request);
    } else if (m->type == MSG_RESUMED) {
        refuse(j, node, m->u.resumed.generation, m->u.resumed.request);
    }
}
