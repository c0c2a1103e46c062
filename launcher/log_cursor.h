#ifndef LAUNCHER_LOG_CURSOR_H
#define LAUNCHER_LOG_CURSOR_H

/* A place in a log file that is being written (output/writer_file.c), piece by piece, in
 * whole lines: over its renaming to NAME.1, too. Blocks as a file system does: for the
 * thread that reads (log_reader.c). */

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_CURSOR_END UINT64_MAX

struct log_cursor {
    char path[PATH_MAX];
    int fd;          /* -1: not open */
    uint64_t offset; /* of the next byte, from the beginning of what there was */
};

/* `from`: 0 for all that there is, LOG_CURSOR_END for its last lines, else where an
 * earlier cursor was. False: the path is too long. */
bool log_cursor_open(struct log_cursor *c, const char *path, uint64_t from);
void log_cursor_close(struct log_cursor *c);

/* How many bytes were read: whole lines, but for one that is longer than `size` and,
 * with `is_final`, for the last. 0: there is nothing new. */
size_t log_cursor_read(struct log_cursor *c, bool is_final, char *data, size_t size);

#endif
