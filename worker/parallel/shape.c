#include "worker/parallel/shape.h"

#include "worker/device/kernels.h"
#include "worker/parallel/accumulate.h"

#include "common/mem.h"

/* ---- the shape ------------------------------------------------------------------- */

/* A slot of shards: the own block, a unit for each group. */
static void shape_slot_of_shards(struct shape *s)
{
    const struct parallel_config *c = s->config;
    const struct shard_range *r = s->own.range;

    s->slot_units = mem_array((size_t)s->groups.n, sizeof(*s->slot_units));
    for (int g = 0; g < s->groups.n; g++) {
        s->slot_units[g] =
            (struct unit){.offset = r[g].at, .size = r[g].end - r[g].begin};
    }
    s->slot_layout = (struct layout){.unit = s->slot_units,
                                     .n_units = s->groups.n,
                                     .size = s->own.size,
                                     .n_params = s->own.size};
    s->slot_tied = MIN(r[0].end, c->tied_size) - MIN(r[0].begin, c->tied_size);
    bucket_list_init(&s->buckets, &s->slot_layout, s->slot_tied, c->bucket_cap_bytes);
}

/* A slot of everything: cut as suits, or as the optimizer's shards are. */
static void shape_whole_slot(struct shape *s)
{
    const struct parallel_config *c = s->config;

    s->slot_layout = *c->layout;
    s->slot_tied = c->tied_size;
    if (s->n_shards > 1 && !s->groups.one_owner) {
        bucket_list_init_groups(&s->buckets, c->layout, &s->groups, c->tied_size);
    } else {
        bucket_list_init(&s->buckets, c->layout, c->tied_size, c->bucket_cap_bytes);
    }
    if (s->groups.one_owner) {
        bucket_list_give(&s->buckets);
    }
}

void shape_init(struct shape *s, const struct parallel_config *c)
{
    int team = parallel_team(c);

    *s = (struct shape){.config = c, .n_shards = MAX(c->mesh.dp_shard, 1)};
    s->shard = c->rank % s->n_shards;
    s->scatters = s->n_shards > 1 && c->zero.grads;
    unit_groups_make(&s->groups, c->layout, c->blocks_per_group, c->min_group_params);
    s->groups.one_owner = c->zero.one_owner;
    s->is_planned = c->exact || (c->zero.one_owner && s->n_shards > 1);
    shard_map_init(&s->own, c->layout, &s->groups, s->n_shards, s->shard);
    s->n_runs = c->world_size / team;
    s->run = c->rank / team;
    s->begin = tree_run_begin(c->n_leaves, (uint32_t)s->n_runs, (uint32_t)s->run);
    s->end = tree_run_begin(c->n_leaves, (uint32_t)s->n_runs, (uint32_t)s->run + 1);
    if (s->scatters) {
        shape_slot_of_shards(s);
    } else {
        shape_whole_slot(s);
    }
}

void shape_release(struct shape *s)
{
    bucket_list_release(&s->buckets);
    shard_map_release(&s->own);
    unit_groups_release(&s->groups);
    mem_free(s->slot_units);
}

struct gather_config shape_gather(const struct shape *s, const float *params)
{
    const struct parallel_config *c = s->config;

    return (struct gather_config){.device = c->device,
                                  .comm = c->gather,
                                  .secondary = c->secondary,
                                  .layout = c->layout,
                                  .groups = &s->groups,
                                  .own = &s->own,
                                  .params = params,
                                  .dtype = c->param_dtype,
                                  .n_shards = s->n_shards,
                                  .shard = s->shard,
                                  .n_secondary = c->n_secondary,
                                  .keep = !c->zero.params,
                                  .ahead = c->ahead};
}

struct scatter_config shape_scatter(const struct shape *s, float *slots)
{
    const struct parallel_config *c = s->config;

    return (struct scatter_config){.device = c->device,
                                   .comm = c->shard,
                                   .layout = c->layout,
                                   .groups = &s->groups,
                                   .own = &s->own,
                                   .n_shards = s->n_shards,
                                   .shard = s->shard,
                                   .begin = s->begin,
                                   .end = s->end,
                                   .exact = c->exact,
                                   .dtype = c->reduce_dtype,
                                   .tied_size = c->tied_size,
                                   .slots = slots};
}

