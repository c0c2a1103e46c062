#ifndef WORKER_DEVICE_CPU_QUEUE_H
#define WORKER_DEVICE_CPU_QUEUE_H

/* One queue of the CPU device: tasks in order, on a helper thread with a fixed ring, or
 * (the compute queue) at once on the caller's thread.
 *
 *   host: push ─► ring[seq % SLOTS], pushed = seq     helper: run, done = seq
 *
 * `done` is what tickets wait for. The first task that fails makes the queue's error;
 * the tasks after it are skipped, but counted. A full ring makes the pusher wait. One
 * thread pushes; any thread may wait and ask for the error. */

#include "worker/device/cpu/sequence.h"
#include "worker/device/device.h"

#include <pthread.h>

enum { QUEUE_SLOTS = 64 };

struct queue_slot;

struct cpu_queue {
    enum queue id;
    struct sequence pushed;
    struct sequence done;
    _Atomic int error;   /* 0, or the first failure; set after `msg` */
    struct errmsg msg;   /* valid when `error` is set */
    struct trace *trace; /* borrowed; may be NULL */
    _Atomic int *first; /* borrowed from the device: the queue that failed first, −1 */
    _Atomic uint64_t busy_us; /* of tasks that are done */
    /* private */
    uint64_t waited_us;      /* by the task in hand */
    struct queue_slot *ring; /* owned; NULL: runs at once */
    pthread_t thread;
};

const char *queue_name(enum queue id);

/* In place. 0 or -errno. */
int cpu_queue_open(struct cpu_queue *q, enum queue id, _Atomic int *first,
                   struct trace *trace) MUST_CHECK;
void cpu_queue_close(struct cpu_queue *q); /* runs what is left */

/* `arg` is copied. */
void cpu_queue_push(struct cpu_queue *q, device_task task, const void *arg,
                    size_t size);

/* 0, ERR_TIMEOUT, or the queue's error. */
int cpu_queue_finish(struct cpu_queue *q, uint64_t seq, int timeout_ms,
                     struct errmsg *msg) MUST_CHECK;
int cpu_queue_error(struct cpu_queue *q, struct errmsg *msg) MUST_CHECK;

/* From the thread that runs the queue's tasks: its first failure is kept. */
void cpu_queue_fail(struct cpu_queue *q, int err, const struct errmsg *msg);

/* The same thread: work that began then is done; `name` is for the profile. */
void cpu_queue_worked(struct cpu_queue *q, const char *name, uint64_t began_us);

/* The task in hand has only waited since then. */
void cpu_queue_waited(struct cpu_queue *q, uint64_t began_us);

#endif
