#ifndef RENDEZVOUS_EVENT_H
#define RENDEZVOUS_EVENT_H

/* What becomes of jobs and their nodes: for the log, the history (history.h) and the
 * metrics. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum job_event_kind {
    JOB_HAS_FORMED,
    JOB_RESTARTS,
    JOB_HAS_FAILED,
    JOB_IS_DONE,
    JOB_IS_CANCELLED,  /* by an operator */
    JOB_IS_STOPPED,    /* all its nodes were told to leave, and have gone */
    JOB_HAS_COMMITTED, /* a checkpoint */
    JOB_PROGRESSES,    /* no event: a point of its loss curve */
    NODE_HAS_JOINED,   /* for the first time since its hello */
    NODE_STANDS_BY,
    NODE_IS_LOST,
    NODE_HAS_LEFT,
    NODE_IS_REFUSED,     /* of a job that may not exist, or of none */
    JOB_HANGS,           /* a rank of it does; `why` names it */
    JOB_HANGS_NO_MORE,   /* its ranks go on */
    OPERATOR_ACTS,       /* a job is cancelled, a node drained */
    SERVICE_HAS_STARTED, /* of no job */
    JOB_EVENT_COUNT,
};

/* Why a generation ended that another one follows. */
enum restart_cause {
    RESTART_FAILURE,
    RESTART_NODE_LOST,
    RESTART_NODE_JOINED,
    RESTART_NODE_LEFT,
    RESTART_HANG,
    RESTART_PREEMPTION,
    RESTART_REFUSAL, /* of the world's size: it goes on smaller */
    RESTART_CAUSE_COUNT,
};

/* Borrowed for the call that tells of it. What is not said is 0 or NULL. */
struct job_event {
    enum job_event_kind kind;
    const char *job;
    const char *owner; /* of the job */
    uint64_t generation;
    size_t nodes;   /* of one that has formed … */
    uint32_t ranks; /* … and its workers */
    uint32_t exit_code;
    enum restart_cause cause; /* of one that restarts */
    const char *node;         /* the host that it is about, or of the first cause */
    bool has_group_rank;
    uint32_t group_rank; /* of the node there that it is about */
    bool has_rank;
    uint32_t rank;
    uint64_t step;   /* that was committed, the curve's, or reached at the end */
    const char *why; /* what a peer said may be in it; the loss, as text */
};

/* One word, for JSON and labels; "failed", "node_lost". */
const char *event_kind_name(enum job_event_kind kind);
const char *event_cause_name(enum restart_cause cause);

/* One line. */
void event_log(const struct job_event *e);

#endif
