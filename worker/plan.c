#include "worker/plan.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct arena {
    const char *name;
    size_t bytes;
};

/* Resident bytes of this process, 0 when /proc does not tell. */
static size_t resident_bytes(void)
{
    unsigned long size = 0;
    unsigned long resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");

    if (!file) {
        return 0;
    }
    /* NOLINTNEXTLINE(cert-err34-c): the kernel's own numbers */
    if (fscanf(file, "%lu %lu", &size, &resident) != 2) {
        resident = 0;
    }
    (void)fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static double mib(size_t bytes)
{
    return (double)bytes / (1024 * 1024);
}

/* What rank 0 sends in a step: its blocks' parts to their owners, then its shard to
 * all. */
static size_t bytes_per_step(const struct trainer *t)
{
    struct block blocks[TREE_MAX_BLOCKS];
    uint32_t world = (uint32_t)t->launch->world_size;
    size_t gradient = (t->layout.size +
                       (size_t)t->config->model.vocab * (size_t)t->config->model.dim) *
                      sizeof(float);
    size_t n = (size_t)tree_blocks(0, tree_run_begin(t->n_leaves, world, 1), blocks);

    if (world == 1) {
        return 0;
    }
    if (!trainer_parallel_config(t).exact) {
        n = 1;
    }
    return (n + 1) * gradient / world * (world - 1);
}

static void print_plan(const struct trainer *t)
{
    struct gpt2_config model = trainer_model_config(t->config);
    struct parallel_config parallel = trainer_parallel_config(t);
    struct adamw_config adamw = trainer_adamw_config(t);
    struct loader_config loader = trainer_loader_config(t);
    const struct arena arenas[] = {
        {"parameters", t->layout.size * sizeof(float)},
        {"gradients and reduction", t->strategy->bytes(&parallel)},
        {"optimizer state", adamw_bytes(&adamw)},
        {"activations of one leaf", gpt2_arena_bytes(&model)},
        {"batches read ahead", loader_bytes(&loader)},
        {"checkpoint snapshot",
         saver_bytes(&t->layout, t->launch->rank, t->launch->world_size)},
        {"collectives", comm_bytes(t->config->comm.kind, t->launch->local_world_size)},
        {"program and libraries", resident_bytes()},
    };
    size_t total = 0;

    (void)printf("mesh: dp_replicate=%d dp_shard=1 tp=1 pp=1 (%s), %u leaves a step\n",
                 t->launch->world_size, t->config->parallel.strategy, t->n_leaves);
    (void)printf("parameters: %zu in %d units\n", t->layout.n_params,
                 t->layout.n_units);
    (void)printf("memory of rank %d:\n", t->launch->rank);
    for (size_t i = 0; i < ARRAY_LEN(arenas); i++) {
        total += arenas[i].bytes;
        (void)printf("  %-26s %12.2f MiB\n", arenas[i].name, mib(arenas[i].bytes));
    }
    (void)printf("  %-26s %12.2f MiB\n", "total", mib(total));
    (void)printf("sent per step: %.2f MiB\n", mib(bytes_per_step(t)));
}

int plan_run(struct trainer *t, struct errmsg *msg)
{
    int rv = trainer_open_dry(t, msg);

    if (rv == 0 && trainer_leads(t)) {
        print_plan(t);
    }
    return rv;
}
