#include "worker/checkpoint/direct_io.h"

#include "common/fault.h"
#include "common/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- past the page cache, or not --- */

/* The alignment that direct I/O wants of this file; 0 when it cannot. Kernels
 * before 6.1 do not say: then the block size that suits every disk in use is taken, and
 * a refusal at the first transfer turns direct I/O off. */
static size_t direct_align(int fd)
{
#ifdef STATX_DIOALIGN
    struct statx st;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) == 0 &&
        (st.stx_mask & STATX_DIOALIGN)) {
        if (st.stx_dio_offset_align == 0 || st.stx_dio_offset_align > DIRECT_IO_ALIGN ||
            st.stx_dio_mem_align > DIRECT_IO_ALIGN) {
            return 0;
        }
        return st.stx_dio_offset_align;
    }
#else
    (void)fd;
#endif
    return DIRECT_IO_ALIGN;
}

static int set_direct(int fd, bool direct)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0) {
        return -errno;
    }
    flags = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
    return fcntl(fd, F_SETFL, flags) < 0 ? -errno : 0;
}

static void direct_off(struct direct_io *d)
{
    (void)set_direct(d->fd, false); /* a transfer that still fails says so */
    atomic_store(&d->direct, false);
}

/* What fits into one block gains nothing by it and loses the cache. */
static void choose_direct(struct direct_io *d, uint64_t size)
{
    size_t align = size > DIRECT_IO_BLOCK ? direct_align(d->fd) : 0;
    bool direct = align > 0 && set_direct(d->fd, true) == 0;

    d->align = direct ? align : 1;
    atomic_init(&d->direct, direct);
}

/* --- one block --- */

/* Some of the block from byte `at`, from the file or into it; the bytes, or an error. */
static ssize_t move_some(struct direct_io *d, const struct direct_slot *s, size_t at,
                         size_t size)
{
    off_t offset = (off_t)(s->offset + at);
    int rv = fault_at(d->writes ? "ckpt.write" : "ckpt.read");
    ssize_t n;

    if (rv < 0) {
        return rv;
    }
    if (fault_at("ckpt.short") < 0) {
        size = size / 2 + 1;
        direct_off(d);
    }
    n = d->writes ? pwrite(d->fd, (s->lent ? s->lent : s->data) + at, size, offset)
                  : pread(d->fd, s->data + at, size, offset);
    return n < 0 ? -errno : n;
}

/* What a transfer of `n` bytes means, `done` of the block in all: 0 to go on. A file
 * system may refuse direct I/O only here (`direct`: it was asked for), and the rest
 * after a short transfer need not be aligned: both go on without. */
static int judge(struct direct_io *d, bool direct, ssize_t n, size_t done)
{
    if (n == 0) { /* the end of the file; pwrite of a regular file never does that */
        return d->writes ? -EIO : ERR_CORRUPT;
    }
    if (n == -EINVAL && direct) {
        direct_off(d);
        return 0;
    }
    if (n < 0) {
        return n == -EINTR ? 0 : (int)n;
    }
    if (direct && done % d->align != 0) {
        direct_off(d);
    }
    return 0;
}

static int transfer(struct direct_io *d, const struct direct_slot *s)
{
    size_t done = 0;
    int rv = 0;

    if (d->writes && !s->lent) { /* the padding of a last block */
        memset(s->data + s->size, 0, ROUND_UP(s->size, d->align) - s->size);
    }
    while (done < s->size && rv == 0) {
        bool direct = atomic_load(&d->direct);
        size_t rest = direct ? ROUND_UP(s->size, d->align) - done : s->size - done;
        ssize_t n = move_some(d, s, done, rest);

        done += n > 0 ? (size_t)n : 0;
        if (done < s->size || n < 0) {
            rv = judge(d, direct, n, done);
        }
    }
    return rv;
}

/* --- threads --- */

static void *run_thread(void *arg)
{
    struct direct_io *d = arg;

    (void)pthread_mutex_lock(&d->lock);
    for (;;) {
        struct direct_slot *s;
        int rv;

        while (d->n_taken == d->n_submitted && !d->is_closing) {
            (void)pthread_cond_wait(&d->has_work, &d->lock);
        }
        if (d->is_closing) {
            break;
        }
        s = &d->slot[d->n_taken++ % d->n_slots];
        (void)pthread_mutex_unlock(&d->lock);
        rv = transfer(d, s);
        (void)pthread_mutex_lock(&d->lock);
        s->outcome = rv;
        s->in_flight = false;
        (void)pthread_cond_signal(&d->is_done);
    }
    (void)pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* Where the system has no room for more threads, fewer do, or the caller alone. */
static void start_threads(struct direct_io *d)
{
    int rv = 0;

    while (d->n_threads < DIRECT_IO_THREADS && rv == 0) {
        rv = fault_at("ckpt.thread");
        rv = rv < 0 ? rv : thread_start(0, run_thread, d, &d->thread[d->n_threads]);
        d->n_threads += rv == 0;
    }
}

static uint8_t *alloc_slots(size_t n, size_t bytes)
{
    void *ret = NULL;

    return fault_at("ckpt.memory") == 0 &&
                   posix_memalign(&ret, DIRECT_IO_ALIGN, n * bytes) == 0
               ? ret
               : NULL;
}

static int start(struct direct_io *d, uint64_t size)
{
    bool is_small = size <= DIRECT_IO_BLOCK;
    size_t bytes = is_small && !d->writes
                       ? ROUND_UP(MAX((size_t)size, 1), DIRECT_IO_ALIGN)
                       : DIRECT_IO_BLOCK;
    choose_direct(d, size);
    d->n_slots = is_small ? 1 : DIRECT_IO_SLOTS;
    d->memory = alloc_slots(d->n_slots, bytes);
    if (!d->memory && d->n_slots > 1) { /* slower, but it goes on */
        d->n_slots = 1;
        d->memory = alloc_slots(1, bytes);
    }
    if (!d->memory) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < d->n_slots; i++) {
        d->slot[i].data = d->memory + i * DIRECT_IO_BLOCK;
    }
    if (d->n_slots > 1) {
        start_threads(d);
    }
    return 0;
}

