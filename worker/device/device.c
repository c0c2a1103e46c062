#include "worker/device/device.h"

#include "worker/device/cpu/cpu.h"

#include <string.h>

/* The implementations, in the order in which "auto" tries them. */
static const struct backend {
    const char *kind;
    int (*open)(const struct device_config *config, struct device **ret,
                struct errmsg *msg);
} backends[] = {
    {"cpu", cpu_open},
};

int device_open(const char *kind, const struct device_config *config,
                struct device **ret, struct errmsg *msg)
{
    ASSERT(config->local_world_size > 0 && config->local_rank >= 0);
    ASSERT(config->local_rank < config->local_world_size);
    if (strcmp(kind, "auto") == 0) {
        kind = backends[0].kind;
    }
    for (size_t i = 0; i < ARRAY_LEN(backends); i++) {
        if (strcmp(kind, backends[i].kind) == 0) {
            return backends[i].open(config, ret, msg);
        }
    }
    if (strcmp(kind, "cuda") == 0) {
        return errmsg_set(
            msg, ERR_UNSUPPORTED,
            "device.kind=cuda: no CUDA device here (this build has the CPU "
            "backend only); use device.kind=cpu");
    }
    return errmsg_set(msg, ERR_UNSUPPORTED,
                      "device.kind=%s: no such device; use device.kind=auto or cpu",
                      kind);
}

int device_best_isa(const char **ret, struct errmsg *msg)
{
    return cpu_best_isa(ret, msg);
}

const char *device_lower_isa(const char *a, const char *b)
{
    return cpu_lower_isa(a, b);
}

void device_close(struct device *d)
{
    if (d) {
        d->ops->close(d);
    }
}

int device_alloc(struct device *d, size_t bytes, void **ret)
{
    return d->ops->alloc(d, bytes, ret);
}

void device_free(struct device *d, void *ptr, size_t bytes)
{
    if (ptr) {
        d->ops->free(d, ptr, bytes);
    }
}

void device_copy(struct device *d, enum queue q, void *dst, const void *src,
                 size_t bytes)
{
    ASSERT(q < QUEUE_COUNT);
    if (bytes > 0) {
        ASSERT(dst && src);
        ASSERT((uintptr_t)dst + bytes <= (uintptr_t)src ||
               (uintptr_t)src + bytes <= (uintptr_t)dst);
        d->ops->copy(d, q, dst, src, bytes);
    }
}

void device_pack(struct device *d, enum queue q, void *dst,
                 const struct device_part *parts, size_t n)
{
    ASSERT(q < QUEUE_COUNT);
    if (n > 0) {
        ASSERT(dst && parts);
        d->ops->pack(d, q, dst, parts, n);
    }
}

void device_fill(struct device *d, enum queue q, void *dst, int byte, size_t bytes)
{
    ASSERT(q < QUEUE_COUNT);
    if (bytes > 0) {
        ASSERT(dst);
        d->ops->fill(d, q, dst, byte, bytes);
    }
}

struct ticket device_mark(struct device *d, enum queue q)
{
    ASSERT(q < QUEUE_COUNT);
    return d->ops->mark(d, q);
}

void device_wait(struct device *d, enum queue q, struct ticket after)
{
    ASSERT(q < QUEUE_COUNT && after.queue < QUEUE_COUNT);
    if (after.queue != q && after.seq > 0) {
        d->ops->wait(d, q, after);
    }
}

int device_finish(struct device *d, struct ticket t, int timeout_ms, struct errmsg *msg)
{
    ASSERT(t.queue < QUEUE_COUNT && timeout_ms >= 0);
    return d->ops->finish(d, t, timeout_ms, msg);
}

int device_last_error(struct device *d, struct errmsg *msg)
{
    return d->ops->last_error(d, msg);
}

void device_enqueue(struct device *d, enum queue q, device_task task, const void *arg,
                    size_t size)
{
    ASSERT(d->ops->enqueue && q < QUEUE_COUNT);
    ASSERT(task && size <= DEVICE_TASK_ARG_MAX && (arg || size == 0));
    d->ops->enqueue(d, q, task, arg, size);
}

uint64_t device_busy_us(struct device *d, enum queue q)
{
    ASSERT(q < QUEUE_COUNT);
    return d->ops->busy_us(d, q);
}

_Static_assert((int)TRACE_ROW_STEP == (int)QUEUE_COUNT, "a row for each queue");

void device_spread(struct device *d, int n, device_piece piece, void *arg)
{
    ASSERT(n >= 0 && piece);
    if (d->ops->spread) {
        d->ops->spread(d, n, piece, arg);
        return;
    }
    for (int i = 0; i < n; i++) {
        piece(arg, i);
    }
}
