#ifndef LAUNCHER_LOG_FILE_H
#define LAUNCHER_LOG_FILE_H

/* A log file that is being written (output/writer_file.c), read piece by piece, in whole
 * lines: over its renaming to NAME.1, too. A place in it is a number of bytes, from the
 * beginning of what there was when it was opened, the same for all its readers, so that
 * one may come again and go on from there. Blocks as a file system does: for the thread
 * that reads (log_reader.c). */

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_FILE_END UINT64_MAX

struct log_part {
    int fd;         /* -1: it is not open */
    uint64_t begin; /* the place of its first byte */
};

struct log_file {
    char path[PATH_MAX];
    struct log_part older; /* what was NAME when `now` was begun: whole */
    struct log_part now;
};

/* False: the path is too long. The file need not be there yet. */
bool log_file_open(struct log_file *f, const char *path);
void log_file_close(struct log_file *f);

/* How many bytes were read from *at on: whole lines, but for one that is longer than
 * `size` and, with `is_final`, for the last. 0: there is nothing new. *at is 0 for all
 * that there is, LOG_FILE_END for its last lines, or a place; and afterwards the place of
 * what was read, never an earlier one. */
size_t log_file_read(struct log_file *f, uint64_t *at, bool is_final, char *data,
                     size_t size);

/* The place from which on about `most` bytes are left now, where a line begins: `at`
 * itself where there are no more than that behind it. */
uint64_t log_file_skip(struct log_file *f, uint64_t at, uint64_t most);

#endif
