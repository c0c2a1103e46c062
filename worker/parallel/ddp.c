/* ddp. What each leaf does is worked out at the start: its gradient buffer ("slot"),
 * and the additions that follow it. Happy path of a step:
 *
 *   1  leaf() hands out the slot; backward fills it, last unit first
 *   2  on_unit(): the leaf's additions, for this unit's part of the buffers
 *   3  with the last leaf, the buckets that are complete now go to the reduce queue
 *   4  finish(): the compute queue waits for the reduce queue
 *
 * exact: slots and additions are the tree's; buckets are reduced by reduction.h.
 * fast: one slot keeps the sum, one is worked in; buckets are all-reduced. */

#include "worker/parallel/ddp.h"

#include "worker/parallel/buckets.h"
#include "worker/parallel/reduction.h"

#include "common/mem.h"

#include <string.h>

struct leaf_plan {
    int slot;
    int first_add, n_adds; /* in ddp.adds */
};

/* The begin of a tied bucket in the result, and of the head's twin. */
struct tied_pair {
    float *buf[2];
};

struct ddp {
    struct parallel base;
    struct parallel_config config;
    struct bucket_list buckets;
    struct reduction *reduction; /* owned; exact only */
    float *slots;                /* owned (device); n_slots gradient buffers */
    int n_slots;
    float *staging; /* owned (device) */
    size_t staging_bytes;
    struct leaf_plan *leaf; /* owned; of each local leaf */
    struct addition *adds;  /* owned; of all local leaves */
    int n_adds;
    struct counter held;    /* the blocks after the last local leaf */
    float **range;          /* owned; per unit, then the head: its begin in each slot */
    struct tied_pair *tied; /* owned; per bucket; fast only */
    enum queue queue;       /* of the buckets */
    /* the running step */
    uint32_t n_done; /* leaves */
    int next_unit;   /* −1: the leaf's backward is complete */
    int next_bucket;
};

static const struct addition tied_addition = {0, 1};

static struct ddp *ddp_of(struct parallel *p)
{
    return CONTAINER_OF(p, struct ddp, base);
}

/* ---- the plan -------------------------------------------------------------------- */

static void run_of(const struct parallel_config *c, uint32_t *ret_begin,
                   uint32_t *ret_end)
{
    uint32_t world = (uint32_t)c->world_size, rank = (uint32_t)c->rank;

    *ret_begin = tree_run_begin(c->n_leaves, world, rank);
    *ret_end = tree_run_begin(c->n_leaves, world, rank + 1);
}

static int count_slots(const struct parallel_config *c)
{
    uint32_t begin, end;

    run_of(c, &begin, &end);
    return c->exact ? tree_max_slots(begin, end) : (int)MIN(end - begin, 2);
}

static int take_slot(uint64_t *free_slots)
{
    int i = __builtin_ctzll(*free_slots);

    *free_slots &= *free_slots - 1;
    return i;
}

static void plan_exact(struct ddp *p, uint32_t n)
{
    uint64_t free_slots =
        (UINT64_C(1) << p->n_slots) - 1; /* n_slots ≤ 2·log2 n + 1 < 64 */
    struct addition adds[TREE_MAX_BLOCKS];

    for (uint32_t i = 0; i < n; i++) {
        struct leaf_plan *l = &p->leaf[i];

        ASSERT(free_slots != 0);
        l->slot = take_slot(&free_slots);
        l->first_add = p->n_adds;
        l->n_adds = tree_push(&p->held, p->base.leaf_begin + i, l->slot, adds);
        for (int k = 0; k < l->n_adds; k++) {
            free_slots |= UINT64_C(1) << adds[k].src;
            p->adds[p->n_adds++] = adds[k];
        }
    }
}

static void plan_fast(struct ddp *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        p->leaf[i] = (struct leaf_plan){i > 0, p->n_adds, i > 0};
        if (i > 0) {
            p->adds[p->n_adds++] = tied_addition;
        }
    }
    p->held = (struct counter){.n = 1}; /* everything, in slot 0 */
}

static float *slot(const struct ddp *p, int i)
{
    return p->slots + (size_t)i * p->buckets.buffer_size;
}

static float **range_of(const struct ddp *p, int range)
{
    return p->range + (size_t)range * (size_t)p->n_slots;
}

static void plan_ranges(struct ddp *p)
{
    const struct layout *l = p->config.layout;
    float *result = slot(p, p->held.slot[0]);
    size_t at;

    p->range =
        mem_array((size_t)l->n_units + 1, (size_t)p->n_slots * sizeof(*p->range));
    for (int u = 0; u <= l->n_units; u++) {
        at = u < l->n_units ? l->unit[u].offset : p->buckets.head;
        for (int i = 0; i < p->n_slots; i++) {
            range_of(p, u)[i] = slot(p, i) + at;
        }
    }
    p->tied = mem_array((size_t)p->buckets.n, sizeof(*p->tied));
    for (int i = 0; i < p->buckets.n && !p->config.exact; i++) {
        at = p->buckets.bucket[i].begin;
        if (p->buckets.bucket[i].n_tied > 0) {
            p->tied[i].buf[0] = result + at;
            p->tied[i].buf[1] = result + p->buckets.head + at;
        }
    }
}

