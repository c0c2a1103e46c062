#include "worker/parallel/reduction.h"

#include "worker/device/kernels.h"

#include "common/mem.h"

#include <string.h>

/* Additions over the same n elements of some buffers. */
struct sum {
    float **buf; /* owned */
    int n_bufs;
    const struct addition *adds; /* borrowed from the reduction */
    int n_adds;
    size_t n;
};

struct exchange_plan {
    struct piece *send, *recv; /* owned */
    size_t n_send, n_recv;
};

struct bucket_plan {
    struct exchange_plan node, cross; /* steps 1 and 2 */
    struct sum *merge; /* owned; one for each node's part of the own lane */
    struct sum fold;
    struct sum tied; /* adds the head's shard */
    float *shard;    /* where the own shard of the result belongs */
    float *result;   /* begin of the bucket in the result */
    size_t *offsets; /* owned; bytes, for the all-gather */
    size_t *bounds;  /* owned; elements of a gradient buffer */
};

/* The ranks as a grid: rank = node · lanes + lane. */
struct grid {
    int lanes, nodes;
    int lane, node; /* the own place */
};

struct reduction {
    struct reduction_config config;
    struct grid grid;
    struct bucket_plan *bucket; /* owned */
    struct counter
        merged; /* the node's blocks after step 1; slot = place in its list */
    struct addition *merges, *folds; /* owned */
    int n_merges, n_folds;
    int n_node_blocks; /* before step 1, of all ranks of the node */
    int n_all_blocks;  /* in step 2 */
};

static const struct addition tied_addition = {0, 1};

/* ---- who holds what -------------------------------------------------------------- */

static struct grid grid_of(const struct reduction_config *c)
{
    int lanes = 1;

    if (c->node_size > 0 && c->node_size < c->world_size) {
        lanes = c->node_size;
    }
    return (struct grid){.lanes = lanes,
                         .nodes = c->world_size / lanes,
                         .lane = c->rank % lanes,
                         .node = c->rank / lanes};
}

static int rank_at(const struct grid *g, int node, int lane)
{
    return node * g->lanes + lane;
}

/* The blocks of `n` ranks' common run from `first` on. */
static int blocks_of(const struct reduction_config *c, int first, int n,
                     struct block blocks[TREE_MAX_BLOCKS])
{
    uint32_t world = (uint32_t)c->world_size;

    return tree_blocks(tree_run_begin(c->n_leaves, world, (uint32_t)first),
                       tree_run_begin(c->n_leaves, world, (uint32_t)(first + n)),
                       blocks);
}

static int count_blocks(const struct reduction_config *c, int first, int n)
{
    struct block blocks[TREE_MAX_BLOCKS];

    return blocks_of(c, first, n, blocks);
}

static int count_node_blocks(const struct reduction_config *c, const struct grid *g)
{
    int n = 0;

    for (int j = 0; j < g->lanes; j++) {
        n += count_blocks(c, rank_at(g, g->node, j), 1);
    }
    return n;
}

static int count_all_blocks(const struct reduction_config *c, const struct grid *g)
{
    int n = 0;

    for (int k = 0; k < g->nodes; k++) {
        n += count_blocks(c, rank_at(g, k, 0), g->lanes);
    }
    return n;
}

/* ---- sizes ----------------------------------------------------------------------- */

static size_t shard_size(const size_t *bounds, int rank)
{
    return bounds[rank + 1] - bounds[rank];
}

/* Elements of all shards of one lane. */
static size_t lane_size(const struct grid *g, const size_t *bounds)
{
    size_t n = 0;

    for (int k = 0; k < g->nodes; k++) {
        n += shard_size(bounds, rank_at(g, k, g->lane));
    }
    return n;
}

size_t reduction_staging(const struct reduction_config *c)
{
    struct grid g = grid_of(c);
    size_t *bounds = mem_array((size_t)c->world_size + 1, sizeof(*bounds));
    size_t from_node = (size_t)(count_node_blocks(c, &g) - count_blocks(c, c->rank, 1));
    size_t from_others = (size_t)(count_all_blocks(c, &g) -
                                  count_blocks(c, rank_at(&g, g.node, 0), g.lanes));
    size_t need, most = 0;

    for (int i = 0; i < c->buckets->n; i++) {
        bucket_bounds(&c->buckets->bucket[i], c->world_size, bounds);
        need = from_node * lane_size(&g, bounds) +
               from_others * shard_size(bounds, c->rank);
        most = MAX(most, need);
    }
    mem_free(bounds);
    return most;
}

