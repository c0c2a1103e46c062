#ifndef WORKER_PARALLEL_SCATTER_H
#define WORKER_PARALLEL_SCATTER_H

/* The gradients of a team's leaves, summed in shards (ZeRO-2 and ZeRO-3).
 *
 * A leaf's gradient is written into a buffer of one group. When the group is complete,
 * each rank of the team sends its leaf's parts to their owners, on QUEUE_REDUCE; an
 * owner adds the turn's leaves along the tree (tree.h) and pushes what comes of it into
 * slots of its own block's size, the team's partial sums:
 *
 *   turn j: leaf j·S + 0 ─┐ staging 0 ─┐
 *           leaf j·S + 1 ─┤ staging 1 ─┴► staging 0 ──► slot k
 *           …            ─┘ …
 *
 * A slot is laid out as the own block, then the own part of the head's gradient. */

#include "worker/comm/comm.h"
#include "worker/model/gpt2.h"
#include "worker/parallel/shards.h"
#include "worker/parallel/tree.h"

struct scatter;

struct scatter_config {
    struct device *device;
    struct comm *comm;           /* of the shard group, on QUEUE_REDUCE */
    const struct layout *layout; /* borrowed, as the next two */
    const struct unit_groups *groups;
    const struct shard_map *own;
    int n_shards, shard;
    uint32_t begin, end; /* the team's leaves */
    bool exact;          /* else one slot, leaves added as they come */
    enum dtype dtype;    /* a leaf's gradient is rounded to it before it is sent */
    size_t tied_size;    /* of the head's gradient, which is cut as group 0 is */
    float *slots;        /* scatter_slots() of slot_size */
};

int scatter_slots(const struct scatter_config *config);

/* Elements: of the head's own part, and of a slot. */
size_t scatter_head_size(const struct scatter_config *config);
size_t scatter_slot_size(const struct scatter_config *config);

/* Of its buffers, without the slots; what a rank sends in a step. */
size_t scatter_bytes(const struct scatter_config *config);
size_t scatter_sent(const struct scatter_config *config);

int scatter_new(const struct scatter_config *config, struct scatter **ret,
                struct errmsg *msg) MUST_CHECK;
void scatter_free(struct scatter *s); /* NULL allowed */

/* The team's partial sums after the last turn. */
const struct counter *scatter_held(const struct scatter *s);

/* Where the head's gradient of the next turn's leaf goes; NULL: no tied head. */
float *scatter_turn(struct scatter *s);
float *scatter_begin(struct scatter *s, int unit);

/* The group that is complete, and on its way, with this unit; −1: none is. */
int scatter_end(struct scatter *s, int unit);

/* True in the last turn. */
bool scatter_is_last(const struct scatter *s);

#endif
