#ifndef WORKER_PARALLEL_ZERO_H
#define WORKER_PARALLEL_ZERO_H

/* Data parallelism, ZeRO-0 to ZeRO-3 and their hybrids: one strategy whose booleans
 * (mesh.h) say what is cut into shards. DP, the bad example, is ZeRO-1 with one owner:
 * rank 0 has the optimizer, the others send it their gradients and get the parameters
 * back. */

#include "worker/parallel/parallel.h"

extern const struct parallel_ops ddp_ops, zero1_ops, zero2_ops, fsdp_ops, hsdp_ops,
    dp_ops;

#endif
