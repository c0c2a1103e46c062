#ifndef LAUNCHER_TIMERS_H
#define LAUNCHER_TIMERS_H

/* PURE. torch's file timers (torch.distributed.elastic.timer.FileTimerClient): workers
 * write requests into a FIFO, one JSON object a line,
 *
 *   {"version": 1, "pid": P, "scope_id": S, "expiration_time": T, "signal": N}
 *
 * T is Unix time in seconds. Until the same (P, S) comes with a negative T the process P
 * is to be sent N at T. Everything here is what a worker says of itself and others: the
 * shell checks P before it acts. Bounds: TIMERS_LINE_MAX bytes a line, TIMERS_MAX timers
 * at once; what is beyond is dropped, and told once. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TIMERS_LINE_MAX = 4096, /* PIPE_BUF: more is not written in one piece either */
    TIMERS_SCOPE_MAX = 128, /* the end of a longer name is kept */
    TIMERS_MAX = 2048,
};

struct timer {
    int32_t pid;
    int32_t signal;       /* 1 … 64 */
    uint64_t deadline_ms; /* monotonic */
    uint64_t since_ms;    /* … when it came: its process was there */
    char scope[TIMERS_SCOPE_MAX];
};

struct timers {
    struct timer *all; /* owned; n of them */
    size_t n;
    /* private */
    bool has_bad, told_bad;
    bool has_overflowed, told_overflow;
    bool is_skipping; /* the rest of too long a line */
    size_t line_len;
    char line[TIMERS_LINE_MAX];
};

void timers_init(struct timers *t);
void timers_release(struct timers *t);
void timers_clear(struct timers *t); /* as at the start of a generation */

/* What came through the FIFO, cut anywhere. `wall_ms` (Unix time) and `now_ms`
 * (monotonic) are the same moment: clocks that are set later change nothing. */
void timers_feed(struct timers *t, const char *data, size_t size, uint64_t wall_ms,
                 uint64_t now_ms);

/* Whether there is hardly room for more: then it is time to prune. */
bool timers_are_many(const struct timers *t);

/* Forgets those whose process is not there any more. */
void timers_prune(struct timers *t, bool (*is_there)(void *arg, const struct timer *),
                  void *arg);

/* The process has ended. */
void timers_forget(struct timers *t, int32_t pid);

uint64_t timers_deadline(const struct timers *t); /* UINT64_MAX: none */

/* Takes the timer that expired first, and with it all others of that process. False:
 * none has. */
bool timers_take(struct timers *t, uint64_t now_ms, struct timer *ret);

/* A line about what was dropped, once for each kind; NULL: nothing new. */
const char *timers_trouble(struct timers *t);

#endif
