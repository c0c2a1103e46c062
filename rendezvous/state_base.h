#ifndef RENDEZVOUS_STATE_BASE_H
#define RENDEZVOUS_STATE_BASE_H

/* state.db-base: by which commit the database's own file goes on in its log. SQLite
 * takes a log that is gone, or empty, for one that was copied, and makes an older state
 * of the database: its numbers would be given out twice.
 *
 *   a copy of the log is complete: the file has commit n ──► commit n + 1 is in the log,
 *   and synced ──► "n" is written here, and synced
 *
 * So a database that, with its log, ends at the commit that stands here has lost those
 * behind it, wherever a crash came between. One whose log somebody else has copied
 * (sqlite3 does, and removes it) ends at a later one. Through SQLite's layer of files,
 * as tests put another in its place. */

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

struct state_base {
    uint64_t cluster; /* whose */
    uint64_t commit;
};

/* `path`: the database's; `vfs` as in state_db_config. -ENOSPC: nothing is written. */
int state_base_write(const char *vfs, const char *path,
                     const struct state_base *b) MUST_CHECK;

/* False: there is none, or none that was written here. */
bool state_base_read(const char *vfs, const char *path, struct state_base *ret);

#endif