/* Steps 1 and 2 send each block's part for every other owner that they reach; step 3
 * the own shard to everybody, by whichever way. */
static size_t bucket_sent(const struct reduction_config *c, const struct grid *g,
                          const size_t *bounds, bool is_head)
{
    size_t own = shard_size(bounds, c->rank);
    size_t of_lane = lane_size(g, bounds);
    size_t all = bounds[c->world_size] - bounds[0];
    size_t n =
        (size_t)count_blocks(c, rank_at(g, g->node, 0), g->lanes) * (of_lane - own);

    if (g->lanes > 1) {
        n += (size_t)count_blocks(c, c->rank, 1) * (all - of_lane);
    }
    return is_head || c->own_shard_only ? n : n + own * (size_t)(c->world_size - 1);
}

size_t reduction_sent(const struct reduction_config *c)
{
    struct grid g = grid_of(c);
    size_t *bounds = mem_array((size_t)c->world_size + 1, sizeof(*bounds));
    size_t n = 0;

    for (int i = 0; i < c->buckets->n; i++) {
        const struct bucket *b = &c->buckets->bucket[i];

        bucket_bounds(b, c->world_size, bounds);
        n += bucket_sent(c, &g, bounds, b->is_head);
    }
    mem_free(bounds);
    return n;
}

/* ---- the plan of a bucket -------------------------------------------------------- */

static float *slot(const struct reduction *r, int i)
{
    return r->config.slots + (size_t)i * r->config.buckets->buffer_size;
}

static void add_piece(struct piece *list, size_t *n, int peer, float *data,
                      size_t floats)
{
    if (floats > 0) {
        list[*n] = (struct piece){.peer = peer, .bytes = floats * sizeof(float)};
        list[(*n)++].data = data;
    }
}

static struct piece *new_pieces(int n, int times)
{
    return mem_array((size_t)n * (size_t)times, sizeof(struct piece));
}

static struct sum new_sum(int n_bufs, const struct addition *adds, int n_adds, size_t n)
{
    return (struct sum){.buf = mem_array((size_t)n_bufs, sizeof(float *)),
                        .n_bufs = n_bufs,
                        .adds = adds,
                        .n_adds = n_adds,
                        .n = n};
}

/* The own blocks' parts for the other lanes of the node. */
static void plan_node_sends(const struct reduction *r, struct bucket_plan *b)
{
    const struct counter *held = r->config.held;
    const struct grid *g = &r->grid;
    struct exchange_plan *x = &b->node;
    int owner;

    x->send = new_pieces(g->lanes * g->nodes, held->n);
    for (int j = 0; j < g->lanes; j++) {
        for (int i = 0; i < held->n * g->nodes && j != g->lane; i++) {
            owner = rank_at(g, i % g->nodes, j);
            add_piece(x->send, &x->n_send, rank_at(g, g->node, j),
                      slot(r, held->slot[i / g->nodes]) + b->bounds[owner],
                      shard_size(b->bounds, owner));
        }
    }
}

/* One block of lane j of the node: for each node's part of the own lane, where it is
 * (own) or goes (others' blocks: to staging, which it moves on). */
static void plan_node_block(const struct reduction *r, struct bucket_plan *b, int j,
                            int place, int own_block, float **staging)
{
    const struct grid *g = &r->grid;
    size_t n;

    for (int k = 0; k < g->nodes; k++) {
        int owner = rank_at(g, k, g->lane);

        n = shard_size(b->bounds, owner);
        if (j == g->lane) {
            b->merge[k].buf[place] =
                slot(r, r->config.held->slot[own_block]) + b->bounds[owner];
            continue;
        }
        b->merge[k].buf[place] = *staging;
        add_piece(b->node.recv, &b->node.n_recv, rank_at(g, g->node, j), *staging, n);
        *staging += n;
    }
}

