#ifndef WORKER_DEVICE_CPU_COMPUTE_THREAD_H
#define WORKER_DEVICE_CPU_COMPUTE_THREAD_H

/* What every thread that computes has in common: denormals are flushed (with them a
 * step took four times as long), and the rank's threads stay on the rank's cores.
 * common/thread.h starts it. */

#include "common/err.h"

#include <sched.h>
#include <stdbool.h>

/* Called by each thread about itself: name and floating-point mode. */
void compute_thread_begin(const char *name);
void compute_thread_flush_denormals(void);

/* The rank's share of the cores this process may run on. */
struct cores {
    cpu_set_t allowed; /* before we changed anything */
    cpu_set_t own;
    int n_allowed;
    bool crowded; /* more threads than cores: nobody is pinned, nobody spins */
};

/* A rank's share is n_allowed / local_world_size cores. `threads` 0: one for each core
 * of it, at least 1; ret_threads says what it came to. Pins the caller, and so the
 * threads that it starts later, to the share. */
int cores_take(struct cores *c, int local_rank, int local_world_size, int threads,
               int *ret_threads) MUST_CHECK;
void cores_give_back(const struct cores *c); /* the caller may run anywhere again */

#endif
