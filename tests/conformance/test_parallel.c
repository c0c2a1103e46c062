/* Every strategy, by real processes: the summed gradient against the tree's definition
 * computed here element by element, the same bits for every number of ranks, nodes,
 * shards, leaves and every bucket size (values have wild magnitudes, so any other order
 * of additions shows); the parameters that a pass sees; the norm's sums; memory. */

#include "tests/lib/cmocka.h"
#include "tests/lib/rank_ends.h"
#include "worker/device/kernels.h"
#include "worker/parallel/parallel.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define C ((size_t)SUMSQ_CHUNK)

enum { N_UNITS = 4, LEAVES_MAX = 16, N_STEPS = 2 };

static struct unit units[N_UNITS] = {
    {.offset = 0, .size = 5 * C},
    {.offset = 5 * C, .size = 2 * C},
    {.offset = 7 * C, .size = 4 * C},
    {.offset = 11 * C, .size = C},
};
static const struct layout layout = {
    .unit = units, .n_units = N_UNITS, .size = 12 * C, .n_params = 12 * C};

#define TIED (3 * C + 1001)

struct topology {
    int n_ranks, node_size;
    const char *strategy;
    int n_shards; /* of hsdp; else all or 1 */
    bool keep;    /* parameters, once gathered */
    int n_blocks, ahead, n_secondary;
    enum dtype params, grads; /* … of a pass, and of a leaf before it is summed */
};

