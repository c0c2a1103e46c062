#ifndef RENDEZVOUS_LOSS_CURVE_H
#define RENDEZVOUS_LOSS_CURVE_H

/* PURE. A job's loss over its steps, in a bounded number of points: when they are full,
 * every second one goes, and from then on half as many are kept. The newest is always
 * there. */

#include <stddef.h>
#include <stdint.h>

enum { LOSS_CURVE_MAX = 512 };

struct loss_point {
    uint64_t step;
    uint64_t wall_ms;
    double loss; /* may be no number: the run has diverged */
};

/* Zeroed: empty. */
struct loss_curve {
    struct loss_point *point; /* owned; by step */
    size_t n;
    size_t stride; /* of the points so far each so-manieth is kept … */
    size_t n_skipped;
    uint64_t generation; /* that drew its end */
    uint64_t n_kept; /* points so far that stay when others come, but for thinning */
};

void loss_curve_release(struct loss_curve *c);

/* Ranks tell the same step again, and not in order: what is not news is ignored. A
 * later generation that begins at an earlier step draws its end anew. */
void loss_curve_add(struct loss_curve *c, uint64_t generation,
                    const struct loss_point *p);

/* Into an empty one, by step: copies them; the other fields are the caller's. */
void loss_curve_restore(struct loss_curve *c, const struct loss_point *points,
                        size_t n);

#endif
