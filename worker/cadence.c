#include "worker/cadence.h"

#include "worker/losses.h"

bool cadence_is_due(int64_t every, uint64_t step)
{
    return every > 0 && step % (uint64_t)every == 0;
}

bool cadence_is_due_or_last(int64_t every, uint64_t step, uint64_t steps)
{
    return every > 0 && (cadence_is_due(every, step) || step >= steps);
}

bool save_cadence_asks(const struct save_cadence *c, uint64_t now_ms)
{
    return c->every_ms > 0 && now_ms - c->begun_ms >= c->every_ms;
}

bool save_cadence_step(struct save_cadence *c, uint64_t step, unsigned flags)
{
    if (step >= c->steps || (flags & LOSSES_LEAVE)) {
        return true;
    }
    c->is_overdue =
        c->is_overdue || cadence_is_due(c->every, step) || (flags & LOSSES_SAVE);
    if (!c->is_overdue || (flags & LOSSES_SAVING)) {
        return false;
    }
    c->is_overdue = false;
    return true;
}

void save_cadence_begin(struct save_cadence *c, uint64_t now_ms)
{
    c->begun_ms = now_ms;
}
