#ifndef WORKER_CADENCE_H
#define WORKER_CADENCE_H

/* PURE. What falls due after a step. All ranks see the same steps and flags, so they
 * decide alike. */

#include <stdbool.h>
#include <stdint.h>

/* `every` 0: never. */
bool cadence_is_due(int64_t every, uint64_t step);

/* The same, and at the end of a run that has it at all. */
bool cadence_is_due_or_last(int64_t every, uint64_t step, uint64_t steps);

struct save_cadence {
    int64_t every;   /* checkpoint.every */
    uint64_t steps;  /* train.steps */
    bool is_overdue; /* a checkpoint was put off */
};

/* Whether a checkpoint of `step`, which is done, begins now; `flags` are all ranks'
 * (losses.h). One that falls due while the last is in work on any rank is put off to
 * the next step at which it is not. The last step of the run, and the one after which
 * it leaves, are always saved. */
bool save_cadence_step(struct save_cadence *c, uint64_t step, unsigned flags);

#endif
