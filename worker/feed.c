#include "worker/feed.h"

#include "worker/parallel/tree.h"

#include "common/mem.h"

/* Leaf after leaf, each its tokens, then its targets: a run is one piece. */
struct feed {
    struct feed_config config;
    uint32_t begin, end; /* leaves that are here: rank 0's are all */
    int32_t *tokens;     /* owned, device memory */
    struct piece *piece; /* owned: rank 0's, to each other rank; else what comes */
    size_t n_pieces;
};

static uint32_t run_begin(const struct feed_config *c, int rank)
{
    return tree_run_begin(c->n_leaves, (uint32_t)c->world_size, (uint32_t)rank);
}

/* Elements. */
static size_t leaves_size(const struct feed_config *c, uint32_t n)
{
    return 2 * c->leaf_tokens * n;
}

static size_t run_bytes(const struct feed_config *c, int rank)
{
    return leaves_size(c, run_begin(c, rank + 1) - run_begin(c, rank)) *
           sizeof(int32_t);
}

size_t feed_bytes(const struct feed_config *c)
{
    return c->rank == 0 ? leaves_size(c, c->n_leaves) * sizeof(int32_t)
                        : run_bytes(c, c->rank);
}

size_t feed_sent(const struct feed_config *c)
{
    return c->rank == 0 ? feed_bytes(c) - run_bytes(c, 0) : 0;
}

static int32_t *leaf_at(const struct feed *f, uint32_t leaf)
{
    ASSERT(leaf >= f->begin && leaf < f->end);
    return f->tokens + leaves_size(&f->config, leaf - f->begin);
}

static void plan(struct feed *f)
{
    const struct feed_config *c = &f->config;

    f->piece = mem_array((size_t)c->world_size, sizeof(*f->piece));
    for (int r = 1; r < c->world_size; r++) {
        if (c->rank == 0 || c->rank == r) {
            f->piece[f->n_pieces++] =
                (struct piece){.peer = c->rank == 0 ? r : 0,
                               .data = leaf_at(f, run_begin(c, r)),
                               .bytes = run_bytes(c, r)};
        }
    }
}

int feed_new(const struct feed_config *config, struct feed **ret, struct errmsg *msg)
{
    struct feed *f = mem_zalloc(sizeof(*f));
    void *tokens = NULL;
    int rv = device_alloc(config->device, feed_bytes(config), &tokens);

    if (rv < 0) {
        mem_free(f);
        return errmsg_set(msg, rv, "no memory for a step's tokens (%zu bytes)",
                          feed_bytes(config));
    }
    f->config = *config;
    f->begin = config->rank == 0 ? 0 : run_begin(config, config->rank);
    f->end = config->rank == 0 ? config->n_leaves : run_begin(config, config->rank + 1);
    f->tokens = tokens;
    plan(f);
    *ret = f;
    return 0;
}

void feed_free(struct feed *f)
{
    if (f) {
        device_free(f->config.device, f->tokens, feed_bytes(&f->config));
        mem_free(f->piece);
        mem_free(f);
    }
}

static int read_leaf(struct feed *f, uint32_t leaf, struct errmsg *msg)
{
    struct device *d = f->config.device;
    size_t n = f->config.leaf_tokens;
    const int32_t *tokens;
    const int32_t *targets;
    int rv = loader_next(f->config.loader, &tokens, &targets, msg);

    if (rv == 0) {
        int32_t *to = leaf_at(f, leaf);

        device_copy(d, QUEUE_COMPUTE, to, tokens, n * sizeof(*to));
        device_copy(d, QUEUE_COMPUTE, to + n, targets, n * sizeof(*to));
    }
    return rv;
}

int feed_step(struct feed *f, struct errmsg *msg)
{
    const struct feed_config *c = &f->config;
    bool sends = c->rank == 0;
    int rv = 0;

    for (uint32_t leaf = 0; sends && leaf < c->n_leaves && rv == 0; leaf++) {
        rv = read_leaf(f, leaf, msg);
    }
    if (rv < 0) {
        return rv;
    }
    device_wait(c->device, QUEUE_REDUCE, device_mark(c->device, QUEUE_COMPUTE));
    comm_all_to_all(c->comm, QUEUE_REDUCE, f->piece, sends ? f->n_pieces : 0, f->piece,
                    sends ? 0 : f->n_pieces);
    device_wait(c->device, QUEUE_COMPUTE, device_mark(c->device, QUEUE_REDUCE));
    return 0;
}

void feed_leaf(const struct feed *f, uint32_t leaf, const int32_t **ret_tokens,
               const int32_t **ret_targets)
{
    *ret_tokens = leaf_at(f, leaf);
    *ret_targets = *ret_tokens + f->config.leaf_tokens;
}
