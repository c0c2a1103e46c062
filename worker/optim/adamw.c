/* AdamW over a rank's own block. See adamw.h.
 *
 * Happy path of a step: scalars to the device → sums of squares of the own chunks, then
 * of all, in the order of the units → clip coefficient → one pass over each run of
 * equal decay. Nothing is read back: the norm and the coefficient stay in device
 * memory. */

#include "worker/optim/adamw.h"

#include "common/mem.h"

#include <math.h>

enum { ALIGNMENT = 64 };

/* Neighbouring trained tensors of equal decay, as far as they are the rank's own. */
struct run {
    size_t begin, end; /* elements of the flat block */
    size_t at;         /* where `begin` lies in the own block */
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
    struct shard_range *range; /* owned; of the own block, neighbours made one */
    size_t n_ranges;
    struct run *run;
    size_t n_runs;
};

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t own_size(const struct adamw_config *config)
{
    return config->own ? config->own->size : config->layout->size;
}

static size_t state_bytes(const struct adamw_config *config)
{
    return aligned(own_size(config) * sizeof(float));
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

static void add_range(struct adamw *a, const struct shard_range *r)
{
    struct shard_range *last = a->n_ranges > 0 ? &a->range[a->n_ranges - 1] : NULL;

    if (last && last->end == r->begin) {
        last->end = r->end;
    } else if (r->begin < r->end) {
        a->range[a->n_ranges++] = *r;
    }
}

static void find_ranges(struct adamw *a)
{
    const struct shard_map *own = a->config.own;
    struct shard_range all = {.end = a->config.layout->size};

    a->range = mem_array(own ? (size_t)own->n_ranges : 1, sizeof(*a->range));
    ASSERT(a->range);
    for (int i = 0; own && i < own->n_ranges; i++) {
        add_range(a, &own->range[i]);
    }
    if (!own) {
        add_range(a, &all);
    }
}

/* [begin, end) of the flat block, in the order of the units. */
static void add_to_runs(struct adamw *a, size_t begin, size_t end, size_t at,
                        bool decay)
{
    struct run *last = a->n_runs > 0 ? &a->run[a->n_runs - 1] : NULL;

    if (last && last->decay == decay && last->end == begin) {
        last->end = end;
    } else {
        a->run[a->n_runs++] = (struct run){begin, end, at, decay};
    }
}

static void add_tensor(struct adamw *a, size_t begin, const struct tensor *t,
                       const struct shard_range *r)
{
    size_t from = MAX(begin, r->begin), to = MIN(begin + t->size, r->end);

    if (from < to && !t->frozen) {
        add_to_runs(a, from, to, r->at + (from - r->begin), t->decay);
    }
}

static void add_unit(struct adamw *a, const struct unit *u)
{
    for (int j = 0; j < u->n_tensors; j++) {
        size_t begin = u->offset + u->tensor[j].offset;

        for (size_t k = 0; k < a->n_ranges; k++) {
            add_tensor(a, begin, &u->tensor[j], &a->range[k]);
        }
    }
}

static void find_runs(struct adamw *a)
{
    const struct layout *l = a->config.layout;

    a->run =
        mem_array((size_t)l->n_units * UNIT_MAX_TENSORS + a->n_ranges, sizeof(*a->run));
    ASSERT(a->run);
    for (int i = 0; i < l->n_units; i++) {
        add_unit(a, &l->unit[i]);
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
        return errmsg_set(msg, rc, "no memory for %zu MiB of optimizer state",
                          bytes >> 20);
    }
    lay_out(a);
    find_ranges(a);
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
    mem_free(a->range);
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

static void set_scalars(struct adamw *a, const struct adamw_turn *turn)
{
    const struct adamw_config *c = &a->config;
    double t = (double)turn->update;
    a->host_scalars = (struct adamw_scalars){
        .lr = schedule_lr(&c->schedule, turn->step),
        .beta1 = c->beta1,
        .beta2 = c->beta2,
        .eps = c->eps,
        .weight_decay = c->weight_decay,
        .correction1 = (1.0 - pow(c->beta1, t)),
        .correction2 = (1.0 - pow(c->beta2, t)),
        .unscale = turn->unscale,
        .grad_scale = 1.0F,
        .skip_not_finite = turn->skip_not_finite,
    };
    device_copy(c->device, QUEUE_COMPUTE, a->scalars, &a->host_scalars,
                sizeof(a->host_scalars));
}

void adamw_step(struct adamw *a, float *params, const float *grads,
                struct adamw_turn turn, const double **ret_norm)
{
    ASSERT(turn.update >= 1 && turn.update <= turn.step);
    const struct adamw_config *c = &a->config;
    struct device *d = c->device;
    float max_norm = c->grad_clip > 0 ? (float)c->grad_clip : 0.0F;

    set_scalars(a, &turn);
    for (size_t i = 0; i < a->n_ranges; i++) {
        const struct shard_range *r = &a->range[i];

        d->k->sumsq(d, QUEUE_COMPUTE, a->chunks + r->begin / SUMSQ_CHUNK,
                    grads + (c->whole_grads ? r->begin : r->at), turn.unscale,
                    r->end - r->begin);
    }
    if (c->share_chunks) {
        c->share_chunks(c->arg, a->chunks);
    }
    d->k->clip(d, a->norm, a->scalars, a->chunks, c->layout->size / SUMSQ_CHUNK,
               max_norm);
    for (size_t i = 0; i < a->n_runs; i++) {
        const struct run *r = &a->run[i];

        d->k->adamw(d, params + r->at, a->exp_avg + r->at, a->exp_avg_sq + r->at,
                    grads + (c->whole_grads ? r->begin : r->at), r->end - r->begin,
                    r->decay, a->scalars);
    }
    *ret_norm = a->norm;
}
