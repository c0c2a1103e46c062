#include "worker/gauge.h"

#include "common/clock.h"

/* The kernel takes some 50 us to tell: too long for steps of a millisecond. */
enum { MEMORY_MS = 100 };

_Static_assert((int)METRICS_QUEUES == (int)QUEUE_COUNT, "a number for each queue");

void gauge_skip(struct gauge *g, const struct trainer *t)
{
    for (int q = 0; q < QUEUE_COUNT; q++) {
        g->busy_us[q] = device_busy_us(t->device, (enum queue)q);
    }
}

void gauge_start(struct gauge *g, const struct trainer *t)
{
    *g = (struct gauge){.memory = memory_read()};
    gauge_skip(g, t);
}

/* The kernel counts in batches, so what it calls the peak may be less than it was. */
void gauge_note(struct gauge *g, const struct trainer *t)
{
    uint64_t peak_bytes = g->memory.peak_bytes;
    uint64_t now_ms = clock_ms();

    if (g->read_ms > 0 && now_ms - g->read_ms < MEMORY_MS) {
        return; /* what was noted holds */
    }
    g->read_ms = now_ms;
    g->memory = memory_read();
    peak_bytes = MAX(peak_bytes, g->memory.bytes);
    g->memory.peak_bytes = MAX(peak_bytes, g->memory.peak_bytes);
    losses_note(t->losses, (double)g->memory.peak_bytes);
}

static void find_largest(const struct trainer *t, struct metrics_line *line)
{
    for (int rank = 0; rank < t->launch->world_size; rank++) {
        uint64_t bytes = (uint64_t)losses_noted(t->losses, rank);

        if (bytes > line->mem_peak_max_bytes) {
            line->mem_peak_max_bytes = bytes;
            line->mem_peak_max_rank = rank;
        }
    }
}

/* The model's operations of this rank's leaves: what is computed twice counts once. */
static double leaf_flops(const struct trainer *t)
{
    struct gpt2_config model = trainer_model_config(t->config);
    uint32_t n = leaf_run_count(&t->parallel->leaves);

    return (double)n * (double)gpt2_flops_per_leaf(&model, &t->layout);
}

void gauge_read(struct gauge *g, const struct trainer *t, struct metrics_line *line)
{
    if (t->gemm_flop_s > 0 && line->step_s > 0) {
        line->gemm_flop_s = t->gemm_flop_s;
        line->mfu = leaf_flops(t) / (line->step_s * t->gemm_flop_s);
    }
    line->mem_bytes = g->memory.bytes;
    line->mem_peak_bytes = g->memory.peak_bytes;
    find_largest(t, line);
    for (int q = 0; q < QUEUE_COUNT; q++) {
        uint64_t busy_us = device_busy_us(t->device, (enum queue)q);

        line->queue_s[q] = (double)(busy_us - g->busy_us[q]) / 1e6;
        g->busy_us[q] = busy_us;
    }
}
