#ifndef RENDEZVOUS_HISTORY_H
#define RENDEZVOUS_HISTORY_H

/* PURE. What has become of jobs: numbered events, for people; and one record of each
 * job, of those that run and of the last that have ended.
 *
 * Bounded: of jobs that have ended the oldest of the owner who has most goes; the oldest
 * events, of all owners together, by number and by age, which the service's own clock
 * (history_run) tells: the wall clock may jump. Those that come in crowds (commits, nodes
 * that join, refusals) have a part of their own, so that they cannot push out why a job
 * has failed. Of refusals one a second is kept. Numbers begin at 1 and are never given
 * again; where events are durable (`save`) they go on after a restart, and so do the
 * curves, but for points of the last ten seconds where the end was not told
 * (history_stop). */

#include "rendezvous/event.h"
#include "rendezvous/kept_curve.h"
#include "rendezvous/record.h"

#include "common/identity.h"
#include "common/table.h"

enum {
    HISTORY_MAX_EVENTS = 3072,
    HISTORY_MAX_CROWD = 1024, /* of those in crowds */
    HISTORY_MAX_JOBS = 1280,  /* that have not ended */
    HISTORY_MAX_ENDED = 256,
    HISTORY_TEXT_MAX = 512,
};

struct history_event {
    uint64_t number;
    uint64_t wall_ms;  /* for people … */
    uint64_t noted_ms; /* … and on the service's clock, for its age */
    enum job_event_kind kind;
    enum restart_cause cause; /* of JOB_RESTARTS */
    uint64_t generation;
    uint64_t step;
    uint32_t nodes, ranks, exit_code;
    bool has_rank;
    uint32_t rank;
    bool has_group_rank; /* of the node that it is about */
    uint32_t group_rank;
    uint32_t restarts[RESTART_CAUSE_COUNT]; /* of its job, so far */
    char *job, *node, *text;                /* owned; "" for nothing */
    char *owner;                            /* … of its job; nobody is shown it */
};

enum history_state {
    HISTORY_LIVES,
    HISTORY_DONE,
    HISTORY_FAILED,
    HISTORY_CANCELLED,
    HISTORY_STOPPED
};

struct history_job {
    struct table_node by_id; /* while it lives */
    uint64_t touched;        /* a count: the last event */
    enum history_state state;
    char id[MSG_ID_MAX];
    char owner[IDENTITY_OWNER_MAX]; /* as the job's */
    uint64_t generation;
    uint64_t began_ms, formed_ms, ended_ms; /* wall clock; 0: not (known) */
    uint32_t nodes, ranks, exit_code;
    uint32_t restarts[RESTART_CAUSE_COUNT];
    bool
        restarts_now; /* its last one was counted, but has formed no generation yet … */
    enum restart_cause restarts_for;
    uint64_t commit_step, commit_ms; /* 0: none that is known */
    uint64_t end_step;               /* reached at its end; 0: not known */
    bool has_rank;                   /* the last cause's … */
    uint32_t rank;
    char node[MSG_ID_MAX];
    char cause[HISTORY_TEXT_MAX]; /* … of its end, else of the last restart; "" */
    struct loss_curve curve;
    uint64_t number;  /* of the first event that is known of it */
    uint64_t kept_ms; /* when its curve was saved; 0: it was not … */
    uint64_t n_kept;  /* … with so many points */
};

/* A first-in, first-out list of events, by number. */
struct history_ring {
    struct history_event **event; /* owned, as what is in it */
    size_t first, n, max;
};

struct history_config {
    uint64_t seed;    /* secret: of the hash table */
    uint64_t span_ms; /* what is older goes; 0: nothing does for its age */
    /* NULL: nothing is kept. As service_sink has it. */
    void (*save)(void *arg, const struct record *r);
    void *arg;
};

struct history {
    struct history_config config;
    struct history_ring vital, crowd;
    struct table jobs; /* of history_job, owned: those that live */
    struct history_job *ended[HISTORY_MAX_ENDED]; /* owned, the oldest first */
    size_t n_ended;
    uint64_t last_number;
    uint64_t now_ms; /* the service's clock, see history_run */
    uint64_t n_touches;
    bool is_terse;                   /* see history_be_terse */
    struct history_event **restored; /* owned; until history_restored */
    size_t n_restored;
    struct kept_curve *curves; /* owned, as what is in them; until then, too */
    size_t n_curves;
    uint64_t refused_ms;              /* when a refusal was kept … */
    uint64_t n_kind[JOB_EVENT_COUNT]; /* since this process began: for the metrics */
    uint64_t n_restarts[RESTART_CAUSE_COUNT];
};

void history_init(struct history *h, const struct history_config *config);
void history_release(struct history *h);

/* There is hardly room to save anything: from now on (until told otherwise) only how jobs
 * begin and end is, no other event and no curve. Memory has them all. */
void history_be_terse(struct history *h, bool is_terse);

/* So late it is, on the service's clock: for the ages of what comes next. */
void history_run(struct history *h, uint64_t now_ms);

/* Something has happened. False when it is not kept: one refusal of many. */
bool history_note(struct history *h, const struct job_event *e, uint64_t wall_ms);

/* The process will end: what the curves of jobs that live have is saved. */
void history_stop(struct history *h, uint64_t wall_ms);

/* RECORD_EVENTs and RECORD_CURVEs of an earlier process, in any order, then
 * history_restored, with the service's clock; what cannot be read is left out (false).
 * Before the first history_note. */
bool history_restore(struct history *h, const struct record *r);
void history_restored(struct history *h, uint64_t now_ms);

/* The first event with a larger number; NULL: there is none. Valid until the next
 * history_note. */
const struct history_event *history_after(const struct history *h, uint64_t number);

/* A job that lives, else the last one of that id that has ended; NULL: neither. */
const struct history_job *history_find(const struct history *h, const char *id);

#endif
