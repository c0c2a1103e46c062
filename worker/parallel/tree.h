#ifndef WORKER_PARALLEL_TREE_H
#define WORKER_PARALLEL_TREE_H

/* PURE. The one summation tree of a global step (exact reduction).
 *
 * A step has M leaves (canonical micro-batches). Partial sums live in *blocks*, dyadic
 * in the global leaf index: [k·2^j, (k+1)·2^j). Two blocks merge only if they are
 * siblings; what is left at M is folded right to left. So the tree depends on M alone,
 * and whoever holds which leaves gets the same bits.
 *
 *   M = 7:   0 1  2 3   4 5  6        run [1,7) of a rank: blocks {1} {2,3} {4,5} {6}
 *            └┬┘  └┬┘   └┬┘  │        (merged with {0} only where rank 0's {0} arrives)
 *             └─┬──┘     └─┬─┘
 *               └────┬─────┘
 */

#include "worker/device/kernels.h"

#include <stdint.h>

struct block {
    uint32_t first; /* leaf; a multiple of size */
    uint32_t size;  /* a power of two */
};

/* A run [begin, end) has at most 2·log2 M blocks. */
enum { TREE_MAX_BLOCKS = 64 };

/* The leaves of rank r of W: [⌊rM/W⌋, ⌊(r+1)M/W⌋). */
uint32_t tree_run_begin(uint32_t n_leaves, uint32_t world, uint32_t rank);

/* A rank's leaves: begin, begin + stride, … below end. */
struct leaf_run {
    uint32_t begin, end, stride;
};

/* The world is cut into teams of `team` neighbouring ranks; each team has a run, whose
 * leaves its ranks take in turns. With teams of one each rank has a run of its own. */
struct leaf_run leaf_run_of(uint32_t n_leaves, int world, int team, int rank);
uint32_t leaf_run_count(const struct leaf_run *r);

/* How many turns the rank's team takes: in the last one some may have no leaf. */
uint32_t leaf_run_rounds(uint32_t n_leaves, int world, int team, int rank);

/* The maximal dyadic blocks of a run, in leaf order; returns their number. */
int tree_blocks(uint32_t begin, uint32_t end, struct block blocks[TREE_MAX_BLOCKS]);

/* A binary counter over slots: what to do when the next leaf of a run is complete. */
struct counter {
    struct block block[TREE_MAX_BLOCKS]; /* held partial sums, in leaf order */
    int slot[TREE_MAX_BLOCKS];           /* buffer of each */
    int n;
};

/* Pushes leaf `leaf`, whose gradient is in buffer `slot`. Writes the additions to carry
 * out now, in order (into the left sibling's buffer), and returns their number. Buffers
 * that were a `src` are free again. */
int tree_push(struct counter *c, uint32_t leaf, int slot,
              struct addition adds[TREE_MAX_BLOCKS]);

/* The same for a whole block, which begins where the last one ends: how the partial
 * sums of several ranks become those of their node. */
int tree_push_block(struct counter *c, struct block block, int slot,
                    struct addition adds[TREE_MAX_BLOCKS]);

/* The largest number of buffers a run needs at once, the leaf in work included. */
int tree_max_slots(uint32_t begin, uint32_t end);

/* The additions that sum `n` blocks, which together cover [0, M) in leaf order (block i
 * in buffer i), into buffer 0: siblings first, then the fold. Returns their number (n −
 * 1). */
int tree_fold(const struct block *blocks, int n, struct addition *adds);

#endif
