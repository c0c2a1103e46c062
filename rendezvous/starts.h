#ifndef RENDEZVOUS_STARTS_H
#define RENDEZVOUS_STARTS_H

/* PURE. The starts of the service that its state has. A copy of the state that is
 * started counts its starts and transactions on like the one that it was made of, so
 * numbers alone do not tell them apart for long; what they have in common does:
 *
 *             start 1       start 2         start 3, a0f3…
 *   state ──┬────────────┬──────────────┬───────────────────
 *           found 0      found 120      found 310
 *                              ╲ copy made at 200
 *                               ╲──────────────────────────
 *                               start 3, 77c2…, found 200
 *
 * Each start has a number of its own, by chance, and knows behind how many transactions
 * it began: with so many the one before it ended. Who has heard of a start, and of so
 * many transactions in it, is sure of a state that has that start with as many at its
 * end: it has the same ones. */

#include "rendezvous/record.h"

enum {
    STARTS_MAX = 1000
}; /* kept in a state; of those before nothing but their number */

struct start {
    uint64_t boot;
    uint64_t id;    /* random, not 0 */
    uint64_t found; /* transactions that the state had before it */
};

struct starts {
    struct start now;
    struct start *past; /* owned, in order */
    size_t n, capacity;
};

void starts_init(struct starts *s, const struct start *now);
void starts_release(struct starts *s);

/* Records of START, in order. ERR_CORRUPT, ERR_UNSUPPORTED. */
int starts_restore(struct starts *s, const struct record *r) MUST_CHECK;

/* Whether the state has that start, and in `*ret` the transactions at its end; those of
 * the start at hand are `kept`. One before all that are known may have been: then as many
 * as there were at the first of these. */
bool starts_have(const struct starts *s, uint64_t boot, uint64_t id, uint64_t kept,
                 uint64_t *ret);

/* The records of a start: what is to be saved with the boot number. */
void starts_save(const struct start *now,
                 void (*save)(void *arg, const struct record *r), void *arg);

#endif
