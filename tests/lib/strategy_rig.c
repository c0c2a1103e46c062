#include "tests/lib/strategy_rig.h"

#include "tests/lib/cmocka.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define C ((size_t)SUMSQ_CHUNK)

static struct unit units[STRATEGY_UNITS] = {
    {.offset = 0, .size = 5 * C},
    {.offset = 5 * C, .size = 2 * C},
    {.offset = 7 * C, .size = 4 * C},
    {.offset = 11 * C, .size = C},
};
const struct layout strategy_layout = {
    .unit = units, .n_units = STRATEGY_UNITS, .size = 12 * C, .n_params = 12 * C};

const struct strategy_topology strategy_topologies[] = {
    {.n_ranks = 1, .node_size = RANKS_MAX, .strategy = "ddp"},
    {.n_ranks = 2, .node_size = RANKS_MAX, .strategy = "ddp"},
    {.n_ranks = 3, .node_size = RANKS_MAX, .strategy = "ddp"},
    {.n_ranks = 4, .node_size = RANKS_MAX, .strategy = "ddp"},
    {.n_ranks = 4, .node_size = 2, .strategy = "ddp"} /* two nodes */,
    {.n_ranks = 6, .node_size = 3, .strategy = "ddp"},
    {.n_ranks = 6, .node_size = 2, .strategy = "ddp"} /* three nodes */,
    {.n_ranks = 3, .node_size = 2, .strategy = "ddp"} /* unequal nodes */,
    {.n_ranks = 1, .node_size = RANKS_MAX, .strategy = "zero1"},
    {.n_ranks = 2, .node_size = RANKS_MAX, .strategy = "zero1"},
    {.n_ranks = 3, .node_size = 2, .strategy = "zero1"},
    {.n_ranks = 4, .node_size = 2, .strategy = "zero1"},
    {.n_ranks = 8, .node_size = RANKS_MAX, .strategy = "zero1"},
    {.n_ranks = 1, .node_size = RANKS_MAX, .strategy = "dp"},
    {.n_ranks = 2, .node_size = RANKS_MAX, .strategy = "dp"},
    {.n_ranks = 3, .node_size = 2, .strategy = "dp", .ahead = 9},
    {.n_ranks = 4, .node_size = 2, .strategy = "dp", .ahead = 1, .n_blocks = 2},
    {.n_ranks = 6, .node_size = 3, .strategy = "dp", .ahead = 1},
    {.n_ranks = 1, .node_size = RANKS_MAX, .strategy = "zero2"},
    {.n_ranks = 2, .node_size = RANKS_MAX, .strategy = "zero2", .ahead = 1},
    {.n_ranks = 3, .node_size = RANKS_MAX, .strategy = "zero2", .ahead = 9},
    {.n_ranks = 4, .node_size = 2, .strategy = "zero2", .n_blocks = 2},
    {.n_ranks = 1, .node_size = RANKS_MAX, .strategy = "fsdp"},
    {.n_ranks = 2, .node_size = RANKS_MAX, .strategy = "fsdp", .ahead = 1},
    {.n_ranks = 3, .node_size = RANKS_MAX, .strategy = "fsdp"},
    {.n_ranks = 3, .node_size = 2, .strategy = "fsdp", .ahead = 2, .n_blocks = 2},
    {.n_ranks = 4,
     .node_size = RANKS_MAX,
     .strategy = "fsdp",
     .ahead = 1,
     .keep = true},
    {.n_ranks = 8, .node_size = RANKS_MAX, .strategy = "fsdp", .ahead = 1},
    {.n_ranks = 2,
     .node_size = RANKS_MAX,
     .strategy = "fsdp",
     .n_blocks = 9} /* two groups */,
    {.n_ranks = 4,
     .node_size = RANKS_MAX,
     .strategy = "fsdp",
     .ahead = 1,
     .n_secondary = 2},
    {.n_ranks = 6, .node_size = 3, .strategy = "fsdp", .n_secondary = 3},
    {.n_ranks = 4,
     .node_size = 2,
     .strategy = "fsdp",
     .ahead = 9,
     .n_secondary = 2} /* everything stays in the ring */,
    {.n_ranks = 8,
     .node_size = 4,
     .strategy = "hsdp",
     .n_shards = 4,
     .n_secondary = 2,
     .params = DTYPE_BF16,
     .grads = DTYPE_BF16},
    {.n_ranks = 4, .node_size = 2, .strategy = "hsdp", .n_shards = 2, .ahead = 1},
    {.n_ranks = 4,
     .node_size = 4,
     .strategy = "hsdp",
     .n_shards = 2,
     .ahead = 1,
     .keep = true},
    {.n_ranks = 6, .node_size = 3, .strategy = "hsdp", .n_shards = 3, .ahead = 1},
    {.n_ranks = 8,
     .node_size = 4,
     .strategy = "hsdp",
     .n_shards = 2,
     .ahead = 1} /* two replicas a node */,
    {.n_ranks = 6, .node_size = RANKS_MAX, .strategy = "hsdp", .n_shards = 2},
    {.n_ranks = 3, .node_size = RANKS_MAX, .strategy = "hsdp", .n_shards = 1},
    {.n_ranks = 1,
     .node_size = RANKS_MAX,
     .strategy = "ddp",
     .params = DTYPE_BF16,
     .grads = DTYPE_BF16},
    {.n_ranks = 3, .node_size = 2, .strategy = "ddp", .params = DTYPE_FP16},
    {.n_ranks = 2,
     .node_size = RANKS_MAX,
     .strategy = "zero1",
     .params = DTYPE_BF16,
     .grads = DTYPE_BF16},
    {.n_ranks = 3,
     .node_size = RANKS_MAX,
     .strategy = "fsdp",
     .ahead = 1,
     .params = DTYPE_BF16,
     .grads = DTYPE_BF16},
    {.n_ranks = 4,
     .node_size = 2,
     .strategy = "hsdp",
     .n_shards = 2,
     .params = DTYPE_FP16,
     .grads = DTYPE_BF16},
};

