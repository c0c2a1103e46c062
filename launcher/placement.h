#ifndef LAUNCHER_PLACEMENT_H
#define LAUNCHER_PLACEMENT_H

/* Which part of the node each worker gets: --virtual-local-rank. Made once, before
 * anything starts. */

#include "launcher/options.h"

#include "common/err.h"

/* ERR_INVALID with one line when a worker has no such part. */
int placement_check(const struct launch_options *o, bool is_engine, uint32_t nproc,
                    struct errmsg *msg) MUST_CHECK;

#endif