static int node_size_of(const struct parallel_config *c)
{
    if (!c->comm) {
        return c->node_size;
    }
    return c->comm->uniform ? c->comm->node_size : 0;
}

static struct reduction_config reduction_of(const struct parallel_config *c,
                                            const struct bucket_list *buckets)
{
    return (struct reduction_config){.device = c->device,
                                     .comm = c->comm,
                                     .rank = c->rank,
                                     .world_size = c->world_size,
                                     .node_size = node_size_of(c),
                                     .n_leaves = c->n_leaves,
                                     .buckets = buckets};
}

static size_t staging_bytes(const struct parallel_config *c,
                            const struct bucket_list *buckets)
{
    struct reduction_config r = reduction_of(c, buckets);

    return c->exact ? reduction_staging(&r) * sizeof(float) : 0;
}

static size_t slots_bytes(const struct parallel_config *c)
{
    return (size_t)count_slots(c) * bucket_buffer_size(c->layout, c->tied_size) *
           sizeof(float);
}

static size_t ddp_bytes(const struct parallel_config *c)
{
    struct bucket_list buckets;
    size_t bytes;

    bucket_list_init(&buckets, c->layout, c->tied_size, c->bucket_cap_bytes);
    bytes = slots_bytes(c) + staging_bytes(c, &buckets);
    bucket_list_release(&buckets);
    return bytes;
}

/* Elements of all buckets that travel in fast: the head's do not. */
static size_t count_travelling(const struct bucket_list *l)
{
    size_t n = 0;

    for (int i = 0; i < l->n; i++) {
        if (!l->bucket[i].is_head) {
            n += l->bucket[i].end - l->bucket[i].begin;
        }
    }
    return n;
}

/* An all-reduce sends each of world − 1 parts twice, however it is arranged. */
static size_t ddp_sent(const struct parallel_config *c)
{
    struct bucket_list buckets;
    struct reduction_config r;
    size_t world = (size_t)c->world_size, floats;

    bucket_list_init(&buckets, c->layout, c->tied_size, c->bucket_cap_bytes);
    r = reduction_of(c, &buckets);
    floats = c->exact ? reduction_sent(&r)
                      : 2 * (world - 1) * count_travelling(&buckets) / world;
    bucket_list_release(&buckets);
    return floats * sizeof(float);
}

/* ---- life ------------------------------------------------------------------------ */

static void ddp_close(struct parallel *base)
{
    struct ddp *p = ddp_of(base);

    reduction_free(p->reduction);
    bucket_list_release(&p->buckets);
    if (p->slots) {
        device_free(p->config.device, p->slots, slots_bytes(&p->config));
    }
    if (p->staging) {
        device_free(p->config.device, p->staging, p->staging_bytes);
    }
    mem_free(p->leaf);
    mem_free(p->adds);
    mem_free(p->range);
    mem_free(p->tied);
    mem_free(p);
}

static int alloc_floats(struct ddp *p, const char *what, size_t bytes, float **ret,
                        struct errmsg *msg)
{
    void *ptr = NULL;
    int rv = bytes > 0 ? device_alloc(p->config.device, bytes, &ptr) : 0;

    *ret = ptr;
    return rv < 0 ? errmsg_set(msg, rv, "%s (%zu MiB): %s", what, bytes >> 20,
                               err_text(rv))
                  : 0;
}

static int ddp_alloc(struct ddp *p, struct errmsg *msg)
{
    const struct parallel_config *c = &p->config;
    int rv = alloc_floats(p, "gradient buffers", slots_bytes(c), &p->slots, msg);

    p->staging_bytes = staging_bytes(c, &p->buckets);
    return rv < 0 ? rv
                  : alloc_floats(p, "buffers of the gradient exchange",
                                 p->staging_bytes, &p->staging, msg);
}

static void ddp_plan(struct ddp *p)
{
    struct reduction_config r = reduction_of(&p->config, &p->buckets);
    uint32_t n = p->base.leaf_end - p->base.leaf_begin;

    p->leaf = mem_array(n, sizeof(*p->leaf));
    p->adds = mem_array(n, sizeof(*p->adds));
    if (p->config.exact) {
        plan_exact(p, n);
        r.held = &p->held;
        r.slots = p->slots;
        r.staging = p->staging;
        p->reduction = reduction_new(&r);
    } else {
        plan_fast(p, n);
    }
    plan_ranges(p);
}

static int ddp_open(const struct parallel_config *config, struct parallel **ret,
                    struct errmsg *msg)
{
    struct ddp *p;
    int rv;

