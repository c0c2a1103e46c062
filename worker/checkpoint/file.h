#ifndef WORKER_CHECKPOINT_FILE_H
#define WORKER_CHECKPOINT_FILE_H

/* Durable files.
 *
 * Happy path: open → put … put → finish: the bytes go through one aligned staging
 * buffer, past the page cache where the file system can do it (O_DIRECT), and are
 * hashed on the way; finish writes the last block, cuts the padding off, fsyncs and
 * closes. Failures: any error is final (an fsync is never tried again); the file stays
 * as it is in its temporary directory, for the sweep. One owner, any thread; calls
 * block. */

#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/digest.h"

enum { FILE_STAGE = 4 << 20 }; /* bytes of the staging buffer */

struct file_writer {
    char path[CHECKPOINT_PATH_MAX];
    int fd;
    bool direct;     /* the file was opened past the page cache */
    size_t align;    /* of offsets and lengths while `direct` */
    uint8_t *stage;  /* owned: FILE_STAGE bytes, aligned */
    size_t used;     /* bytes in `stage` */
    uint64_t offset; /* bytes before `stage`, all in the file */
    struct digest *digest;
};

int file_writer_open(struct file_writer *w, const char *path,
                     struct errmsg *msg) MUST_CHECK;
int file_writer_put(struct file_writer *w, const void *data, size_t size,
                    struct errmsg *msg) MUST_CHECK;
int file_writer_finish(struct file_writer *w, uint64_t *ret_bytes,
                       char ret_hash[DIGEST_HEX], struct errmsg *msg) MUST_CHECK;

/* Releases everything, whatever came before; the file's bytes are then worth nothing
 * unless finish returned 0. Fine after an open that failed. */
void file_writer_release(struct file_writer *w);

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
