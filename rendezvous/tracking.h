#ifndef RENDEZVOUS_TRACKING_H
#define RENDEZVOUS_TRACKING_H

/* PURE. A job and what its ranks report (progress.h). */

#include "rendezvous/job.h"

/* Its members have their ranks: a new table. */
void tracking_begin(struct job *j);

/* A member's rank reports. */
void tracking_note(struct job *j, const struct job_node *node,
                   const struct msg_progress *m);

#endif
