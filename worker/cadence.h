#ifndef WORKER_CADENCE_H
#define WORKER_CADENCE_H

/* PURE. What falls due after a step. All ranks see the same steps and flags, so they
 * decide alike; clocks differ, so of time rank 0 decides, and the others hear of it
 * with the flags of the same step. */

#include <stdbool.h>
#include <stdint.h>

/* `every` 0: never. */
bool cadence_is_due(int64_t every, uint64_t step);

/* The same, and at the end of a run that has it at all. */
bool cadence_is_due_or_last(int64_t every, uint64_t step, uint64_t steps);

struct save_cadence {
    int64_t every;     /* checkpoint.every in steps; 0: not by steps */
    uint64_t every_ms; /* the same in time; 0: not by time */
    uint64_t steps;    /* train.steps */
    uint64_t begun_ms; /* the last checkpoint, or the training */
    bool is_overdue;   /* a checkpoint was put off */
};

/* Rank 0, before it tells its flags: whether to tell LOSSES_SAVE. */
bool save_cadence_asks(const struct save_cadence *c, uint64_t now_ms);

/* Whether a checkpoint of `step`, which is done, begins now; `flags` are all ranks'
 * (losses.h). One that falls due while the last is in work on any rank is put off to
 * the next step at which it is not. The last step of the run, and the one after which
 * it leaves, are always saved. */
bool save_cadence_step(struct save_cadence *c, uint64_t step, unsigned flags);

/* Rank 0: it has begun; from now on the time to the next one counts. */
void save_cadence_begin(struct save_cadence *c, uint64_t now_ms);

#endif