const size_t strategy_n_topologies = ARRAY_LEN(strategy_topologies);

/* ---- the gradients and their sum ------------------------------------------------- */

static float wild(uint32_t step, uint32_t leaf, size_t i)
{
    uint64_t x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) ^
                 (uint64_t)(leaf + 100 * step + 1) * UINT64_C(0xd1b54a32d192ed03);

    x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 32;
    return ldexpf((float)(x & 0xffffff) - 8388607.5f, (int)(x >> 58) - 32);
}

static enum dtype grads_dtype; /* of this rank's topology */

float strategy_leaf_grad(uint32_t step, uint32_t leaf, size_t i)
{
    return dtype_round(wild(step, leaf, i), grads_dtype);
}

/* Elements of the head lie behind the layout's. */
static uint32_t bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

/* ---- a rank ---------------------------------------------------------------------- */

static struct comm *open_group(struct strategy_ends *e, const char *name, int id,
                               int rank, int size)
{
    struct comm_config config = {.rank = rank,
                                 .world_size = size,
                                 .node = e->rank / e->topology->node_size,
                                 .store = e->all.store,
                                 .timeout_ms = RANK_TIMEOUT_MS};
    struct errmsg msg = {""};
    char group[32];
    struct comm *ret = NULL;

    (void)snprintf(group, sizeof(group), "%s%d", name, id);
    config.group = group;
    RANK_CHECK(comm_open("auto", &config, e->all.device, &ret, &msg) == 0);
    return ret;
}

