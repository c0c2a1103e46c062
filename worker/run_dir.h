#ifndef WORKER_RUN_DIR_H
#define WORKER_RUN_DIR_H

/* The run directory: its lock, the run generation, and the proof that all nodes see it.
 *
 * Rank 0 takes the lock (flock on .lock, whose text names cluster and job), claims the
 * run generation R by mkdir of log/<R> (at least the job's generation, above all
 * found) and writes a token there; every rank then reads the token: one file system
 * for all nodes. What else lies in the directory is others' (run_dir_write). The lock
 * lives as long as the process. A fenced rank 0 of the same job that holds it yet is no
 * obstacle: the lock is taken as soon as it has let go (run_dir_hold), so that a
 * foreign run is kept out again. Blocking; one thread at a time. */

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    RUN_DIR_PATH_MAX = 1024,
    RUN_DIR_TOKEN_MAX = 40,
    RUN_DIR_OWNER_MAX = 320,
    RUN_DIR_LOCK_WAIT_MS = 10000,
};

struct run_dir {
    char path[RUN_DIR_PATH_MAX];   /* absolute */
    int lock_fd;                   /* of .lock; −1 on every rank but 0 */
    bool has_lock;                 /* false: another process of this job has it yet */
    char owner[RUN_DIR_OWNER_MAX]; /* how the lock's text names the job; "": no job */
    int run_generation;            /* R */
    char log[RUN_DIR_PATH_MAX];    /* path/log/R */
    char token[RUN_DIR_TOKEN_MAX];
    uint64_t device, inode; /* of path, when it was opened */
};

struct run_dir_owner {
    uint64_t cluster;
    const char *job; /* "" without a launcher */
    uint64_t generation;
    int lock_wait_ms; /* for a foreign holder of the lock */
};

/* Makes the directory, its parents too, unless it is there. ERR_INVALID: a file is in
 * its place; ERR_TOO_LARGE and -errno as below. */
int run_dir_make(const char *path, struct errmsg *msg) MUST_CHECK;

/* Rank 0, run_dir_make included. ERR_BUSY: a foreign holder of the lock did not let go in time; the text names
 * it. ERR_TOO_LARGE: a path is too long. -errno with the path otherwise. */
int run_dir_open(const char *path, const struct run_dir_owner *owner,
                 struct run_dir *ret, struct errmsg *msg) MUST_CHECK;

/* Every other rank, with what rank 0 published. ERR_MISSING: this node does not see it.
 */
int run_dir_join(const char *path, int run_generation, const char *token,
                 struct run_dir *ret, struct errmsg *msg) MUST_CHECK;
void run_dir_close(struct run_dir *r);

/* Rank 0, before whatever it commits to the directory. Takes the lock if it does not
 * have it and it is free by now; never waits. ERR_STALE: the directory at `path` is not
 * the one that was opened any more (it was moved or replaced while the run goes on);
 * ERR_BUSY: a foreign run was faster to take the lock. Then nothing may be committed
 * there. */
int run_dir_hold(struct run_dir *r, struct errmsg *msg) MUST_CHECK;

/* Writes `text` to path/name, whole or not at all (temporary, fsync, rename). */
int run_dir_write(const struct run_dir *r, const char *name, const char *text,
                  struct errmsg *msg) MUST_CHECK;

#endif
