#include "rendezvous/job.h"

#include <stdio.h>
#include <string.h>

static bool is_end(enum job_event_kind kind)
{
    return kind == JOB_IS_DONE || kind == JOB_HAS_FAILED || kind == JOB_IS_CANCELLED ||
           kind == JOB_IS_STOPPED;
}

void job_note(const struct job *j, struct job_event e)
{
    e.job = j->id;
    e.owner = j->owner;
    e.generation = j->generation;
    if (is_end(e.kind) && j->progress.generation == j->generation) {
        e.step = j->progress.front_step; /* its last loss may be of a step before */
    }
    if (j->sink.note) {
        j->sink.note(j->sink.arg, &e);
    }
}

static bool has_group_rank(const struct job *j, const struct job_node *node)
{
    return node->group_rank >= 0 && node->ranked_in == j->generation;
}

void job_note_node(const struct job *j, enum job_event_kind kind,
                   const struct job_node *node, const char *why)
{
    bool has_rank = has_group_rank(j, node);

    job_note(j,
             (struct job_event){.kind = kind,
                                .node = node->hello.host,
                                .has_group_rank = has_rank,
                                .group_rank = has_rank ? (uint32_t)node->group_rank : 0,
                                .why = why});
}

/* All ranks have the same loss of a step, where they know it. They tell it again with
 * what they report of later steps. */
void job_note_loss(const struct job *j, const struct msg_progress *m)
{
    if (m->loss[0] != '\0' && m->loss_step > 0 && m->loss_step <= INT64_MAX) {
        job_note(j, (struct job_event){
                        .kind = JOB_PROGRESSES, .step = m->loss_step, .why = m->loss});
    }
}

static bool shares_host(const struct job *j, const struct job_node *node)
{
    for (size_t i = 0; i < j->n_nodes; i++) {
        if (j->node[i] != node &&
            strcmp(j->node[i]->hello.host, node->hello.host) == 0) {
            return true;
        }
    }
    return false;
}

void job_name_node(const struct job *j, const struct job_node *node, char *ret,
                   size_t size)
{
    (void)snprintf(ret, size, "%s", node->hello.host);
    if (has_group_rank(j, node) && shares_host(j, node)) {
        (void)snprintf(ret, size, "%s (group rank %d)", node->hello.host,
                       node->group_rank);
    }
}
