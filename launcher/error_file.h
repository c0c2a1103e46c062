#ifndef LAUNCHER_ERROR_FILE_H
#define LAUNCHER_ERROR_FILE_H

/* The exception that a worker left in $TORCHELASTIC_ERROR_FILE, as torch's @record
 * writes it, or in the short form:
 *
 *   {"message": {"message": "T: text",
 *                "extraInfo": {"py_callstack": "…", "timestamp": "…"}}}
 *   {"message": "text", "timestamp": 1}
 *
 * torchrun dies of a file that is neither. Here its text is told as it is: whoever
 * wrote it, by hand or onto a full disk, had something to say. */

#include "common/msg.h"

struct worker_error {
    char message[MSG_TAIL_MAX]; /* the traceback, else the message, else all the text */
    char error[MSG_TEXT_MAX]; /* the message alone, "ValueError: no luck"; "" unknown */
    uint64_t age_ms;          /* since it was written, at least */
    char *bytes;              /* mem_alloc'ed, the caller's: the file … */
    size_t size;              /* … NULL and 0 where it is of neither form */
};

/* False, and nothing to release, where there is no file or only blanks in it. Texts are
 * cut between characters. Regular files are read, to 1 MiB, whatever the worker has put
 * there. May hang with the file system: for a thread. */
bool error_file_read(const char *path, struct worker_error *ret) MUST_CHECK;

#endif