static void init(struct direct_io *d, bool writes)
{
    *d = (struct direct_io){.fd = -1, .writes = writes};
    (void)pthread_mutex_init(&d->lock, NULL);
    (void)pthread_cond_init(&d->has_work, NULL);
    (void)pthread_cond_init(&d->is_done, NULL);
}

/* --- the caller's side --- */

int direct_io_open_read(struct direct_io *d, const char *path, uint64_t *ret_size)
{
    struct stat st;
    int rv = fault_at("ckpt.open_read");

    init(d, false);
    if (rv < 0) {
        return rv;
    }
    d->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (d->fd < 0) {
        return -errno;
    }
    if (fstat(d->fd, &st) < 0) {
        return -errno;
    }
    if (!S_ISREG(st.st_mode)) {
        return ERR_INVALID;
    }
    *ret_size = (uint64_t)st.st_size;
    return start(d, *ret_size);
}

/* Room in one piece, and writes that do not have to grow the file one after the other.
 * A file system that cannot do it does without. */
static int reserve(struct direct_io *d, uint64_t size)
{
    int rv = fault_at("ckpt.reserve");

    if (rv < 0 || size == 0) {
        return rv;
    }
    if (fallocate(d->fd, 0, 0, (off_t)size) == 0) {
        return 0;
    }
    return errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR ? 0 : -errno;
}

int direct_io_open_write(struct direct_io *d, const char *path, uint64_t size)
{
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW;
    int rv = fault_at("ckpt.open");

    init(d, true);
    if (rv < 0) {
        return rv;
    }
    d->fd = open(path, flags, 0666);
    if (d->fd < 0) {
        return -errno;
    }
    rv = reserve(d, size);
    return rv < 0 ? rv : start(d, size);
}

int direct_io_wait(struct direct_io *d, size_t slot)
{
    int rv;

    (void)pthread_mutex_lock(&d->lock);
    while (d->slot[slot].in_flight) {
        (void)pthread_cond_wait(&d->is_done, &d->lock);
    }
    rv = d->slot[slot].outcome;
    (void)pthread_mutex_unlock(&d->lock);
    return rv;
}

/* The slot's own bytes, or those lent. */
static void submit(struct direct_io *d, size_t slot, const uint8_t *lent,
                   uint64_t offset, size_t size)
{
    struct direct_slot *s = &d->slot[slot];

    ASSERT(offset % DIRECT_IO_ALIGN == 0);
    s->lent = lent;
    s->offset = offset;
    s->size = size;
    if (d->n_threads == 0) {
        s->outcome = transfer(d, s);
        return;
    }
    (void)pthread_mutex_lock(&d->lock);
    ASSERT(slot == d->n_submitted % d->n_slots && !s->in_flight);
    s->in_flight = true;
    d->n_submitted++;
    (void)pthread_cond_signal(&d->has_work);
    (void)pthread_mutex_unlock(&d->lock);
}

void direct_io_submit(struct direct_io *d, size_t slot, uint64_t offset, size_t size)
{
    ASSERT(size <= DIRECT_IO_BLOCK);
    submit(d, slot, NULL, offset, size);
}

void direct_io_lend(struct direct_io *d, size_t slot, const uint8_t *data,
                    uint64_t offset, size_t size)
{
    ASSERT(d->writes && size <= DIRECT_IO_LENT_MAX && size % DIRECT_IO_ALIGN == 0);
    ASSERT((uintptr_t)data % DIRECT_IO_ALIGN == 0);
    submit(d, slot, data, offset, size);
}

int direct_io_drain(struct direct_io *d)
{
    int first = 0;

    for (size_t i = 0; i < d->n_slots; i++) {
        int rv = direct_io_wait(d, i);

        first = first < 0 ? first : rv;
    }
    return first;
}

void direct_io_release(struct direct_io *d)
{
    (void)pthread_mutex_lock(&d->lock);
    d->is_closing = true;
    (void)pthread_cond_broadcast(&d->has_work);
    (void)pthread_mutex_unlock(&d->lock);
    for (size_t i = 0; i < d->n_threads; i++) {
        (void)pthread_join(d->thread[i], NULL);
    }
    if (d->fd >= 0) {
        (void)close(d->fd); /* of what was written the caller has made sure */
    }
    free(d->memory);
    (void)pthread_cond_destroy(&d->is_done);
    (void)pthread_cond_destroy(&d->has_work);
    (void)pthread_mutex_destroy(&d->lock);
}
