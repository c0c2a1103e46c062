#ifndef WORKER_GIVEN_H
#define WORKER_GIVEN_H

/* Weights that a key names: checkpoint.resume a checkpoint, model.init_from a
 * checkpoint or an llm.c model file. What their paths tell before anything is loaded or
 * written. */

#include "common/err.h"

struct trainer;

/* ERR_INVALID when `path` can be no checkpoint; of a folder that holds some (a run's,
 * too) the text names the newest. -errno when it cannot be looked at. */
int given_is_checkpoint(const char *path, struct errmsg *msg) MUST_CHECK;

/* The same, but an llm.c model file will do. */
int given_is_weights(const char *path, struct errmsg *msg) MUST_CHECK;

/* The keys that this start is going to read: a run that goes on from its own
 * checkpoints needs neither any more. Waits for START. Writes nothing. */
int given_check(const struct trainer *t, struct errmsg *msg) MUST_CHECK;

#endif