void strategy_ends_open(struct strategy_ends *e, const struct rank *self,
                        const struct strategy_topology *t)
{
    struct mesh_wish wish = {.strategy = t->strategy,
                             .dp_shard = t->n_shards,
                             .world_size = self->world_size,
                             .node_size = t->node_size};
    struct errmsg msg = {""};
    int replica, shard;

    *e = (struct strategy_ends){
        .topology = t, .rank = self->rank, .world_size = self->world_size};
    grads_dtype = t->grads;
    rank_ends_open(&e->all, self,
                   &(struct rank_setup){.kind = self->world_size > 1 ? "auto" : NULL,
                                        .node_size = t->node_size});
    RANK_CHECK(parallel_find(t->strategy, &e->ops, &msg) == 0);
    wish.zero = e->ops->zero;
    wish.replicates = e->ops->replicates;
    RANK_CHECK(mesh_make(&wish, &e->mesh, &msg) == 0);
    replica = mesh_replica(&e->mesh, e->rank);
    shard = mesh_shard(&e->mesh, e->rank);
    if (e->mesh.dp_shard == 1) {
        return;
    }
    e->gather = open_group(e, "gather", replica, shard, e->mesh.dp_shard);
    if (t->n_secondary > 0) {
        e->secondary = open_group(e, "secondary", e->rank / t->n_secondary,
                                  e->rank % t->n_secondary, t->n_secondary);
    }
    e->shard = open_group(e, "shard", replica, shard, e->mesh.dp_shard);
    if (e->mesh.dp_replicate > 1) {
        e->replica = open_group(e, "replica", shard, replica, e->mesh.dp_replicate);
    }
}

void strategy_ends_close(struct strategy_ends *e)
{
    comm_close(e->replica);
    comm_close(e->shard);
    comm_close(e->secondary);
    comm_close(e->gather);
    rank_ends_close(&e->all);
}

struct parallel_config strategy_config(const struct strategy_ends *e, uint32_t m,
                                       size_t cap, bool exact, bool is_tied)
{
    struct zero zero = e->ops->zero;

    zero.params = zero.params && !e->topology->keep;
    return (struct parallel_config){.ops = e->ops,
                                    .layout = &strategy_layout,
                                    .device = e->all.device,
                                    .comm = e->all.comm,
                                    .gather = e->gather,
                                    .secondary = e->secondary,
                                    .shard = e->shard,
                                    .replica = e->replica,
                                    .rank = e->rank,
                                    .world_size = e->world_size,
                                    .mesh = e->mesh,
                                    .zero = zero,
                                    .blocks_per_group = e->topology->n_blocks,
                                    .ahead = e->topology->ahead,
                                    .n_secondary = e->topology->n_secondary,
                                    .n_leaves = m,
                                    .bucket_cap_bytes = cap,
                                    .exact = exact,
                                    .param_dtype = e->topology->params,
                                    .reduce_dtype = e->topology->grads,
                                    .tied_size = is_tied ? STRATEGY_TIED : 0};
}

struct parallel *strategy_start(const struct parallel_config *config)
{
    struct errmsg msg = {""};
    struct parallel *p = NULL;

    RANK_CHECK(config->ops->open(config, &p, &msg) == 0);
    return p;
}

void strategy_finish(struct strategy_ends *e)
{
    struct errmsg msg = {""};
    int rv = device_finish(e->all.device, device_mark(e->all.device, QUEUE_COMPUTE),
                           RANK_TIMEOUT_MS, &msg);

    if (rv < 0) {
        (void)fprintf(stderr, "%s\n", msg.text);
    }
    RANK_CHECK(rv == 0 && device_last_error(e->all.device, &msg) == 0);
}

static void fill(float *to, size_t n, uint32_t step, uint32_t leaf, size_t first)
{
    for (size_t i = 0; i < n; i++) {
        to[i] = wild(step, leaf, first + i);
    }
}

enum { PARAMS = 99 }; /* in the place of a leaf */

