#include "worker/save_clock.h"

#include "common/clock.h"

#include <inttypes.h>
#include <stdio.h>

void save_clock_start(struct save_clock *c, const struct trainer *t)
{
    const struct interval *every = &t->config->checkpoint.every;

    *c = (struct save_clock){
        .cadence = {.every = every->steps,
                    .every_ms = (uint64_t)every->ms,
                    .steps = (uint64_t)t->config->train.steps},
        .interval = {.failures = t->meta.failures},
        .is_auto = every->is_auto,
        .leads = trainer_leads(t),
        .before_ms = t->meta.trained_ms,
        .begun_ms = clock_ms(),
    };
    c->cadence.begun_ms = c->begun_ms;
    c->interval.trained_ms = c->before_ms;
    if (c->is_auto) {
        c->cadence.every_ms = save_interval_ms(&c->interval);
    }
}

unsigned save_clock_flags(const struct save_clock *c)
{
    return c->leads && save_cadence_asks(&c->cadence, clock_ms()) ? LOSSES_SAVE : 0U;
}

uint64_t save_clock_trained_ms(const struct save_clock *c)
{
    return c->before_ms + (clock_ms() - c->begun_ms);
}

bool save_clock_step(struct save_clock *c, uint64_t step, uint64_t step_us,
                     unsigned flags)
{
    if (c->is_auto && c->leads) {
        save_interval_step(&c->interval, (double)step_us / 1e3,
                           (flags & LOSSES_SAVING) != 0);
        c->interval.trained_ms = save_clock_trained_ms(c);
        c->cadence.every_ms = save_interval_ms(&c->interval);
    }
    return save_cadence_step(&c->cadence, step, flags);
}

void save_clock_begin(struct save_clock *c, uint64_t pause_us)
{
    save_cadence_begin(&c->cadence, clock_ms());
    save_interval_begin(&c->interval, (double)pause_us / 1e3);
}

void save_clock_report(const struct save_clock *c, struct metrics_line *line)
{
    if (c->is_auto) {
        line->ckpt_every_s = (double)save_interval_ms(&c->interval) / 1e3;
        line->ckpt_cost_s = c->interval.cost_ms / 1e3;
    }
}

bool save_clock_news(struct save_clock *c, char *text, size_t size)
{
    const struct save_interval *i = &c->interval;

    if (!c->is_auto || !c->leads || !save_interval_is_news(&c->interval)) {
        return false;
    }
    (void)snprintf(
        text, size, /* fits */
        "checkpoint.every=auto: one every %.0f s, for it costs %.3f s; %" PRIu64
        " failure%s in %.1f h, one is expected in %.1f h",
        (double)save_interval_ms(i) / 1e3, i->cost_ms / 1e3, i->failures,
        i->failures == 1 ? "" : "s", (double)i->trained_ms / 3600e3,
        (double)save_interval_mtbf_ms(i) / 3600e3);
    return true;
}