    ASSERT(config->world_size == 1 || config->comm);
    if (config->n_leaves < (uint32_t)config->world_size) {
        return errmsg_set(
            msg, ERR_INVALID,
            "%d ranks, but only %u micro-batches in a global batch: start at "
            "most %u ranks, or raise train.global_batch or lower "
            "train.micro_batch",
            config->world_size, config->n_leaves, config->n_leaves);
    }
    p = mem_zalloc(sizeof(*p));
    p->config = *config;
    p->base.ops = &ddp_ops;
    p->queue = config->world_size > 1 ? QUEUE_REDUCE : QUEUE_COMPUTE;
    p->next_unit = -1;
    run_of(config, &p->base.leaf_begin, &p->base.leaf_end);
    bucket_list_init(&p->buckets, config->layout, config->tied_size,
                     config->bucket_cap_bytes);
    p->n_slots = count_slots(config);
    rv = ddp_alloc(p, msg);
    if (rv < 0) {
        ddp_close(&p->base);
        return rv;
    }
    ddp_plan(p);
    *ret = &p->base;
    return 0;
}

/* ---- a step ---------------------------------------------------------------------- */

static float *ddp_leaf(struct parallel *base, uint32_t leaf, float **ret_head)
{
    struct ddp *p = ddp_of(base);
    float *grads;

    ASSERT(p->next_unit < 0 && leaf == base->leaf_begin + p->n_done &&
           leaf < base->leaf_end);
    p->next_unit = p->config.layout->n_units - 1;
    grads = slot(p, p->leaf[p->n_done].slot);
    *ret_head = p->config.tied_size > 0 ? grads + p->buckets.head : NULL;
    return grads;
}

/* The leaf's additions over one range: a unit's, or, behind the last, the head's. */
static void add_range(struct ddp *p, int range, size_t n)
{
    const struct leaf_plan *l = &p->leaf[p->n_done];
    struct device *d = p->config.device;

    if (l->n_adds > 0 && n > 0) {
        d->k->sum_ordered(d, QUEUE_COMPUTE, range_of(p, range), p->n_slots,
                          p->adds + l->first_add, l->n_adds, n);
    }
}

/* The head is added to its twin before that goes out, so it need not go out itself. */
static void reduce_fast(struct ddp *p, int i)
{
    const struct bucket *b = &p->buckets.bucket[i];
    struct device *d = p->config.device;

    if (b->n_tied > 0) {
        d->k->sum_ordered(d, p->queue, p->tied[i].buf, 2, &tied_addition, 1, b->n_tied);
    }
    if (!b->is_head && p->config.world_size > 1) {
        comm_all_reduce(p->config.comm, p->queue, slot(p, p->held.slot[0]) + b->begin,
                        b->end - b->begin);
    }
}

/* Everything that the last leaf's backward has completed by now. */
static void reduce_complete(struct ddp *p, int unit)
{
    const struct bucket *b = p->buckets.bucket;
    struct device *d = p->config.device;

    if (p->next_bucket == p->buckets.n || b[p->next_bucket].unit < unit) {
        return;
    }
    if (p->queue != QUEUE_COMPUTE) {
        device_wait(d, p->queue, device_mark(d, QUEUE_COMPUTE));
    }
    while (p->next_bucket < p->buckets.n && b[p->next_bucket].unit >= unit) {
        if (p->config.exact) {
            reduction_run(p->reduction, p->queue, p->next_bucket);
        } else {
            reduce_fast(p, p->next_bucket);
        }
        p->next_bucket++;
    }
}

static void ddp_on_unit(struct parallel *base, int unit)
{
    struct ddp *p = ddp_of(base);
    const struct layout *l = p->config.layout;

    ASSERT(unit == p->next_unit && unit >= 0);
    if (unit == l->n_units - 1) {
        add_range(p, l->n_units, p->buckets.buffer_size - p->buckets.head);
    }
    add_range(p, unit, l->unit[unit].size);
    if (base->leaf_begin + p->n_done + 1 == base->leaf_end) {
        reduce_complete(p, unit);
    }
    p->next_unit--;
    p->n_done += unit == 0;
}

static const float *ddp_finish(struct parallel *base)
{
    struct ddp *p = ddp_of(base);
    struct device *d = p->config.device;

    ASSERT(p->next_unit < 0 && p->n_done == base->leaf_end - base->leaf_begin);
    ASSERT(p->next_bucket == p->buckets.n);
    p->n_done = 0;
    p->next_bucket = 0;
    if (p->queue != QUEUE_COMPUTE) {
        device_wait(d, QUEUE_COMPUTE, device_mark(d, p->queue));
    }
    return slot(p, p->held.slot[0]);
}

const struct parallel_ops ddp_ops = {
    .name = "ddp",
    .bytes = ddp_bytes,
    .sent = ddp_sent,
    .open = ddp_open,
    .close = ddp_close,
    .leaf = ddp_leaf,
    .on_unit = ddp_on_unit,
    .finish = ddp_finish,
};
