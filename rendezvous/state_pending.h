#ifndef RENDEZVOUS_STATE_PENDING_H
#define RENDEZVOUS_STATE_PENDING_H

/* PURE. What the database's journal has and its tables do not have yet. Workers write
 * the same keys and the same clients' last requests again and again: so a transaction
 * of these alone is written as it comes, as a batch behind the others, and only the last
 * record of each name goes into the tables, now and then. */

#include "rendezvous/record.h"

#include "common/buf.h"
#include "common/table.h"

struct state_pending {
    struct buf fresh;  /* batches that nobody has looked into yet … */
    size_t n_fresh;    /* … with so many records */
    struct table rows; /* the last record of each name of all before */
    uint64_t seed;     /* of the table */
    const char *job;   /* of the last record, NULL: none … */
    uint64_t generation;
    uint64_t scope;    /* … and what hashes of these two have in common */
    uint8_t **batches; /* owned, n_batches; the rows point into them */
    size_t n_batches, size;
};

void state_pending_init(struct state_pending *p, uint64_t seed);
void state_pending_release(struct state_pending *p);

/* True if all records of the batch may wait: put or dropped alone, of keys, queues and
 * clients. `*ret_n`: how many there are. */
bool state_pending_may_wait(struct bytes batch, size_t *ret_n);

/* True if none of them is of what waits, nor drops any of it: they may go into the tables
 * before it. */
bool state_pending_may_pass(struct bytes batch);

/* Takes a copy of a batch that may wait, of `n` records. */
void state_pending_add(struct state_pending *p, struct bytes batch, size_t n);

/* How many names there are, at most: in batches that nobody has looked into yet some may
 * be the same, and of those before. */
size_t state_pending_count(const struct state_pending *p);

/* Whether there are no more than so many, and looks into those batches where that
 * matters. */
bool state_pending_are_few(struct state_pending *p, size_t many);

/* The last record of each, PUT or DROP, in the order of record_compare, and NULL. The
 * caller frees the array; the records live until state_pending_clear. */
const struct record **state_pending_sorted(struct state_pending *p);

/* They are in the tables. */
void state_pending_clear(struct state_pending *p);

#endif
