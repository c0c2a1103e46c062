#include "launcher/wall_watch.h"

enum { TOLERANCE_MS = 100 }; /* between the reading of one clock and the other's */

void wall_watch_look(struct wall_watch *w, uint64_t now_ms, uint64_t wall_ms)
{
    int64_t offset_ms = (int64_t)(wall_ms - now_ms);
    int64_t moved_ms = offset_ms - w->offset_ms;

    if (w->since_ms == 0 || moved_ms > TOLERANCE_MS || moved_ms < -TOLERANCE_MS) {
        w->since_ms = now_ms;
        w->offset_ms = offset_ms;
    }
}

uint64_t wall_watch_date(const struct wall_watch *w, uint64_t now_ms, uint64_t age_ms)
{
    return w->since_ms > 0 && age_ms <= now_ms - w->since_ms ? now_ms - age_ms : 0;
}
