#ifndef WORKER_REGROUP_H
#define WORKER_REGROUP_H

/* PURE. From what the ranks hold to what they write.
 *
 * Shards are cut at multiples of SUMSQ_CHUNK elements, a checkpoint's boxes are whole
 * rows: the last row that begins in a shard may end in the next one, or, where rows are
 * long and shards short, several shards on. So a rank's share (shares.h) is mostly its
 * own, and the rest, the *tails*, comes from others:
 *
 *   rows          │     0     │     1     │     2     │     3     │
 *   held          │    shard 0     │     shard 1      │  shard 2  │
 *   written       │    shard 0           │  shard 1   │  shard 2  │
 *                                  └─tail─┘ from shard 1
 *
 * All is intersections of ranges of the flat block. Replica 0's ranks alone take part.
 */

#include "worker/comm/comm.h"
#include "worker/shares.h"

/* What own block and written spans have in common. */
struct regroup_copy {
    size_t own;   /* elements, of the own block */
    size_t share; /* elements, of the share's buffer */
    size_t n;
};

/* A tail, or a part of one, to or from the holder of another shard. */
struct regroup_tail {
    int peer;  /* its shard */
    size_t at; /* elements: of the own block when sent, else of the share's buffer */
    size_t n;
};

/* Tails between a pair of ranks come in the same order on both sides. */
struct regroup {
    struct regroup_copy *copy; /* all owned */
    struct regroup_tail *send, *recv;
    size_t n_copies, n_sends, n_recvs;
};

void regroup_init(struct regroup *r, const struct layout *layout,
                  const struct holder *holder);
void regroup_release(struct regroup *r);

/* The tails of one of the three states, as a collective's pieces; `ret` has room for
 * as many as there are. */
void regroup_sends(const struct regroup *r, const float *own, struct piece *ret);
void regroup_recvs(const struct regroup *r, float *share, struct piece *ret);

#endif
