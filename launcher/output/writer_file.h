#ifndef LAUNCHER_OUTPUT_WRITER_FILE_H
#define LAUNCHER_OUTPUT_WRITER_FILE_H

/* One place a writer (writer.h) writes to: the part that runs on its thread. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WRITER_BORROWED_MAX = 3 };

struct writer_file {
    char *path; /* owned; NULL: borrowed descriptor */
    int fd;
    bool has_failed; /* said once */
    bool *is_lost;   /* borrowed descriptors: nobody takes anything there any more */
    uint64_t size;
    uint64_t max_size; /* 0: no bound; else then it is moved to <path>.1 */
    bool is_mid_line;
    size_t queued; /* bytes; under the writer's lock */
};

void writer_file_open(struct writer_file *file);

/* All of the data, or a warning. `progress` counts the pieces that have left. */
void writer_file_append(struct writer_file *file, const char *data, size_t size,
                        _Atomic uint64_t *progress);

/* And frees it. */
void writer_file_close(struct writer_file *file);

#endif
