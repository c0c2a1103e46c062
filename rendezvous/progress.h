#ifndef RENDEZVOUS_PROGRESS_H
#define RENDEZVOUS_PROGRESS_H

/* PURE. What the ranks of a job's current generation do: the last report of each, and
 * how long a step takes. Times are the service's. As large as the world; a rank that
 * says nothing costs an empty entry. Of a generation that has ended only its nodes, and
 * what is known of all its ranks together, are kept. */

#include "common/msg.h"

enum { PROGRESS_TEXT_MAX = 32, PROGRESS_STEPS = 31 };

struct progress_rank {
    uint64_t step;     /* of its last report */
    uint64_t said_ms;  /* when that was; 0: none yet */
    uint64_t since_ms; /* when it was first in this step and phase, or came back */
    uint32_t pid;      /* 0: not known */
    uint32_t tok_s;    /* 0: not known */
    int32_t waits_for; /* a rank, -1: none, or it does not know */
    bool repeats;      /* it has said the same again: it does not fall silent */
    bool has_ended;    /* its process */
    char phase[PROGRESS_TEXT_MAX]; /* ASCII; "": none */
    char loss[PROGRESS_TEXT_MAX];  /* a number; "": not known */
};

struct progress_node {
    uint64_t session;
    uint32_t first_rank, nproc;
    char host[MSG_ID_MAX];
};

struct progress {
    uint64_t generation;
    uint32_t world, n_nodes;
    uint32_t n_reporting;       /* ranks that have reported */
    uint32_t n_ended;           /* … whose process has ended */
    struct progress_rank *rank; /* owned; world of them; NULL: is_over */
    struct progress_node *node; /* owned; in order of their ranks */
    uint64_t said_ms;           /* the last report of any rank … */
    uint64_t moved_ms;   /* … and the last that told of another step or phase */
    uint64_t front_step; /* the highest step reported … */
    uint64_t front_ms;   /* … and when it was reached; 0: none */
    uint64_t first_step; /* … the first of all */
    uint32_t n_advances; /* of the front, but for a first step alone */
    uint32_t step_ms[PROGRESS_STEPS]; /* a step of each of the last advances … */
    uint32_t known_ms;  /* what one took before the service's start; 0: not known */
    uint32_t median_ms; /* … and what one takes; 0: too few were seen to know */
    bool is_over;       /* the ranks are not known any more … */
    uint32_t tok_s;     /* … and this is what progress_tok_s said then */
};

void progress_release(struct progress *p); /* zeroed afterwards: no table */

/* A new generation: nodes are added in order of their ranks, then come reports. */
void progress_begin(struct progress *p, uint64_t generation, uint32_t max_nodes);
void progress_add_node(struct progress *p, uint64_t session, const char *host,
                       uint32_t nproc);
void progress_start(struct progress *p);

/* What a step of this generation took before the service's start: until enough are
 * seen. */
void progress_know(struct progress *p, uint32_t step_ms);

/* The generation has ended: the ranks go, what is known beside them stays; and nobody
 * is here any more: so do the nodes. */
void progress_fold(struct progress *p);
void progress_fold_nodes(struct progress *p);

/* As its first ranks say, of the whole; 0: not known. */
uint32_t progress_tok_s(const struct progress *p);

/* The node's, whose session it is; NULL: it has none here. */
const struct progress_node *progress_node_of(const struct progress *p, uint32_t rank);

/* A rank reports. False, and nothing is done: it is no rank of that session's node. */
bool progress_note(struct progress *p, uint64_t session, const struct msg_progress *m,
                   uint64_t now_ms);

/* The rank's process has ended. */
void progress_end(struct progress *p, uint64_t session, uint32_t rank);

/* By its own words it waits for other ranks, in an exchange of theirs. */
bool progress_is_waiting(const struct progress_rank *r);

/* It does what takes its time, whatever steps take: starts, loads, saves, evaluates …
 */
bool progress_is_excused(const struct progress_rank *r);

#endif
