#include "worker/restore.h"

#include "worker/model/init.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

size_t own_size(const struct own_block *b)
{
    return b->map ? b->map->size : b->layout->size;
}

int own_ranges(const struct own_block *b)
{
    return b->map ? b->map->n_ranges : 1;
}

struct shard_range own_range(const struct own_block *b, int i)
{
    return b->map ? b->map->range[i] : (struct shard_range){.end = b->layout->size};
}

struct cut_list {
    const struct own_block *block;
    int n_states;
    struct cut *cut; /* owned */
    size_t n;
};

/* What `range` holds of the tensor that begins at flat element `at`. */
static void add_cuts(struct cut_list *l, const struct tensor *t, size_t at,
                     const struct shard_range *range)
{
    size_t begin = MAX(at, range->begin);
    size_t end = MIN(at + t->size, range->end);

    for (int k = 0; k < l->n_states && begin < end; k++) {
        struct cut c = {.n_dims = t->n_dims,
                        .first = begin - at,
                        .n = end - begin,
                        .data = l->block->state[k] + range->at + begin - range->begin};

        (void)snprintf(c.name, sizeof(c.name), "%s%s", t->name, unit_state_suffix[k]);
        memcpy(c.shape, t->shape, sizeof(c.shape));
        l->cut = mem_grow(l->cut, l->n + 1, sizeof(*l->cut));
        l->cut[l->n++] = c;
    }
}

/* `first`: the first range that ends behind the unit's begin. */
static void add_unit(struct cut_list *l, const struct unit *unit, int first)
{
    for (int i = first; i < own_ranges(l->block); i++) {
        const struct shard_range range = own_range(l->block, i);

        if (range.begin >= unit->offset + unit->size) {
            break;
        }
        for (int k = 0; k < unit->n_tensors; k++) {
            add_cuts(l, &unit->tensor[k], unit->offset + unit->tensor[k].offset,
                     &range);
        }
    }
}

void own_cuts(const struct own_block *b, int n_states, struct cut **ret, size_t *ret_n)
{
    struct cut_list l = {.block = b, .n_states = n_states};
    int first = 0;

    ASSERT(n_states >= 1 && n_states <= OWN_STATES);
    for (int u = 0; u < b->layout->n_units; u++) {
        const struct unit *unit = &b->layout->unit[u];

        while (first < own_ranges(b) && own_range(b, first).end <= unit->offset) {
            first++;
        }
        add_unit(&l, unit, first);
    }
    *ret = l.cut;
    *ret_n = l.n;
}

int restore_own_block(const char *path, const struct own_block *b, int n_states,
                      struct errmsg *msg)
{
    struct cut *cuts;
    size_t n;
    int rv;

    if (own_size(b) == 0) {
        return 0;
    }
    own_cuts(b, n_states, &cuts, &n);
    rv = checkpoint_load(path, cuts, n, msg);
    mem_free(cuts);
    return rv;
}

void init_own_block(const struct own_block *b, uint64_t seed, int layers, size_t begin,
                    size_t end)
{
    for (int i = 0; i < own_ranges(b); i++) {
        const struct shard_range range = own_range(b, i);
        size_t from = MAX(begin, range.at);
        size_t to = MIN(end, range.at + (range.end - range.begin));

        if (from < to) {
            init_range(b->layout, seed, layers, b->state[0] + from,
                       range.begin + (from - range.at), range.begin + (to - range.at));
        }
    }
}
