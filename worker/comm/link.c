#include "worker/comm/link.h"

#include "common/clock.h"
#include "common/mem.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void link_init(struct link *l, int rank)
{
    *l = (struct link){.kind = LINK_SELF, .rank = rank, .pidfd = -1, .fd = -1};
}

void link_close(struct link *l)
{
    segment_close(&l->segment);
    if (l->pidfd >= 0) {
        close(l->pidfd);
    }
    if (l->fd >= 0) {
        close(l->fd);
    }
    mem_free(l->stage);
    link_init(l, l->rank);
}

int link_open_tcp(struct link *l, int fd, int timeout_ms, struct errmsg *msg)
{
    unsigned limit = (unsigned)timeout_ms;
    int one = 1, idle = 10, interval = 5;

    l->fd = fd;
    /* a peer whose machine is gone without a word ends the connection in time, too */
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval)) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof(limit)) < 0) {
        return errmsg_set(msg, -errno, "socket options for rank %d: %s", l->rank,
                          err_text(-errno));
    }
    l->kind = LINK_TCP;
    l->stage = mem_alloc(LINK_STAGE_SIZE);
    return 0;
}

static int lost(struct link *l, const char *why)
{
    l->why = why;
    return ERR_PEER_LOST;
}

/* ---- tcp ------------------------------------------------------------------------- */

static int tcp_send(struct link *l, const void *data, size_t size, size_t *ret_moved)
{
    ssize_t n = send(l->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        return lost(l, err_text(-errno));
    }
    *ret_moved = n < 0 ? 0 : (size_t)n;
    return 0;
}

static int tcp_recv(struct link *l, void *data, size_t size, size_t *ret_moved)
{
    ssize_t n = recv(l->fd, data, size, MSG_DONTWAIT);

    if (n == 0) {
        return lost(l, "it closed the connection");
    }
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        return lost(l, err_text(-errno));
    }
    *ret_moved = n < 0 ? 0 : (size_t)n;
    return 0;
}

static size_t take_staged(struct link *l, void *data, size_t size)
{
    size_t n = MIN(size, l->stage_end - l->stage_begin);

    memcpy(data, l->stage + l->stage_begin, n);
    l->stage_begin += n;
    return n;
}

/* Moves the rest to the stage's begin, so that floats are aligned. */
static int tcp_peek(struct link *l, const float **ret, size_t *ret_n)
{
    size_t left = l->stage_end - l->stage_begin, moved = 0;
    const void *begin = l->stage;
    int rv = 0;

    memmove(l->stage, l->stage + l->stage_begin, left);
    l->stage_begin = 0;
    l->stage_end = left;
    if (left < sizeof(float)) {
        rv = tcp_recv(l, l->stage + left, LINK_STAGE_SIZE - left, &moved);
        l->stage_end += moved;
    }
    *ret = begin;
    *ret_n = l->stage_end / sizeof(float);
    return rv;
}

/* ---- shm ------------------------------------------------------------------------- */

enum { PACE_TURNS = 128 };

/* Whether the next write goes past the caches. They must be clearly slower, since they
 * spare the reader the way to memory. */
static bool pace_streams(const struct pace *p)
{
    bool is_better = p->us[0] > 2 * p->us[1];

    return p->turn % PACE_TURNS == 0 ? !is_better : is_better;
}

/* A write may have been interrupted: it counts for twice the last one at most. */
static void pace_note(struct pace *p, bool streamed, uint64_t us)
{
    uint64_t *last = &p->us[streamed];

    us = MAX(us, 1);
    *last = *last > 0 ? MIN(us, 2 * *last) : us;
    p->turn++;
}

/* Only writes of full size are compared; small ones stay in the caches. */
static size_t shm_send(struct link *l, const void *data, size_t size, bool is_first)
{
    bool is_full = size == LINK_CHUNK;
    bool streams = is_full && pace_streams(&l->pace);
    uint64_t began = is_full ? clock_us() : 0;
    size_t n = ring_write(&l->out, data, size, is_first, streams);

    if (n == LINK_CHUNK) {
        pace_note(&l->pace, streams, clock_us() - began);
    }
    if (n > 0) {
        segment_wake(&l->segment);
    }
    return n;
}

static size_t shm_recv(struct link *l, void *data, size_t size, bool is_first)
{
    size_t available, n;
    const uint8_t *from = ring_peek(&l->in, is_first, &available);

    n = MIN(size, available);
    if (n > 0) {
        memcpy(data, from, n);
        ring_consume(&l->in, is_first, n);
        segment_wake(&l->segment);
    }
    return n;
}

/* ---- both ------------------------------------------------------------------------ */

int link_send(struct link *l, const void *data, size_t size, bool is_first,
              size_t *ret_moved)
{
    size = MIN(size, LINK_CHUNK);
    if (l->kind == LINK_TCP) {
        return tcp_send(l, data, size, ret_moved);
    }
    *ret_moved = shm_send(l, data, size, is_first);
    return 0;
}

int link_recv(struct link *l, void *data, size_t size, bool is_first, size_t *ret_moved)
{
    size = MIN(size, LINK_CHUNK);
    if (l->kind == LINK_SHM) {
        *ret_moved = shm_recv(l, data, size, is_first);
        return 0;
    }
    *ret_moved = take_staged(l, data, size);
    return *ret_moved > 0 ? 0 : tcp_recv(l, data, size, ret_moved);
}

int link_peek(struct link *l, bool is_first, const float **ret, size_t *ret_n)
{
    const void *data;
    size_t bytes;

    if (l->kind == LINK_TCP) {
        return tcp_peek(l, ret, ret_n);
    }
    data = ring_peek(&l->in, is_first, &bytes);
    *ret = data;
    *ret_n = bytes / sizeof(float);
    return 0;
}

void link_consume(struct link *l, bool is_first, size_t n_floats)
{
    if (l->kind == LINK_TCP) {
        l->stage_begin += n_floats * sizeof(float);
    } else {
        ring_consume(&l->in, is_first, n_floats * sizeof(float));
        segment_wake(&l->segment);
    }
}

bool link_is_hopeless(struct link *l, bool wants_send, bool wants_recv)
{
    struct pollfd p = {l->pidfd, POLLIN, 0};
    size_t available = 0;

    if (l->kind != LINK_SHM) {
        return false;
    }
    if (poll(&p, 1, 0) == 1) {
        l->why = "its process ended";
    } else if (atomic_load(&l->segment.head->has_left)) {
        l->why = "it left the group";
    } else {
        return false;
    }
    /* only now: all that it ever wrote, it wrote before */
    (void)ring_peek(&l->in, false, &available);
    return wants_send || (wants_recv && available == 0);
}
