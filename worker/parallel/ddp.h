#ifndef WORKER_PARALLEL_DDP_H
#define WORKER_PARALLEL_DDP_H

/* Distributed data parallel: every rank has all parameters, and the whole sum of the
 * gradients at the end. */

#include "worker/parallel/parallel.h"

extern const struct parallel_ops ddp_ops;

#endif
