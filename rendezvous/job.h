#ifndef RENDEZVOUS_JOB_H
#define RENDEZVOUS_JOB_H

/* PURE. One job: which nodes there are, which generation runs, when it is over, what
 * comes next. The service (service.c) feeds it; it answers through job_sink, during the
 * call. Drawn in README.md. */

#include "rendezvous/cause.h"
#include "rendezvous/drained.h"
#include "rendezvous/event.h"
#include "rendezvous/fence.h"
#include "rendezvous/hang.h"
#include "rendezvous/keyspace.h"
#include "rendezvous/members.h"
#include "rendezvous/saving.h"
#include "rendezvous/store.h"

#include "common/err.h"
#include "common/identity.h"
#include "common/msg.h"
#include "common/table.h"

enum job_state { JOB_FORMING, JOB_RUNNING, JOB_DRAINING, JOB_DONE, JOB_FAILED };

enum node_state {
    NODE_PRESENT, /* said hello, or its workers are gone */
    NODE_JOINED,  /* waits for the next generation, or stands by */
    NODE_RUNNING, /* a member of the current generation, with workers */
    NODE_DONE,    /* a member, all its workers ended with 0 */
    NODE_LEFT,    /* said LEAVE and has no workers: takes no part any more */
    NODE_STATE_COUNT,
};

/* Of the current generation. */
static inline bool node_is_member(enum node_state state)
{
    return state == NODE_RUNNING || state == NODE_DONE;
}

/* A node in the job: one agent's session. */
struct job_node {
    uint64_t session;
    enum node_state state; /* changed by job_move_node alone */
    bool is_leaving;       /* said LEAVE */
    bool is_admitted;      /* was in a generation since its hello */
    bool is_flapping;      /* lost again and again: taken only where MIN needs it */
    bool standby_told;     /* knows that it stands by */
    bool waits_done;       /* PRESENT: it was done, and joins when it is told to stop */
    bool is_away;          /* known from before the service's start, not seen since */
    uint64_t not_before_ms;         /* a flapping node is admitted from then on */
    uint64_t ranked_in;             /* the generation in which … */
    int32_t group_rank;             /* … this was its rank, -1: none */
    uint64_t arrival;               /* order of the hellos */
    size_t index;                   /* in job.node */
    struct table_node by_node_rank; /* where --node-rank was given */
    size_t table_bytes;             /* its part of a round's node table */
    char peer_addr[MSG_ADDR_MAX];
    char drained[RECORD_DRAINED_MAX]; /* it was told to go, so; "": it was not */
    struct saving_node saving;
    struct msg_hello hello;
    struct msg_join join; /* its last JOIN */
};

/* How often a node was lost without a new committed step between. */
struct flapper {
    char key[MSG_ID_MAX + MSG_ADDR_MAX]; /* --node-rank, else host and source address */
    uint32_t losses;
};

enum { JOB_MAX_FLAPPERS = 64 };

/* Why a generation ends: facts, judged when all its workers are gone (draining.c). */
struct ending {
    bool is_aborting; /* members were told to abort, not only to leave */
    bool has_refused, has_failed, has_lost; /* a worker, a rank, a node */
    bool loss_counts;                       /* a flapping node's */
    bool is_cancelled;                      /* by an operator: nothing follows */
    uint64_t lost_ms;                       /* the first loss, at the earliest */
    /* Before it: the first cause was told while a node with workers had not been seen
     * since the service's start. */
    bool was_unseen;
    uint32_t hung;     /* as STOP has it */
    bool has_left;     /* a node goes, told by a signal or the service … */
    uint64_t left_ms;  /* … the first one then … */
    uint64_t heard_ms; /* … and the last such word came then; after a start: that */
    size_t n_undone;   /* nodes whose workers went before they were done */
    uint32_t refusal_code;
    enum restart_cause left_for; /* why it was left */
    uint32_t max_world; /* the refusal's, if it was news: the most ranks that will do */
    char text[MSG_TEXT_MAX];      /* the refusal, else the loss, else why it was left */
    char stop_text[MSG_TEXT_MAX]; /* of the last STOP */
};

/* The ranks that all jobs of a service may have together: of the nodes that are here,
 * and of those that are gone from a generation that is still ending (tracking.h). */
struct rank_budget {
    uint64_t used, max;
};

struct job_sink {
    void *arg;
    void (*send)(void *arg, uint64_t session, const struct msg *m);
    void (*note)(void *arg, const struct job_event *e); /* NULL: nobody wants to know */
    void (*save)(void *arg, const struct record *r);    /* NULL: nothing is kept */
    uint64_t (*kept)(void *arg);                        /* as in service_sink */
};

struct job {
    char id[MSG_ID_MAX];
    char owner[IDENTITY_OWNER_MAX]; /* who has begun it; "": where nobody shows a key */
    enum job_state state;
    uint64_t cluster, seed;
    struct job_sink sink;
    struct store_budget budget; /* its part of the service's */
    struct msg_hello shape; /* the first agent's: nnodes, restarts; others must agree */
    uint64_t now_ms;        /* of the event at hand */

    struct job_node **node; /* owned */
    size_t n_nodes;
    struct table node_ranks;        /* by --node-rank, hashed with the seed */
    size_t count[NODE_STATE_COUNT]; /* nodes in each state */
    size_t n_flapping;
    size_t n_away;      /* of those that have not left */
    size_t table_bytes; /* of a round with all nodes */
    uint64_t n_arrivals;

