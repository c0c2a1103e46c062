#ifndef LAUNCHER_PLACE_PLACEMENT_H
#define LAUNCHER_PLACE_PLACEMENT_H

/* Which part of the node each worker gets: --virtual-local-rank, --numa-binding. Made
 * once, before anything starts. */

#include "launcher/options/options.h"
#include "launcher/place/cpuset.h"
#include "launcher/place/numa.h"

#include "common/err.h"

struct placement {
    struct cpuset *cpus;      /* owned; by local rank; NULL: not bound */
    struct numa_share *share; /* owned; NULL: not bound */
};

/* `root`: "", or where sysfs.h is to look instead. ERR_INVALID with one line when a
 * worker has no such part; then there is nothing to release. */
int placement_make(const struct launch_options *o, bool is_engine, uint32_t nproc,
                   const char *root, struct placement *ret,
                   struct errmsg *msg) MUST_CHECK;
void placement_release(struct placement *p);

/* The CPUs of a worker as "0-3,8", mem_alloc'ed; NULL: not bound. */
char *placement_format_cpus(const struct placement *p, uint32_t local_rank);

#endif
