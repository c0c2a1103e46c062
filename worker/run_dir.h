#ifndef WORKER_RUN_DIR_H
#define WORKER_RUN_DIR_H

/* The run directory: its lock, the run generation, and the proof that all nodes see it.
 *
 * Rank 0 takes the lock (dir_lock.h), that of checkpoint.dir too if it lies elsewhere,
 * claims the run generation R by mkdir of log/<R> (at least the job's generation, above
 * all found) and writes a token there; every rank then reads the token: one file system
 * for all nodes. What else lies in the directory is others' (run_dir_write). A fenced
 * rank 0 of the same job that holds a lock yet is no obstacle: it is taken as soon as
 * it is free (run_dir_hold). Blocking; one thread at a time. */

#include "worker/dir_lock.h"

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    RUN_DIR_PATH_MAX = 1024,
    RUN_DIR_TOKEN_MAX = 40,
    RUN_DIR_LOCK_WAIT_MS = 10000,
};

struct run_dir {
    char path[RUN_DIR_PATH_MAX];     /* absolute */
    struct dir_lock lock;            /* rank 0's; not open elsewhere */
    struct dir_lock checkpoint_lock; /* not open where checkpoint.dir is in `path` */
    int run_generation;              /* R */
    char log[RUN_DIR_PATH_MAX];      /* path/log/R */
    char token[RUN_DIR_TOKEN_MAX];
    uint64_t device, inode; /* of path, when it was opened */
};

struct run_dir_owner {
    uint64_t cluster;
    const char *job;            /* "" without a launcher */
    int lock_wait_ms;           /* for a foreign holder of a lock */
    const char *checkpoint_dir; /* to be locked, too; NULL: none */
};

/* Makes the directory, its parents too, unless it is there. ERR_INVALID: a file is in
 * its place; ERR_TOO_LARGE and -errno as below. */
int run_dir_make(const char *path, struct errmsg *msg) MUST_CHECK;

/* Rank 0: makes the directory and takes the locks. ERR_BUSY: a foreign holder of one
 * did not let go in time; the text names it. ERR_TOO_LARGE: a path is too long.
 * ERR_INVALID: a lock is a link. -errno with the path otherwise. */
int run_dir_open(const char *path, const struct run_dir_owner *owner,
                 struct run_dir *ret, struct errmsg *msg) MUST_CHECK;

/* Then: a run generation of at least `at_least`, and the token. To be closed after an
 * error, too. */
int run_dir_claim(struct run_dir *r, uint64_t at_least, struct errmsg *msg) MUST_CHECK;

/* How many run generations from `from` on were begun before this one, as far as log/
 * knows: 0 when it cannot be read. */
uint64_t run_dir_starts(const struct run_dir *r, int from);

/* Every other rank, with what rank 0 published. ERR_MISSING: this node does not see it.
 */
int run_dir_join(const char *path, int run_generation, const char *token,
                 struct run_dir *ret, struct errmsg *msg) MUST_CHECK;
void run_dir_close(struct run_dir *r);

/* Rank 0, before whatever it commits to the directory or to checkpoint.dir. Takes the
 * locks that it does not have and that are free by now; never waits. ERR_STALE: the
 * directory at `path`, or a lock in it, is not the one that was opened any more (it was
 * moved, replaced or deleted while the run goes on); ERR_BUSY: a foreign run was faster
 * to take the lock. Then nothing may be committed there. */
int run_dir_hold(struct run_dir *r, struct errmsg *msg) MUST_CHECK;

/* Writes `text` to path/name, whole or not at all (temporary, fsync, rename). */
int run_dir_write(const struct run_dir *r, const char *name, const char *text,
                  struct errmsg *msg) MUST_CHECK;

#endif
