#ifndef WORKER_CHECKPOINT_VERIFY_H
#define WORKER_CHECKPOINT_VERIFY_H

/* Everything that is wrong with a checkpoint, file by file. */

#include "worker/checkpoint/manifest.h"

struct verify_problem {
    char file[96]; /* base name */
    int err; /* ERR_CORRUPT; -errno: it could not be read now, which says nothing */
    struct errmsg what;
};

struct verify_report {
    struct verify_problem *problem; /* owned */
    size_t n;
};

/* Who wants the bytes as well, so that a load reads a file once: the manifest, which is
 * right in itself, then each file's bytes in order, before they are known to be right.
 */
struct verify_sink {
    void (*on_manifest)(void *arg, const char *path, const struct manifest *m);
    void (*on_bytes)(void *arg, size_t file, uint64_t offset, const uint8_t *data,
                     size_t size);
    void *arg;
};

/* Checks `path` in full; every byte is read once. `sink` may be NULL. The report is
 * empty exactly when all is well; then `ret` (may be NULL) holds the manifest. */
void verify_checkpoint(const char *path, const struct verify_sink *sink,
                       struct manifest *ret, struct verify_report *report);
void verify_report_release(struct verify_report *report);

/* 0; ERR_CORRUPT when a file is damaged or missing; -errno when some file could not be
 * read (EMFILE, EACCES, EIO, …) and the others are right. */
int verify_outcome(const struct verify_report *report) MUST_CHECK;

/* The same with one line for all that is wrong, and that outcome. `ret_meta` may be
 * NULL. */
int verify_and_tell(const char *path, const struct verify_sink *sink,
                    struct checkpoint_meta *ret_meta, struct errmsg *msg) MUST_CHECK;

#endif
