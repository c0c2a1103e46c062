/* ddp, zero1, zero2, fsdp, hsdp, dp: what differs is which parts are there.
 *
 *   parameters   own block, alone                  one shard; rounded: a copy beside
 *                own block, gather.h               more: kept whole, or in a ring
 *   leaves       accumulate.h: whole slots         grads not sharded: a run per rank
 *                scatter.h: slots of a shard       sharded: a run per replica
 *   reduction    reduction.h (exact, or to one owner), all-reduce (fast), of the slots
 *                of all runs
 *
 * Happy path of a step:
 *
 *   1  turn(): a unit's gradient goes into a slot, or through a buffer into the shards'
 *   2  with the last turn, the buckets that are complete now go to the reduce queue
 *   3  finish(): the compute queue waits for the reduce queue
 *   4  chunks(): the shards' parts of the norm; updated(): what was gathered is old */

#include "worker/parallel/zero.h"

#include "worker/device/kernels.h"
#include "worker/parallel/accumulate.h"
#include "worker/parallel/shape.h"

#include "common/mem.h"

#include <string.h>

/* The begin of a tied bucket in the result, and of the head's twin. */
struct tied_pair {
    float *buf[2];
};

struct data_parallel {
    struct parallel base;
    struct parallel_config config;
    struct shape shape;
    struct gather *gather;         /* owned; with shards */
    struct accumulate *accumulate; /* owned; one of the two */
    struct scatter *scatter;
    struct reduction *reduction; /* owned; NULL: all-reduce */
    float *params, *slots, *staging;
    float *rounded;  /* `params` as passes see them; NULL: as they are, or gathered */
    bool is_rounded; /* … now */
    double *spread;  /* chunk sums, shard by shard */
    size_t *spread_offsets;
    struct parallel_bytes bytes;
    size_t slots_bytes, staging_bytes, spread_bytes;
    struct tied_pair *tied; /* owned; per bucket; fast only */
    struct comm *between;   /* of the runs; NULL: one run */
    enum queue queue;       /* of the buckets */
    int result;             /* slot */
    int next_bucket;
};

static const struct addition tied_addition = {0, 1};

static struct data_parallel *self_of(struct parallel *p)
{
    return CONTAINER_OF(p, struct data_parallel, base);
}

/* ---- what it takes --------------------------------------------------------------- */

static struct parallel_bytes zero_bytes(const struct parallel_config *c)
{
    struct parallel_bytes ret;
    struct shape s;

    shape_init(&s, c);
    ret = shape_bytes(&s);
    shape_release(&s);
    return ret;
}

static size_t zero_sent(const struct parallel_config *c)
{
    struct shape s;
    size_t bytes;

    shape_init(&s, c);
    bytes = shape_sent(&s);
    shape_release(&s);
    return bytes;
}

/* ---- life ------------------------------------------------------------------------ */

static void free_arena(struct data_parallel *p, void *ptr, size_t bytes)
{
    if (ptr) {
        device_free(p->config.device, ptr, bytes);
    }
}

static void zero_close(struct parallel *base)
{
    struct data_parallel *p = self_of(base);

    reduction_free(p->reduction);
    gather_free(p->gather);
    scatter_free(p->scatter);
    accumulate_free(p->accumulate);
    free_arena(p, p->params, p->bytes.params);
    free_arena(p, p->rounded, p->bytes.rounded);
    free_arena(p, p->slots, p->slots_bytes);
    free_arena(p, p->staging, p->staging_bytes);
    free_arena(p, p->spread, p->spread_bytes);
    shape_release(&p->shape);
    mem_free(p->spread_offsets);
    mem_free(p->tied);
    mem_free(p);
}

static int alloc(struct data_parallel *p, const char *what, size_t bytes, void **ret,
                 struct errmsg *msg)
{
    int rv = bytes > 0 ? device_alloc(p->config.device, bytes, ret) : 0;

    return rv < 0 ? errmsg_set(msg, rv, "%s (%zu MiB): %s", what, bytes >> 20,
                               err_text(rv))
                  : 0;
}