static void plan_node(const struct reduction *r, struct bucket_plan *b, float **staging)
{
    const struct grid *g = &r->grid;
    int place = 0, n;

    plan_node_sends(r, b);
    b->node.recv = new_pieces(r->n_node_blocks, g->nodes);
    b->merge = mem_array((size_t)g->nodes, sizeof(*b->merge));
    for (int k = 0; k < g->nodes; k++) {
        b->merge[k] = new_sum(r->n_node_blocks, r->merges, r->n_merges,
                              shard_size(b->bounds, rank_at(g, k, g->lane)));
    }
    for (int j = 0; j < g->lanes; j++) {
        n = count_blocks(&r->config, rank_at(g, g->node, j), 1);
        for (int i = 0; i < n; i++) {
            plan_node_block(r, b, j, place++, i, staging);
        }
    }
}

/* Block i of node k: our own node's is here, another's comes from the rank of our place
 * there. */
static void plan_cross_block(const struct reduction *r, struct bucket_plan *b, int k,
                             int place, int i, float **staging)
{
    size_t own = shard_size(b->bounds, r->config.rank);

    if (k == r->grid.node) {
        b->fold.buf[place] = b->merge[k].buf[r->merged.slot[i]];
        return;
    }
    b->fold.buf[place] = *staging;
    add_piece(b->cross.recv, &b->cross.n_recv, rank_at(&r->grid, k, r->grid.lane),
              *staging, own);
    *staging += own;
}

static void plan_cross_sends(const struct reduction *r, struct bucket_plan *b, int k)
{
    int peer = rank_at(&r->grid, k, r->grid.lane);

    for (int i = 0; i < r->merged.n; i++) {
        add_piece(b->cross.send, &b->cross.n_send, peer,
                  b->merge[k].buf[r->merged.slot[i]], shard_size(b->bounds, peer));
    }
}

static void plan_cross(const struct reduction *r, struct bucket_plan *b, float *staging)
{
    const struct grid *g = &r->grid;
    int place = 0, n;

    b->cross.send = new_pieces(g->nodes, r->merged.n);
    b->cross.recv = new_pieces(r->n_all_blocks, 1);
    b->fold = new_sum(r->n_all_blocks, r->folds, r->n_folds,
                      shard_size(b->bounds, r->config.rank));
    for (int k = 0; k < g->nodes; k++) {
        n = count_blocks(&r->config, rank_at(g, k, 0), g->lanes);
        for (int i = 0; i < n; i++) {
            plan_cross_block(r, b, k, place++, i, &staging);
        }
        if (k != g->node) {
            plan_cross_sends(r, b, k);
        }
    }
}

static void plan_result(const struct reduction *r, struct bucket_plan *b,
                        const struct bucket *bucket)
{
    size_t begin = b->bounds[r->config.rank], tied_end = bucket->begin + bucket->n_tied;
    float *result = slot(r, r->config.held->slot[0]);

    b->shard = result + begin;
    b->result = result + bucket->begin;
    b->offsets = mem_array((size_t)r->config.world_size + 1, sizeof(*b->offsets));
    for (int i = 0; i <= r->config.world_size; i++) {
        b->offsets[i] = (b->bounds[i] - bucket->begin) * sizeof(float);
    }
    b->tied = new_sum(2, &tied_addition, 1,
                      tied_end > begin ? MIN(tied_end - begin, b->fold.n) : 0);
    b->tied.buf[0] = b->fold.buf[0];
    b->tied.buf[1] = result + r->config.buckets->head + begin;
}

static void plan_bucket(const struct reduction *r, struct bucket_plan *b,
                        const struct bucket *bucket)
{
    float *staging = r->config.staging;

    b->bounds = mem_array((size_t)r->config.world_size + 1, sizeof(*b->bounds));
    bucket_bounds(bucket, r->config.world_size, b->bounds);
    plan_node(r, b, &staging);
    plan_cross(r, b, staging);
    plan_result(r, b, bucket);
}

/* ---- the plans' common sums ------------------------------------------------------ */