    uint64_t generation;    /* the current one, or the last; 0: none was formed here */
    uint64_t highest;       /* that any node has seen */
    bool knows_living;      /* the nodes here are what lives of the last generation */
    uint64_t known_world;   /* largest usable one, as known when it was formed */
    struct members members; /* of its generations here … */
    size_t n_members;       /* … of the last one */
    bool has_lost;          /* one of its nodes went without LEAVE: it may come back */
    uint64_t join_ms;       /* last join, or the last generation's end */
    bool is_last;           /* the service ends: no other generation begins here */
    bool has_enough;        /* MIN nodes are in … */
    uint64_t enough_ms;     /* … since then */
    struct keyspace *keys;  /* owned; of the current generation, NULL between two */
    bool needs_keys;      /* the last one has stored keys, or there was none here … */
    bool waits_for_space; /* … and so the round that is closed, or who could be in the
                             * next one, waits for a disk */
    uint32_t told_failures; /* by its ROUND, to all alike … */
    struct commit told;     /* … and the last commit */

    struct rank_budget *ranks; /* borrowed: all jobs' */
    uint64_t n_ranks;          /* its part of them … */
    uint64_t n_gone_ranks;     /* … of it that of nodes that are gone … */
    size_t n_gone;             /* … so many */
    struct progress progress;  /* what the ranks of its generation do */
    struct hang hang;
    struct hung hung;

    struct ending ending;
    struct cause cause; /* the ranks' ends */
    uint32_t failures;
    struct flapper flapper[JOB_MAX_FLAPPERS];
    size_t n_flappers;
    struct drained drained; /* of the nodes that are gone */
    struct fence fence;     /* of checkpoints */

    uint32_t exit_code; /* once DONE or FAILED */

    struct msg_report *report; /* owned: the last one, where it is kept; NULL: none */
    uint64_t report_arrivals;  /* whose arrival is below it was told */
    struct saving saving;
};

/* `seed`: secret, of the hash tables. `budget`, `ranks`: of all jobs, outlive it. */
struct job *job_new(const char *id, uint64_t cluster, uint64_t seed,
                    struct store_budget *budget, struct rank_budget *ranks,
                    const struct job_sink *sink);
void job_free(struct job *j); /* NULL allowed */

struct job_guest {
    uint64_t session;
    const struct msg_hello *hello;
    const char *peer_addr;
};

/* A node says hello. 0: it is in the job, *ret stands for it until job_lost;
 * ERR_REFUSED with the text for it and *ret_exit_code, when its command line does not
 * fit the job's, or the job is over. */
int job_hello(struct job *j, const struct job_guest *guest, struct job_node **ret,
              uint32_t *ret_exit_code, struct errmsg *msg) MUST_CHECK;

/* A message of a node that said hello. Messages of another generation are ignored,
 * requests (RESUMED, COMMIT) of one refused. */
void job_message(struct job *j, struct job_node *node, const struct msg *m,
                 uint64_t now_ms);

/* As service_forsake has it. */
void job_forsake(struct job *j, const struct job_node *node,
                 const struct msg_store_close *m);

/* A node that is known from before the service's start (restoring.h) is here again, and
 * welcomed: it is told what may not have reached it. */
void job_return(struct job *j, struct job_node *node, const struct msg_hello *hello,
                uint64_t now_ms);

/* The node's connection ended, or its lease. `why` for people. Frees the node. */
void job_lost(struct job *j, struct job_node *node, const char *why, uint64_t now_ms);

/* Ends it on all nodes; nothing when it is over. `why` for people. */
void job_cancel(struct job *j, const char *why, uint64_t now_ms);

void job_tick(struct job *j, uint64_t now_ms);

/* The service was asleep, or one of the job's nodes. */
void job_excuse(struct job *j, uint64_t now_ms);
uint64_t job_deadline(const struct job *j); /* UINT64_MAX: none; else later than now */
bool job_is_over(const struct job *j);

/* True when all its nodes were told to leave and have gone: nobody comes back, but the
 * job may be begun anew. When it is, its failures are forgotten; the generation and the
 * last commit are not, or a pending checkpoint would be lost. */
bool job_is_stopped(const struct job *j);

/* For the files of the job alone. */
void job_move(struct job *j, enum job_state to); /* checked */
void job_move_node(struct job *j, struct job_node *node, enum node_state to);
size_t job_members(const struct job *j); /* nodes whose workers are not gone */
void job_note(const struct job *j, struct job_event e); /* fills in the job */

/* For people: its host and, where that has other nodes of the job, its group rank. It
 * looks at all nodes. */
enum { JOB_NODE_NAME_MAX = MSG_ID_MAX + 32 };
void job_name_node(const struct job *j, const struct job_node *node, char *ret,
                   size_t size);
void job_note_node(const struct job *j, enum job_event_kind kind,
                   const struct job_node *node, const char *why);
void job_note_loss(const struct job *j, const struct msg_progress *m);
void job_add_node(struct job *j, struct job_node *node);
/* Of the current generation; and its end. */
struct keyspace *job_new_keys(struct job *j, bool is_restored);
void job_end_keys(struct job *j);
void job_leave_generation(struct job *j, struct job_node *node, bool done,
                          const char *what); /* its workers are gone */

/* The first node (`after` is NULL), or the next, that said this --node-rank and has not
 * left; none for a negative one. There may be two while one of them has not been seen
 * since the service's start. */
struct job_node *job_of_node_rank(const struct job *j, int32_t node_rank,
                                  const struct job_node *after);

#endif
