#include "worker/device/peak.h"

#include "worker/device/kernels.h"

#include "common/clock.h"

/* A tile of matmul.c for each thread: a run takes a millisecond, in which a machine that
 * others use, too, may leave it alone. */
enum { TILE_ROWS = 256, TILE_COLS = 384, DEPTH = 384, PROBE_DEPTH = 16 };
/* What probes take decides whether the full depth is affordable: the scalar oracle is a
 * hundred times as slow, and oneDNN makes its code in the first. */
enum { PROBES = 4, SLOW_US = 3000, MUCH_TOO_SLOW_US = 200000 };
enum { ENOUGH_US = 80000, RUNS_MAX = 64, TIMEOUT_MS = 60000 };
/* 0x3c3c3c3c is 0.0115: sums of zeros would draw less power. */
enum { SOME_BYTE = 0x3c };

struct shape {
    int m, n;
    size_t a_bytes, b_bytes, c_bytes;
};

/* The tiles in a square, nearly: the operands are small then. */
static struct shape choose_shape(int threads)
{
    struct shape s;
    int tiles = threads;
    int rows = 1;

    while (tiles % (2 * rows) == 0 && 4 * rows * rows <= tiles) {
        rows *= 2;
    }
    s.m = rows * TILE_ROWS;
    s.n = tiles / rows * TILE_COLS;
    s.a_bytes = (size_t)s.m * DEPTH * sizeof(float);
    s.b_bytes = (size_t)s.n * DEPTH * sizeof(float);
    s.c_bytes = (size_t)s.m * (size_t)s.n * sizeof(float);
    return s;
}

static int run_once(struct device *d, const struct matmul *mm, uint64_t *ret_us,
                    struct errmsg *msg)
{
    uint64_t began_us = clock_us();
    int rv;

    d->k->matmul(d, mm);
    rv = device_finish(d, device_mark(d, QUEUE_COMPUTE), TIMEOUT_MS, msg);
    *ret_us = MAX(clock_us() - began_us, 1);
    return rv;
}

static double flop_s(const struct matmul *mm, uint64_t us)
{
    return 2.0 * mm->m * mm->n * mm->k / ((double)us / 1e6);
}

static int probe(struct device *d, struct matmul *mm, uint64_t *ret_us,
                 struct errmsg *msg)
{
    uint64_t us = 0;
    int rv = 0;

    mm->k = PROBE_DEPTH;
    *ret_us = UINT64_MAX;
    for (int i = 0; i < PROBES && rv == 0 && *ret_us > SLOW_US; i++) {
        rv = run_once(d, mm, &us, msg);
        *ret_us = MIN(*ret_us, us);
        if (i > 0 && *ret_us > MUCH_TOO_SLOW_US) { /* one alone was disturbed */
            break;
        }
    }
    return rv;
}

/* The fastest run: what is slower was disturbed. */
static int run_all(struct device *d, struct matmul *mm, double *ret_flop_s,
                   struct errmsg *msg)
{
    uint64_t spent_us = 0;
    uint64_t us;
    int rv = probe(d, mm, &us, msg);

    *ret_flop_s = flop_s(mm, us);
    mm->k = us < SLOW_US ? DEPTH : PROBE_DEPTH;
    for (int i = 0; rv == 0 && i < RUNS_MAX && spent_us + us < ENOUGH_US; i++) {
        rv = run_once(d, mm, &us, msg);
        *ret_flop_s = MAX(*ret_flop_s, flop_s(mm, us));
        spent_us += us;
    }
    return rv;
}

int peak_measure(struct device *d, double *ret_flop_s, struct errmsg *msg)
{
    struct shape s = choose_shape(d->threads);
    void *a = NULL;
    void *b = NULL;
    void *c = NULL;
    int rv;

    rv = device_alloc(d, s.a_bytes, &a);
    rv = rv < 0 ? rv : device_alloc(d, s.b_bytes, &b);
    rv = rv < 0 ? rv : device_alloc(d, s.c_bytes, &c);
    if (rv < 0) {
        (void)errmsg_set(msg, rv, "no memory to measure the peak of matrix products");
    } else {
        struct matmul mm = {.m = s.m,
                            .n = s.n,
                            .alpha = 1,
                            .a = a,
                            .b = b,
                            .c = c,
                            .lda = DEPTH,
                            .ldb = s.n,
                            .ldc = s.n};

        device_fill(d, QUEUE_COMPUTE, a, SOME_BYTE, s.a_bytes);
        device_fill(d, QUEUE_COMPUTE, b, SOME_BYTE, s.b_bytes);
        rv = run_all(d, &mm, ret_flop_s, msg);
    }
    device_free(d, c, s.c_bytes);
    device_free(d, b, s.b_bytes);
    device_free(d, a, s.a_bytes);
    return rv;
}
