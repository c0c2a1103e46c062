#ifndef WORKER_CHECKPOINT_RETENTION_H
#define WORKER_CHECKPOINT_RETENTION_H

/* Names in a folder of checkpoints, and the deleting of what is not wanted any more. */

#include "worker/checkpoint/checkpoint.h"

/* True for exactly "step-%08d-g%d", and with `tmp` for exactly that + ".tmp". */
bool retention_parse(const char *name, bool tmp, uint64_t *ret_step,
                     int *ret_run_generation);

/* Deletes checkpoints beyond the newest `keep` (≥ 1) as checkpoint_prune does, and
 * calls `on_deleted` with each one's base name. */
int retention_prune(const char *dir, size_t keep,
                    void (*on_deleted)(void *arg, const char *name), void *arg,
                    struct errmsg *msg) MUST_CHECK;

#endif
