#ifndef RENDEZVOUS_HANG_H
#define RENDEZVOUS_HANG_H

/* PURE. The judge of a generation that stands still: for which rank do the others wait?
 *
 *   MOVING ──── no rank has told of another step or phase for a while ────► ASKING
 *     ▲                                                                       │
 *     │ any rank moves · somebody was asleep                                  │ verdict
 *     └─────────────────────────────────────────── TOLD ◄─────────────────────┘
 *
 * Once every rank has reported, and it is known what a step takes (the median of the
 * last ones, or what it was before the service's start), a stand-still of nearly
 * max(3 s, 5 steps) is a hang: the rank is named within that time of its last report. A
 * second before, the agents are asked what the processes of the suspects do, and again
 * when news that a line held up come meanwhile. Found guilty is
 *
 *   a rank whose process is stopped, unless all are;
 *   else the rank that others wait for, as they say, and that waits for nobody; of
 *   several the one that is the furthest behind. Not while it, or another for which
 *   they may wait, starts, loads, saves or evaluates.
 *
 * A process that waits for a device (D: a disk, a file server) gets half a minute: to
 * begin anew would not help it. Where nobody says that he waits, only a stopped process
 * is proof. One that a debugger has stopped, or that waits for its output to be read or
 * for somebody at a terminal, is told of, and left alone; so is the guilty one while a
 * debugger, or strace, is attached to it: a person works there. An agent that does not
 * answer at once was asleep, maybe with all its workers: then everybody gets a fresh
 * term. */

#include "rendezvous/progress.h"

enum { HANG_SUSPECTS = 8, HANG_STATE_MAX = 32 };

struct suspect {
    uint32_t rank;
    int class; /* how likely it is, before anything is known of it */
    uint64_t step;
    uint32_t votes;             /* ranks that say they wait for it */
    char state[HANG_STATE_MAX]; /* as its agent has it; "": not answered */
};

struct hang {
    enum { HANG_MOVING, HANG_ASKING, HANG_TOLD } state;
    uint64_t calm_ms;    /* what was before counts for nothing */
    uint64_t asked_ms;   /* the suspects … */
    uint64_t seen_ms;    /* … when this was the ranks' last move … */
    uint64_t again_ms;   /* … and not again before */
    uint64_t due_ms;     /* ASKING: to look again */
    uint64_t told_ms;    /* the last move, as of the verdict … */
    uint64_t held_ms;    /* … and when it was told that somebody holds a process */
    bool has_missed;     /* an answer to the question before did not come */
    uint32_t n_waiting;  /* ranks that wait; as of the verdict, like the next two */
    uint32_t n_mute;     /* … and do not say for whom */
    uint32_t n_excused;  /* ranks that take their time, and do not wait */
    uint32_t n_suspects; /* the likeliest first: */
    struct suspect suspect[HANG_SUSPECTS];
};

enum hang_news {
    HANG_QUIET,
    HANG_ASK,    /* the agents of hang.suspect[] */
    HANG_FOUND,  /* the verdict names a rank */
    HANG_HELD,   /* … that a person has to do with, by debugger or terminal */
    HANG_UNCLEAR /* ranks wait, and nobody knows for whom */
};

struct hang_verdict {
    uint32_t rank;
    uint32_t n_waiting;         /* others */
    uint64_t for_ms;            /* since any rank has moved */
    char state[HANG_STATE_MAX]; /* of its process */
};

/* What was told, until the rank goes on, or others are past it; of one that hangs also:
 * until the stack of its process is here. */
struct hung {
    bool lasts;
    bool has_rank;     /* else nobody knows who it is */
    bool is_held;      /* by a person */
    uint64_t moved_ms; /* the last move before it */
    uint64_t due_ms;   /* without all of the stack; 0: it is not waited for */
    uint64_t on_ms;    /* others moved then, it has not said so yet; 0: nobody … */
    bool are_past;     /* … and they are past where they waited for it */
    struct hang_verdict verdict;
    char text[MSG_TEXT_MAX];
    char *stack; /* what has come of it; owned; NULL: nothing yet */
};

/* A new generation. */
void hang_begin(struct hang *h, uint64_t now_ms);

/* The service, or a node, was asleep. */
void hang_excuse(struct hang *h, uint64_t now_ms);

/* What is to be done now; *ret is filled in for FOUND, HELD and UNCLEAR. */
enum hang_news hang_look(struct hang *h, const struct progress *p, uint64_t now_ms,
                         struct hang_verdict *ret);

/* What an agent says of a suspect's process: "T", "S futex_wait"; "O": at a terminal, or
 * an output that is not read; "t gdb, pid 7": stopped by a tracer; "P …": traced. */
void hang_answer(struct hang *h, uint32_t rank, const char *state, uint64_t now_ms);

/* When to look again; UINT64_MAX: after the next report. */
uint64_t hang_deadline(const struct hang *h, const struct progress *p);

#endif
