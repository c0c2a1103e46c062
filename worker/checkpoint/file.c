#include "worker/checkpoint/file.h"

#include "common/fault.h"
#include "common/storage.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_ALIGN = 4096 };

int file_error(struct errmsg *msg, int err, const char *verb, const char *path)
{
    const char *remedy = "";

    if (err == -ENOSPC || err == -EDQUOT) {
        remedy = ": free some space or set checkpoint.dir to another disk; earlier "
                 "checkpoints are unharmed";
    }
    return errmsg_set(msg, err, "cannot %s %s: %s%s", verb, path, err_text(err),
                      remedy);
}

/* The alignment that direct I/O wants of this file; 0 when it cannot. Kernels
 * before 6.1 do not say: then the block size that suits every disk in use is taken, and
 * a refusal at the first write turns direct I/O off. */
static size_t direct_align(int fd)
{
#ifdef STATX_DIOALIGN
    struct statx st;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) == 0 &&
        (st.stx_mask & STATX_DIOALIGN)) {
        if (st.stx_dio_offset_align == 0 || st.stx_dio_offset_align > FILE_ALIGN ||
            st.stx_dio_mem_align > FILE_ALIGN) {
            return 0;
        }
        return st.stx_dio_offset_align;
    }
#else
    (void)fd;
#endif
    return FILE_ALIGN;
}

static void direct_off(struct file_writer *w)
{
    int flags = fcntl(w->fd, F_GETFL);

    if (flags >= 0) {
        (void)fcntl(w->fd, F_SETFL,
                    flags & ~O_DIRECT); /* a write that still fails says so */
    }
    w->direct = false;
}

static int create_file(const char *path, bool *ret_direct)
{
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW;
    int fd;
    int rv = fault_at("ckpt.open");

    if (rv < 0) {
        return rv;
    }
    *ret_direct = true;
    fd = open(path, flags | O_DIRECT, 0666);
    if (fd < 0 && errno == EINVAL) {
        *ret_direct = false;
        fd = open(path, flags, 0666);
    }
    return fd < 0 ? -errno : fd;
}

int file_writer_open(struct file_writer *w, const char *path, struct errmsg *msg)
{
    void *stage = NULL;

    *w = (struct file_writer){.fd = -1};
    ASSERT(str_format(w->path, sizeof(w->path), "%s", path));
    if (posix_memalign(&stage, FILE_ALIGN, FILE_STAGE) != 0) {
        return file_error(msg, -ENOMEM, "write", path);
    }
    w->stage = stage;
    w->fd = create_file(path, &w->direct);
    if (w->fd < 0) {
        return file_error(msg, w->fd, "create", path);
    }
    w->align = w->direct ? direct_align(w->fd) : 1;
    if (w->align == 0) {
        direct_off(w);
    }
    w->digest = digest_create();
    return 0;
}

static ssize_t write_some(struct file_writer *w, const uint8_t *data, size_t size,
                          uint64_t offset)
{
    int rv = fault_at("ckpt.write");
    ssize_t n;

    if (rv < 0) {
        return rv;
    }
    if (fault_at("ckpt.short") < 0) {
        size = size / 2 + 1;
        direct_off(w);
    }
    n = pwrite(w->fd, data, size, (off_t)offset);
    return n < 0 ? -errno : n;
}

/* What a failed or short write means: 0 to go on. A file system may refuse direct I/O
 * only here, and the rest after a short write need not be aligned: both go on without.
 */
static int judge_write(struct file_writer *w, ssize_t n, size_t done)
{
    if (n == 0) {
        return -EIO; /* pwrite of a regular file never does that */
    }
    if (n == -EINVAL && w->direct) {
        direct_off(w);
        return 0;
    }
    if (n < 0) {
        return n == -EINTR ? 0 : (int)n;
    }
    if (w->direct && done % w->align != 0) {
        direct_off(w);
    }
    return 0;
}

