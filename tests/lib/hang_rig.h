#ifndef TESTS_LIB_HANG_RIG_H
#define TESTS_LIB_HANG_RIG_H

/* The judge of hangs on a virtual clock: ranks that train together and report as
 * ctrun-worker does (a sample of what they do every 250 ms), agents that answer. A case
 * changes what a rank does, lets time pass, and looks at the verdicts. */

#include "rendezvous/hang.h"

#include <stdbool.h>

enum {
    HANG_RIG_SESSION = 7,
    HANG_RIG_TURN_MS = 10,
    HANG_RIG_ANSWER_MS = 300, /* an agent looks twice at a process */
    HANG_RIG_RANKS = 8,
};

enum deed { COMPUTES, WAITS, SAVES };

struct sim_rank {
    enum deed deed;
    uint64_t until_ms; /* COMPUTES, SAVES */
    bool is_stopped;   /* SIGSTOP: does nothing, says nothing */
    bool is_spinning;  /* never comes to the end of what it computes */
    bool is_traced;    /* stopped by his tracer */
    bool is_attached;  /* it has one, and runs */
    bool is_unread;    /* blocked by its output … */
    bool is_reading;   /* … or a file server */
    uint64_t said_step;
    enum deed said_deed;
};

struct hang_rig {
    struct progress p;
    struct hang h;
    uint64_t now_ms;
    uint32_t n;
    struct sim_rank rank[HANG_RIG_RANKS];
    uint64_t step;
    uint64_t least_ms, most_ms; /* of a step's computation */
    unsigned seed;
    uint64_t answer_ms; /* when the agents will have answered; 0: they are not asked */
    uint64_t answer_takes_ms;
    bool tells_news;     /* … and nothing twice: a program's lines */
    bool tells_waits;    /* for whom it waits … */
    bool tells_phases;   /* … and that it does */
    enum hang_news news; /* the last but QUIET and ASK */
    struct hang_verdict verdict;
    uint64_t verdict_ms;
    unsigned n_verdicts, n_asked;
};

/* `n` ranks, whose steps take so long. */
void hang_rig_open(struct hang_rig *r, uint32_t n, uint64_t least_ms, uint64_t most_ms);
void hang_rig_close(struct hang_rig *r);

void hang_rig_turn(struct hang_rig *r);
void hang_rig_pass(struct hang_rig *r, uint64_t ms);
void hang_rig_until(struct hang_rig *r, uint32_t rank, enum deed deed);

/* One verdict, on that rank, within that time. */
void hang_rig_expect_found(const struct hang_rig *r, uint32_t rank, uint64_t since_ms,
                           uint64_t within_ms);

#endif