static int alloc_all(struct data_parallel *p, struct errmsg *msg)
{
    void *params = NULL, *rounded = NULL, *slots = NULL, *staging = NULL,
         *spread = NULL;
    int rv;

    p->bytes = shape_bytes(&p->shape);
    p->slots_bytes = shape_slots_bytes(&p->shape);
    p->staging_bytes = shape_staging_bytes(&p->shape);
    p->spread_bytes = shape_spread_bytes(&p->shape);
    rv = alloc(p, "parameters", p->bytes.params, &params, msg);
    p->params = params;
    rv = rv < 0 ? rv : alloc(p, "rounded parameters", p->bytes.rounded, &rounded, msg);
    p->rounded = rounded;
    rv = rv < 0 ? rv : alloc(p, "gradient buffers", p->slots_bytes, &slots, msg);
    p->slots = slots;
    rv = rv < 0 ? rv
                : alloc(p, "buffers of the gradient exchange", p->staging_bytes,
                        &staging, msg);
    p->staging = staging;
    rv = rv < 0 ? rv : alloc(p, "sums of the norm", p->spread_bytes, &spread, msg);
    p->spread = spread;
    return rv;
}

static int open_parts(struct data_parallel *p, struct errmsg *msg)
{
    struct gather_config gather = shape_gather(&p->shape, p->params);
    struct scatter_config scatter = shape_scatter(&p->shape, p->slots);
    struct accumulate_config accumulate = {
        .device = p->config.device,
        .layout = p->config.layout,
        .begin = p->shape.begin,
        .end = p->shape.end,
        .exact = p->config.exact,
        .dtype = p->config.reduce_dtype,
        .head = p->shape.buckets.head,
        .slot_size = p->shape.buckets.buffer_size,
        .slots = p->slots,
    };
    int rv = p->shape.n_shards > 1 ? gather_new(&gather, &p->gather, msg) : 0;

    if (rv == 0 && p->shape.scatters) {
        rv = scatter_new(&scatter, &p->scatter, msg);
    } else if (rv == 0) {
        p->accumulate = accumulate_new(&accumulate);
    }
    return rv;
}

static float *slot(const struct data_parallel *p, int i)
{
    return p->slots + (size_t)i * p->shape.buckets.buffer_size;
}

static void plan_tied(struct data_parallel *p)
{
    const struct bucket_list *l = &p->shape.buckets;

    p->tied = mem_array((size_t)l->n, sizeof(*p->tied));
    for (int i = 0; i < l->n; i++) {
        if (l->bucket[i].n_tied > 0) {
            p->tied[i].buf[0] = slot(p, p->result) + l->bucket[i].begin;
            p->tied[i].buf[1] = p->tied[i].buf[0] + l->head;
        }
    }
}

static void plan_reduction(struct data_parallel *p)
{
    struct reduction_config r = shape_reduction(&p->shape);

    r.held = p->scatter ? scatter_held(p->scatter) : accumulate_held(p->accumulate);
    r.slots = p->slots;
    r.staging = p->staging;
    p->result = r.held->slot[0];
    if (p->shape.is_planned) {
        p->reduction = reduction_new(&r);
    } else {
        plan_tied(p);
    }
}

/* Each shard's chunk sums, one behind the other. */
static void plan_spread(struct data_parallel *p)
{
    struct shape *s = &p->shape;
    size_t n = (size_t)s->n_shards;

    p->spread_offsets = mem_array(n + 1, sizeof(size_t));
    for (size_t i = 0; i < n; i++) {
        struct shard_map m;

        shard_map_init(&m, p->config.layout, &s->groups, s->n_shards, (int)i);
        p->spread_offsets[i + 1] =
            p->spread_offsets[i] + m.size / SUMSQ_CHUNK * sizeof(double);
        shard_map_release(&m);
    }
}

static void fill_base(struct data_parallel *p)
{
    const struct parallel_config *c = &p->config;
    int team = parallel_team(c);

    p->base = (struct parallel){
        .ops = c->ops,
        .n_units = c->layout->n_units,
        .team = team,
        .leaves = leaf_run_of(c->n_leaves, c->world_size, team, c->rank),
        .n_turns = leaf_run_rounds(c->n_leaves, c->world_size, team, c->rank),
        .own = p->shape.own,
        .params = p->params,
        .gathers = p->gather != NULL,
        .whole_grads = p->accumulate != NULL,
    };
}

