#ifndef RENDEZVOUS_TRACKING_H
#define RENDEZVOUS_TRACKING_H

/* PURE. A job and what its ranks report: the table (progress.h), and what is done when
 * a rank hangs (hang.h): all nodes are told at once; the rank's agent is asked for the
 * stack of its process, of which they are told as it comes, or that it does not; then,
 * by the job's policy, the generation ends with that rank as its first cause, or the
 * training goes on; that, too, is told. */

#include "rendezvous/job.h"

/* Its members have their ranks: a new table. */
void tracking_begin(struct job *j);

/* Its generation has ended: the ranks are known no more; nor are the nodes, when all
 * have gone. */
void tracking_end(struct job *j);

void tracking_release(struct job *j);

/* Ranks that a node takes: in the table, or to be (rank_budget). One that is gone
 * takes them until its generation has ended, and then, where the table still names it,
 * no more than one. */
void tracking_take_room(struct job *j, const struct job_node *node);
void tracking_return_room(struct job *j, const struct job_node *node);

/* A member's rank reports. */
void tracking_note(struct job *j, const struct job_node *node,
                   const struct msg_progress *m);

/* A member says that this rank has ended. False, and nothing is done: it is none of its
 * own. */
bool tracking_ended(struct job *j, const struct job_node *node, uint32_t rank);

/* An agent answers INSPECT_HANG or INSPECT_STACK. */
void tracking_inspected(struct job *j, const struct job_node *node,
                        const struct msg_inspected *m);

/* The hang that was told, while it lasts; NULL: there is none. */
const struct hung *tracking_hung(const struct job *j);

/* … in words, as of now. */
void tracking_describe(const struct job *j, uint64_t now_ms, char *ret, size_t size);

void tracking_tick(struct job *j);
uint64_t tracking_deadline(const struct job *j); /* UINT64_MAX: none */

#endif
