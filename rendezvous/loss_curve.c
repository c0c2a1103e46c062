#include "rendezvous/loss_curve.h"

#include "common/check.h"
#include "common/mem.h"

#include <string.h>

void loss_curve_release(struct loss_curve *c)
{
    mem_free(c->point);
    *c = (struct loss_curve){0};
}

static void thin_out(struct loss_curve *c)
{
    size_t kept = 0;

    for (size_t i = 0; i < c->n; i += 2) {
        c->point[kept++] = c->point[i];
    }
    c->n = kept;
    c->stride *= 2;
    c->n_skipped = 0;
}

/* The last point stands for all since the one before it, until so many are together. */
static void append(struct loss_curve *c, const struct loss_point *p)
{
    if (c->n > 1 && c->n_skipped < c->stride - 1) {
        c->point[c->n - 1] = *p;
        c->n_skipped++;
        return;
    }
    if (c->n == LOSS_CURVE_MAX) {
        thin_out(c);
    }
    if ((c->n & (c->n - 1)) == 0) { /* full: 0, 1, 2, 4 … */
        c->point = mem_grow(c->point, MAX(2 * c->n, 1), sizeof(struct loss_point));
    }
    c->point[c->n++] = *p;
    c->n_kept++;
    c->n_skipped = 0;
}

void loss_curve_restore(struct loss_curve *c, const struct loss_point *points, size_t n)
{
    size_t room = 1;

    ASSERT(c->n == 0 && n > 0 && n <= LOSS_CURVE_MAX);
    while (room < n) {
        room *= 2;
    }
    c->point = mem_array(room, sizeof(struct loss_point));
    memcpy(c->point, points, n * sizeof(struct loss_point));
    c->n = n;
}

void loss_curve_add(struct loss_curve *c, uint64_t generation,
                    const struct loss_point *p)
{
    c->stride = MAX(c->stride, (size_t)1);
    if (generation > c->generation) {
        while (c->n > 0 && c->point[c->n - 1].step >= p->step) {
            c->n--;
        }
        c->generation = generation;
        c->n_skipped = c->stride; /* what was before stays as it is */
    }
    if (generation == c->generation &&
        (c->n == 0 || p->step > c->point[c->n - 1].step)) {
        append(c, p);
    }
}
