#ifndef RENDEZVOUS_FORMING_H
#define RENDEZVOUS_FORMING_H

/* PURE. From a closed round to a running generation: a new number, a fresh key space, a
 * ROUND to every member. */

#include "rendezvous/job.h"

enum { FORMING_SPACE_MS = 1000 }; /* between looks whether the disk has space again */

/* In JOB_FORMING: begins the next generation if the round closes now. */
void forming_try(struct job *j);

/* The disk is so full that no key is stored, and the job's generations store some: none
 * is begun, which would fail with its first one. */
bool forming_lacks_space(const struct job *j);

/* In JOB_RUNNING: ends the generation for a node that has joined, if the next one could
 * use it, and may begin; _waiting: for those for which there was no space, once there
 * is. */
void forming_admit(struct job *j, const struct job_node *node);
void forming_admit_waiting(struct job *j);

/* In JOB_FORMING: as job_deadline has it. */
uint64_t forming_deadline(const struct job *j);

/* In JOB_RUNNING: says its ROUND again to one of its members. */
void forming_tell_round(struct job *j, const struct job_node *node);

/* Tells a node that has joined and is not in, once, that it stands by. */
void forming_tell_standby(struct job *j, struct job_node *node);

#endif
