#ifndef WORKER_DATA_LOADER_H
#define WORKER_DATA_LOADER_H

/* Leaves of batches, read ahead by one thread. The plan (which leaves of each step, in
 * which order) is fixed at open: those of leaves [leaf_begin, leaf_end) of steps
 * first_step, first_step + 1, … Slots are laid out at open; nothing is allocated
 * later. */

#include "worker/data/dataset.h"
#include "worker/data/sampler.h"

struct loader;

struct loader_config {
    struct dataset *dataset; /* borrowed */
    struct sampler *sampler; /* borrowed; used by the loader's thread alone */
    uint64_t first_step;     /* 0 = the first */
    uint64_t n_steps;        /* 0 = endless */
    uint32_t leaf_begin, leaf_end;
    uint32_t leaf_stride; /* every so manieth of them; 0: each */
    int64_t micro_batch, global_batch, seq_len;
    int n_ahead; /* leaves read ahead, ≥ 1 */
};

int loader_open(const struct loader_config *config, struct loader **ret,
                struct errmsg *msg) MUST_CHECK;
void loader_close(struct loader *l); /* NULL allowed; joins the thread */

/* The next leaf in plan order: tokens and targets (micro_batch, seq_len), host memory,
 * valid until the next call. Waits for the thread; the thread's error is returned once
 * met. */
int loader_next(struct loader *l, const int32_t **ret_tokens,
                const int32_t **ret_targets, struct errmsg *msg) MUST_CHECK;
size_t loader_bytes(const struct loader_config *config);

#endif
