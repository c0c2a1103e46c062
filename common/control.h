#ifndef COMMON_CONTROL_H
#define COMMON_CONTROL_H

/* The control channel: agent ↔ ctrun-worker, over the SOCK_SEQPACKET socketpair whose
 * worker's end is CTRUN_CONTROL_FD. One message per packet: u8 type, then all fields of
 * all types in one order (control.c; little-endian; text: u32 + bytes), those that the
 * type does not use zero or "". A hello makes the program an engine.
 *
 *   worker                       agent
 *     │◄──────────── START (last commit)           at once, with the spawn
 *     │ HELLO (log folder)                         after the run generation is claimed
 *     │ RESUMED (R, N) ──► ◄── DECISION            rank 0
 *     │ PROGRESS (step, phase, loss …)             each step, and twice a second
 *     │ COMMIT (R, N, hash) ──► ◄── DECISION       rank 0
 *     │ REFUSE (code, text, largest world)         bad configuration, or a loss that is
 *     │                                            not finite: the job ends, or goes on
 *     │                                            with so few ranks
 *     │◄──────────── LEAVE | ABORT
 *
 * The channel's end means that the agent is gone: the worker leaves at once. */

#include "common/buf.h"

#include <stdbool.h>

#define CONTROL_FD_ENV         "CTRUN_CONTROL_FD"
#define CONTROL_GENERATION_ENV "CTRUN_GENERATION"
#define CONTROL_PROGRESS_ENV   "CTRUN_PROGRESS_FD"

/* Of a worker that ctrun has bound: of the CPU_RANKS workers that have the same CPUs it
 * is the CPU_RANKth. */
#define CONTROL_CPU_RANK_ENV  "CTRUN_CPU_RANK"
#define CONTROL_CPU_RANKS_ENV "CTRUN_CPU_RANKS"

enum {
    CONTROL_MAX = 4096, /* of a packet */
    CONTROL_PATH_MAX = 1024,
    CONTROL_TEXT_MAX = 1024,
    CONTROL_HASH_MAX = 40,
    CONTROL_PHASE_MAX = 32,
};

enum control_type {
    /* worker → agent */
    CONTROL_HELLO = 1,
    CONTROL_REFUSE,
    CONTROL_RESUMED,
    CONTROL_PROGRESS,
    CONTROL_COMMIT,
    /* agent → worker */
    CONTROL_START = 32,
    CONTROL_ABORT,
    CONTROL_LEAVE,
    CONTROL_DECISION, /* on RESUMED or COMMIT, by `step` */
};

/* One struct for all: each type uses the fields its comment names. */
struct control {
    enum control_type type;
    char path[CONTROL_PATH_MAX];   /* HELLO: absolute log folder */
    char phase[CONTROL_PHASE_MAX]; /* HELLO, PROGRESS */
    uint32_t max_world;            /* HELLO, REFUSE: largest usable; 0: any, none */
    uint32_t code;                 /* REFUSE: exit code */
    char text[CONTROL_TEXT_MAX];   /* REFUSE, DECISION */
    uint32_t run;                  /* RESUMED, COMMIT, START: R */
    uint64_t step;                 /* RESUMED, COMMIT, START: N; PROGRESS, DECISION */
    char hash[CONTROL_HASH_MAX];   /* COMMIT, START: manifest hash; "" in START: none */
    uint64_t cluster;              /* START */
    uint32_t tok_s;                /* PROGRESS */
    uint32_t waits_for;            /* PROGRESS: 1 + that rank; 0: none, or unknown */
    char loss[CONTROL_PHASE_MAX];  /* PROGRESS: a number; "": not known … */
    uint64_t loss_step;            /* … and whose it is. Not sent: step has it */
    bool accepted;                 /* DECISION */
    bool is_commit;                /* DECISION: on COMMIT, else on RESUMED */
};

/* `out` is cleared first. */
int control_encode(const struct control *c, struct buf *out) MUST_CHECK;

/* ERR_PROTOCOL for anything that is not exactly one message; `*ret` is written all the
 * same and means nothing then. */
int control_decode(const void *data, size_t size, struct control *ret) MUST_CHECK;

#endif
