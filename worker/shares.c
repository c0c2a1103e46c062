#include "worker/shares.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

bool holder_is_sharded(const struct holder *h)
{
    return h->n_shards > 1;
}

int holder_writers(const struct holder *h)
{
    if (!holder_is_sharded(h)) {
        return h->world_size;
    }
    return h->groups->one_owner ? 1 : h->n_shards;
}

static size_t row_elements(const struct tensor *t)
{
    return t->n_dims == 2 ? t->shape[1] : 1;
}

/* The first row whose first element is at or after flat element `at`; at most all rows.
 */
static size_t first_row(const struct tensor *t, size_t tensor_begin, size_t at)
{
    size_t width = row_elements(t);

    if (at <= tensor_begin) {
        return 0;
    }
    return MIN((at - tensor_begin + width - 1) / width, t->shape[0]);
}

static void add_boxes(struct share *s, const struct tensor *t, size_t flat, size_t row,
                      size_t n_rows)
{
    for (size_t i = 0; i < UNIT_STATES && s->box; i++) {
        struct box *box = &s->box[s->n_boxes];

        *box = (struct box){.n_dims = t->n_dims, .row = row, .n_rows = n_rows};
        (void)snprintf(box->name, sizeof(box->name), "%s%s", t->name,
                       unit_state_suffix[i]);
        memcpy(box->shape, t->shape, sizeof(box->shape));
        s->flat[s->n_boxes++] = flat;
    }
}

/* The rows of one tensor, that begins at flat element `at`, that begin in `own`; the
 * span grows by them. */
static void add_tensor(struct share *s, const struct tensor *t, size_t at,
                       const struct shard_range *own, struct shard_range *span)
{
    size_t row = first_row(t, at, own->begin);
    size_t stop = first_row(t, at, own->end);

    if (row < stop) {
        size_t flat = at + row * row_elements(t);

        add_boxes(s, t, flat, row, stop - row);
        span->begin = span->begin == span->end ? flat : span->begin;
        span->end = at + stop * row_elements(t);
    }
}

static size_t count_tensors(const struct layout *layout)
{
    size_t n = 0;

    for (int u = 0; u < layout->n_units; u++) {
        n += (size_t)layout->unit[u].n_tensors;
    }
    return n;
}

/* The rows that begin in `own`, which lies in units [first, end). */
static void add_span(struct share *s, const struct layout *layout, int first, int end,
                     const struct shard_range *own)
{
    struct shard_range *span = &s->spans.range[s->spans.n_ranges++];

    *span = (struct shard_range){.at = s->spans.size};
    for (int u = first; u < end; u++) {
        const struct unit *unit = &layout->unit[u];

        for (int i = 0; i < unit->n_tensors; i++) {
            add_tensor(s, &unit->tensor[i], unit->offset + unit->tensor[i].offset, own,
                       span);
        }
    }
    s->spans.size += span->end - span->begin;
}

static void add_equal_part(struct share *s, const struct layout *layout, int rank,
                           int world)
{
    size_t part = layout->size / (size_t)world;
    size_t begin = part * (size_t)rank;
    const struct shard_range own = {
        .begin = begin, .end = rank == world - 1 ? layout->size : begin + part};

    add_span(s, layout, 0, layout->n_units, &own);
}

static void add_shard(struct share *s, const struct layout *layout,
                      const struct holder *h)
{
    struct shard_map map;

    if (h->rank >= h->n_shards) { /* of another replica */
        return;
    }
    shard_map_init(&map, layout, h->groups, h->n_shards, h->rank);
    for (int g = 0; g < map.n_ranges; g++) {
        add_span(s, layout, h->groups->first[g], h->groups->first[g + 1],
                 &map.range[g]);
    }
    shard_map_release(&map);
}

static void add_all(struct share *s, const struct layout *layout,
                    const struct holder *holder)
{
    if (holder_is_sharded(holder)) {
        s->spans.range = mem_array((size_t)holder->groups->n, sizeof(*s->spans.range));
        add_shard(s, layout, holder);
    } else {
        s->spans.range = mem_array(1, sizeof(*s->spans.range));
        add_equal_part(s, layout, holder->rank, holder->world_size);
    }
}

void share_make(const struct layout *layout, const struct holder *holder,
                struct share *ret)
{
    size_t n = count_tensors(layout) * UNIT_STATES;

    *ret = (struct share){0};
    ret->box = mem_array(n, sizeof(*ret->box));
    ret->flat = mem_array(n, sizeof(*ret->flat));
    add_all(ret, layout, holder);
}

void share_spans(const struct layout *layout, const struct holder *holder,
                 struct shard_map *ret)
{
    struct share s = {0}; /* without room for boxes */

    add_all(&s, layout, holder);
    *ret = s.spans;
}

void share_release(struct share *s)
{
    shard_map_release(&s->spans);
    mem_free(s->box);
    mem_free(s->flat);
    *s = (struct share){0};
}

/* Boxes and spans both go upwards in the flat block. */
void share_bind(struct share *s, float *const state[3])
{
    const struct shard_range *span = s->spans.range;

    for (size_t i = 0; i < s->n_boxes; i++) {
        while (s->flat[i] >= span->end) {
            span++;
        }
        s->box[i].data = state[i % UNIT_STATES] + span->at + (s->flat[i] - span->begin);
    }
}
