#ifndef TESTS_CONFORMANCE_KERNEL_CASE_H
#define TESTS_CONFORMANCE_KERNEL_CASE_H

/* What the kernel tests share: devices, inputs by seed, outputs that can be compared.
 *
 * Every buffer is an exact allocation of its own at an odd address (4 bytes off), so
 * that AddressSanitizer sees a vector that runs past its end and nothing relies on
 * alignment. Outputs begin as NaN: what a kernel forgets to write is seen. */

#include "tests/lib/cmocka.h"
#include "worker/device/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RUN_MAX_BUFFERS = 32, RUN_MAX_OUTPUTS = 6 };

struct output {
    float *data;
    size_t n;
};

struct run {
    struct device *d;
    uint64_t seed; /* moves on with each number */
    void *owned[RUN_MAX_BUFFERS];
    int n_owned;
    struct output out[RUN_MAX_OUTPUTS];
    int n_out;
};

/* NULL when this machine has no such instruction set. */
static inline struct device *open_device(const char *isa, int threads)
{
    struct device_config config = {
        .local_world_size = 1, .threads = threads, .isa = isa};
    struct device *d = NULL;
    struct errmsg msg = {""};
    int err = device_open("cpu", &config, &d, &msg);

    if (err == ERR_UNSUPPORTED) {
        return NULL;
    }
    assert_int_equal(err, 0);
    return d;
}

static inline void run_release(struct run *r)
{
    for (int i = 0; i < r->n_owned; i++) {
        free(r->owned[i]);
    }
    memset(r, 0, sizeof(*r));
}

static inline float *run_buffer(struct run *r, size_t n)
{
    float *p = malloc((n + 1) * sizeof(float));

    assert_non_null(p);
    assert_true(r->n_owned < RUN_MAX_BUFFERS);
    r->owned[r->n_owned++] = p;
    return p + 1;
}

/* splitmix64, as a float in [−1, 1) */
static inline float run_number(struct run *r)
{
    uint64_t z = (r->seed += 0x9E3779B97F4A7C15U);

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9U;
    z = (z ^ z >> 27) * 0x94D049BB133111EBU;
    return (float)((double)(z >> 11) / 4503599627370496.0 - 1.0);
}

static inline float *run_input(struct run *r, size_t n)
{
    float *p = run_buffer(r, n);

    for (size_t i = 0; i < n; i++) {
        p[i] = run_number(r);
    }
    return p;
}

static inline int32_t *run_ids(struct run *r, size_t n, int limit)
{
    int32_t *p = (int32_t *)(void *)run_buffer(r, n);

    for (size_t i = 0; i < n; i++) {
        p[i] = MIN(limit - 1, (int32_t)((run_number(r) + 1.0F) * 0.5F * (float)limit));
    }
    return p;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): kernels write it later */
static inline void run_declare(struct run *r, float *data, size_t n)
{
    assert_true(r->n_out < RUN_MAX_OUTPUTS);
    r->out[r->n_out++] = (struct output){data, n};
}

static inline float *run_output(struct run *r, size_t n)
{
    float *p = run_buffer(r, n);

    memset(p, 0xFF, n * sizeof(float));
    run_declare(r, p, n);
    return p;
}

/* The greatest difference, relative to the greatest number of `want`. NaN if any is
 * NaN. */
static inline double worst_error(const float *got, const float *want, size_t n)
{
    double worst = 0, size = 0;

    for (size_t i = 0; i < n; i++) {
        double error = fabs((double)got[i] - want[i]);

        worst = worst >= error ? worst : error;
        size = fmax(size, fabs((double)want[i]));
    }
    return size > 0 ? worst / size : worst;
}

#endif
