#ifndef RENDEZVOUS_EVENT_H
#define RENDEZVOUS_EVENT_H

/* What becomes of a job, for the service's log. */

#include <stddef.h>
#include <stdint.h>

enum job_event_kind { JOB_HAS_FORMED, JOB_RESTARTS, JOB_HAS_FAILED, JOB_IS_DONE };

/* Borrowed for the call that tells of it. */
struct job_event {
    enum job_event_kind kind;
    const char *job;
    uint64_t generation;
    size_t nodes;   /* of one that has formed … */
    uint32_t ranks; /* … and its workers */
    uint32_t exit_code;
    const char *why; /* it restarts or has failed; what a peer said may be in it */
};

/* One line. */
void event_log(void *arg, const struct job_event *e);

#endif
