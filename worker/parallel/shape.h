#ifndef WORKER_PARALLEL_SHAPE_H
#define WORKER_PARALLEL_SHAPE_H

/* What follows from a configuration of the strategies in zero.c, before there is any
 * memory: who holds what, and what the parts take. */

#include "worker/parallel/buckets.h"
#include "worker/parallel/gather.h"
#include "worker/parallel/parallel.h"
#include "worker/parallel/reduction.h"
#include "worker/parallel/scatter.h"

struct shape {
    const struct parallel_config *config; /* borrowed */
    int n_shards, shard;
    bool scatters;   /* gradients go to shards leaf by leaf */
    bool is_planned; /* by reduction.h; else the backend's all-reduce */
    struct unit_groups groups;
    struct shard_map own;
    struct layout slot_layout; /* of a slot, without the head: flat, or the own block */
    struct unit *slot_units;   /* owned, if not flat */
    size_t slot_tied;          /* of the head's, in a slot */
    struct bucket_list buckets; /* of a slot */
    int n_runs, run;            /* of leaves: reduced between them */
    uint32_t begin, end;        /* the own run */
};

void shape_init(struct shape *s, const struct parallel_config *c);
void shape_release(struct shape *s);

/* The configurations of the parts, without the memory of the last two. */
struct gather_config shape_gather(const struct shape *s, const float *params);
struct scatter_config shape_scatter(const struct shape *s, float *slots);
struct reduction_config shape_reduction(const struct shape *s);

/* The comm of the runs: NULL for one run. */
struct comm *shape_between(const struct shape *s);

size_t shape_slots_bytes(const struct shape *s);
size_t shape_staging_bytes(const struct shape *s);
size_t shape_spread_bytes(const struct shape *s); /* of the norm's sums */
struct parallel_bytes shape_bytes(const struct shape *s);
size_t shape_sent(const struct shape *s);

#endif
