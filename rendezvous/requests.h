#ifndef RENDEZVOUS_REQUESTS_H
#define RENDEZVOUS_REQUESTS_H

/* PURE. What a member asks for and waits for: whether it may resume from a step, and
 * whether a checkpoint counts (fence.h). Each is answered by a DECISION. */

#include "rendezvous/job.h"

/* Of the current generation. */
void requests_resumed(struct job *j, const struct job_node *node,
                      const struct msg_resumed *m);

/* … True when a new step is committed. */
bool requests_commit(struct job *j, const struct job_node *node,
                     const struct msg_commit *m);

/* Of one that is over: its zombie waits for an answer. Other messages are ignored. */
void requests_refuse(struct job *j, const struct job_node *node, const struct msg *m);

#endif
