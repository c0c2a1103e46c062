#ifndef WORKER_FEED_H
#define WORKER_FEED_H

/* DP's way to the tokens: rank 0 reads the whole global batch of a step and sends each
 * rank the leaves of its run. (With every other strategy a rank reads its own.)
 *
 *   rank 0   loader ─► leaves 0 … M−1 ─┬─ own run
 *                                      ├────────────► rank 1's run
 *                                      └────────────► rank 2's run …
 */

#include "worker/comm/comm.h"
#include "worker/data/loader.h"

struct feed;

struct feed_config {
    struct device *device;
    struct comm *comm;     /* of all ranks, on QUEUE_REDUCE */
    struct loader *loader; /* rank 0's, of all leaves; NULL elsewhere */
    int rank, world_size;
    uint32_t n_leaves;
    size_t leaf_tokens; /* micro_batch · seq_len */
};

/* Of the buffers, and what the rank sends in a step; comm and loader are not asked. */
size_t feed_bytes(const struct feed_config *config);
size_t feed_sent(const struct feed_config *config);

int feed_new(const struct feed_config *config, struct feed **ret,
             struct errmsg *msg) MUST_CHECK;
void feed_free(struct feed *f); /* NULL allowed */

/* The next step's tokens, for what comes on the compute queue; collective. Nothing there
 * may still need the last step's. */
int feed_step(struct feed *f, struct errmsg *msg) MUST_CHECK;

/* One of the rank's own leaves: device memory, until the next step. */
void feed_leaf(const struct feed *f, uint32_t leaf, const int32_t **ret_tokens,
               const int32_t **ret_targets);

#endif
