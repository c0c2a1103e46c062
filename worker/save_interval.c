#include "worker/save_interval.h"

#include "common/check.h"

#include <math.h>

enum { MEAN_STEPS = 10, MEAN_COSTS = 4 };

static void add(double *mean, int *n, int most, double value)
{
    *n = MIN(*n + 1, most);
    *mean += (value - *mean) / *n;
}

static void finish(struct save_interval *s)
{
    s->is_saving = false;
    add(&s->cost_ms, &s->n_costs, MEAN_COSTS, MAX(s->excess_ms, 0));
}

/* The first step pages memory in: the second one takes its place. */
static void add_step(struct save_interval *s, double step_ms)
{
    s->step_ms += (step_ms - s->step_ms) / MAX(s->n_steps, 1);
    s->n_steps = MIN(s->n_steps + 1, MEAN_STEPS);
}

/* The first step after its begin always has a part of it: the snapshot. */
void save_interval_step(struct save_interval *s, double step_ms, bool is_saving)
{
    if (!s->is_saving) {
        add_step(s, step_ms);
        return;
    }
    if (s->n_steps > 1) {
        s->excess_ms += step_ms - s->step_ms;
    }
    if (!is_saving) {
        finish(s);
    }
}

void save_interval_begin(struct save_interval *s, double pause_ms)
{
    if (s->is_saving) { /* the one before ended between two steps */
        finish(s);
    }
    s->is_saving = true;
    s->excess_ms = pause_ms;
}

uint64_t save_interval_mtbf_ms(const struct save_interval *s)
{
    return (SAVE_INTERVAL_PRIOR_MS + s->trained_ms) / (1 + s->failures);
}

uint64_t save_interval_ms(const struct save_interval *s)
{
    double best = sqrt(2 * s->cost_ms * (double)save_interval_mtbf_ms(s));

    if (s->n_costs == 0 || best < SAVE_INTERVAL_SHORTEST_MS) {
        return SAVE_INTERVAL_SHORTEST_MS;
    }
    return (uint64_t)MIN(best, (double)SAVE_INTERVAL_LONGEST_MS);
}

bool save_interval_is_news(struct save_interval *s)
{
    uint64_t now = save_interval_ms(s);
    bool is_near = 2 * now <= 3 * s->told_ms && 2 * s->told_ms <= 3 * now;

    if (s->n_costs == 0 || is_near) {
        return false;
    }
    s->told_ms = now;
    return true;
}