static int check(const struct parallel_config *c, struct errmsg *msg)
{
    ASSERT(c->world_size == 1 || c->comm);
    if (c->n_leaves < (uint32_t)c->world_size) {
        return errmsg_set(
            msg, ERR_INVALID,
            "%d ranks, but only %u micro-batches in a global batch: start at "
            "most %u ranks, or raise train.global_batch or lower "
            "train.micro_batch",
            c->world_size, c->n_leaves, c->n_leaves);
    }
    return 0;
}

static int zero_open(const struct parallel_config *config, struct parallel **ret,
                     struct errmsg *msg)
{
    struct data_parallel *p;
    int rv = check(config, msg);

    if (rv < 0) {
        return rv;
    }
    p = mem_zalloc(sizeof(*p));
    p->config = *config;
    shape_init(&p->shape, &p->config);
    p->between = shape_between(&p->shape);
    p->queue = config->world_size > 1 ? QUEUE_REDUCE : QUEUE_COMPUTE;
    rv = alloc_all(p, msg);
    rv = rv < 0 ? rv : open_parts(p, msg);
    if (rv < 0) {
        zero_close(&p->base);
        return rv;
    }
    plan_reduction(p);
    plan_spread(p);
    fill_base(p);
    *ret = &p->base;
    return 0;
}

/* ---- a step ---------------------------------------------------------------------- */

/* Once a step: the own block changes in between alone. */
static void round_params(struct data_parallel *p)
{
    struct device *d = p->config.device;

    if (!p->is_rounded) {
        d->k->round(d, QUEUE_COMPUTE, p->rounded, p->params, p->shape.own.size,
                    p->config.param_dtype);
        p->is_rounded = true;
    }
}

static struct unit_params zero_pass(struct parallel *base, bool backward)
{
    struct data_parallel *p = self_of(base);

    if (p->gather) {
        return gather_pass(p->gather, backward);
    }
    if (p->rounded) {
        round_params(p);
    }
    return (struct unit_params){.flat = p->rounded ? p->rounded : p->params};
}

/* The head is added to its twin before that goes out, so it need not go out itself. */
static void reduce_fast(struct data_parallel *p, int i)
{
    const struct bucket *b = &p->shape.buckets.bucket[i];
    struct device *d = p->config.device;

    if (b->n_tied > 0) {
        d->k->sum_ordered(d, p->queue, p->tied[i].buf, 2, &tied_addition, 1, b->n_tied);
    }
    if (!b->is_head && p->between) {
        comm_all_reduce(p->between, p->queue, slot(p, p->result) + b->begin,
                        b->end - b->begin);
    }
}

/* Everything that the last turn has completed by now; `unit` is one of a slot's. */
static void reduce_complete(struct data_parallel *p, int unit)
{
    const struct bucket_list *l = &p->shape.buckets;
    struct device *d = p->config.device;

    if (p->next_bucket == l->n || l->bucket[p->next_bucket].unit < unit) {
        return;
    }
    if (p->queue != QUEUE_COMPUTE) {
        device_wait(d, p->queue, device_mark(d, QUEUE_COMPUTE));
    }
    while (p->next_bucket < l->n && l->bucket[p->next_bucket].unit >= unit) {
        if (p->reduction) {
            reduction_run(p->reduction, p->queue, p->next_bucket);
        } else {
            reduce_fast(p, p->next_bucket);
        }
        p->next_bucket++;
    }
}

static void on_whole_end(void *arg, int unit)
{
    struct data_parallel *p = arg;

    accumulate_unit(p->accumulate, unit);
    if (accumulate_is_last(p->accumulate)) {
        reduce_complete(p, unit);
    }
}

static float *on_shards_begin(void *arg, int unit)
{
    struct data_parallel *p = arg;

    return scatter_begin(p->scatter, unit);
}

