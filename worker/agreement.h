#ifndef WORKER_AGREEMENT_H
#define WORKER_AGREEMENT_H

#include "worker/trainer.h"

/* Opens the store and the device, compares this rank with rank 0, opens the run
 * directory, and says hello to the agent. ERR_INVALID: ranks differ in version or
 * configuration; ERR_MISSING, ERR_BUSY: run_dir.h. */
int agreement_open(struct trainer *t, struct errmsg *msg) MUST_CHECK;

#endif