static int write_all(struct file_writer *w, const uint8_t *data, size_t size)
{
    size_t done = 0;
    int rv = 0;

    while (done < size && rv == 0) {
        ssize_t n = write_some(w, data + done, size - done, w->offset + done);

        done += n > 0 ? (size_t)n : 0;
        rv = judge_write(w, n, done);
    }
    return rv;
}

/* Empties the staging buffer; only the last block may be short, and is padded then. */
static int flush_stage(struct file_writer *w, struct errmsg *msg)
{
    size_t size = w->used;
    int rv;

    if (w->direct) {
        size = (size + w->align - 1) / w->align * w->align;
        memset(w->stage + w->used, 0, size - w->used);
    }
    rv = write_all(w, w->stage, size);
    if (rv < 0) {
        return file_error(msg, rv, "write", w->path);
    }
    w->offset += w->used;
    w->used = 0;
    return 0;
}

int file_writer_put(struct file_writer *w, const void *data, size_t size,
                    struct errmsg *msg)
{
    const size_t slice = (size_t)256 << 10; /* hashed while the cache still holds it */
    const uint8_t *from = data;
    int rv = 0;

    while (size > 0 && rv == 0) {
        size_t n = MIN(MIN(size, slice), FILE_STAGE - w->used);

        memcpy(w->stage + w->used, from, n);
        digest_add(w->digest, w->stage + w->used, n);
        w->used += n;
        from += n;
        size -= n;
        rv = w->used == FILE_STAGE ? flush_stage(w, msg) : 0;
    }
    return rv;
}

static int sync_fd(int fd)
{
    int rv = fault_at("ckpt.fsync");

    if (rv < 0) {
        return rv;
    }
    return fsync(fd) < 0 ? -errno : 0;
}

int file_writer_finish(struct file_writer *w, uint64_t *ret_bytes,
                       char ret_hash[DIGEST_HEX], struct errmsg *msg)
{
    int rv = flush_stage(w, msg);

    if (rv < 0) {
        return rv;
    }
    if (ftruncate(w->fd, (off_t)w->offset) < 0) {
        return file_error(msg, -errno, "write", w->path);
    }
    rv = sync_fd(w->fd);
    if (rv < 0) {
        return file_error(msg, rv, "fsync", w->path);
    }
    rv = close(w->fd) < 0 ? -errno : 0;
    w->fd = -1;
    if (rv < 0) {
        return file_error(msg, rv, "close", w->path);
    }
    digest_finish(w->digest, ret_hash);
    *ret_bytes = w->offset;
    return 0;
}

void file_writer_release(struct file_writer *w)
{
    if (w->fd >= 0) {
        (void)close(w->fd); /* the file is given up */
    }
    free(w->stage);
    digest_free(w->digest);
    *w = (struct file_writer){.fd = -1};
}

int file_sync_dir(const char *path, struct errmsg *msg)
{
    int rv = storage_sync_dir(path);

    return rv < 0 ? file_error(msg, rv, "fsync", path) : 0;
}

int file_make_dirs(const char *path, struct errmsg *msg)
{
    int rv = storage_make_dirs(path);

    return rv < 0 ? file_error(msg, rv, "make", path) : 0;
}

int file_open_read(const char *path, uint64_t *ret_size)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0) {
        return -errno;
    }
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        (void)close(fd); /* read only */
        return ERR_INVALID;
    }
    *ret_size = (uint64_t)st.st_size;
    return fd;
}

int file_read_at(int fd, void *data, size_t size, uint64_t offset)
{
    uint8_t *to = data;

    while (size > 0) {
        ssize_t n = pread(fd, to, MIN(size, (size_t)1 << 30), (off_t)offset);

        if (n == 0) {
            return ERR_CORRUPT;
        }
        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        if (n > 0) {
            to += n;
            size -= (size_t)n;
            offset += (uint64_t)n;
        }
    }
    return 0;
}
