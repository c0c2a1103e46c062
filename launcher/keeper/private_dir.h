#ifndef LAUNCHER_KEEPER_PRIVATE_DIR_H
#define LAUNCHER_KEEPER_PRIVATE_DIR_H

/* ctrun's own folder for what it shares with its workers (error files, the timers'
 * FIFO): $TMPDIR/ctrun-XXXXXX, else below /tmp. Not the user's, whose file system may
 * hang. Removed by the agent, and by the keeper where the agent was killed. */

#include <stddef.h>

/* 0, or -errno; `ret` has the name that was tried. */
int private_dir_make(char *ret, size_t size);

/* With the files in it. A folder that a worker made there is left, and `path` too. */
void private_dir_remove(const char *path);

#endif
