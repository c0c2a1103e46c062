#ifndef WORKER_COMM_COMM_H
#define WORKER_COMM_COMM_H

/* Collectives over one group of ranks, ordered on a device's queue.
 *
 * Bootstrap is apart from the data path: addresses, pids and descriptors are exchanged
 * through the job's store under "comm/<group>/". A call enqueues and returns; its
 * errors become the queue's (device.h). No collective hangs for ever: `timeout_ms` is
 * finite, a peer's death is noticed (shm: pidfd of each peer on the node; tcp: the
 * connection's end), and comm_abort, from any thread, makes every pending operation
 * fail soon.
 *
 * Kinds: "shm" (all ranks under one agent), "tcp" (any), "auto": shm inside a node, tcp
 * between nodes, hierarchical where that saves traffic. */

#include "worker/device/device.h"

struct store_client;
struct comm;

struct comm_config {
    const char *group; /* unique among the groups of a generation, e.g. "dp-reduce" */
    int rank;
    int world_size;
    int node;                   /* GROUP_RANK: ranks of equal node have one agent */
    struct store_client *store; /* borrowed until comm_open returns */
    const char *address;        /* numeric, for peers on other nodes; NULL: 127.0.0.1 */
    int timeout_ms;
    /* Where to say for which rank this one waits, as 1 + first_rank + its rank in the
     * group · stride; 0: for none. NULL: nowhere. */
    _Atomic uint32_t *waiting;
    int first_rank, stride;
};

/* A run of bytes to or from a peer. Pieces between a pair of ranks match in their
 * order. */
struct piece {
    int peer; /* may be the own rank: a local copy */
    void *data;
    size_t bytes;
};

struct comm_ops {
    const char *name;
    void (*close)(struct comm *c);
    /* buf (n floats) = sum over ranks, in the backend's own order
     * (`train.reduction=fast`); equal bits on all ranks */
    void (*all_reduce)(struct comm *c, enum queue q, float *buf, size_t n);
    /* recv = rank r's shard of the sum; `shard` floats each */
    void (*reduce_scatter)(struct comm *c, enum queue q, float *recv, const float *send,
                           size_t shard);
    /* buf holds world_size parts; part r is bytes [offsets[r], offsets[r+1]); each rank
     * brings its own and gets the rest */
    void (*all_gather)(struct comm *c, enum queue q, void *buf, const size_t *offsets);
    /* Everything to and from everybody at once; no order but a pair's. */
    void (*all_to_all)(struct comm *c, enum queue q, const struct piece *send,
                       size_t n_send, const struct piece *recv, size_t n_recv);
    void (*broadcast)(struct comm *c, enum queue q, void *buf, size_t bytes, int root);
    void (*barrier)(struct comm *c, enum queue q);
    /* 0, or the reason why the group is broken; never blocks */
    int (*poll)(struct comm *c, struct errmsg *msg);
    void (*abort)(struct comm *c);
};

struct comm {
    const struct comm_ops *ops;
    struct device *device;
    int rank;
    int world_size;
    int node_first; /* first rank of the own node; ranks of a node are contiguous */
    int node_size;  /* ranks on the own node */
    bool uniform;   /* every node has node_size ranks */
};

/* Blocks until all ranks of the group have opened, at most timeout_ms. Errors:
 * ERR_TIMEOUT, ERR_PEER_LOST, ERR_ABORTED, ERR_UNSUPPORTED (unknown kind, shm across
 * agents), -errno; with a text that names the peer. World size 1 needs no store. */
int comm_open(const char *kind, const struct comm_config *config, struct device *device,
              struct comm **ret, struct errmsg *msg) MUST_CHECK;
void comm_close(struct comm *c); /* NULL allowed */

/* Resident bytes that a group takes on a rank, for the memory plan: the shared rings
 * that it reads and writes. */
size_t comm_bytes(const char *kind, int node_size);

void comm_all_reduce(struct comm *c, enum queue q, float *buf, size_t n);
void comm_reduce_scatter(struct comm *c, enum queue q, float *recv, const float *send,
                         size_t shard);
void comm_all_gather(struct comm *c, enum queue q, void *buf, const size_t *offsets);

/* The piece arrays and `offsets` are borrowed until the operation is finished. */
void comm_all_to_all(struct comm *c, enum queue q, const struct piece *send,
                     size_t n_send, const struct piece *recv, size_t n_recv);
void comm_broadcast(struct comm *c, enum queue q, void *buf, size_t bytes, int root);
void comm_barrier(struct comm *c, enum queue q);
int comm_poll(struct comm *c, struct errmsg *msg) MUST_CHECK;

/* From any thread; every pending and later operation fails with ERR_ABORTED. */
void comm_abort(struct comm *c);

#endif
