#ifndef LAUNCHER_ENV_H
#define LAUNCHER_ENV_H

/* PURE. The environment of one worker: torchrun's contract and CTRUN_*. */

#include "launcher/place/numa.h"
#include "launcher/topology.h"

struct worker_env {
    const struct topology *topology;
    uint32_t local_rank;
    uint64_t generation;
    const char *master_addr;
    int master_port;
    const char *node_addr; /* this node's, as its peers reach it */
    const char *run_id;
    uint32_t restart_count, max_restarts;
    const char *error_file;             /* "": none */
    const char *role;                   /* --role */
    const char *signals;                /* that stop the job, as a list */
    const struct numa_share *cpu_share; /* NULL: it is not bound */
    bool virtual_local_rank;            /* sees one device only (device_list.h) */
    const char *timer_file;             /* NULL: none of ours */
    int control_fd, progress_fd;        /* as numbered in the worker; -1: none */
};

/* `base` (NULL-terminated) with the contract's variables put over it; one mem_alloc'ed
 * block of pointers and texts: free with mem_free. */
char **worker_env_make(char *const *base, const struct worker_env *env);

/* … and those variables alone. */
char **worker_env_own(char *const *base, const struct worker_env *env);

#endif
