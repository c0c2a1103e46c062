#ifndef WORKER_RESTORE_H
#define WORKER_RESTORE_H

/* The state that a rank holds, from wherever it comes: a checkpoint of any layout, or
 * the first values. No more than the own block is made room for, and of a checkpoint
 * only the bytes of the own block are read (and the shards' tables). */

#include "worker/checkpoint/checkpoint.h"
#include "worker/parallel/shards.h"

enum { OWN_STATES = UNIT_STATES };

/* The own block of parameters, exp_avg and exp_avg_sq; host memory. */
struct own_block {
    const struct layout *layout; /* borrowed, all of them */
    const struct shard_map *map; /* NULL: the own block is the flat block */
    float *state[OWN_STATES];
};

/* Elements of one state. */
size_t own_size(const struct own_block *b);

/* Its ranges of the flat block, upwards. */
int own_ranges(const struct own_block *b);
struct shard_range own_range(const struct own_block *b, int i);

/* The first `n_states` states as cuts of a checkpoint's tensors; *ret is the caller's
 * to mem_free. */
void own_cuts(const struct own_block *b, int n_states, struct cut **ret, size_t *ret_n);

/* Fills the first `n_states` states: 1 for weights alone. What was verified is not
 * verified again. Padding stays as it is. Errors as checkpoint_load's. */
int restore_own_block(const char *path, const struct own_block *b, int n_states,
                      struct errmsg *msg) MUST_CHECK;

/* Elements [begin, end) of the own block's parameters, made from the seed; disjoint
 * runs can be made on several threads at once. */
void init_own_block(const struct own_block *b, uint64_t seed, int layers, size_t begin,
                    size_t end);

#endif
