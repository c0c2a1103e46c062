#ifndef RENDEZVOUS_TALLY_H
#define RENDEZVOUS_TALLY_H

/* PURE. What the service counts while it works, since it began; metrics.h shows it. */

#include "common/tcpstore.h"

enum { TALLY_BUCKETS = 10 };

/* How many values were at most as large as each bound; `bound` is the owner's. */
struct tally_spread {
    uint64_t bucket[TALLY_BUCKETS]; /* each for itself, not those below */
    uint64_t count, sum;
};

/* Why a connection was closed or not taken. */
enum tally_refusal {
    TALLY_PROTOCOL,     /* it broke the protocol */
    TALLY_LIMIT,        /* it passed a limit */
    TALLY_CROWD,        /* there were too many */
    TALLY_STORE_CLIENT, /* a store client from where none may be */
    TALLY_SILENCE,      /* it did not say in time who it is */
    TALLY_REFUSAL_COUNT,
};

struct tally {
    struct tally_spread lease_left; /* at each heartbeat, in thousandths */
    struct tally_spread store[TCPSTORE_OP_COUNT]; /* nanoseconds to carry one out */
    struct tally_spread commits;                  /* nanoseconds to the disk */
    uint64_t refused[TALLY_REFUSAL_COUNT];
    uint64_t accepted; /* connections */
};

extern const uint64_t tally_lease_bounds[TALLY_BUCKETS];
extern const uint64_t tally_time_bounds[TALLY_BUCKETS];

/* A connection has ended because of this error; not all of them are refusals. */
void tally_end(struct tally *t, int why);

/* A heartbeat came `silent_ms` after the last sign of life. */
void tally_lease(struct tally *t, uint64_t lease_ms, uint64_t silent_ms);

void tally_store(struct tally *t, uint8_t op, uint64_t ns); /* no op of ours: ignored */

void tally_commit(struct tally *t, uint64_t ns); /* of a turn's records */

const char *tally_refusal_name(enum tally_refusal reason);

/* "set", "multi_get" */
const char *tally_op_name(enum tcpstore_op op);

#endif
