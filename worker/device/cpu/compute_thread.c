#include "worker/device/cpu/compute_thread.h"

#include <errno.h>
#include <immintrin.h>
#include <pthread.h>

enum { MXCSR_FTZ_DAZ = 0x8040 };

void compute_thread_flush_denormals(void)
{
    _mm_setcsr(_mm_getcsr() | MXCSR_FTZ_DAZ);
}

void compute_thread_begin(const char *name)
{
    (void)pthread_setname_np(pthread_self(), name); /* a name is a courtesy */
    compute_thread_flush_denormals();
}

static void add_core(cpu_set_t *set, size_t cpu)
{
    CPU_SET(cpu, set);
}

/* Cores number [first, first + n) of the allowed ones. */
static void pick(struct cores *c, int first, int n)
{
    int seen = 0;

    CPU_ZERO(&c->own);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        bool is_allowed = CPU_ISSET(cpu, &c->allowed);

        if (is_allowed && seen >= first && seen < first + n) {
            add_core(&c->own, cpu);
        }
        seen += is_allowed;
    }
}

/* All threads of a rank share its set of cores, rather than one core each: helpers need
 * what the kernels leave over, and the threads that the host starts inherit its mask,
 * so would all sit on its one core. */
int cores_take(struct cores *c, int local_rank, int local_world_size, int threads,
               int *ret_threads)
{
    int share;

    if (sched_getaffinity(0, sizeof(c->allowed), &c->allowed) < 0) {
        return -errno;
    }
    c->n_allowed = CPU_COUNT(&c->allowed);
    share = c->n_allowed / local_world_size;
    *ret_threads = threads > 0 ? threads : MAX(1, share);
    c->own = c->allowed;
    c->crowded = *ret_threads > share;
    if (c->crowded) {
        return 0;
    }
    pick(c, local_rank * share, share);
    return sched_setaffinity(0, sizeof(c->own), &c->own) < 0 ? -errno : 0;
}

void cores_give_back(const struct cores *c)
{
    (void)sched_setaffinity(0, sizeof(c->allowed),
                            &c->allowed); /* it was valid before */
}
