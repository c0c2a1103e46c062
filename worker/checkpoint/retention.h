#ifndef WORKER_CHECKPOINT_RETENTION_H
#define WORKER_CHECKPOINT_RETENTION_H

/* Names in a folder of checkpoints, and the deleting of what is not wanted any more. */

#include "worker/checkpoint/checkpoint.h"

/* True for exactly "step-%08d-g%d", and with `tmp` for exactly that + ".tmp". */
bool retention_parse(const char *name, bool tmp, uint64_t *ret_step,
                     int *ret_run_generation);

/* A checkpoint as the choice sees it. */
struct retained {
    struct checkpoint_entry entry;
    bool has_val_loss, is_unreadable; /* its manifest; the former of those alone */
    double val_loss;
    bool is_kept;
};

/* PURE. Sets `is_kept` of each; they stand newest first. */
void retention_choose(struct retained *all, size_t n,
                      const struct checkpoint_retention *retention);

/* The folder's checkpoints, newest first, with the choice made; mem_alloc'ed. */
int retention_list(const char *dir, const struct checkpoint_retention *retention,
                   struct retained **ret, size_t *ret_n, struct errmsg *msg) MUST_CHECK;

/* Deletes those that are not kept, the oldest first, and calls `on_deleted` (may be
 * NULL) with each one's base name. */
int retention_delete(const char *dir, const struct retained *all, size_t n,
                     void (*on_deleted)(void *arg, const char *name), void *arg,
                     struct errmsg *msg) MUST_CHECK;

#endif
