#ifndef RENDEZVOUS_STATE_DIR_H
#define RENDEZVOUS_STATE_DIR_H

/* The folder of the service's state: 0700, ours alone, locked while it is used, with a
 * file in it that holds space for the day on which the disk is full. Any thread, one at
 * a time.
 *
 *   state.db, state.db-wal   the database, and its write-ahead log
 *   state.db-base            where the log begins (state_base.h)
 *   lock                     held (flock) by the service that uses it; its process id
 *   reserve                  space, given up bit by bit when the disk is full */

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

struct state_dir {
    char *path; /* owned */
    int fd;
    int lock_fd;
    uint64_t reserve_bytes; /* of the whole reserve … */
    uint64_t reserve_left;  /* … and of what there is of it */
    uint32_t patience_ms;   /* for others who use it */
    uint64_t busy_ms;       /* since when they are waited for; 0: they are not */
    bool has_told;          /* … and that is said */
};

/* Makes the folder, not its parent's. ERR_INVALID: a mistake of the user's, such as a
 * folder that others can read, or something in it that is no file; ERR_BUSY: another
 * service uses it, and has for `patience_ms`; -ENOSPC: there is no room even for the
 * folder. The reserve may be missing when this returns 0. */
int state_dir_open(struct state_dir *d, const char *path, uint64_t reserve_bytes,
                   uint32_t patience_ms, struct errmsg *msg) MUST_CHECK;
/* The same, and changes nothing: a folder that is not there yet is not made (`fd` is
 * negative then). ERR_BUSY: a service uses it, perhaps the one that is asked about. Until
 * state_dir_close none can begin to. */
int state_dir_look(struct state_dir *d, const char *path,
                   struct errmsg *msg) MUST_CHECK;
void state_dir_close(struct state_dir *d);

/* What another program holds may be free in a moment: sleeps for one, and says so where
 * it takes long. False: patience is at its end, or the process is told to stop. */
bool state_dir_wait(struct state_dir *d) MUST_CHECK;

/* -ENOSPC, with what to do about it. */
int state_dir_blame_space(const struct state_dir *d, struct errmsg *msg);

/* There is no database yet. */
bool state_dir_is_new(const struct state_dir *d);

/* The write-ahead log, as a file; and one that is empty goes. */
bool state_dir_has_log(const struct state_dir *d);
void state_dir_drop_empty_log(const struct state_dir *d);

/* There is a write-ahead log, or a word of where one begins, and no database that it
 * belongs to: SQLite would begin anew, and throw the log away. */
bool state_dir_is_torn(const struct state_dir *d);

/* Bytes of its file system that we may write. -ESTALE: the files of the folder were
 * removed, what is written now is lost. */
int state_dir_free(const struct state_dir *d, uint64_t *ret) MUST_CHECK;

/* The whole of it. -ENOSPC: there is not enough space, and what is left of it stays.
 * Costs nothing when it is there. */
int state_dir_make_reserve(struct state_dir *d) MUST_CHECK;

/* So many bytes of it, or what is left, and no more: others write to this disk, too. 0
 * bytes: some. -ENOSPC: nothing is left. */
int state_dir_give_up(struct state_dir *d, uint64_t bytes) MUST_CHECK;

#endif
