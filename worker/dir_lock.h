#ifndef WORKER_DIR_LOCK_H
#define WORKER_DIR_LOCK_H

/* The lock of a directory that one job writes to at a time: flock on its .lock, whose
 * text names cluster and job. It lives as long as the process that holds it. Another
 * process of the same job that holds it yet (a fenced rank 0) is no obstacle: the lock
 * is taken as soon as it has let go (dir_lock_hold), so that a foreign run is kept out
 * again. Blocking; one thread at a time. */

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { DIR_LOCK_PATH_MAX = 1024, DIR_LOCK_OWNER_MAX = 320 };

/* All zero: not open. */
struct dir_lock {
    bool is_open;
    bool is_held;                   /* false: another process of this job has it yet */
    int fd;                         /* of .lock */
    char dir[DIR_LOCK_PATH_MAX];    /* absolute */
    char owner[DIR_LOCK_OWNER_MAX]; /* how the text names the job; "": no job */
    const char *what;               /* "run directory", for errors; static storage */
    const char *remedy;             /* "another run.dir", likewise */
};

struct dir_lock_config {
    const char *dir; /* absolute; is there */
    const char *what, *remedy;
    uint64_t cluster;
    const char *job; /* "" without a launcher */
    int wait_ms;     /* for a foreign holder */
};

/* ERR_BUSY: a foreign holder did not let go in time; the text names it. ERR_TOO_LARGE:
 * the path is too long. ERR_INVALID: .lock is a link, which is not followed. ERR_STALE
 * and -errno as below. `ret` is closed after an error. */
int dir_lock_open(const struct dir_lock_config *config, struct dir_lock *ret,
                  struct errmsg *msg) MUST_CHECK;

/* Takes it if it is not held and free by now; never waits. ERR_BUSY: a foreign run was
 * faster. ERR_STALE, held or not: .lock is not the file that was opened any more (it
 * was moved, replaced or deleted), so it keeps nobody out. -errno with the path
 * otherwise. */
int dir_lock_hold(struct dir_lock *l, struct errmsg *msg) MUST_CHECK;
void dir_lock_close(struct dir_lock *l); /* lets go of it */

#endif
