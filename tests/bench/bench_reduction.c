/* The time to sum the gradients of a step of GPT-2 124M, without the backward that
 * makes them: what a reduction costs where nothing hides it.
 *
 *   bench-reduction exact|fast RANKS LEAVES COUNT
 *
 * A line of JSON for COUNT steps of LEAVES micro-batches over RANKS ranks of this
 * machine. Failures: a usage line and 2; a rank that fails says so and it ends with
 * 1. */

#include "tests/bench/bench.h"
#include "tests/lib/rank_ends.h"
#include "worker/device/kernels.h"
#include "worker/parallel/parallel.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

enum {
    N_BLOCKS = 12,
    N_UNITS = N_BLOCKS + 2,
    TIED = 50257 * 768,
    FIRST_UNIT = TIED + 1024 * 768, /* tokens, positions */
    BLOCK_UNIT = 7087872,
    LAST_UNIT = 2 * 768,
    BUCKET_CAP = 25 << 20,
    LEAVES_MAX = 1024,
    COUNT_MAX = 1000
};

struct plan {
    bool exact;
    uint32_t n_leaves;
    size_t count;
};

static struct layout layout_of(struct unit units[N_UNITS])
{
    struct layout l = {.unit = units, .n_units = N_UNITS};
    size_t size;

    for (int u = 0; u < N_UNITS; u++) {
        size = u == 0 ? FIRST_UNIT : u <= N_BLOCKS ? BLOCK_UNIT : LAST_UNIT;
        size = (size + SUMSQ_CHUNK - 1) / SUMSQ_CHUNK * SUMSQ_CHUNK;
        units[u] = (struct unit){.offset = l.size, .size = size};
        l.size += size;
    }
    return l;
}

static double time_step(struct rank_ends *e, struct parallel *p)
{
    double began;
    struct unit_grads grads;
    float *head;

    comm_barrier(e->comm, QUEUE_REDUCE);
    rank_ends_finish_well(e);
    began = bench_now_us();
    for (uint32_t i = 0; i < p->n_turns; i++) {
        grads = p->ops->turn(p, &head); /* gradients are zero for ever */
        for (int u = N_UNITS - 1; u >= 0; u--) {
            grads.end(grads.arg, u);
        }
    }
    (void)p->ops->finish(p);
    rank_ends_finish_well(e);
    return bench_now_us() - began;
}

static int compare(const void *a, const void *b)
{
    const double *x = a;
    const double *y = b;

    return (*x > *y) - (*x < *y);
}

static int run_rank(const struct rank *self)
{
    const struct plan *plan = self->arg;
    const struct rank_setup setup = {.kind = "auto", .node_size = self->world_size};
    double *us = mem_array(plan->count, sizeof(*us));
    const struct parallel_ops *ops = NULL;
    struct parallel_config config;
    struct unit units[N_UNITS];
    struct layout layout = layout_of(units);
    struct parallel *p = NULL;
    struct rank_ends e;

    rank_ends_open(&e, self, &setup);
    config = (struct parallel_config){.layout = &layout,
                                      .device = e.device,
                                      .comm = e.comm,
                                      .rank = self->rank,
                                      .world_size = self->world_size,
                                      .n_leaves = plan->n_leaves,
                                      .bucket_cap_bytes = BUCKET_CAP,
                                      .exact = plan->exact,
                                      .tied_size = TIED};
    RANK_CHECK(parallel_find("ddp", &ops, NULL) == 0);
    config.ops = ops;
    RANK_CHECK(ops->open(&config, &p, NULL) == 0);
    (void)time_step(&e, p); /* brings the pages in */
    for (size_t i = 0; i < plan->count; i++) {
        us[i] = time_step(&e, p);
    }
    qsort(us, plan->count, sizeof(*us), compare);
    if (self->rank == 0) {
        (void)printf("{\"what\": \"%s\", \"leaves\": %u, \"count\": %zu, "
                     "\"median_us\": %.1f, \"best_us\": %.1f}\n",
                     plan->exact ? "exact" : "fast", plan->n_leaves, plan->count,
                     us[plan->count / 2], us[0]);
        (void)fflush(stdout);
    }
    ops->close(p);
    rank_ends_close(&e);
    mem_free(us);
    return 0;
}

int main(int argc, char **argv)
{
    int status[RANKS_MAX];
    int64_t n_ranks, n_leaves, count;
    struct plan plan;
    bool is_well;

    if (argc != 5 || (strcmp(argv[1], "exact") != 0 && strcmp(argv[1], "fast") != 0) ||
        !bench_number(argv[2], 2, RANKS_MAX, &n_ranks) ||
        !bench_number(argv[3], n_ranks, LEAVES_MAX, &n_leaves) ||
        !bench_number(argv[4], 1, COUNT_MAX, &count)) {
        (void)fprintf(stderr, "usage: bench-reduction exact|fast RANKS LEAVES COUNT\n");
        return 2;
    }
    plan =
        (struct plan){strcmp(argv[1], "exact") == 0, (uint32_t)n_leaves, (size_t)count};
    is_well = ranks_run((int)n_ranks, run_rank, &plan, status);
    for (int i = 0; i < n_ranks; i++) {
        is_well = is_well && status[i] == 0;
    }
    return is_well ? 0 : 1;
}
