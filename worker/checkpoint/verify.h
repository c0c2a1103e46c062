#ifndef WORKER_CHECKPOINT_VERIFY_H
#define WORKER_CHECKPOINT_VERIFY_H

/* Everything that is wrong with a checkpoint, file by file. */

#include "worker/checkpoint/manifest.h"

struct verify_problem {
    char file[96]; /* base name */
    struct errmsg what;
};

struct verify_report {
    struct verify_problem *problem; /* owned */
    size_t n;
};

/* Checks `path` in full. The report is empty exactly when all is well; then `ret` (may
 * be NULL) holds the manifest. */
void verify_checkpoint(const char *path, struct manifest *ret,
                       struct verify_report *report);
void verify_report_release(struct verify_report *report);

#endif
