#ifndef LAUNCHER_WALL_WATCH_H
#define LAUNCHER_WALL_WATCH_H

/* PURE. Whether the wall clock, which anybody may set, was set meanwhile. What is known
 * by wall time alone (when a file was written) is put on the monotonic clock with it. */

#include <stdint.h>

/* Zeroed at first. */
struct wall_watch {
    int64_t offset_ms; /* of the wall clock, as seen last */
    uint64_t since_ms; /* it was not set since then; 0: nobody has looked yet */
};

/* Both clocks, read at the same time: often, and right before a question. */
void wall_watch_look(struct wall_watch *w, uint64_t now_ms, uint64_t wall_ms);

/* The monotonic time of what is `age_ms` old by the wall clock; 0: not known, since the
 * clock was set after that, or nobody had looked yet. */
uint64_t wall_watch_date(const struct wall_watch *w, uint64_t now_ms, uint64_t age_ms);

#endif
