#include "worker/comm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SEGMENT_MAGIC UINT64_C(0x316765736d6d6f63) /* "commseg1" */

static size_t controls_offset(void)
{
    return sizeof(struct segment_head);
}

static size_t data_offset(int n_rings)
{
    size_t end = controls_offset() + (size_t)n_rings * sizeof(struct ring_control);

    return (end + 4095) / 4096 * 4096;
}

static size_t segment_size(int n_rings)
{
    return data_offset(n_rings) + (size_t)n_rings * SHM_RING_SIZE;
}

static int map(struct segment *s, int fd, int n_rings)
{
    size_t size = segment_size(n_rings);
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (at == MAP_FAILED) {
        return -errno;
    }
    *s = (struct segment){.head = at, .size = size, .n_rings = n_rings, .fd = -1};
    return 0;
}

static int reserve(int fd, size_t size)
{
    int rv;

    do {
        rv = fallocate(fd, 0, 0, (off_t)size);
    } while (rv < 0 && errno == EINTR);
    if (rv < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        return -errno;
    }
    return 0;
}

/* Peers open a segment as /proc/<pid>/fd/<n>: a /proc of another PID namespace would
 * show them a stranger, or nobody. */
static int check_proc(struct errmsg *msg)
{
    char text[32] = "";
    char own[32];

    (void)snprintf(own, sizeof(own), "%d", (int)getpid());
    if (readlink("/proc/self", text, sizeof(text) - 1) < 0 || strcmp(text, own) != 0) {
        return errmsg_set(
            msg, ERR_UNSUPPORTED,
            "/proc is not that of this PID namespace, so ranks cannot share "
            "memory: mount it (unshare --mount-proc), or use comm.kind=tcp");
    }
    return 0;
}

int segment_create(struct segment *s, int n_rings, const uint8_t token[SHM_TOKEN_SIZE],
                   struct errmsg *msg)
{
    size_t size = segment_size(n_rings);
    int fd, rv = check_proc(msg);

    if (rv < 0) {
        return rv;
    }
    fd = memfd_create("ctrun-comm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    rv = fd < 0 ? -errno : reserve(fd, size);
    rv = rv < 0 ? rv : map(s, fd, n_rings);
    if (rv < 0) {
        if (fd >= 0) {
            close(fd);
        }
        return errmsg_set(
            msg, rv,
            "cannot reserve %zu MiB of shared memory: %s (comm.kind=tcp does "
            "without)",
            size >> 20, err_text(rv));
    }
    s->fd = fd;
    memcpy(s->head->token, token, SHM_TOKEN_SIZE);
    s->head->magic = SEGMENT_MAGIC;
    return 0;
}

static int check_and_map(struct segment *s, int fd, int n_rings,
                         const uint8_t token[SHM_TOKEN_SIZE])
{
    int seals = fcntl(fd, F_GET_SEALS), rv;
    struct stat st;

    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) < 0 ||
        (size_t)st.st_size != segment_size(n_rings)) {
        return ERR_PROTOCOL;
    }
    rv = map(s, fd, n_rings);
    if (rv < 0) {
        return rv;
    }
    if (s->head->magic != SEGMENT_MAGIC ||
        memcmp(s->head->token, token, SHM_TOKEN_SIZE) != 0) {
        segment_close(s);
        return ERR_PROTOCOL;
    }
    return 0;
}

int segment_open(struct segment *s, const struct segment_address *at, int n_rings,
                 const uint8_t token[SHM_TOKEN_SIZE], struct errmsg *msg)
{
    char path[64];
    int fd, rv;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)at->pid, at->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        rv = -errno;
        return errmsg_set(msg, rv == -ENOENT ? ERR_PEER_LOST : rv,
                          "cannot open its shared memory %s: %s", path, err_text(rv));
    }
    rv = check_and_map(s, fd, n_rings, token);
    close(fd);
    if (rv == ERR_PROTOCOL) {
        return errmsg_set(msg, ERR_PEER_LOST, "%s is not its shared memory any more",
                          path);
    }
    return rv < 0 ? errmsg_set(msg, rv, "mapping %s: %s", path, err_text(rv)) : 0;
}

void segment_close_fd(struct segment *s)
{
    if (s->head && s->fd >= 0) {
        close(s->fd);
        s->fd = -1;
    }
}

void segment_close(struct segment *s)
{
    if (s->head) {
        segment_close_fd(s);
        (void)munmap(s->head, s->size); /* cannot fail on our own mapping */
        s->head = NULL;
    }
}

struct ring segment_ring(const struct segment *s, int i)
{
    uint8_t *base = (uint8_t *)s->head;
    void *controls = base + controls_offset();

    ASSERT(i >= 0 && i < s->n_rings);
    return (struct ring){
        .control = (struct ring_control *)controls + i,
        .data = base + data_offset(s->n_rings) + (size_t)i * SHM_RING_SIZE,
        .size = SHM_RING_SIZE,
    };
}

/* ---- sleeping and waking --------------------------------------------------------- */

void segment_ring_bell(const struct segment *s)
{
    atomic_fetch_add(&s->head->bell, 1);
    (void)syscall(SYS_futex, &s->head->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void segment_wake(const struct segment *s)
{
    if (atomic_load(&s->head->is_sleeping) &&
        atomic_exchange(&s->head->is_sleeping, 0)) {
        segment_ring_bell(s);
    }
}

uint32_t segment_begin_sleep(const struct segment *s)
{
    uint32_t seen = atomic_load(&s->head->bell);

    atomic_store(&s->head->is_sleeping, 1);
    return seen;
}

void segment_sleep(const struct segment *s, uint32_t seen, int timeout_ms)
{
    struct timespec limit = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000};

    /* woken, timed out, interrupted or too late: the caller looks for itself */
    (void)syscall(SYS_futex, &s->head->bell, FUTEX_WAIT, seen, &limit, NULL, 0);
}

void segment_end_sleep(const struct segment *s)
{
    atomic_store(&s->head->is_sleeping, 0);
}