/* The runs' comm: all ranks' unless only those of equal shard meet. */
struct comm *shape_between(const struct shape *s)
{
    return s->n_runs == 1 ? NULL : s->scatters ? s->config->replica : s->config->comm;
}

static int node_size_of(const struct shape *s, const struct comm *between)
{
    if (between) {
        return between->uniform ? between->node_size : 0;
    }
    if (!s->scatters || s->config->node_size < s->n_shards) {
        return s->scatters ? 1 : s->config->node_size;
    }
    return s->config->node_size % s->n_shards == 0 ? s->config->node_size / s->n_shards
                                                   : 0;
}

struct reduction_config shape_reduction(const struct shape *s)
{
    struct comm *between = shape_between(s);

    return (struct reduction_config){.device = s->config->device,
                                     .comm = between,
                                     .rank = s->run,
                                     .world_size = s->n_runs,
                                     .node_size = node_size_of(s, between),
                                     .n_leaves = s->config->exact ? s->config->n_leaves
                                                                  : (uint32_t)s->n_runs,
                                     .buckets = &s->buckets,
                                     .own_shard_only = s->n_shards > 1 && !s->scatters};
}

/* ---- sizes ----------------------------------------------------------------------- */

size_t shape_slots_bytes(const struct shape *s)
{
    struct scatter_config scatter = shape_scatter(s, NULL);
    int n = s->scatters ? scatter_slots(&scatter)
                        : accumulate_slots(s->begin, s->end, s->config->exact);

    return (size_t)n * s->buckets.buffer_size * sizeof(float);
}

size_t shape_staging_bytes(const struct shape *s)
{
    struct reduction_config r = shape_reduction(s);

    return s->is_planned ? reduction_staging(&r) * sizeof(float) : 0;
}

size_t shape_spread_bytes(const struct shape *s)
{
    return s->n_shards > 1 ? s->config->layout->size / SUMSQ_CHUNK * sizeof(double) : 0;
}

/* With shards nobody reads the own block but who gathers it. */
static size_t rounded_bytes(const struct shape *s)
{
    bool is_rounded = s->n_shards == 1 && s->config->param_dtype != DTYPE_FP32;

    return is_rounded ? s->own.size * sizeof(float) : 0;
}

struct parallel_bytes shape_bytes(const struct shape *s)
{
    struct gather_config gather = shape_gather(s, NULL);
    struct scatter_config scatter = shape_scatter(s, NULL);

    return (struct parallel_bytes){
        .params = s->own.size * sizeof(float),
        .rounded = rounded_bytes(s),
        .gathered = s->n_shards > 1 ? gather_bytes(&gather) : 0,
        .kept = s->n_shards > 1 ? gather_kept_bytes(&gather) : 0,
        .grads = shape_slots_bytes(s) + shape_staging_bytes(s) + shape_spread_bytes(s) +
                 (s->scatters ? scatter_bytes(&scatter) : 0)};
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

/* An all-reduce sends each of n − 1 parts twice, however it is arranged. */
static size_t sent_between(const struct shape *s)
{
    struct reduction_config r = shape_reduction(s);
    size_t n = (size_t)s->n_runs;

    return sizeof(float) * (s->is_planned
                                ? reduction_sent(&r)
                                : 2 * (n - 1) * count_travelling(&s->buckets) / n);
}

size_t shape_sent(const struct shape *s)
{
    const struct parallel_config *c = s->config;
    struct gather_config gather = shape_gather(s, NULL);
    struct scatter_config scatter = shape_scatter(s, NULL);
    size_t bytes = sent_between(s);

    if (s->n_shards > 1) {
        bytes += gather_sent(&gather, leaf_run_rounds(c->n_leaves, c->world_size,
                                                      parallel_team(c), c->rank));
        bytes += s->own.size / SUMSQ_CHUNK * (size_t)(s->n_shards - 1) * sizeof(double);
    }
    return bytes + (s->scatters ? scatter_sent(&scatter) : 0);
}
