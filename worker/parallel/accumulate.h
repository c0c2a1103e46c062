#ifndef WORKER_PARALLEL_ACCUMULATE_H
#define WORKER_PARALLEL_ACCUMULATE_H

/* The gradients of a rank's own leaves, summed in whole gradient buffers ("slots"):
 * exact along the tree, as many slots as that needs; fast in one, with one to work in.
 * What each leaf does is worked out at the start. */

#include "worker/model/unit.h"
#include "worker/parallel/tree.h"

struct accumulate;

struct accumulate_config {
    struct device *device;
    const struct layout *layout; /* borrowed */
    uint32_t begin, end;         /* leaves */
    bool exact;
    enum dtype dtype;       /* a leaf's gradient is rounded to it before it is added */
    size_t head, slot_size; /* elements: where the head's gradient begins; of a slot */
    float *slots;           /* accumulate_slots() of them */
};

int accumulate_slots(uint32_t begin, uint32_t end, bool exact);
struct accumulate *accumulate_new(const struct accumulate_config *config);
void accumulate_free(struct accumulate *a); /* NULL allowed */

/* The partial sums after the last leaf. */
const struct counter *accumulate_held(const struct accumulate *a);

/* The slot of the next leaf; then each unit, last to first, when it is complete. */
float *accumulate_turn(struct accumulate *a);
void accumulate_unit(struct accumulate *a, int unit);

/* True in the last leaf. */
bool accumulate_is_last(const struct accumulate *a);

#endif
