#ifndef WORKER_COMM_HOST_H
#define WORKER_COMM_HOST_H

/* Collectives of processes on CPUs, private to this folder. The kinds shm, tcp and auto
 * differ in the links between ranks alone:
 *
 *   host.c        open (store, segments, connections), close, abort; tasks
 *   collective.c  every collective as a few exchanges
 *   exchange.c    one exchange: moves all its sends and receives forward together, so
 *                 that nothing can deadlock, and waits where nothing moves
 *   link.h        two byte streams to one other rank
 *
 * One operation runs at a time, on its queue's thread; only `abort` and `poll` come
 * from others. Sums are taken in rank order, so they are the same bits on all ranks and
 * links. */

#include "worker/comm/comm.h"
#include "worker/comm/link.h"
#include "worker/comm/tcp.h"

#include <poll.h>
#include <pthread.h>

enum {
    SUM_CHUNK = 16384,  /* floats summed at a time: 64 KiB */
    BLOCK_PART = 32768, /* a rank's share of a block of an all-reduce: 128 KiB */
    SMALL_FLOATS = 2048 /* an all-reduce up to this goes out whole, in one exchange */
};

/* Ranks first, first + stride, … */
struct team {
    int first, stride, size;
};

struct host_comm {
    struct comm base;
    char group[TCP_GROUP_MAX];
    int timeout_ms;
    struct link *link;         /* owned; world_size */
    struct segment segment;    /* the own one, if there are peers on the node */
    struct piece *send, *recv; /* owned; world_size each, for the collectives */
    size_t *bounds;            /* owned; 2 × (world_size + 1), likewise */
    struct pollfd *fds;        /* owned; world_size + 1 */
    float *sum;                /* owned; SUM_CHUNK */
    float small[SMALL_FLOATS]; /* result of a small all-reduce */
    struct team all, node,
        cross;                 /* everybody; the own node; those of equal local rank */
    int spins;                 /* turns without progress before sleeping */
    unsigned used_queues;      /* a bit for each */
    _Atomic uint32_t *waiting; /* as in comm_config, as the next two */
    int first_rank, stride;
    /* the running operation */
    const char *op;
    uint64_t deadline_ms;
    /* any thread */
    atomic_bool is_aborted;
    int abort_fd;         /* readable for ever once aborted */
    pthread_mutex_t lock; /* guards: */
    int error;            /* sticky */
    struct errmsg error_msg;
};

/* Receives what the team's other ranks send (n floats each) and sums in rank order:
 * dest = own + theirs. dest may be `own`, if that is not being sent. */
struct reducer {
    struct team team;
    const float *own;
    float *dest;
    size_t n;
    /* private */
    size_t done; /* complete sums */
    int at;      /* member whose part of the chunk comes next */
    size_t sub;  /* floats of it already taken */
};

struct exchange {
    const struct piece *send, *recv;
    size_t n_send, n_recv;
    struct reducer *reducer; /* or NULL */
};

static inline int team_rank(const struct team *t, int i)
{
    return t->first + i * t->stride;
}

/* The member that `rank` is; -1 if it is none. */
static inline int team_index(const struct team *t, int rank)
{
    int d = rank - t->first;

    return d >= 0 && d % t->stride == 0 && d / t->stride < t->size ? d / t->stride : -1;
}

int exchange_run(struct host_comm *c, struct exchange *ex,
                 struct errmsg *msg) MUST_CHECK;

int host_all_reduce(struct host_comm *c, float *buf, size_t n,
                    struct errmsg *msg) MUST_CHECK;
int host_reduce_scatter(struct host_comm *c, float *recv, const float *send,
                        size_t shard, struct errmsg *msg) MUST_CHECK;
int host_all_gather(struct host_comm *c, uint8_t *buf, const size_t *offsets,
                    struct errmsg *msg) MUST_CHECK;
int host_broadcast(struct host_comm *c, void *buf, size_t bytes, int root,
                   struct errmsg *msg) MUST_CHECK;
int host_barrier(struct host_comm *c, struct errmsg *msg) MUST_CHECK;

/* kind: "shm", "tcp" or "auto"; `ops` has its name. */
int host_open(const struct comm_ops *ops, const struct comm_config *config,
              struct device *device, struct comm **ret, struct errmsg *msg) MUST_CHECK;

extern const struct comm_ops host_shm_ops, host_tcp_ops, host_auto_ops;

#endif
