#include "worker/parallel/buckets.h"

#include "worker/device/kernels.h"

#include "common/mem.h"

size_t bucket_buffer_size(const struct layout *layout, size_t tied_size)
{
    return layout->size + ROUND_UP(tied_size, SUMSQ_CHUNK);
}

static size_t pieces(size_t size, size_t cap)
{
    return (size + cap - 1) / cap;
}

/* The unit that backward fills last of those that [begin, …) touches. */
static int unit_at(const struct layout *layout, size_t begin)
{
    int first = 0;
    int last = layout->n_units - 1;

    while (first < last) {
        int u = first + (last - first) / 2;

        if (begin < layout->unit[u].offset + layout->unit[u].size) {
            last = u;
        } else {
            first = u + 1;
        }
    }
    return first;
}

/* Cuts [begin, end) from its end. */
static void cut(struct bucket_list *l, const struct layout *layout, size_t begin,
                size_t end, size_t cap)
{
    while (end > begin) {
        size_t from = end - begin > cap ? end - cap : begin;
        bool is_head = from >= l->head;

        l->bucket[l->n++] = (struct bucket){
            .begin = from,
            .end = end,
            .unit = is_head ? layout->n_units - 1 : unit_at(layout, from),
            .is_head = is_head,
            .cut_begin = from,
            .cut_end = end,
        };
        end = from;
    }
}

static void mark_tied(struct bucket_list *l, size_t tied_size)
{
    for (int i = 0; i < l->n; i++) {
        struct bucket *b = &l->bucket[i];

        if (b->begin < tied_size) {
            b->n_tied = MIN(b->end, tied_size) - b->begin;
        }
    }
}

void bucket_list_init(struct bucket_list *l, const struct layout *layout,
                      size_t tied_size, size_t cap_bytes)
{
    size_t cap = ROUND_UP(MAX(cap_bytes / sizeof(float), 1), SUMSQ_CHUNK),
           tied = ROUND_UP(tied_size, SUMSQ_CHUNK);

    ASSERT(layout->size % SUMSQ_CHUNK == 0 && tied <= layout->size);
    *l = (struct bucket_list){.head = layout->size, .buffer_size = layout->size + tied};
    l->bucket = mem_array(2 * pieces(tied, cap) + pieces(layout->size - tied, cap),
                          sizeof(*l->bucket));
    cut(l, layout, layout->size, layout->size + tied, cap);
    cut(l, layout, tied, layout->size, cap);
    cut(l, layout, 0, tied, cap);
    mark_tied(l, tied_size);
}

void bucket_list_init_groups(struct bucket_list *l, const struct layout *layout,
                             const struct unit_groups *groups, size_t tied_size)
{
    const struct unit *first, *last = &layout->unit[groups->first[1] - 1];
    size_t tied = ROUND_UP(tied_size, SUMSQ_CHUNK);

    ASSERT(tied <= last->offset + last->size);
    *l = (struct bucket_list){.head = layout->size, .buffer_size = layout->size + tied};
    l->bucket = mem_array((size_t)groups->n + 1, sizeof(*l->bucket));
    if (tied > 0) {
        l->bucket[l->n++] = (struct bucket){
            .begin = l->head,
            .end = l->head + tied,
            .unit = layout->n_units - 1,
            .is_head = true,
            .cut_begin = l->head,
            .cut_end = l->head + last->offset + last->size,
        };
    }
    for (int g = groups->n - 1; g >= 0; g--) {
        first = &layout->unit[groups->first[g]];
        last = &layout->unit[groups->first[g + 1] - 1];
        l->bucket[l->n++] = (struct bucket){.begin = first->offset,
                                            .end = last->offset + last->size,
                                            .unit = groups->first[g],
                                            .cut_begin = first->offset,
                                            .cut_end = last->offset + last->size};
    }
    mark_tied(l, tied_size);
}

void bucket_list_release(struct bucket_list *l)
{
    mem_free(l->bucket);
    l->bucket = NULL;
    l->n = 0;
}

void bucket_list_give(struct bucket_list *l)
{
    for (int i = 0; i < l->n; i++) {
        l->bucket[i].one_owner = true;
    }
}

void bucket_bounds(const struct bucket *b, int world_size, size_t *bounds)
{
    size_t chunks = (b->cut_end - b->cut_begin) / SUMSQ_CHUNK;
    size_t world = (size_t)world_size;

    ASSERT(world_size > 0 && (b->cut_end - b->cut_begin) % SUMSQ_CHUNK == 0);
    for (size_t r = 0; r <= world; r++) {
        bounds[r] = MIN(b->cut_begin + r * chunks / world * SUMSQ_CHUNK, b->end);
        if (b->one_owner) {
            bounds[r] = r == 0 ? b->begin : b->end;
        }
    }
}
