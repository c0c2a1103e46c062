#include "worker/parallel/tree.h"

#include <string.h>

uint32_t tree_run_begin(uint32_t n_leaves, uint32_t world, uint32_t rank)
{
    ASSERT(world > 0 && rank <= world);
    return (uint32_t)((uint64_t)rank * n_leaves / world);
}

struct leaf_run leaf_run_of(uint32_t n_leaves, int world, int team, int rank)
{
    uint32_t n_teams = (uint32_t)(world / team), own = (uint32_t)(rank / team);

    ASSERT(team > 0 && world % team == 0 && rank >= 0 && rank < world);
    return (struct leaf_run){.begin = tree_run_begin(n_leaves, n_teams, own) +
                                      (uint32_t)(rank % team),
                             .end = tree_run_begin(n_leaves, n_teams, own + 1),
                             .stride = (uint32_t)team};
}

uint32_t leaf_run_count(const struct leaf_run *r)
{
    return r->begin < r->end ? (r->end - r->begin - 1) / r->stride + 1 : 0;
}

uint32_t leaf_run_rounds(uint32_t n_leaves, int world, int team, int rank)
{
    struct leaf_run first = leaf_run_of(n_leaves, world, team, rank - rank % team);

    return leaf_run_count(&first);
}

int tree_blocks(uint32_t begin, uint32_t end, struct block blocks[TREE_MAX_BLOCKS])
{
    uint64_t at = begin, size;
    int n = 0;

    while (at < end) {
        size = 1;
        while (at % (size * 2) == 0 && at + size * 2 <= end) {
            size *= 2;
        }
        ASSERT(n < TREE_MAX_BLOCKS);
        blocks[n++] = (struct block){(uint32_t)at, (uint32_t)size};
        at += size;
    }
    return n;
}

static bool are_siblings(struct block left, struct block right)
{
    return left.size == right.size &&
           (uint64_t)left.first % (2 * (uint64_t)left.size) == 0;
}

/* Everything left of the new block is already merged as far as it goes, so only the two
 * last blocks can be siblings; merging them may make the next two so. */
int tree_push_block(struct counter *c, struct block block, int slot,
                    struct addition adds[TREE_MAX_BLOCKS])
{
    int n_adds = 0, last;

    ASSERT(c->n < TREE_MAX_BLOCKS && block.size > 0 && block.first % block.size == 0);
    ASSERT(c->n == 0 ||
           block.first == c->block[c->n - 1].first + c->block[c->n - 1].size);
    c->block[c->n] = block;
    c->slot[c->n++] = slot;
    while (c->n > 1 && are_siblings(c->block[c->n - 2], c->block[c->n - 1])) {
        last = --c->n;
        adds[n_adds++] = (struct addition){c->slot[last - 1], c->slot[last]};
        c->block[last - 1].size *= 2;
    }
    return n_adds;
}

int tree_push(struct counter *c, uint32_t leaf, int slot,
              struct addition adds[TREE_MAX_BLOCKS])
{
    return tree_push_block(c, (struct block){leaf, 1}, slot, adds);
}

int tree_max_slots(uint32_t begin, uint32_t end)
{
    struct addition adds[TREE_MAX_BLOCKS];
    struct counter c = {.n = 0};
    int most = 0;

    for (uint32_t leaf = begin; leaf < end; leaf++) {
        most = MAX(most, c.n + 1);
        (void)tree_push(&c, leaf, 0, adds); /* the slots do not matter here */
    }
    return most;
}

int tree_fold(const struct block *blocks, int n, struct addition *adds)
{
    struct addition merges[TREE_MAX_BLOCKS];
    struct counter c = {.n = 0};
    int n_adds = 0, n_merges;

    ASSERT(n > 0 && blocks[0].first == 0);
    for (int i = 0; i < n; i++) {
        n_merges = tree_push_block(&c, blocks[i], i, merges);
        memcpy(adds + n_adds, merges, (size_t)n_merges * sizeof(*adds));
        n_adds += n_merges;
    }
    for (int i = c.n - 1; i > 0; i--) {
        adds[n_adds++] = (struct addition){c.slot[i - 1], c.slot[i]};
    }
    ASSERT(n_adds == n - 1);
    return n_adds;
}
