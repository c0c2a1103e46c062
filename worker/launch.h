#ifndef WORKER_LAUNCH_H
#define WORKER_LAUNCH_H

/* What the launcher told this process: torchrun's environment contract and CTRUN_*.
 * Without a launcher (no WORLD_SIZE) it is rank 0 of 1. */

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

struct launch {
    int rank, world_size;
    int local_rank, local_world_size;
    int node;                /* GROUP_RANK */
    int cpu_rank, cpu_ranks; /* of the local ranks that have this one's CPUs */
    char master_addr[64];
    int master_port;
    char run_id[256];
    char node_addr[64]; /* numeric address of this node for its peers */
    uint64_t generation;
    int control_fd; /* -1: no launcher */
};

/* ERR_INVALID names the variable that is missing or wrong, or says that several ranks
 * need ctrun's control channel. */
int launch_read(struct launch *ret, struct errmsg *msg) MUST_CHECK;

#endif
