#ifndef RENDEZVOUS_CAUSE_H
#define RENDEZVOUS_CAUSE_H

/* PURE. Why a generation ended: the first cause out of many ends.
 *
 * Every rank's end comes with its time on the service's one clock; clocks of the day
 * play no part. The first cause is the earliest end that nobody had asked for; a death
 * by a signal, that others can only have noticed at once, is before what they say
 * within 20 ms of it. An engine's codes 80 (lost a peer), 81 (communication timed out)
 * and 83 (left), and ends after the agent's stop, are consequences and win only if
 * there is nothing else, in this order. */

#include "rendezvous/others.h"

struct cause {
    bool has_rank;               /* `first` is meant */
    struct msg_rank_ended first; /* the first cause so far */
    char host[MSG_ID_MAX];       /* its node */
    struct others others;        /* all ranks that did not end well */
    bool is_hang;       /* `hung_rank` was ended because it hung: what its … */
    uint32_t hung_rank; /* … process ends with is our doing */
    bool has_changed;   /* but for others.how, since it was saved */

    /* for the crash-loop rule: how often the same end has come, over generations */
    uint32_t loop_rank, loops;
    int32_t loop_code, loop_signal;
    uint64_t loop_step;
};

/* Forgets the ends, keeps the crash-loop count: a new generation begins. */
void cause_clear(struct cause *c);

/* The generation has ended, and its nodes have been told why: forgets how each rank
 * ended. */
void cause_fold(struct cause *c);

/* Forgets everything. */
void cause_release(struct cause *c);

/* A rank has ended other than with 0. A second end of the same rank is the first one,
 * sent again with what was not known at once: message, last lines, the log's path, and
 * that it had failed by itself, or earlier. */
void cause_add(struct cause *c, const struct msg_rank_ended *end, const char *host);

/* A rank is about to be ended, since it hangs; an earlier failure remains the cause. */
void cause_hang(struct cause *c, const struct msg_rank_ended *end, const char *host);

bool cause_is_hang(const struct cause *c);

/* True when all that is known is a consequence: nobody ended by itself. */
bool cause_is_consequence(const struct cause *c);

/* True when ranks reacted to something that no rank's end explains. */
bool cause_is_reaction(const struct cause *c);

/* Why, in words, where that is so. */
const char *cause_reaction_text(const struct cause *c);

/* Counts the first cause once; true when the same rank, code or signal and reported
 * step came for the third time running (never for programs without steps, nor for
 * signals from outside). */
bool cause_is_crash_loop(struct cause *c);

/* ctrun's exit code for it, never 0: the rank's own, or 128 + signal; 1 when there is
 * no rank, or only such as reacted (80 and 81 are never a first cause). */
uint32_t cause_exit_code(const struct cause *c);

/* Fills the fields of a report that are about ranks; the caller sets the rest. Where
 * ranks only reacted no one of them is the first cause: all are among the others. */
void cause_report(const struct cause *c, struct msg_report *ret);

#endif
