#ifndef WORKER_DEVICE_TRACE_H
#define WORKER_DEVICE_TRACE_H

/* A profile: which work each queue of a device did when, as a Chrome trace (for
 * chrome://tracing or ui.perfetto.dev), a row for each queue and one for the steps.
 *
 * Bounded: the first TRACE_EVENTS pieces of work are kept, what comes later is only
 * counted. Any thread may add; open and close belong to the host thread, while no queue
 * works. Everywhere NULL is a trace that keeps nothing. */

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

enum { TRACE_EVENTS = 1 << 16 };

/* The rows: enum queue, and this one behind them. */
enum { TRACE_ROW_STEP = 4, TRACE_ROWS = 5 };

struct trace;

size_t trace_bytes(void);

/* Makes the file at once, so that a bad path is told before training. */
int trace_open(const char *path, int rank, struct trace **ret,
               struct errmsg *msg) MUST_CHECK;

/* Writes the file. Frees `t` also when that fails. */
int trace_close(struct trace *t, struct errmsg *msg) MUST_CHECK;

/* What the calling thread adds from now on belongs to this step; a queue's thread says
 * so for each task, which belongs to the step that enqueued it. */
void trace_step(uint64_t step);
uint64_t trace_step_in_hand(void);

/* The time, to be given to trace_end. */
uint64_t trace_begin(const struct trace *t);
void trace_end(struct trace *t, int row, const char *name, uint64_t began_us);

/* The work in hand of the calling thread, for whoever runs it as a task; static text.
 */
void trace_name(const char *name);
const char *trace_take_name(void); /* and forgets it; "task" when there is none */

#endif
