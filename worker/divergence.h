#ifndef WORKER_DIVERGENCE_H
#define WORKER_DIVERGENCE_H

/* A step whose loss or gradient is not finite, and what is said of it. */

#include "worker/trainer.h"

/* No training goes on from here. A scaled loss has a gradient that is not finite now and
 * then: its step was skipped, and a smaller scale is to help. In fp16 the loss may be so,
 * too. */
bool divergence_is(const struct trainer *t, const struct metrics_line *line);

/* The report: cause, the last checkpoint, remedy. */
void divergence_tell(const struct trainer *t, const struct metrics_line *line,
                     struct errmsg *msg);

/* The first rank's refusal ends the others at once: so all wait until rank 0 has done
 * with metrics.jsonl and the last checkpoint, and then say what it says. */
int divergence_share(const struct trainer *t, struct errmsg *msg) MUST_CHECK;

#endif