/* A unit's parameters are those of the step, whoever holds them. */
static void check_params(const struct strategy_ends *e,
                         const struct unit_params *params, uint32_t step, int u)
{
    const float *data =
        params->begin ? params->begin(params->arg, u) : params->flat + units[u].offset;
    struct errmsg msg = {""};

    RANK_CHECK(device_last_error(e->all.device, &msg) == 0);
    for (size_t i = 0; i < units[u].size; i++) {
        RANK_CHECK(bits(data[i]) ==
                   bits(dtype_round(wild(step, PARAMS, units[u].offset + i),
                                    e->topology->params)));
    }
    if (params->end) {
        params->end(params->arg, u);
    }
}

void strategy_forward(const struct strategy_ends *e, const struct unit_params *params,
                      uint32_t step)
{
    for (int u = 0; u < STRATEGY_UNITS; u++) {
        check_params(e, params, step, u);
    }
    check_params(e, params, step, 0);
}

/* A leaf's passes. A unit's gradient is NaN until it is complete, so that whatever is
 * added or sent too early shows. */
static void run_leaf(const struct strategy_ends *e, struct parallel *p, uint32_t step,
                     uint32_t leaf, bool is_tied)
{
    struct unit_params params = p->ops->pass(p, true);
    struct unit_grads grads;
    float *head = NULL, *to;

    strategy_forward(e, &params, step);
    grads = p->ops->turn(p, &head);
    RANK_CHECK((head != NULL) == is_tied && (grads.begin || grads.flat));
    for (size_t i = 0; grads.flat && i < strategy_layout.size; i++) {
        grads.flat[i] = NAN;
    }
    if (is_tied) {
        fill(head, STRATEGY_TIED, step, leaf, strategy_layout.size);
    }
    for (int u = STRATEGY_UNITS - 1; u >= 0; u--) {
        if (u > 0) {
            check_params(e, &params, step, u);
        }
        to = grads.begin ? grads.begin(grads.arg, u) : grads.flat + units[u].offset;
        RANK_CHECK(to != NULL);
        for (size_t i = 0; i < units[u].size; i++) {
            to[i] = NAN;
        }
        fill(to, units[u].size, step, leaf, units[u].offset);
        grads.end(grads.arg, u);
    }
}

void strategy_set_params(struct parallel *p, uint32_t step)
{
    for (int i = 0; i < p->own.n_ranges; i++) {
        const struct shard_range *r = &p->own.range[i];

        fill(p->params + r->at, r->end - r->begin, step, PARAMS, r->begin);
    }
    p->ops->updated(p);
}

const float *strategy_step(struct strategy_ends *e, struct parallel *p, uint32_t step,
                           bool is_tied)
{
    const float *grads;

    strategy_set_params(p, step);
    for (uint32_t i = 0; i < p->n_turns; i++) {
        uint32_t leaf = p->leaves.begin + i * p->leaves.stride;

        if (leaf < p->leaves.end) {
            run_leaf(e, p, step, leaf, is_tied);
        } else {
            parallel_idle(p, true);
        }
    }
    grads = p->ops->finish(p);
    strategy_finish(e);
    return grads;
}

/* The own ranges of a sum, at their places in the flat block. */
float strategy_own_element(const struct parallel *p, const float *grads,
                           const struct shard_range *r, size_t i)
{
    return grads[p->whole_grads ? i : r->at + (i - r->begin)];
}

/* Under a sanitizer the quick suite takes some of each strategy; a soak takes all. */
static size_t stride(void)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets it */
    return getenv("CTRUN_SOAK") ? 1 : 3;
#else
    return 1;
#endif
}

void strategy_run_all(rank_body body)
{
    int status[RANKS_MAX];

    for (size_t i = 0; i < strategy_n_topologies; i += stride()) {
        const struct strategy_topology *t = &strategy_topologies[i];

        print_message("%s: %d ranks, nodes of %d\n", t->strategy, t->n_ranks,
                      t->node_size);
        assert_true(ranks_run(t->n_ranks, body, t, status));
        for (int r = 0; r < t->n_ranks; r++) {
            assert_int_equal(status[r], 0);
        }
    }
}
