#ifndef RENDEZVOUS_DURABLE_H
#define RENDEZVOUS_DURABLE_H

/* What the server needs of a state that outlives it (state.h), as functions: ctrun,
 * whose own servers keep everything in memory, links no database. All of them are
 * called, and call back, on the loop's thread. */

#include <stdbool.h>
#include <stdint.h>

struct errmsg;
struct record;

/* How much may still be written. */
enum durable_space {
    SPACE_FINE,
    SPACE_LOW, /* no job is begun, so that those that run can go on: from the reserve */
    SPACE_SCARCE, /* half of that is used: the rest is not for what they store */
    SPACE_SPENT   /* nearly all is: only what must be kept is written */
};

typedef int (*durable_take)(void *taker, const struct record *r, struct errmsg *msg);

/* Who uses it. */
struct durable_user {
    void *arg;
    /* All that was handed over by commit is on the disk. */
    void (*on_committed)(void *arg);
    void (*on_space)(void *arg, enum durable_space space);
};

struct durable {
    void *arg;
    uint64_t cluster; /* of this state, for good */
    uint64_t boot;    /* larger each time; on the disk once all is loaded … */
    uint64_t start;   /* … with this, which is random (starts.h) */
    uint64_t found;   /* transactions that it had when it was opened */
    /* To be added to the machine's clock (modulo 2^64): the service's own goes on where
     * it was, also when the machine has started anew. */
    uint64_t clock_offset_ms;

    /* Hands out all records that are kept, in the order of record.h. Once, before
     * anything is saved. ERR_CORRUPT, or what `take` returned, and others: there is no
     * going on. */
    int (*load)(void *arg, durable_take take, void *taker, struct errmsg *msg);
    void (*use)(void *arg, const struct durable_user *user); /* copied */

    /* Copies the record into the transaction that commit will begin. */
    void (*save)(void *arg, const struct record *r);
    bool (*has_saved)(void *arg); /* something that no commit has taken along yet */
    /* How many transactions are on the disk once all that was saved so far is, at least;
     * once all is loaded. */
    uint64_t (*kept)(void *arg);
    /* Begins it, with all that was saved so far, unless there is nothing or another is
     * on its way. True while one is: on_committed follows. */
    bool (*commit)(void *arg);
    /* For a loop with nothing to do until then: sleeps till the transaction on its way
     * is on the disk, for `limit_ms` at most, and calls on_committed if it is. */
    void (*await)(void *arg, uint64_t limit_ms);
};

#endif