static void on_shards_end(void *arg, int unit)
{
    struct data_parallel *p = arg;
    int group = scatter_end(p->scatter, unit);

    if (group >= 0 && scatter_is_last(p->scatter)) {
        reduce_complete(p, group);
    }
}

static struct unit_grads zero_turn(struct parallel *base, float **ret_head)
{
    struct data_parallel *p = self_of(base);
    float *grads;

    if (p->scatter) {
        *ret_head = scatter_turn(p->scatter);
        return (struct unit_grads){
            .begin = on_shards_begin, .end = on_shards_end, .arg = p};
    }
    grads = accumulate_turn(p->accumulate);
    *ret_head = p->config.tied_size > 0 ? grads + p->shape.buckets.head : NULL;
    return (struct unit_grads){.flat = grads, .end = on_whole_end, .arg = p};
}

static const float *zero_finish(struct parallel *base)
{
    struct data_parallel *p = self_of(base);
    struct device *d = p->config.device;

    ASSERT(p->next_bucket == p->shape.buckets.n);
    p->next_bucket = 0;
    if (p->queue != QUEUE_COMPUTE) {
        device_wait(d, QUEUE_COMPUTE, device_mark(d, p->queue));
    }
    return slot(p, p->result);
}

/* Between the chunks' order and the shards' order, of shard `shard`. */
static void move_chunks(struct data_parallel *p, double *chunks, int shard, bool out)
{
    const struct shape *s = &p->shape;
    struct shard_map m;

    shard_map_init(&m, p->config.layout, &s->groups, s->n_shards, shard);
    for (int g = 0; g < m.n_ranges; g++) {
        const struct shard_range *r = &m.range[g];
        size_t n = (r->end - r->begin) / SUMSQ_CHUNK * sizeof(double);
        double *here = chunks + r->begin / SUMSQ_CHUNK;
        double *there =
            p->spread + p->spread_offsets[shard] / sizeof(double) + r->at / SUMSQ_CHUNK;

        if (n > 0) {
            device_copy(p->config.device, QUEUE_COMPUTE, out ? there : here,
                        out ? here : there, n);
        }
    }
    shard_map_release(&m);
}

static void zero_chunks(struct parallel *base, double *chunks)
{
    struct data_parallel *p = self_of(base);
    struct device *d = p->config.device;

    if (p->shape.n_shards == 1) {
        return;
    }
    move_chunks(p, chunks, p->shape.shard, true);
    device_wait(d, QUEUE_REDUCE, device_mark(d, QUEUE_COMPUTE));
    comm_all_gather(p->config.shard, QUEUE_REDUCE, p->spread, p->spread_offsets);
    device_wait(d, QUEUE_COMPUTE, device_mark(d, QUEUE_REDUCE));
    for (int s = 0; s < p->shape.n_shards; s++) {
        if (s != p->shape.shard) {
            move_chunks(p, chunks, s, false);
        }
    }
}

static void zero_updated(struct parallel *base)
{
    struct data_parallel *p = self_of(base);

    if (p->gather) {
        gather_stale(p->gather);
    }
    p->is_rounded = false;
}

/* ---- the strategies -------------------------------------------------------------- */

/* clang-format off */
#define OPS(id) \
    .name = #id, .bytes = zero_bytes, .sent = zero_sent, .open = zero_open, \
    .close = zero_close, .pass = zero_pass, .turn = zero_turn, .finish = zero_finish, \
    .chunks = zero_chunks, .updated = zero_updated
/* clang-format on */

const struct parallel_ops ddp_ops = {OPS(ddp)};
const struct parallel_ops dp_ops = {OPS(dp),
                                    .zero = {.optimizer = true, .one_owner = true}};
const struct parallel_ops zero1_ops = {OPS(zero1), .zero = {.optimizer = true}};
const struct parallel_ops zero2_ops = {OPS(zero2),
                                       .zero = {.optimizer = true, .grads = true}};
const struct parallel_ops fsdp_ops = {
    OPS(fsdp), .zero = {.optimizer = true, .grads = true, .params = true}};
const struct parallel_ops hsdp_ops = {
    OPS(hsdp), .zero = {.optimizer = true, .grads = true, .params = true},
    .replicates = true};
