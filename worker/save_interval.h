#ifndef WORKER_SAVE_INTERVAL_H
#define WORKER_SAVE_INTERVAL_H

/* PURE. checkpoint.every=auto: the time between checkpoints after Young and Daly,
 *
 *   √(2 · cost · mean time between failures)    in [SHORTEST, LONGEST]
 *
 * cost: what a checkpoint takes from the training. Steps while one is in work last
 * longer than others (the snapshot, the disk, the processors that write): the sum of
 * what they last longer is measured, a mean of the last few checkpoints. Until one is
 * known the interval is the shortest.
 *
 * Mean time between failures: (PRIOR + time trained) / (1 + failures), over all starts
 * of the run as the checkpoints remember them: before anything is known, PRIOR; with
 * time, what was seen.
 *
 * Rank 0 alone has one of these: ranks measure different things. */

#include <stdbool.h>
#include <stdint.h>

enum {
    SAVE_INTERVAL_SHORTEST_MS = 5 * 1000,
    SAVE_INTERVAL_LONGEST_MS = 3600 * 1000,
    SAVE_INTERVAL_PRIOR_MS = 4 * 3600 * 1000,
};

struct save_interval {
    uint64_t failures;   /* the caller's, as the next one: of all starts */
    uint64_t trained_ms; /* until now */
    /* private; all zero at first */
    double cost_ms; /* mean of n_costs */
    int n_costs;
    double step_ms; /* mean of n_steps beside which nothing was saved */
    int n_steps;
    bool is_saving;
    double excess_ms; /* of the checkpoint in work */
    uint64_t told_ms; /* the interval that was told last */
};

/* A step is done that took `step_ms`; `is_saving`: a checkpoint was in work on some
 * rank when it ended. */
void save_interval_step(struct save_interval *s, double step_ms, bool is_saving);

/* A checkpoint has begun, which held the training thread for `pause_ms`. */
void save_interval_begin(struct save_interval *s, double pause_ms);

uint64_t save_interval_mtbf_ms(const struct save_interval *s);
uint64_t save_interval_ms(const struct save_interval *s);

/* True when the interval is another by half than what was told last, and takes it for
 * told. False before a cost is known. */
bool save_interval_is_news(struct save_interval *s);

#endif
