#ifndef LAUNCHER_LOG_READER_H
#define LAUNCHER_LOG_READER_H

/* Reads the logs of this node's ranks for `ctrun logs`, by a thread of its own, which is
 * started for the first question: a file system that hangs holds neither the loop nor,
 * at the end, the program. Answers come in the order of the questions. Loop thread only.
 */

#include "common/err.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct uv_loop_s;
struct log_reader;

enum { LOG_READER_PIECE = 64 * 1024, LOG_READER_MAX_ASKED = 1024 };

struct log_question {
    uint64_t generation, request;
    uint32_t slot, rank;
    char path[PATH_MAX];
    uint64_t from; /* as log_file_read has it */
    bool is_final; /* nothing more is waited for: half a line is one, too */
    bool is_last;  /* … and all of it is told, or the last MiB */
};

struct log_piece {
    const struct log_question *question;
    const char *data;
    size_t size;
    uint64_t offset; /* of its first byte */
    bool is_more;    /* of the same question */
    bool is_at_end;  /* nothing more is there now */
};

typedef void (*log_piece_cb)(void *arg, const struct log_piece *piece);

int log_reader_new(struct uv_loop_s *loop, log_piece_cb on_piece, void *arg,
                   struct log_reader **ret) MUST_CHECK;

/* False: too many questions wait, or there is no thread. */
bool log_reader_ask(struct log_reader *r, const struct log_question *q);

/* Asynchronous: no piece comes any more; frees itself. */
void log_reader_stop(struct log_reader *r);

#endif
