#ifndef WORKER_DEVICE_CPU_POOL_H
#define WORKER_DEVICE_CPU_POOL_H

/* The kernel threads: parallel-for over a grid of tiles.
 *
 * The grid is the caller's and never depends on the number of threads; who computes a
 * tile is left to chance. So results are the same for 1, 2 or 64 threads as long as a
 * tile's result depends on nothing but its index.
 *
 * Happy path: pool_run publishes the job and wakes sleepers; threads, the caller among
 * them, claim tiles by counting `left` down; the last one to finish a tile wakes the
 * caller. A thread that comes late finds nothing left, or a share of the next job, so
 * the caller never waits for a thread that sleeps. */

#include "common/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { POOL_MAX_THREADS = 256 };

typedef void (*pool_body)(void *arg, int tile);

struct pool {
    int n_threads; /* the caller is one of them */
    /* private */
    pthread_t thread[POOL_MAX_THREADS];
    int n_started;
    int spins; /* looks at the counter before sleeping */
    pool_body body;
    void *arg;
    int n_tiles;
    char apart1[64];       /* each counter on a cache line of its own */
    _Atomic uint32_t left; /* tiles nobody has claimed */
    char apart2[64];
    _Atomic uint32_t unfinished; /* tiles; the caller's futex */
    _Atomic bool caller_sleeps;
    char apart3[64];
    _Atomic uint32_t event; /* the others' futex */
    _Atomic uint32_t sleepers;
    _Atomic bool closing;
};

/* In place. 0 or -errno; after an error nothing is left open. */
int pool_open(struct pool *p, int n_threads, bool may_spin) MUST_CHECK;
void pool_close(struct pool *p);

/* Runs body(arg, 0 … n_tiles − 1), returns when all are done. From one thread only. */
void pool_run(struct pool *p, int n_tiles, pool_body body, void *arg);

#endif
