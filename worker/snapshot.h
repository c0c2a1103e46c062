#ifndef WORKER_SNAPSHOT_H
#define WORKER_SNAPSHOT_H

/* What a rank's shard of a checkpoint is written from: its boxes (shares.h) of
 * parameters, exp_avg and exp_avg_sq.
 *
 *   copied     memory of its own, the boxes back to back as in the file; the state may
 *              change once the copy is made
 *   in place   the boxes are where the state is, and only the tails that come from other
 *              shards (regroup.h) have memory; the state must stay until all is written
 *
 * One thread takes it, another may read the boxes after the ticket. */

#include "worker/comm/comm.h"
#include "worker/shares.h"

struct snapshot;

struct snapshot_config {
    const struct layout *layout; /* borrowed until snapshot_new returns */
    struct device *device;
    struct holder holder; /* `groups` likewise */
    struct comm *comm;    /* as in saver.h */
    enum queue comm_queue;
    bool in_place;
};

size_t snapshot_bytes(const struct layout *layout, const struct holder *holder,
                      bool in_place);

int snapshot_new(const struct snapshot_config *config, struct snapshot **ret,
                 struct errmsg *msg) MUST_CHECK;
void snapshot_free(struct snapshot *s); /* NULL allowed */

/* Of the own blocks as they are after what is on the compute queue now; collective where
 * sharded. Complete with the ticket; valid until the next one. */
struct ticket snapshot_take(struct snapshot *s, const float *const state[3]);
const struct box *snapshot_boxes(const struct snapshot *s, size_t *ret_n);

#endif
