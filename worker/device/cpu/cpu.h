#ifndef WORKER_DEVICE_CPU_CPU_H
#define WORKER_DEVICE_CPU_CPU_H

/* The CPU device: kernel pool, queues, memory, and the table of its instruction set. */

#include "worker/device/cpu/compute_thread.h"
#include "worker/device/cpu/pool.h"
#include "worker/device/cpu/queue.h"
#include "worker/device/cpu/tiles.h"
#include "worker/device/kernels.h"

struct cpu {
    struct device base;
    const struct tiles *tiles; /* of the instruction set chosen */
    struct cores cores;
    struct pool pool;
    struct cpu_queue queue[QUEUE_COUNT];
    _Atomic int first_failed; /* the queue that failed first, −1 */
};

int cpu_open(const struct device_config *config, struct device **ret,
             struct errmsg *msg) MUST_CHECK;

extern const struct kernels cpu_kernels;

static inline struct cpu *cpu_of(struct device *d)
{
    return CONTAINER_OF(d, struct cpu, base);
}

/* True after a failure of the compute queue: its work is skipped from then on. */
bool cpu_compute_failed(struct cpu *c);

/* The name of a piece of tiles.h in a profile. */
const char *cpu_tile_name(const struct cpu *c, tile_fn fn);

/* fn(args, …) over [0, n) on the compute queue, in pieces of `grain`: the fixed grid.
 */
void cpu_spread(struct device *d, tile_fn fn, const void *args, size_t n, size_t grain);

void cpu_matmul(struct device *d, const struct matmul *mm);

/* Behind device_best_isa and device_lower_isa. */
int cpu_best_isa(const char **ret, struct errmsg *msg) MUST_CHECK;
const char *cpu_lower_isa(const char *a, const char *b);

#endif
