#ifndef WORKER_SAVE_CLOCK_H
#define WORKER_SAVE_CLOCK_H

/* When checkpoints begin: cadence.h and save_interval.h with the clock and the
 * configuration. What only rank 0 knows (time, cost) it tells with its flags. */

#include "worker/cadence.h"
#include "worker/report/metrics.h"
#include "worker/save_interval.h"
#include "worker/trainer.h"

struct save_clock {
    struct save_cadence cadence;
    struct save_interval interval; /* of checkpoint.every=auto */
    bool is_auto;
    bool leads;         /* rank 0 */
    uint64_t before_ms; /* trained in the starts before */
    uint64_t begun_ms;  /* this training */
};

void save_clock_start(struct save_clock *c, const struct trainer *t);

/* This rank's part of the flags: LOSSES_SAVE or 0. */
unsigned save_clock_flags(const struct save_clock *c);

/* The step took so long and brought these flags of all ranks: whether a checkpoint of it
 * begins. */
bool save_clock_step(struct save_clock *c, uint64_t step, uint64_t step_us,
                     unsigned flags);

/* One has begun, which took the training thread so long. */
void save_clock_begin(struct save_clock *c, uint64_t pause_us);

/* Time of training so far, all starts together. */
uint64_t save_clock_trained_ms(const struct save_clock *c);

/* Into the step's line: what auto has chosen. */
void save_clock_report(const struct save_clock *c, struct metrics_line *line);

/* The line that tells a new choice; false when there is none. */
bool save_clock_news(struct save_clock *c, char *text, size_t size);

#endif
