#ifndef TESTS_BENCH_BENCH_H
#define TESTS_BENCH_BENCH_H

/* What the benchmark programs share. Each is one file, run by bench.py, and prints
 * lines of JSON. */

#include "common/check.h"
#include "common/err.h"
#include "common/str.h"

#include <stdbool.h>
#include <time.h>

static inline double bench_now_us(void)
{
    struct timespec t;

    ASSERT(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* A number of the command line within [least, most]. */
static inline bool bench_number(const char *text, int64_t least, int64_t most,
                                int64_t *ret)
{
    return str_parse_i64(text, ret) == 0 && *ret >= least && *ret <= most;
}

#endif
