#include "worker/parallel/shards.h"

#include "worker/device/kernels.h"

#include "common/mem.h"

void unit_groups_each(struct unit_groups *g, const struct layout *layout)
{
    int n = layout->n_units;

    *g = (struct unit_groups){.first = mem_array((size_t)n + 1, sizeof(*g->first)),
                              .n = n};
    for (int i = 0; i <= g->n; i++) {
        g->first[i] = i;
    }
}

static size_t units_size(const struct layout *l, int first, int end)
{
    return l->unit[end - 1].offset + l->unit[end - 1].size - l->unit[first].offset;
}

void unit_groups_make(struct unit_groups *g, const struct layout *layout, int n_blocks,
                      size_t min_params)
{
    int n = layout->n_units, wanted = 1, end;

    *g = (struct unit_groups){.first = mem_array((size_t)n + 1, sizeof(*g->first))};
    for (int first = 0; first < n; first = end) {
        end = MIN(first + wanted, n);
        while (first > 0 && end < n && units_size(layout, first, end) < min_params) {
            end++;
        }
        wanted = MAX(n_blocks, 1);
        if (g->n <= 1 || units_size(layout, first, end) >= min_params) {
            g->first[g->n++] = first;
        }
    }
    g->first[g->n] = n;
}

void unit_groups_release(struct unit_groups *g)
{
    mem_free(g->first);
    *g = (struct unit_groups){0};
}

size_t unit_group_begin(const struct layout *layout, const struct unit_groups *g,
                        int group)
{
    return layout->unit[g->first[group]].offset;
}

size_t unit_group_size(const struct layout *layout, const struct unit_groups *g,
                       int group)
{
    const struct unit *last = &layout->unit[g->first[group + 1] - 1];

    return last->offset + last->size - unit_group_begin(layout, g, group);
}

size_t unit_group_largest(const struct layout *layout, const struct unit_groups *g)
{
    size_t most = 0;

    for (int i = 1; i < g->n; i++) {
        most = MAX(most, unit_group_size(layout, g, i));
    }
    return most;
}

/* Where shard `s` of the group begins; with s = n_shards, where the group ends. */
static size_t bound(const struct layout *layout, const struct unit_groups *groups,
                    int group, int n_shards, int s)
{
    size_t begin = unit_group_begin(layout, groups, group);
    size_t size = unit_group_size(layout, groups, group);

    if (groups->one_owner) {
        return s == 0 ? begin : begin + size;
    }
    return begin + size / SUMSQ_CHUNK * (size_t)s / (size_t)n_shards * SUMSQ_CHUNK;
}

void shard_bounds(const struct layout *layout, const struct unit_groups *groups,
                  int group, int n_shards, size_t *bounds)
{
    for (int s = 0; s <= n_shards; s++) {
        bounds[s] = bound(layout, groups, group, n_shards, s);
    }
}

void shard_map_init(struct shard_map *m, const struct layout *layout,
                    const struct unit_groups *groups, int n_shards, int shard)
{
    *m = (struct shard_map){.n_ranges = groups->n};
    m->range = mem_array((size_t)groups->n, sizeof(*m->range));
    for (int g = 0; g < groups->n; g++) {
        struct shard_range *r = &m->range[g];

        r->begin = bound(layout, groups, g, n_shards, shard);
        r->end = bound(layout, groups, g, n_shards, shard + 1);
        r->at = m->size;
        m->size += r->end - r->begin;
    }
}

void shard_map_release(struct shard_map *m)
{
    mem_free(m->range);
    *m = (struct shard_map){0};
}
