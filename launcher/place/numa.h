#ifndef LAUNCHER_PLACE_NUMA_H
#define LAUNCHER_PLACE_NUMA_H

/* PURE. --numa-binding: what the machine looks like → the CPUs of each worker, by
 * torchrun's rules:
 *
 *   node          the CPUs of the NUMA node of the worker's device
 *   socket        those of all nodes of that socket
 *   exclusive     that node's cores, divided among the devices there: whole ones, in
 *                 order, the first devices get what is left over
 *   core-complex  the cores of that node under one last-level cache: the node's devices
 *                 take its caches in turn, those with the most CPUs first
 *
 * Never a CPU that ctrun itself may not use. A worker's device is the GPU of its local
 * rank's number, of those that CUDA_VISIBLE_DEVICES names, in the order of their PCI
 * addresses: CUDA's with CUDA_DEVICE_ORDER=PCI_BUS_ID, and where all are of one kind.
 * torchrun refuses a machine without GPUs; here its workers themselves are the devices,
 * and the nodes take them in blocks: of 4 on 2 nodes, 0 and 1 are at the first. */

#include "launcher/options/options.h"
#include "launcher/place/cpuset.h"

#include "common/err.h"

struct numa_node {
    uint32_t id;
    struct cpuset cpus; /* that ctrun may use; one at least */
    int64_t socket;     /* for NUMA_SOCKET */
};

struct numa_gpu {
    char addr[32]; /* PCI */
    char uuid[64]; /* "GPU-…"; "": not known */
    uint32_t node; /* its id */
};

struct numa_machine {
    struct numa_node *nodes; /* owned; by id */
    size_t n_nodes;
    struct numa_gpu *gpus; /* owned; in PCI order */
    size_t n_gpus;
    /* For NUMA_EXCLUSIVE: the lowest CPU of its core, for NUMA_CORE_COMPLEX: … of its
     * last-level cache. Of the nodes' CPUs only. */
    uint16_t group[CPUSET_MAX];
};

/* Fills `ret`, nproc of them. `visible`: CUDA_VISIBLE_DEVICES, NULL: unset. ERR_INVALID
 * with one line. */
int numa_plan(const struct numa_machine *m, enum numa_binding binding,
              const char *visible, uint32_t nproc, struct cpuset *ret,
              struct errmsg *msg) MUST_CHECK;

/* A worker among those with the very same CPUs. */
struct numa_share {
    uint32_t place, n;
};

/* Fills `ret`, nproc of them. */
void numa_count_shares(const struct cpuset *cpus, uint32_t nproc,
                       struct numa_share *ret);

void numa_machine_release(struct numa_machine *m);

#endif
