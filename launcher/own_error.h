#ifndef LAUNCHER_OWN_ERROR_H
#define LAUNCHER_OWN_ERROR_H

/* What ctrun leaves in its own $TORCHELASTIC_ERROR_FILE when it fails, for a launcher
 * around it or a scheduler: torch's first form, on every node that of the first cause,
 *
 *   {"message": {"message": "ValueError: no luck",
 *                "extraInfo": {"py_callstack": "…", "timestamp": "1796052603",
 *                              "rank": 5, "local_rank": 1, "host": "b",
 *                              "generation": 2},
 *                "errorCode": 1}}
 *
 * torchrun leaves none where the rank itself had left none. Here the rank, how it ended
 * and its last lines stand in it then: whoever reads it has no other place to look. */

#include "common/err.h"
#include "common/msg.h"

/* PURE. mem_alloc'ed, valid JSON whatever bytes the worker wrote. errorCode: the rank's,
 * a signal's negative; ctrun's own where no rank is to blame. */
char *own_error_of_report(const struct msg_report *report);

/* PURE. Where no report came: what ctrun said last. */
char *own_error_of_text(const char *text, int exit_code, uint64_t wall_ms);

/* Under another name first, then renamed: nobody reads half of it. What is no file, or
 * cannot be replaced (a mount, as Kubernetes makes its termination log), is written in
 * place. May block as long as the file system does. */
int own_error_write(const char *path, const char *text, struct errmsg *msg) MUST_CHECK;

#endif
