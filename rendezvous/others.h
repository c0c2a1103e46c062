#ifndef RENDEZVOUS_OTHERS_H
#define RENDEZVOUS_OTHERS_H

/* PURE. The ranks of a generation that did not end well, beside the first cause: a byte
 * for each, and the first of those that failed alike; told in a few lines, however many
 * they are. */

#include "common/err.h"
#include "common/msg.h"

enum {
    OTHERS_OUTCOMES = 16, /* ways to fail that are told apart; those beyond: counted */
    OTHERS_FIRSTS = 2,    /* one of them may be the first cause */
};

/* How a rank ended. From HOW_FAILED on the index of its outcome is added. */
enum how {
    HOW_UNKNOWN,   /* well, or not yet */
    HOW_STOPPED,   /* by us: a signal that we sent, an engine's way to obey */
    HOW_KILLED,    /* by us, the hard way: it took too long */
    HOW_LOST_PEER, /* an engine's reactions */
    HOW_TIMED_OUT,
    HOW_LEFT,
    HOW_FAILED_OTHERWISE, /* there was no outcome left */
    HOW_FAILED,
};

struct failed_rank {
    uint32_t rank, local_rank, pid;
    uint64_t ended_ms;
    char host[64];
};

/* A way to fail: the same code or signal, and the same exception where one is known. */
struct outcome {
    int32_t code, signal;
    char error[160];
    struct failed_rank first[OTHERS_FIRSTS]; /* the earliest of those with it … */
    size_t n_first;                          /* … so many */
};

struct others {
    uint8_t *how; /* owned; by rank, n_ranks of them; NULL: none */
    size_t n_ranks;
    struct outcome outcome[OTHERS_OUTCOMES];
    size_t n_outcomes;
};

void others_clear(struct others *o);
void others_fold(struct others *o); /* of the ranks; the outcomes remain */

enum how others_how(const struct others *o, uint32_t rank);
bool others_have(const struct others *o, enum how how); /* some rank ended so */

/* A rank below MSG_MAX_WORLD has ended, or more is known of its end. */
void others_put(struct others *o, const struct msg_rank_ended *end, const char *host);

/* As it was found before (others_how); ERR_CORRUPT: there is no such end. */
int others_restore(struct others *o, uint32_t rank, uint8_t how) MUST_CHECK;

/* The lines: each outcome's first rank, and the ranks like it; then those that reacted,
 * and those that were stopped, by ranks alone. `first` is the first cause, which is
 * not among them; NULL: there is none. At most `size` bytes, some dozens, whole lines. */
void others_format(const struct others *o, const struct msg_rank_ended *first,
                   char *text, size_t size);

#endif
