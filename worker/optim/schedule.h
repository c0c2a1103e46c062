#ifndef WORKER_OPTIM_SCHEDULE_H
#define WORKER_OPTIM_SCHEDULE_H

/* PURE. The learning rate, s = step − 1: s < warmup: lr·(s+1)/warmup; then
 * cosine: min_lr + ½(1 + cos π·(s − warmup)/(steps − warmup))·(lr − min_lr); linear
 * alike; constant: lr. In double; the optimizer rounds once to fp32. */

#include <stdint.h>

enum schedule { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_CONSTANT };

struct schedule_config {
    enum schedule kind;
    double lr, min_lr;
    uint64_t warmup, steps;
};

double schedule_lr(const struct schedule_config *config, uint64_t step);

#endif
