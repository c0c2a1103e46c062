/* AdamW over the flat block. See adamw.h.
 *
 * Happy path of a step: scalars to the device → sums of squares of all chunks, in the
 * order of the units → clip coefficient → one pass over each run of equal decay.
 * Nothing is read back: the norm and the coefficient stay in device memory. */

#include "worker/optim/adamw.h"

#include "common/mem.h"

#include <math.h>

enum { ALIGNMENT = 64 };

/* Neighbouring tensors of equal decay, in the whole flat block. */
struct run {
    size_t offset, size;
    bool decay;
};

struct adamw {
    struct adamw_config config;
    void *arena;
    size_t arena_bytes;
    float *exp_avg, *exp_avg_sq;
    double *chunks; /* one sum of squares per SUMSQ_CHUNK elements */
    double *norm;
    struct adamw_scalars *scalars;
    struct adamw_scalars host_scalars; /* of the step in work */
    struct run *run;
    size_t n_runs;
};

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t state_bytes(const struct adamw_config *config)
{
    return aligned(config->layout->size * sizeof(float));
}

static size_t chunk_bytes(const struct adamw_config *config)
{
    return aligned(config->layout->size / SUMSQ_CHUNK * sizeof(double));
}

size_t adamw_bytes(const struct adamw_config *config)
{
    return 2 * state_bytes(config) + chunk_bytes(config) + aligned(sizeof(double)) +
           aligned(sizeof(struct adamw_scalars));
}

static void lay_out(struct adamw *a)
{
    char *p = a->arena;
    a->exp_avg = (float *)(void *)p;
    p += state_bytes(&a->config);
    a->exp_avg_sq = (float *)(void *)p;
    p += state_bytes(&a->config);
    a->chunks = (double *)(void *)p;
    p += chunk_bytes(&a->config);
    a->norm = (double *)(void *)p;
    p += aligned(sizeof(double));
    a->scalars = (struct adamw_scalars *)(void *)p;
}

static void add_to_runs(struct adamw *a, size_t offset, const struct tensor *t)
{
    if (a->n_runs > 0) {
        struct run *last = &a->run[a->n_runs - 1];
        if (last->decay == t->decay && last->offset + last->size == offset) {
            last->size += t->size;
            return;
        }
    }
    a->run[a->n_runs++] =
        (struct run){.offset = offset, .size = t->size, .decay = t->decay};
}

static void find_runs(struct adamw *a)
{
    const struct layout *l = a->config.layout;
    a->run = mem_array((size_t)l->n_units * UNIT_MAX_TENSORS, sizeof(*a->run));
    for (int i = 0; i < l->n_units; i++) {
        const struct unit *u = &l->unit[i];
        for (int j = 0; j < u->n_tensors; j++) {
            add_to_runs(a, u->offset + u->tensor[j].offset, &u->tensor[j]);
        }
    }
}

int adamw_new(const struct adamw_config *config, struct adamw **ret, struct errmsg *msg)
{
    struct adamw *a = mem_zalloc(sizeof(*a));
    a->config = *config;
    a->arena_bytes = adamw_bytes(config);
    int rc = device_alloc(config->device, a->arena_bytes, &a->arena);
    if (rc != 0) {
        size_t bytes = a->arena_bytes;
        mem_free(a);
        return errmsg_set(
            msg, rc, "no memory for %zu MiB of optimizer state: choose a smaller model",
            bytes >> 20);
    }
    lay_out(a);
    find_runs(a);
    *ret = a;
    return 0;
}

void adamw_free(struct adamw *a)
{
    if (a == NULL) {
        return;
    }
    device_free(a->config.device, a->arena, a->arena_bytes);
    mem_free(a->run);
    mem_free(a);
}

float *adamw_exp_avg(struct adamw *a)
{
    return a->exp_avg;
}

float *adamw_exp_avg_sq(struct adamw *a)
{
    return a->exp_avg_sq;
}

static void set_scalars(struct adamw *a, uint64_t step)
{
    const struct adamw_config *c = &a->config;
    double t = (double)step;
    a->host_scalars = (struct adamw_scalars){
        .lr = schedule_lr(&c->schedule, step),
        .beta1 = c->beta1,
        .beta2 = c->beta2,
        .eps = c->eps,
        .weight_decay = c->weight_decay,
        .correction1 = (1.0 - pow(c->beta1, t)),
        .correction2 = (1.0 - pow(c->beta2, t)),
        .grad_scale = 1.0F,
    };
    device_copy(c->device, QUEUE_COMPUTE, a->scalars, &a->host_scalars,
                sizeof(a->host_scalars));
}

void adamw_step(struct adamw *a, float *params, const float *grads, uint64_t step,
                const double **ret_norm)
{
    ASSERT(step >= 1);
    struct device *d = a->config.device;
    size_t size = a->config.layout->size;
    float max_norm = a->config.grad_clip > 0 ? (float)a->config.grad_clip : 0.0F;

    set_scalars(a, step);
    d->k->sumsq(d, QUEUE_COMPUTE, a->chunks, grads, size);
    d->k->clip(d, a->norm, a->scalars, a->chunks, size / SUMSQ_CHUNK, max_norm);
    for (size_t i = 0; i < a->n_runs; i++) {
        const struct run *r = &a->run[i];
        d->k->adamw(d, params + r->offset, a->exp_avg + r->offset,
                    a->exp_avg_sq + r->offset, grads + r->offset, r->size, r->decay,
                    a->scalars);
    }
    *ret_norm = a->norm;
}
