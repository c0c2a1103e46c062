#ifndef WORKER_SHARES_H
#define WORKER_SHARES_H

/* PURE. Who writes which rows of a checkpoint. Every rank owns an equal run of the flat
 * layout; a row of a tensor belongs to the rank that owns its first element, so no
 * element is written twice and no row is cut. */

#include "worker/checkpoint/checkpoint.h"
#include "worker/model/unit.h"

struct share {
    size_t begin, end; /* elements of the flat block that the rank's rows span */
    struct box *box;   /* owned; data is NULL: see shares_bind */
    size_t n_boxes;
};

/* The rows of one rank of `world`, for parameters, exp_avg and exp_avg_sq (three boxes
 * for each run of rows, in that order). Release with share_release. */
void share_make(const struct layout *layout, int rank, int world, struct share *ret);
void share_release(struct share *s);

/* Points the boxes into three flat buffers, whose first element is element `base` of
 * the layout. */
void share_bind(struct share *s, const struct layout *layout, size_t base,
                float *const state[3]);

#endif
