#include "worker/parallel/buckets.h"

#include "worker/device/kernels.h"

#include "common/mem.h"

static size_t round_up(size_t n)
{
    return (n + SUMSQ_CHUNK - 1) / SUMSQ_CHUNK * SUMSQ_CHUNK;
}

size_t bucket_buffer_size(const struct layout *layout, size_t tied_size)
{
    return layout->size + round_up(tied_size);
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
        };
        end = from;
    }
}

void bucket_list_init(struct bucket_list *l, const struct layout *layout,
                      size_t tied_size, size_t cap_bytes)
{
    size_t cap = round_up(MAX(cap_bytes / sizeof(float), 1)),
           tied = round_up(tied_size);
    struct bucket *b;

    ASSERT(layout->size > 0 && layout->size % SUMSQ_CHUNK == 0 && tied <= layout->size);
    *l = (struct bucket_list){.head = layout->size, .buffer_size = layout->size + tied};
    l->bucket = mem_array(2 * pieces(tied, cap) + pieces(layout->size - tied, cap),
                          sizeof(*l->bucket));
    cut(l, layout, layout->size, layout->size + tied, cap);
    cut(l, layout, tied, layout->size, cap);
    cut(l, layout, 0, tied, cap);
    for (int i = 0; i < l->n; i++) {
        b = &l->bucket[i];
        if (b->begin < tied_size) {
            b->n_tied = MIN(b->end, tied_size) - b->begin;
        }
    }
}

void bucket_list_release(struct bucket_list *l)
{
    mem_free(l->bucket);
    l->bucket = NULL;
    l->n = 0;
}

void bucket_bounds(const struct bucket *b, int world_size, size_t *bounds)
{
    size_t chunks = (b->end - b->begin) / SUMSQ_CHUNK, world = (size_t)world_size;

    ASSERT(world_size > 0 && (b->end - b->begin) % SUMSQ_CHUNK == 0);
    for (size_t r = 0; r <= world; r++) {
        bounds[r] = b->begin + r * chunks / world * SUMSQ_CHUNK;
    }
}
