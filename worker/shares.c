#include "worker/shares.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

static const char *const suffixes[] = {"", ".exp_avg", ".exp_avg_sq"};

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

static void add_boxes(struct share *s, const struct tensor *t, size_t row,
                      size_t n_rows)
{
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        struct box *box = &s->box[s->n_boxes++];

        *box = (struct box){.n_dims = t->n_dims, .row = row, .n_rows = n_rows};
        (void)snprintf(box->name, sizeof(box->name), "%s%s", t->name, suffixes[i]);
        memcpy(box->shape, t->shape, sizeof(box->shape));
    }
}

/* The rank's rows of one tensor that begins at flat element `at`. */
static void add_tensor(struct share *s, const struct tensor *t, size_t at, size_t begin,
                       size_t end)
{
    size_t row = first_row(t, at, begin);
    size_t stop = first_row(t, at, end);

    if (row < stop) {
        add_boxes(s, t, row, stop - row);
        s->begin = MIN(s->begin, at + row * row_elements(t));
        s->end = MAX(s->end, at + stop * row_elements(t));
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

void share_make(const struct layout *layout, int rank, int world, struct share *ret)
{
    size_t part = layout->size / (size_t)world;
    size_t begin = part * (size_t)rank;
    size_t end = rank == world - 1 ? layout->size : begin + part;

    *ret = (struct share){.begin = layout->size};
    ret->box = mem_array(count_tensors(layout) * ARRAY_LEN(suffixes), sizeof(*ret->box));
    for (int u = 0; u < layout->n_units; u++) {
        const struct unit *unit = &layout->unit[u];

        for (int i = 0; i < unit->n_tensors; i++) {
            add_tensor(ret, &unit->tensor[i], unit->offset + unit->tensor[i].offset,
                       begin, end);
        }
    }
    ret->begin = MIN(ret->begin, ret->end);
}

void share_release(struct share *s)
{
    mem_free(s->box);
    *s = (struct share){0};
}

void share_bind(struct share *s, const struct layout *layout, size_t base,
                float *const state[3])
{
    for (size_t i = 0; i < s->n_boxes; i++) {
        struct box *box = &s->box[i];
        const struct box *first = &s->box[i - i % ARRAY_LEN(suffixes)];
        const struct unit *unit = NULL;
        const struct tensor *t = layout_find(layout, first->name, &unit);

        ASSERT(t && unit);
        box->data = state[i % ARRAY_LEN(suffixes)] + unit->offset + t->offset +
                    box->row * row_elements(t) - base;
    }
}
