#include "worker/device/cpu/pool.h"

#include "worker/device/cpu/compute_thread.h"
#include "worker/device/cpu/sequence.h"

#include "common/thread.h"

#include <immintrin.h>
#include <stdatomic.h>
#include <string.h>

/* libgomp's, which oneDNN brings along: its header is the compiler's and not
 * everywhere. */
void omp_set_num_threads(int n);

enum { SPINS = 2000 }; /* some 30 µs: longer than the gap between two kernels */

/* Takes one tile of whatever job is published; -1 when nothing is left. The job's
 * fields may be read after a successful claim only: until that tile is done, they
 * cannot change. */
static int claim_tile(struct pool *p)
{
    uint32_t left = atomic_load(&p->left);

    while (left > 0) {
        if (atomic_compare_exchange_weak(&p->left, &left, left - 1)) {
            return p->n_tiles - (int)left;
        }
    }
    return -1;
}

static void work(struct pool *p)
{
    int tile;

    while ((tile = claim_tile(p)) >= 0) {
        p->body(p->arg, tile);
        if (atomic_fetch_sub(&p->unfinished, 1) == 1 &&
            atomic_load(&p->caller_sleeps)) {
            futex_wake_all(&p->unfinished);
        }
    }
}

static bool has_work(struct pool *p)
{
    return atomic_load(&p->left) > 0 || atomic_load(&p->closing);
}

/* As in sequence.c: a sleeper counts itself before it looks for the last time. */
static void await_work(struct pool *p)
{
    for (int i = 0; i < p->spins; i++) {
        if (has_work(p)) {
            return;
        }
        _mm_pause();
    }
    atomic_fetch_add(&p->sleepers, 1);
    for (;;) {
        uint32_t event = atomic_load(&p->event);

        if (has_work(p)) {
            break;
        }
        futex_sleep(&p->event, event, -1);
    }
    atomic_fetch_sub(&p->sleepers, 1);
}

static void *on_thread(void *arg)
{
    struct pool *p = arg;

    compute_thread_begin("ctrun-kernel");
    omp_set_num_threads(1);
    while (!atomic_load(&p->closing)) {
        work(p);
        await_work(p);
    }
    return NULL;
}

static void wake_others(struct pool *p)
{
    atomic_fetch_add(&p->event, 1);
    if (atomic_load(&p->sleepers) > 0) {
        futex_wake_all(&p->event);
    }
}

int pool_open(struct pool *p, int n_threads, bool may_spin)
{
    ASSERT(n_threads >= 1 && n_threads <= POOL_MAX_THREADS);
    memset(p, 0, sizeof(*p));
    p->n_threads = n_threads;
    p->spins = may_spin ? SPINS : 0;
    omp_set_num_threads(1);
    for (int i = 0; i < n_threads - 1; i++) {
        int err = thread_start(0, on_thread, p, &p->thread[i]);

        if (err < 0) {
            pool_close(p);
            return err;
        }
        p->n_started++;
    }
    return 0;
}

void pool_close(struct pool *p)
{
    atomic_store(&p->closing, true);
    wake_others(p);
    for (int i = 0; i < p->n_started; i++) {
        int err = pthread_join(p->thread[i], NULL);

        ASSERT(err == 0);
    }
    p->n_started = 0;
}

static void await_tiles(struct pool *p)
{
    for (int i = 0; i < p->spins; i++) {
        if (atomic_load(&p->unfinished) == 0) {
            return;
        }
        _mm_pause();
    }
    atomic_store(&p->caller_sleeps, true);
    for (;;) {
        uint32_t unfinished = atomic_load(&p->unfinished);

        if (unfinished == 0) {
            break;
        }
        futex_sleep(&p->unfinished, unfinished, -1);
    }
    atomic_store(&p->caller_sleeps, false);
}

void pool_run(struct pool *p, int n_tiles, pool_body body, void *arg)
{
    if (p->n_started == 0 || n_tiles <= 1) {
        for (int i = 0; i < n_tiles; i++) {
            body(arg, i);
        }
        return;
    }
    p->body = body;
    p->arg = arg;
    p->n_tiles = n_tiles;
    atomic_store(&p->unfinished, (uint32_t)n_tiles);
    atomic_store(&p->left, (uint32_t)n_tiles);
    wake_others(p);
    work(p);
    await_tiles(p);
}
