#ifndef WORKER_PARALLEL_SHARDS_H
#define WORKER_PARALLEL_SHARDS_H

/* PURE. Which elements of the flat block a rank holds for good.
 *
 * Units are gathered and reduced in groups: runs of one or more units. Each group is
 * cut into n_shards parts of whole SUMSQ_CHUNKs, as equal as that allows; part s of
 * every group is shard s. The *own block* of a rank is its parts, one behind the other;
 * its parameters, exp_avg and exp_avg_sq are three of those.
 *
 *   flat block   │ unit 0 ┆ ┆ ┆ │ unit 1 ┆ ┆ ┆ │ unit 2 ┆ ┆ ┆ │     4 shards
 *   shard 1               └┬┘            └┬┘            └┬┘
 *   own block             │ 0 │ 1 │ 2 │
 *
 * With one shard the own block is the flat block: so DDP is a case of it, not another
 * path. */

#include "worker/model/unit.h"

/* Group g is units [first[g], first[g + 1]). */
struct unit_groups {
    int *first; /* owned; n + 1 of them */
    int n;
    bool one_owner; /* shard 0 is the whole group, the others are empty */
};

/* One group per unit. */
void unit_groups_each(struct unit_groups *g, const struct layout *layout);

/* Unit 0 alone; then `n_blocks` (0: 1) units at a time, and as many more as make
 * `min_params` elements. A rest that is too small goes with the group before, but not
 * with unit 0: there are two groups at least. */
void unit_groups_make(struct unit_groups *g, const struct layout *layout, int n_blocks,
                      size_t min_params);
void unit_groups_release(struct unit_groups *g);

/* Elements of the flat block: where a group begins; its size; the largest size of all
 * groups but group 0 (0: there is no other). */
size_t unit_group_begin(const struct layout *layout, const struct unit_groups *g,
                        int group);
size_t unit_group_size(const struct layout *layout, const struct unit_groups *g,
                       int group);
size_t unit_group_largest(const struct layout *layout, const struct unit_groups *g);

struct shard_range {
    size_t begin, end; /* elements of the flat block; may be empty */
    size_t at;         /* where `begin` lies in the own block */
};

struct shard_map {
    struct shard_range *range; /* owned; one per group, in order */
    int n_ranges;
    size_t size; /* elements of the own block */
};

void shard_map_init(struct shard_map *m, const struct layout *layout,
                    const struct unit_groups *groups, int n_shards, int shard);
void shard_map_release(struct shard_map *m);

/* Shard s of group g is elements [bounds[s], bounds[s + 1]) of the flat block. */
void shard_bounds(const struct layout *layout, const struct unit_groups *groups,
                  int group, int n_shards, size_t *bounds);

#endif
