#ifndef LAUNCHER_ERROR_FILE_H
#define LAUNCHER_ERROR_FILE_H

/* The exception that a worker left in $TORCHELASTIC_ERROR_FILE, as torch's @record
 * writes it, or in the short form:
 *
 *   {"message": {"message": "T: text",
 *                "extraInfo": {"py_callstack": "…", "timestamp": "…"}}}
 *   {"message": "text", "timestamp": 1}
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The traceback, else the message, cut to `size` between characters, and how long ago
 * it was written; false when the file is neither form. Regular files of at most 1 MiB are read, others refused: what
 * the worker has put there must not hold the loop. (A hung file system still can: the
 * folder is ours, in $TMPDIR.) */
bool error_file_read(const char *path, char *text, size_t size, uint64_t *ret_age_ms);

#endif