static const struct topology topologies[] = {
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

static const uint32_t leaf_counts[] = {1, 2, 3, 4, 5, 7, 8, 11};
static const size_t caps[] = {1, 12 * C + 4, 1 << 28};

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

static float leaf_grad(uint32_t step, uint32_t leaf, size_t i)
{
    return dtype_round(wild(step, leaf, i), grads_dtype);
}

/* Elements of the head lie behind the layout's. */
static float node_sum(uint32_t step, uint32_t first, uint32_t size, size_t i)
{
    float value[LEAVES_MAX] = {0};

    for (uint32_t k = 0; k < size; k++) {
        value[k] = leaf_grad(step, first + k, i);
    }
    for (size_t left = size / 2; left > 0; left /= 2) {
        for (size_t k = 0; k < left; k++) {
            value[k] = value[2 * k] + value[2 * k + 1];
        }
    }
    return value[0];
}

static float tree_sum(uint32_t step, uint32_t m, size_t i)
{
    float whole[8], sum;
    uint32_t at = 0;
    int n = 0;

    for (uint32_t size = LEAVES_MAX; size > 0; size /= 2) {
        if (m & size) {
            whole[n++] = node_sum(step, at, size, i);
            at += size;
        }
    }
    sum = whole[n - 1];
    for (int k = n - 2; k >= 0; k--) {
        sum = whole[k] + sum;
    }
    return sum;
}

static uint32_t bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

static float expected_sum(uint32_t step, uint32_t m, size_t i, bool is_tied)
{
    float sum = tree_sum(step, m, i);

    return is_tied && i < TIED ? sum + tree_sum(step, m, layout.size + i) : sum;
}

/* ---- a rank ---------------------------------------------------------------------- */

/* A rank and its groups' comms. */
struct ends {
    struct rank_ends all;
    struct comm *gather, *secondary, *shard, *replica;
    const struct parallel_ops *ops;
    const struct topology *topology;
    struct mesh mesh;
    int rank, world_size;
};

static struct comm *open_group(struct ends *e, const char *name, int id, int rank,
                               int size)
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

static void ends_open(struct ends *e, const struct rank *self, const struct topology *t)
{
    struct mesh_wish wish = {.strategy = t->strategy,
                             .dp_shard = t->n_shards,
                             .world_size = self->world_size,
                             .node_size = t->node_size};
    struct errmsg msg = {""};
    int replica, shard;

    *e = (struct ends){
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

static void ends_close(struct ends *e)
{
    comm_close(e->replica);
    comm_close(e->shard);
    comm_close(e->secondary);
    comm_close(e->gather);
    rank_ends_close(&e->all);
}

static struct parallel_config config_of(const struct ends *e, uint32_t m, size_t cap,
                                        bool exact, bool is_tied)
{
    struct zero zero = e->ops->zero;

    zero.params = zero.params && !e->topology->keep;
    return (struct parallel_config){.ops = e->ops,
                                    .layout = &layout,
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
                                    .tied_size = is_tied ? TIED : 0};
}

static struct parallel *strategy_open(const struct parallel_config *config)
{
    struct errmsg msg = {""};
    struct parallel *p = NULL;

    RANK_CHECK(config->ops->open(config, &p, &msg) == 0);
    return p;
}

static void finish(struct ends *e)
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
static void check_params(const struct ends *e, const struct unit_params *params,
                         uint32_t step, int u)
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

static void forward(const struct ends *e, const struct unit_params *params,
                    uint32_t step)
{
    for (int u = 0; u < N_UNITS; u++) {
        check_params(e, params, step, u);
    }
    check_params(e, params, step, 0);
}

/* A leaf's passes. A unit's gradient is NaN until it is complete, so that whatever is
 * added or sent too early shows. */
static void run_leaf(const struct ends *e, struct parallel *p, uint32_t step,
                     uint32_t leaf, bool is_tied)
{
    struct unit_params params = p->ops->pass(p, true);
    struct unit_grads grads;
    float *head = NULL, *to;

    forward(e, &params, step);
    grads = p->ops->turn(p, &head);
    RANK_CHECK((head != NULL) == is_tied && (grads.begin || grads.flat));
    for (size_t i = 0; grads.flat && i < layout.size; i++) {
        grads.flat[i] = NAN;
    }
    if (is_tied) {
        fill(head, TIED, step, leaf, layout.size);
    }
    for (int u = N_UNITS - 1; u >= 0; u--) {
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

static void set_params(struct parallel *p, uint32_t step)
{
    for (int i = 0; i < p->own.n_ranges; i++) {
        const struct shard_range *r = &p->own.range[i];

        fill(p->params + r->at, r->end - r->begin, step, PARAMS, r->begin);
    }
    p->ops->updated(p);
}

static const float *step_of(struct ends *e, struct parallel *p, uint32_t step,
                            bool is_tied)
{
    const float *grads;

    set_params(p, step);
    for (uint32_t i = 0; i < p->n_turns; i++) {
        uint32_t leaf = p->leaves.begin + i * p->leaves.stride;

        if (leaf < p->leaves.end) {
            run_leaf(e, p, step, leaf, is_tied);
        } else {
            parallel_idle(p, true);
        }
    }
    grads = p->ops->finish(p);
    finish(e);
    return grads;
}

/* The own ranges of a sum, at their places in the flat block. */
static float own_element(const struct parallel *p, const float *grads,
                         const struct shard_range *r, size_t i)
{
    return grads[p->whole_grads ? i : r->at + (i - r->begin)];
}

static void check_sum(const struct parallel *p, const float *grads, uint32_t step,
                      uint32_t m, bool is_tied)
{
    for (int k = 0; k < p->own.n_ranges; k++) {
        const struct shard_range *r = &p->own.range[k];

        for (size_t i = r->begin; i < r->end; i++) {
            RANK_CHECK(bits(expected_sum(step, m, i, is_tied)) ==
                       bits(own_element(p, grads, r, i)));
        }
    }
}

static double expected_chunk(uint32_t step, size_t i)
{
    return 100.0 * step + (double)i;
}

static void check_chunks(struct ends *e, struct parallel *p, uint32_t step)
{
    double chunks[12];

    for (size_t i = 0; i < ARRAY_LEN(chunks); i++) {
        chunks[i] = -1;
    }
    for (int k = 0; k < p->own.n_ranges; k++) {
        for (size_t i = p->own.range[k].begin / C; i < p->own.range[k].end / C; i++) {
            chunks[i] = expected_chunk(step, i);
        }
    }
    p->ops->chunks(p, chunks);
    finish(e);
    for (size_t i = 0; i < ARRAY_LEN(chunks); i++) {
        RANK_CHECK(chunks[i] == expected_chunk(step, i));
    }
}

/* Between steps, as an evaluation that has batches for some ranks alone. */
static void try_forward(struct ends *e, struct parallel *p, uint32_t step)
{
    struct unit_params params;

    if (e->rank % 2 == 1) {
        parallel_idle(p, false);
        return;
    }
    params = p->ops->pass(p, false);
    forward(e, &params, step);
}

static void try_exact(struct ends *e, uint32_t m, size_t cap, bool is_tied)
{
    struct parallel_config config = config_of(e, m, cap, true, is_tied);
    struct parallel *p = strategy_open(&config);

    for (uint32_t step = 0; step < N_STEPS; step++) {
        const float *grads = step_of(e, p, step, is_tied);

        check_sum(p, grads, step, m, is_tied);
        check_chunks(e, p, step);
        if (step + 1 == N_STEPS) { /* what is gathered anew is whole when it closes */
            set_params(p, step);
        }
        try_forward(e, p, step);
    }
    p->ops->close(p);
}

static int exact_sums(const struct rank *self)
{
    struct ends e;

    ends_open(&e, self, self->arg);
    for (size_t i = 0; i < ARRAY_LEN(leaf_counts) * ARRAY_LEN(caps); i++) {
        size_t k = i / ARRAY_LEN(caps);
        uint32_t m = leaf_counts[k];
        /* shards are cut by groups: the cap matters little there */
        bool is_tried =
            e.mesh.dp_shard == 1 || i % ARRAY_LEN(caps) == k % ARRAY_LEN(caps);

        if (m >= (uint32_t)self->world_size && is_tried) {
            try_exact(&e, m, caps[i % ARRAY_LEN(caps)], i % 2 == 0);
        }
    }
    ends_close(&e);
    return 0;
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

static void run_all(rank_body body)
{
    int status[RANKS_MAX];

    for (size_t i = 0; i < ARRAY_LEN(topologies); i += stride()) {
        const struct topology *t = &topologies[i];

        print_message("%s: %d ranks, nodes of %d\n", t->strategy, t->n_ranks,
                      t->node_size);
        assert_true(ranks_run(t->n_ranks, body, t, status));
        for (int r = 0; r < t->n_ranks; r++) {
            assert_int_equal(status[r], 0);
        }
    }
}

static void sums_and_parameters_are_the_same_bits_on_every_layout_of_ranks(void **state)
{
    (void)state;
    run_all(exact_sums);
}

/* ---- fast ------------------------------------------------------------------------ */

struct shared {
    struct topology topology;
    float grads[RANKS_MAX][12 * C];
};

static void check_near(const float *grads, uint32_t m, size_t begin, size_t end)
{
    double sum, size, x;

    for (size_t i = begin; i < end; i++) {
        sum = size = 0;
        for (uint32_t leaf = 0; leaf < m; leaf++) {
            x = leaf_grad(0, leaf, i);
            sum += x;
            size += fabs(x);
            x = i < TIED ? leaf_grad(0, leaf, layout.size + i) : 0;
            sum += x;
            size += fabs(x);
        }
        RANK_CHECK(fabs(grads[i] - sum) <= size * 1e-6);
    }
}

/* Each rank writes its own part into every place that it is the owner of. */
static int fast_sums(const struct rank *self)
{
    const struct shared *s = self->arg;
    struct parallel_config config;
    const float *grads;
    struct parallel *p;
    struct ends e;
    float *mine = (float *)(uintptr_t)s->grads[self->rank]; /* shared with the parent */

    ends_open(&e, self, &s->topology);
    config = config_of(&e, 11, 12 * C, false, true);
    p = strategy_open(&config);
    grads = step_of(&e, p, 0, true);
    for (int k = 0; k < p->own.n_ranges; k++) {
        const struct shard_range *r = &p->own.range[k];

        for (size_t i = r->begin; i < r->end; i++) {
            mine[i] = own_element(p, grads, r, i);
        }
        check_near(mine, config.n_leaves, r->begin, r->end);
    }
    p->ops->close(p);
    ends_close(&e);
    return 0;
}

static void check_fast(struct shared *s, const struct topology *t)
{
    int status[RANKS_MAX];

    s->topology = *t;
    assert_true(ranks_run(t->n_ranks, fast_sums, s, status));
    for (int r = 0; r < t->n_ranks; r++) {
        assert_int_equal(status[r], 0);
        if (strcmp(t->strategy, "ddp") == 0) {
            assert_memory_equal(s->grads[r], s->grads[0], sizeof(s->grads[0]));
        }
    }
}

static void fast_sum_is_near_and_equal_on_all_ranks(void **state)
{
    struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(s != MAP_FAILED);
    for (size_t i = 0; i < ARRAY_LEN(topologies); i++) {
        check_fast(s, &topologies[i]);
    }
    munmap(s, sizeof(*s));
}

/* ---- memory ---------------------------------------------------------------------- */

static size_t allocated;
static int (*real_alloc)(struct device *d, size_t bytes, void **ret);

static int count_alloc(struct device *d, size_t bytes, void **ret)
{
    allocated += bytes;
    return real_alloc(d, bytes, ret);
}

static size_t sum_bytes(const struct parallel_config *config)
{
    struct parallel_bytes b = config->ops->bytes(config);

    return b.params + b.rounded + b.gathered + b.kept + b.grads;
}

static void try_bytes(struct ends *e, bool exact, uint32_t m)
{
    struct parallel_config config = config_of(e, m, 12 * C, exact, true);
    struct parallel_config dry = config;
    struct parallel *p;
    size_t sum;

    allocated = 0;
    p = strategy_open(&config);
    sum = sum_bytes(&config);
    RANK_CHECK(allocated == sum);
    RANK_CHECK(config.ops->bytes(&config).params == p->own.size * sizeof(float));
    /* --dry-run */
    dry.comm = dry.gather = dry.secondary = dry.shard = dry.replica = NULL;
    dry.node_size = e->topology->node_size;
    if (e->world_size % dry.node_size == 0 || dry.node_size > e->world_size) {
        RANK_CHECK(allocated == sum_bytes(&dry));
    }
    (void)step_of(e, p, 0, true);
    RANK_CHECK(allocated == sum); /* a step allocates nothing */
    p->ops->close(p);
}

static int bytes_are_counted(const struct rank *self)
{
    struct device_ops counting;
    struct ends e;

    ends_open(&e, self, self->arg);
    counting = *e.all.device->ops;
    real_alloc = counting.alloc;
    counting.alloc = count_alloc;
    e.all.device->ops = &counting;
    for (uint32_t m = (uint32_t)self->world_size; m < 10; m++) {
        try_bytes(&e, true, m);
        try_bytes(&e, false, m);
    }
    ends_close(&e);
    return 0;
}

static void memory_plan_is_what_is_allocated(void **state)
{
    (void)state;
    run_all(bytes_are_counted);
}

/* ---- traffic --------------------------------------------------------------------- */

static size_t sent;
static const struct comm *wide; /* of all shards, where a piece of them is kept */
static int n_wide;              /* its gathers */
static const struct comm_ops *real_comm;

static void count_all_gather(struct comm *c, enum queue q, void *buf,
                             const size_t *offsets)
{
    sent += (size_t)(c->world_size - 1) * (offsets[c->rank + 1] - offsets[c->rank]);
    n_wide += c == wide;
    real_comm->all_gather(c, q, buf, offsets);
}

static void count_all_to_all(struct comm *c, enum queue q, const struct piece *send,
                             size_t n_send, const struct piece *recv, size_t n_recv)
{
    for (size_t i = 0; i < n_send; i++) {
        sent += send[i].peer != c->rank ? send[i].bytes : 0;
    }
    real_comm->all_to_all(c, q, send, n_send, recv, n_recv);
}

static int traffic_is_counted(const struct rank *self)
{
    struct comm_ops counting;
    struct comm *comms[5];
    double chunks[12] = {0};
    struct ends e;

    ends_open(&e, self, self->arg);
    comms[0] = e.all.comm;
    comms[1] = e.gather;
    comms[2] = e.shard;
    comms[3] = e.replica;
    comms[4] = e.secondary;
    wide = e.secondary ? e.gather : NULL;
    for (size_t i = 0; i < ARRAY_LEN(comms); i++) {
        if (comms[i]) {
            real_comm = real_comm ? real_comm : comms[i]->ops;
            counting = *real_comm;
            counting.all_gather = count_all_gather;
            counting.all_to_all = count_all_to_all;
            comms[i]->ops = &counting;
        }
    }
    for (uint32_t m = (uint32_t)self->world_size; m < 12; m++) {
        struct parallel_config config = config_of(&e, m, 12 * C, true, true);
        struct parallel *p = strategy_open(&config);

        (void)step_of(&e, p, 0, true); /* the next one finds nothing new */
        sent = 0;
        n_wide = 0;
        (void)step_of(&e, p, 1, true);
        RANK_CHECK(n_wide ==
                   (wide ? N_UNITS : 0)); /* once a step, for all its leaves */
        p->ops->chunks(p, chunks);
        finish(&e);
        RANK_CHECK(sent == p->ops->sent(&config));
        p->ops->close(p);
    }
    ends_close(&e);
    return 0;
}

static void traffic_plan_is_what_is_sent(void **state)
{
    (void)state;
    run_all(traffic_is_counted);
}

/* ---- refusals -------------------------------------------------------------------- */

static void unknown_strategies_are_named(void **state)
{
    const struct parallel_ops *ops = NULL;
    struct errmsg msg;

    (void)state;
    assert_int_equal(parallel_find("ddq", &ops, &msg), ERR_UNSUPPORTED);
    assert_string_equal(msg.text, "parallel.strategy=ddq is unknown; use ddp");
    assert_null(ops);
}

static void more_ranks_than_micro_batches_are_refused(void **state)
{
    static struct comm comm = {.node_size = 4, .uniform = true};
    struct parallel_config config = {.layout = &layout,
                                     .comm = &comm,
                                     .world_size = 4,
                                     .n_leaves = 3,
                                     .bucket_cap_bytes = 1 << 20,
                                     .exact = true};
    const struct parallel_ops *ops;
    struct errmsg msg = {""};
    struct parallel *p;

    (void)state;
    assert_int_equal(parallel_find("ddp", &ops, &msg), 0);
    config.ops = ops;
    assert_int_equal(ops->open(&config, &p, &msg), ERR_INVALID);
    assert_non_null(strstr(msg.text, "start at most 3 ranks"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            sums_and_parameters_are_the_same_bits_on_every_layout_of_ranks),
        cmocka_unit_test(fast_sum_is_near_and_equal_on_all_ranks),
        cmocka_unit_test(memory_plan_is_what_is_allocated),
        cmocka_unit_test(traffic_plan_is_what_is_sent),
        cmocka_unit_test(unknown_strategies_are_named),
        cmocka_unit_test(more_ranks_than_micro_batches_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