static void plan_merges(struct reduction *r)
{
    struct addition adds[TREE_MAX_BLOCKS];
    struct block blocks[TREE_MAX_BLOCKS];
    int place = 0, n, n_adds;

    r->merges = mem_array((size_t)r->n_node_blocks, sizeof(*r->merges));
    for (int j = 0; j < r->grid.lanes; j++) {
        n = blocks_of(&r->config, rank_at(&r->grid, r->grid.node, j), 1, blocks);
        for (int i = 0; i < n; i++) {
            n_adds = tree_push_block(&r->merged, blocks[i], place++, adds);
            memcpy(r->merges + r->n_merges, adds, (size_t)n_adds * sizeof(*adds));
            r->n_merges += n_adds;
        }
    }
}

static void plan_folds(struct reduction *r)
{
    struct block *all = mem_array((size_t)r->n_all_blocks, sizeof(*all));
    struct block blocks[TREE_MAX_BLOCKS];
    int n_all = 0, n;

    for (int k = 0; k < r->grid.nodes; k++) {
        n = blocks_of(&r->config, rank_at(&r->grid, k, 0), r->grid.lanes, blocks);
        memcpy(all + n_all, blocks, (size_t)n * sizeof(*blocks));
        n_all += n;
    }
    r->folds = mem_array((size_t)n_all, sizeof(*r->folds));
    r->n_folds = tree_fold(all, n_all, r->folds);
    mem_free(all);
}

struct reduction *reduction_new(const struct reduction_config *config)
{
    struct reduction *r = mem_zalloc(sizeof(*r));

    ASSERT(config->held->n == count_blocks(config, config->rank, 1));
    r->config = *config;
    r->grid = grid_of(config);
    r->n_node_blocks = count_node_blocks(config, &r->grid);
    r->n_all_blocks = count_all_blocks(config, &r->grid);
    plan_merges(r);
    plan_folds(r);
    r->bucket = mem_array((size_t)config->buckets->n, sizeof(*r->bucket));
    for (int i = 0; i < config->buckets->n; i++) {
        plan_bucket(r, &r->bucket[i], &config->buckets->bucket[i]);
    }
    return r;
}

static void bucket_plan_release(struct bucket_plan *b, int n_nodes)
{
    for (int k = 0; k < n_nodes; k++) {
        mem_free(b->merge[k].buf);
    }
    mem_free(b->merge);
    mem_free(b->fold.buf);
    mem_free(b->tied.buf);
    mem_free(b->node.send);
    mem_free(b->node.recv);
    mem_free(b->cross.send);
    mem_free(b->cross.recv);
    mem_free(b->offsets);
    mem_free(b->bounds);
}

void reduction_free(struct reduction *r)
{
    if (!r) {
        return;
    }
    for (int i = 0; i < r->config.buckets->n; i++) {
        bucket_plan_release(&r->bucket[i], r->grid.nodes);
    }
    mem_free(r->bucket);
    mem_free(r->merges);
    mem_free(r->folds);
    mem_free(r);
}

/* ---- running --------------------------------------------------------------------- */

static void run_exchange(struct reduction *r, enum queue q,
                         const struct exchange_plan *x)
{
    if (x->n_send + x->n_recv > 0) {
        comm_all_to_all(r->config.comm, q, x->send, x->n_send, x->recv, x->n_recv);
    }
}

static void run_sum(struct reduction *r, enum queue q, const struct sum *s)
{
    struct device *d = r->config.device;

    if (s->n > 0 && s->n_adds > 0) {
        d->k->sum_ordered(d, q, s->buf, s->n_bufs, s->adds, s->n_adds, s->n);
    }
}

void reduction_run(struct reduction *r, enum queue q, int i)
{
    const struct bucket *bucket = &r->config.buckets->bucket[i];
    struct bucket_plan *b = &r->bucket[i];

    run_exchange(r, q, &b->node);
    for (int k = 0; k < r->grid.nodes; k++) {
        run_sum(r, q, &b->merge[k]);
    }
    run_exchange(r, q, &b->cross);
    run_sum(r, q, &b->fold);
    run_sum(r, q, &b->tied);
    if (b->fold.n > 0 && b->fold.buf[0] != b->shard) {
        device_copy(r->config.device, q, b->shard, b->fold.buf[0],
                    b->fold.n * sizeof(float));
    }
    if (r->config.world_size > 1 && !bucket->is_head && !r->config.own_shard_only) {
        comm_all_gather(r->config.comm, q, b->result, b->offsets);
    }
}
