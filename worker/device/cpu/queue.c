#include "worker/device/cpu/queue.h"

#include "worker/device/cpu/compute_thread.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/thread.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct queue_slot {
    device_task task; /* NULL: the end */
    uint64_t step;    /* that enqueued it: for the profile */
    _Alignas(16) unsigned char arg[DEVICE_TASK_ARG_MAX];
};

static const char *const names[QUEUE_COUNT] = {
    [QUEUE_COMPUTE] = "compute",
    [QUEUE_GATHER] = "gather",
    [QUEUE_REDUCE] = "reduce",
    [QUEUE_COPY] = "copy",
};

const char *queue_name(enum queue id)
{
    return names[id];
}

void cpu_queue_fail(struct cpu_queue *q, int err, const struct errmsg *msg)
{
    int none = -1;

    ASSERT(err < 0);
    if (atomic_load(&q->error) == 0) {
        q->msg = *msg;
        if (q->msg.text[0] == '\0') {
            (void)errmsg_set(&q->msg, err, "%s queue: %s", queue_name(q->id),
                             err_text(err));
        }
        atomic_store(&q->error, err);
        (void)atomic_compare_exchange_strong(q->first, &none, (int)q->id);
    }
}

void cpu_queue_worked(struct cpu_queue *q, const char *name, uint64_t began_us)
{
    uint64_t busy_us = atomic_load_explicit(&q->busy_us, memory_order_relaxed);

    /* one thread writes */
    atomic_store_explicit(&q->busy_us, busy_us + clock_us() - began_us,
                          memory_order_relaxed);
    trace_end(q->trace, (int)q->id, name, began_us);
}

void cpu_queue_waited(struct cpu_queue *q, uint64_t began_us)
{
    q->waited_us += clock_us() - began_us;
}

static void run_task(struct cpu_queue *q, device_task task, void *arg)
{
    struct errmsg msg = {""};
    uint64_t busy_us;
    uint64_t began_us;
    int err;

    if (atomic_load(&q->error) < 0) {
        return;
    }
    q->waited_us = 0;
    busy_us = atomic_load_explicit(&q->busy_us, memory_order_relaxed);
    began_us = clock_us();
    err = task(arg, &msg);
    ASSERT(err <= 0);
    busy_us += clock_us() - began_us - q->waited_us;
    /* stored, not added: the task may have used kernels of this very queue */
    atomic_store_explicit(&q->busy_us, busy_us, memory_order_relaxed);
    trace_end(q->trace, (int)q->id, trace_take_name(), began_us);
    if (err < 0) {
        cpu_queue_fail(q, err, &msg);
    }
}

static void *on_thread(void *arg)
{
    struct cpu_queue *q = arg;
    char name[16];

    (void)snprintf(name, sizeof(name), "ctrun-%s", queue_name(q->id));
    compute_thread_begin(name);
    for (uint64_t seq = 1;; seq++) {
        struct queue_slot *slot = &q->ring[seq % QUEUE_SLOTS];

        (void)sequence_wait(&q->pushed, seq, -1);
        if (!slot->task) {
            return NULL;
        }
        trace_step(slot->step);
        run_task(q, slot->task, slot->arg);
        sequence_set(&q->done, seq);
    }
}

int cpu_queue_open(struct cpu_queue *q, enum queue id, _Atomic int *first,
                   struct trace *trace)
{
    int err = 0;

    memset(q, 0, sizeof(*q));
    q->id = id;
    q->first = first;
    q->trace = trace;
    if (id != QUEUE_COMPUTE) {
        q->ring = mem_array(QUEUE_SLOTS, sizeof(*q->ring));
        err = thread_start(0, on_thread, q, &q->thread);
    }
    if (err < 0) {
        mem_free(q->ring);
        q->ring = NULL;
    }
    return err;
}

/* The slot of the next task, when the helper has left it. */
static void push_slot(struct cpu_queue *q, uint64_t seq, device_task task,
                      const void *arg, size_t size)
{
    struct queue_slot *slot = &q->ring[seq % QUEUE_SLOTS];

    if (seq > QUEUE_SLOTS) {
        (void)sequence_wait(&q->done, seq - QUEUE_SLOTS, -1);
    }
    slot->task = task;
    slot->step = trace_step_in_hand();
    if (size > 0) {
        memcpy(slot->arg, arg, size);
    }
    sequence_set(&q->pushed, seq);
}

void cpu_queue_close(struct cpu_queue *q)
{
    int err;

    if (q->ring) {
        push_slot(q, atomic_load(&q->pushed.value) + 1, NULL, NULL, 0);
        err = pthread_join(q->thread, NULL);
        ASSERT(err == 0);
        mem_free(q->ring);
        q->ring = NULL;
    }
}

void cpu_queue_push(struct cpu_queue *q, device_task task, const void *arg, size_t size)
{
    uint64_t seq = atomic_load(&q->pushed.value) + 1;
    struct queue_slot now;

    if (q->ring) {
        push_slot(q, seq, task, arg, size);
        return;
    }
    if (size > 0) {
        memcpy(now.arg, arg, size);
    }
    run_task(q, task, now.arg);
    sequence_set(&q->pushed, seq);
    sequence_set(&q->done, seq);
}

int cpu_queue_finish(struct cpu_queue *q, uint64_t seq, int timeout_ms,
                     struct errmsg *msg)
{
    ASSERT(seq <= atomic_load(&q->pushed.value));
    if (!sequence_wait(&q->done, seq, timeout_ms)) {
        return errmsg_set(
            msg, ERR_TIMEOUT,
            "%s queue: %" PRIu64 " of %" PRIu64 " tasks not finished after %d ms",
            queue_name(q->id), seq - atomic_load(&q->done.value), seq, timeout_ms);
    }
    return cpu_queue_error(q, msg);
}

int cpu_queue_error(struct cpu_queue *q, struct errmsg *msg)
{
    int err = atomic_load(&q->error);

    return err < 0 ? errmsg_set(msg, err, "%s", q->msg.text) : 0;
}
