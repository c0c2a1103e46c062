#ifndef COMMON_ERRAND_H
#define COMMON_ERRAND_H

/* Work that may never come back, as reading files on a file system that hangs: a thread
 * of its own does it, and who wants it waits a moment, no longer than it can spare, and
 * goes on without it. Used from one thread, the loop's. */

#include "common/err.h"

struct errand; /* opaque */

struct errand_work {
    void *data;                  /* owned from here on until it is taken */
    void (*run)(void *data);     /* on the thread: nobody else has the data meanwhile */
    void (*release)(void *data); /* where nobody takes it; on either thread */
    void (*done)(void *arg);     /* on the thread, unless it was left; NULL allowed */
    void *arg;
};

/* -errno: there is no thread left; the data stays the caller's. */
int errand_begin(const struct errand_work *work, struct errand **ret) MUST_CHECK;

/* The data, once the work is done, which ends the errand; NULL: not within `ms`. */
void *errand_take(struct errand *e, unsigned ms);

/* Nobody wants it any more. NULL allowed. */
void errand_leave(struct errand *e);

#endif
