#ifndef RENDEZVOUS_SAVING_H
#define RENDEZVOUS_SAVING_H

/* PURE. Which records of a job (record.h) have changed: at the end of every event what
 * it may have touched is written anew and compared with what was saved last. So no
 * change is forgotten, and a node that joins writes its own record and the job's, not
 * those of all others. Where nothing is kept nothing is built. */

#include "common/msg.h"

struct job;
struct job_node;

/* Of a job: hashes of what was saved last, 0: nothing. */
struct saving {
    struct job_node *touched; /* nodes, listed */
    uint64_t job, members, flappers;
    uint64_t pace_generation; /* in which a step … */
    uint32_t pace_ms;         /* … takes about so long; 0: it is not known */
};

struct saving_node {
    struct job_node *next; /* of those touched */
    bool is_touched;
    uint64_t hash;
};

/* The node may have changed, or is gone. */
void saving_touch(struct job *j, struct job_node *node);
void saving_drop_node(struct job *j, struct job_node *node);

void saving_end_of_rank(struct job *j, uint32_t rank);
/* … of history: the job's own record has the last one, too. */
void saving_commit(struct job *j, const struct msg_commit *commit);
void saving_report(struct job *j,
                   const struct msg *m); /* MSG_REPORT, to be said again */
void saving_end_of_generation(struct job *j);
void saving_end_of_event(struct job *j);

/* The job is forgotten. */
void saving_forget(struct job *j);

/* Of what is saved already. */
uint64_t saving_hash(struct bytes value);
void saving_restored_members(struct job *j);

#endif
