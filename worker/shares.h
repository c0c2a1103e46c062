#ifndef WORKER_SHARES_H
#define WORKER_SHARES_H

/* PURE. Who writes which rows of a checkpoint. A row of a tensor belongs to the rank
 * that owns its first element, so no element is written twice and no row is cut.
 *
 * Where every rank holds the whole state, every rank owns an equal run of the flat
 * layout. Where it is sharded, the ranks of replica 0 own what they hold; the other
 * replicas write nothing. A rank has at most one box of a tensor: a tensor lies in one
 * unit, a unit in one group, and of a group a shard is one range. */

#include "worker/checkpoint/checkpoint.h"
#include "worker/model/unit.h"
#include "worker/parallel/shards.h"

/* A rank among those that hold the state: replica rank / n_shards, shard rank %
 * n_shards. */
struct holder {
    int rank, world_size;             /* world_size is a multiple of n_shards */
    int n_shards;                     /* 0 and 1: every rank holds the whole state */
    const struct unit_groups *groups; /* that are cut into shards; else NULL */
};

/* True where there is one part of the state for each rank of a replica. */
bool holder_is_sharded(const struct holder *h);

/* The ranks that write a file: ranks 0 to n − 1. */
int holder_writers(const struct holder *h);

struct share {
    struct shard_map spans; /* what the rank's rows span, by group (one range where
                               nothing is sharded); a share's buffer has them packed */
    struct box *box;        /* owned; data is NULL: see share_bind */
    size_t *flat;           /* owned; per box, its first element in the flat block */
    size_t n_boxes;
};

/* The rows of one rank, for parameters, exp_avg and exp_avg_sq (three boxes for each
 * run of rows, in that order). Release with share_release. */
void share_make(const struct layout *layout, const struct holder *holder,
                struct share *ret);
void share_release(struct share *s);

/* The spans alone. Release with shard_map_release. */
void share_spans(const struct layout *layout, const struct holder *holder,
                 struct shard_map *ret);

/* Points the boxes into three buffers of s->spans.size floats. */
void share_bind(struct share *s, float *const state[3]);

#endif
