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

/* --- writing --- */

int file_writer_open(struct file_writer *w, const char *path, uint64_t size,
                     struct errmsg *msg)
{
    int rv;

    *w = (struct file_writer){0};
    ASSERT(str_format(w->path, sizeof(w->path), "%s", path));
    w->digest = digest_create();
    rv = direct_io_open_write(&w->io, path, size);
    return rv < 0 ? file_error(msg, rv, "create", path) : 0;
}

static int wait_next(struct file_writer *w)
{
    w->slot = (w->slot + 1) % w->io.n_slots;
    return direct_io_wait(&w->io, w->slot);
}

/* The disk takes the block; the next slot is waited for. */
static int send_block(struct file_writer *w)
{
    direct_io_submit(&w->io, w->slot, w->offset, w->used);
    w->offset += w->used;
    w->used = 0;
    return wait_next(w);
}

int file_writer_put(struct file_writer *w, const void *data, size_t size,
                    struct errmsg *msg)
{
    const size_t slice = (size_t)256 << 10; /* hashed while the cache still holds it */
    const uint8_t *from = data;
    int rv = 0;

    while (size > 0 && rv == 0) {
        uint8_t *to = w->io.slot[w->slot].data + w->used;
        size_t n = MIN(MIN(size, slice), DIRECT_IO_BLOCK - w->used);

        memcpy(to, from, n);
        digest_add(w->digest, to, n);
        w->used += n;
        from += n;
        size -= n;
        rv = w->used == DIRECT_IO_BLOCK ? send_block(w) : 0;
    }
    return rv < 0 ? file_error(msg, rv, "write", w->path) : 0;
}

static bool is_aligned(uint64_t n)
{
    return n % DIRECT_IO_ALIGN == 0;
}

/* Hashed while the disk has it. */
static int lend_blocks(struct file_writer *w, const uint8_t *data, size_t size)
{
    int rv = w->used > 0 ? send_block(w) : 0;

    while (size > 0 && rv == 0) {
        size_t n = MIN(size, DIRECT_IO_LENT_MAX);

        direct_io_lend(&w->io, w->slot, data, w->offset, n);
        digest_add(w->digest, data, n);
        w->offset += n;
        data += n;
        size -= n;
        rv = wait_next(w);
    }
    return rv;
}

int file_writer_lend(struct file_writer *w, const void *data, size_t size,
                     struct errmsg *msg)
{
    const uint8_t *from = data;
    size_t lent = size - size % DIRECT_IO_ALIGN;
    int rv;

    /* less is better put into one block with what is before and behind it */
    if (size < DIRECT_IO_BLOCK || !is_aligned((uintptr_t)data) ||
        !is_aligned(w->offset + w->used)) {
        return file_writer_put(w, data, size, msg);
    }
    rv = lend_blocks(w, from, lent);
    return rv < 0 ? file_error(msg, rv, "write", w->path)
                  : file_writer_put(w, from + lent, size - lent, msg);
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
    int rv = w->used > 0 ? send_block(w) : 0;

    rv = rv < 0 ? rv : direct_io_drain(&w->io);
    if (rv == 0 && ftruncate(w->io.fd, (off_t)w->offset) < 0) {
        rv = -errno;
    }
    if (rv < 0) {
        return file_error(msg, rv, "write", w->path);
    }
    rv = sync_fd(w->io.fd);
    if (rv < 0) {
        return file_error(msg, rv, "fsync", w->path);
    }
    rv = close(w->io.fd) < 0 ? -errno : 0;
    w->io.fd = -1;
    if (rv < 0) {
        return file_error(msg, rv, "close", w->path);
    }
    digest_finish(w->digest, ret_hash);
    *ret_bytes = w->offset;
    return 0;
}

void file_writer_release(struct file_writer *w)
{
    direct_io_release(&w->io);
    digest_free(w->digest);
    w->digest = NULL;
}

/* --- reading in order --- */

int file_reader_open(struct file_reader *r, const char *path)
{
    *r = (struct file_reader){0};
    return direct_io_open_read(&r->io, path, &r->size);
}

/* The disk fills every slot but the one that the caller looks at. */
static void read_ahead(struct file_reader *r)
{
    while (r->asked < r->size && r->n_asked - r->n_given < r->io.n_slots) {
        size_t n = (size_t)MIN(r->size - r->asked, (uint64_t)DIRECT_IO_BLOCK);

        direct_io_submit(&r->io, r->n_asked++ % r->io.n_slots, r->asked, n);
        r->asked += n;
    }
}

int file_reader_next(struct file_reader *r, const uint8_t **ret, size_t *ret_size)
{
    size_t slot = r->n_given % r->io.n_slots;
    int rv;

    *ret_size = 0;
    read_ahead(r);
    if (r->n_given == r->n_asked) {
        return 0;
    }
    rv = direct_io_wait(&r->io, slot);
    *ret = r->io.slot[slot].data;
    *ret_size = rv < 0 ? 0 : r->io.slot[slot].size;
    r->n_given++;
    return rv;
}

void file_reader_release(struct file_reader *r)
{
    direct_io_release(&r->io);
}

/* --- the rest --- */

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
    int rv = fault_at("ckpt.open_read");
    int fd;

    if (rv < 0) {
        return rv;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return -errno;
    }
    rv = fstat(fd, &st) < 0 ? -errno : 0;
    if (rv < 0 || !S_ISREG(st.st_mode)) {
        (void)close(fd); /* read only */
        return rv < 0 ? rv : ERR_INVALID;
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
