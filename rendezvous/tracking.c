#include "rendezvous/tracking.h"

#include "common/mem.h"

/* By rank; NULL where one is not here (after a restart of the service, say). Owned. */
static const struct job_node **members_in_order(const struct job *j)
{
    const struct job_node **members = mem_array(MAX(j->n_members, 1), sizeof(*members));

    for (size_t i = 0; i < j->n_nodes; i++) {
        const struct job_node *node = j->node[i];
        bool is_member = node->state == NODE_RUNNING || node->state == NODE_DONE;

        if (is_member && node->group_rank >= 0 &&
            (size_t)node->group_rank < j->n_members) {
            members[node->group_rank] = node;
        }
    }
    return members;
}

void tracking_begin(struct job *j)
{
    const struct job_node **members = members_in_order(j);

    progress_begin(&j->progress, j->generation, (uint32_t)j->n_members);
    for (size_t i = 0; i < j->n_members && members[i]; i++) {
        progress_add_node(&j->progress, members[i]->session, members[i]->hello.host,
                          members[i]->hello.nproc);
    }
    progress_start(&j->progress);
    mem_free(members);
}

void tracking_note(struct job *j, const struct job_node *node,
                   const struct msg_progress *m)
{
    bool are_here = job_members(j) == j->n_members;

    if (j->progress.generation != j->generation ||
        (are_here && j->progress.n_nodes < j->n_members)) {
        tracking_begin(j); /* the service has been started anew meanwhile */
    }
    (void)progress_note(&j->progress, node->session, m, j->now_ms); /* a stranger's */
}
