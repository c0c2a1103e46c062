#ifndef WORKER_CHECKPOINT_FILE_H
#define WORKER_CHECKPOINT_FILE_H

/* Files that last: written past the page cache, hashed on the way, fsynced; read in
 * order, several blocks ahead.
 *
 * Happy path of a writer: open → put … lend … → finish: the bytes go through a few
 * aligned blocks (direct_io.h) and are hashed as they are copied there, while the disk
 * has those before; what is lent goes from where it is. finish cuts the padding off,
 * fsyncs and closes. Failures: any error is
 * final (an fsync is never tried again); the file stays as it is in its temporary
 * directory, for the sweep. One owner, any thread; calls block. */

#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/digest.h"
#include "worker/checkpoint/direct_io.h"

/* --- writing --- */

struct file_writer {
    char path[CHECKPOINT_PATH_MAX];
    struct direct_io io;
    size_t slot;     /* that is being filled */
    size_t used;     /* bytes in it */
    uint64_t offset; /* bytes before it */
    struct digest *digest;
};

/* `size`: bytes to come; room is reserved for them. */
int file_writer_open(struct file_writer *w, const char *path, uint64_t size,
                     struct errmsg *msg) MUST_CHECK;
int file_writer_put(struct file_writer *w, const void *data, size_t size,
                    struct errmsg *msg) MUST_CHECK;

/* As put, but the bytes stay as they are until finish or release: what lies on
 * DIRECT_IO_ALIGN in memory and in the file goes to the disk from where it is. */
int file_writer_lend(struct file_writer *w, const void *data, size_t size,
                     struct errmsg *msg) MUST_CHECK;
int file_writer_finish(struct file_writer *w, uint64_t *ret_bytes,
                       char ret_hash[DIGEST_HEX], struct errmsg *msg) MUST_CHECK;

/* Releases everything, whatever came before; the file's bytes are then worth nothing
 * unless finish returned 0. Fine after an open that failed. */
void file_writer_release(struct file_writer *w);

/* --- reading in order --- */

struct file_reader {
    struct direct_io io;
    uint64_t size;             /* of the file */
    uint64_t asked;            /* bytes before the next block to read */
    uint64_t n_asked, n_given; /* blocks */
};

/* 0, ERR_INVALID for what is not a regular file, or -errno; release it in any case. */
int file_reader_open(struct file_reader *r, const char *path) MUST_CHECK;

/* The next bytes of the file, valid until the next call; none at the end. ERR_CORRUPT
 * when the file was cut meanwhile. */
int file_reader_next(struct file_reader *r, const uint8_t **ret,
                     size_t *ret_size) MUST_CHECK;
void file_reader_release(struct file_reader *r);

/* --- the rest --- */

/* The people's line for a failed system call on `path`; returns `err`. */
int file_error(struct errmsg *msg, int err, const char *verb, const char *path);

int file_sync_dir(const char *path, struct errmsg *msg) MUST_CHECK;

/* Makes `path` and what is missing above it, durably. */
int file_make_dirs(const char *path, struct errmsg *msg) MUST_CHECK;

/* A regular file, opened for reading without following a last symbolic link; its size.
 */
int file_open_read(const char *path, uint64_t *ret_size) MUST_CHECK;

/* Reads exactly `size` bytes; ERR_CORRUPT when the file ends before. */
int file_read_at(int fd, void *data, size_t size, uint64_t offset) MUST_CHECK;

#endif
