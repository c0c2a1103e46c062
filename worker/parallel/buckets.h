#ifndef WORKER_PARALLEL_BUCKETS_H
#define WORKER_PARALLEL_BUCKETS_H

/* PURE. Which elements of a gradient buffer are reduced together, and in which order.
 *
 * A gradient buffer is the flat block of the layout, then the gradient of the tied
 * head, padded to whole chunks. Backward fills it from its end to its begin: head, last
 * unit, …, unit 0. So buckets are cut from the end, and each is one range:
 *
 *     0      tied'                            layout.size      + tied'
 *     │ wte   │ wpe  │ block 0 │ … │ block L-1 │ ln_f │ head    │
 *     │ …  k+3│ k+2     │   k+1   │ …          │      │ 1 │  0  │    buckets
 *
 * The head's buckets have the same cuts as those of the tensor that it is tied to, so
 * the owner of a shard of one owns the same shard of the other: it adds the two there,
 * and the head's sum never travels.
 *
 * All cuts, those between the ranks' shards of a bucket too, lie on multiples of
 * SUMSQ_CHUNK. */

#include "worker/parallel/shards.h"

struct bucket {
    size_t begin, end;         /* elements of the gradient buffer */
    int unit;                  /* complete when backward has filled this unit */
    bool is_head;              /* of the head's accumulator */
    size_t n_tied;             /* the first elements to which the head's are added */
    size_t cut_begin, cut_end; /* what is cut into shards: the bucket or more */
    bool one_owner;            /* it is not cut: rank 0's shard is all of it */
};

struct bucket_list {
    struct bucket *bucket; /* owned; in the order in which backward completes them */
    int n;
    size_t head;        /* where the head's gradient begins: layout.size */
    size_t buffer_size; /* elements of a whole gradient buffer */
};

/* Rounds the cap up to a whole chunk. A unit larger than the cap is cut. */
void bucket_list_init(struct bucket_list *l, const struct layout *layout,
                      size_t tied_size, size_t cap_bytes);

/* One bucket per group, cut as shards.h cuts the group: a rank's shard of the sum is its
 * range of the flat block. The head's is cut as group 0 is. */
void bucket_list_init_groups(struct bucket_list *l, const struct layout *layout,
                             const struct unit_groups *groups, size_t tied_size);
void bucket_list_release(struct bucket_list *l);

/* Everything is rank 0's. */
void bucket_list_give(struct bucket_list *l);

/* Elements of a gradient buffer, without making the list. */
size_t bucket_buffer_size(const struct layout *layout, size_t tied_size);

/* Rank r's shard of the bucket is elements [bounds[r], bounds[r + 1]) of the buffer. */
void bucket_bounds(const struct bucket *b, int world_size, size_t *bounds);

#endif
