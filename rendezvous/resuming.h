#ifndef RENDEZVOUS_RESUMING_H
#define RENDEZVOUS_RESUMING_H

/* PURE. A node that is back after the service's restart: what was said last may not have
 * reached it (replies leave after what they rest on is durable), so it is said again. The
 * node ignores what it knows. What it may have said in vain it says again, too. */

#include "rendezvous/job.h"

void resuming_tell(struct job *j, struct job_node *node, const struct msg_hello *hello);

/* That it shall go, where an operator has said so, and was answered. Also to a node that
 * has lost its connection in between. */
void resuming_tell_drained(struct job *j, const struct job_node *node);

#endif
