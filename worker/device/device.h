#ifndef WORKER_DEVICE_DEVICE_H
#define WORKER_DEVICE_DEVICE_H

/* One device: its memory, the order of its work, its kernels.
 *
 * The engine never calls a kernel and waits. It enqueues work on a queue (in order, one
 * device) and orders queues by tickets: `device_mark` after the work, `device_wait` on
 * the queue that needs it, `device_finish` where the host needs it.
 *
 *                 mark ──► ticket ──► wait
 *   compute  ─────●───────────┐
 *   reduce   ─────────────────▼─────────────
 *
 * CPU: the compute queue runs at once on the caller's thread and the kernel pool;
 * gather, reduce and copy are one helper thread each with a FIFO, so communication and
 * snapshots overlap with backward. A ticket is an atomic sequence number with a futex.
 * (CUDA later: queue = stream, ticket = event.)
 *
 * Threads: one host thread drives a device; `device_enqueue` tasks run on the queue's
 * thread. Errors are sticky, as on a GPU: enqueueing calls return nothing, the first
 * failure of a queue is kept, `device_finish` and `device_last_error` tell it, and
 * later work on that queue is skipped (its tickets still complete, so that nobody
 * hangs). A queue that waits for a failed one fails with it, so that garbage does not
 * spread. */

#include "worker/device/trace.h"

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum queue { QUEUE_COMPUTE, QUEUE_GATHER, QUEUE_REDUCE, QUEUE_COPY, QUEUE_COUNT };

/* A point in a queue's work. The zero ticket is always complete. */
struct ticket {
    enum queue queue;
    uint64_t seq;
};

struct kernels;
struct device;

struct device_config {
    int local_rank;       /* among the ranks that have this one's CPUs … */
    int local_world_size; /* … so many */
    int threads;     /* 0: cores of the affinity mask / local_world_size, at least 1 */
    const char *isa; /* "scalar", "avx2", "avx512"; NULL: CTRUN_ISA of the environment,
                        else the best this machine has */
    struct trace *trace; /* borrowed; gets what the queues do; may be NULL */
};

/* Work for a queue of the CPU: 0, or an error that becomes the queue's. `arg` is a
 * copy. */
typedef int (*device_task)(void *arg, struct errmsg *msg);

enum { DEVICE_TASK_ARG_MAX = 192 };

/* A piece of what device_pack puts together. */
struct device_part {
    const void *src; /* NULL: what is there stays, and may be written meanwhile */
    size_t bytes;
};

/* Host work that is cut into pieces which do not depend on one another. */
typedef void (*device_piece)(void *arg, int piece);

struct device_ops {
    const char *name;
    void (*close)(struct device *d);
    int (*alloc)(struct device *d, size_t bytes, void **ret);
    void (*free)(struct device *d, void *ptr, size_t bytes);
    void (*copy)(struct device *d, enum queue q, void *dst, const void *src,
                 size_t bytes);
    void (*pack)(struct device *d, enum queue q, void *dst,
                 const struct device_part *parts, size_t n);
    void (*fill)(struct device *d, enum queue q, void *dst, int byte, size_t bytes);
    struct ticket (*mark)(struct device *d, enum queue q);
    void (*wait)(struct device *d, enum queue q, struct ticket after);
    int (*finish)(struct device *d, struct ticket t, int timeout_ms,
                  struct errmsg *msg);
    int (*last_error)(struct device *d, struct errmsg *msg);
    /* (optional: host queues only) runs `task` on queue `q` with a copy of `arg` */
    void (*enqueue)(struct device *d, enum queue q, device_task task, const void *arg,
                    size_t size);
    /* (optional: host memory only) piece(arg, 0 … n − 1) on the kernel threads */
    void (*spread)(struct device *d, int n, device_piece piece, void *arg);
    uint64_t (*busy_us)(struct device *d, enum queue q);
    void (*describe)(struct device *d, char *text, size_t size);
};

struct device {
    const struct device_ops *ops;
    const struct kernels *k; /* see kernels.h */
    char signature[128]; /* instruction set path, library and kernel versions: results
                            are bit-identical only between devices of the same signature
                          */
    int threads;
    int cores; /* which the node's ranks share */
    struct trace *trace;
};

/* kind: "auto" or "cpu". ERR_UNSUPPORTED with a text for "cuda", for unknown kinds and
 * for an isa that this machine lacks; ERR_INVALID for an unknown isa or thread count;
 * -errno. */
int device_open(const char *kind, const struct device_config *config,
                struct device **ret, struct errmsg *msg) MUST_CHECK;

/* The instruction set path that device_open takes for isa NULL; static text. Ranks
 * whose processors differ agree on the lowest before they open their devices. */
int device_best_isa(const char **ret, struct errmsg *msg) MUST_CHECK;

/* The lower of two paths; NULL when one is unknown. */
const char *device_lower_isa(const char *a, const char *b);

void device_close(struct device *d); /* NULL allowed; finishes the queues first */

/* Memory is 64-byte aligned, pre-faulted and zero. ENOMEM when there is none. */
int device_alloc(struct device *d, size_t bytes, void **ret) MUST_CHECK;
void device_free(struct device *d, void *ptr, size_t bytes);

/* Any direction; ranges must not overlap. Both must live, and `src` stay as it is,
 * until the copy is done (a ticket tells); on the CPU's compute queue that is when the
 * call returns. */
void device_copy(struct device *d, enum queue q, void *dst, const void *src,
                 size_t bytes);

/* Copies the parts back to back to `dst`, which nobody reads soon: the caches stay what
 * they are. As device_copy; the list itself must live as long, too. */
void device_pack(struct device *d, enum queue q, void *dst,
                 const struct device_part *parts, size_t n);

void device_fill(struct device *d, enum queue q, void *dst, int byte, size_t bytes);

struct ticket device_mark(struct device *d, enum queue q);
void device_wait(struct device *d, enum queue q, struct ticket after);

/* The host waits, `timeout_ms` ≥ 0. 0; ERR_TIMEOUT; or the error of the queue, with its
 * text. */
int device_finish(struct device *d, struct ticket t, int timeout_ms,
                  struct errmsg *msg) MUST_CHECK;

/* The first error of any queue, 0 if none. */
int device_last_error(struct device *d, struct errmsg *msg) MUST_CHECK;

/* `size` ≤ DEVICE_TASK_ARG_MAX. On QUEUE_COMPUTE it runs before the call returns. */
void device_enqueue(struct device *d, enum queue q, device_task task, const void *arg,
                    size_t size);

/* How long the queue has worked since the device was opened: a piece of work counts
 * when it is done, and waiting for another queue is none (for a peer it is). */
uint64_t device_busy_us(struct device *d, enum queue q);

/* Runs piece(arg, 0 … n − 1), in any order and on the device's kernel threads where
 * they are the host's, and returns when all are done. For the host's work before
 * training. */
void device_spread(struct device *d, int n, device_piece piece, void *arg);

#endif
