#include "worker/optim/schedule.h"

#include "common/check.h"

#include <math.h>

double schedule_lr(const struct schedule_config *config, uint64_t step)
{
    const double pi = 3.14159265358979323846;
    uint64_t s = step - 1;
    double range = config->lr - config->min_lr;
    double x = 1; /* how much of the way down is gone; past the end it stays there */

    ASSERT(step > 0);
    if (s < config->warmup) {
        return config->lr * (double)(s + 1) / (double)config->warmup;
    }
    if (s < config->steps) {
        x = (double)(s - config->warmup) / (double)(config->steps - config->warmup);
    }
    switch (config->kind) {
    case SCHEDULE_COSINE:
        return config->min_lr + 0.5 * (1 + cos(pi * x)) * range;
    case SCHEDULE_LINEAR:
        return config->min_lr + (1 - x) * range;
    case SCHEDULE_CONSTANT:
        return config->lr;
    }
    UNREACHABLE();
}
