#include "rendezvous/job.h"

void job_note(const struct job *j, struct job_event e)
{
    e.job = j->id;
    e.owner = j->owner;
    e.generation = j->generation;
    if (j->sink.note) {
        j->sink.note(j->sink.arg, &e);
    }
}

void job_note_node(const struct job *j, enum job_event_kind kind,
                   const struct job_node *node, const char *why)
{
    job_note(j, (struct job_event){.kind = kind, .node = node->hello.host, .why = why});
}

/* All ranks have the same loss, where they know it: of the step that they tell. */
void job_note_loss(const struct job *j, const struct msg_progress *m)
{
    if (m->loss[0] != '\0' && m->step > 0) {
        job_note(j, (struct job_event){
                        .kind = JOB_PROGRESSES, .step = m->step, .why = m->loss});
    }
}
