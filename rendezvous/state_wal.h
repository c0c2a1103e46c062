#ifndef RENDEZVOUS_STATE_WAL_H
#define RENDEZVOUS_STATE_WAL_H

/* PURE. Looks for damage in the database's write-ahead log, of which SQLite would make
 * nothing: it takes the log up to the first frame that does not fit its checksum for
 * all there is, since a crash in the middle of a transaction looks like that, and loses
 * what was committed behind it.
 *
 * A crash leaves at most one transaction broken, the last: each is synced before the
 * next begins, and the log is emptied at each start. So a frame that fits, behind the
 * end of the broken transaction, means that the disk has changed what was written. */

#include "common/check.h"

#include <stddef.h>
#include <stdint.h>

/* `read` fills `data` from the offset, with zeros past the end; negative: it failed. */
struct state_wal {
    uint64_t size; /* of the file */
    void *arg;
    int (*read)(void *arg, uint64_t offset, void *data, size_t size);
};

/* 0; ERR_CORRUPT: committed transactions are damaged; or what `read` returned. */
int state_wal_check(const struct state_wal *wal) MUST_CHECK;

#endif
