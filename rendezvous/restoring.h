#ifndef RENDEZVOUS_RESTORING_H
#define RENDEZVOUS_RESTORING_H

/* PURE. A job from its records, at the service's start: the other side of saving.h and
 * keeping.c. The records come from a file that anything may have happened to: what no
 * service can have written is refused. */

#include "rendezvous/job.h"
#include "rendezvous/record.h"

/* Each: ERR_CORRUPT, ERR_UNSUPPORTED (another version's). */
int restoring_job(struct job *j, const struct record *r) MUST_CHECK; /* a fresh one */
int restoring_node(struct job *j, const struct record *r,
                   struct job_node **ret) MUST_CHECK;
int restoring_rest(struct job *j, const struct record *r) MUST_CHECK;

/* All is there: whether it fits together. */
int restoring_end(struct job *j, uint64_t now_ms) MUST_CHECK;

#endif
