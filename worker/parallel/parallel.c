/* The list of strategies. */

#include "worker/parallel/parallel.h"

#include "worker/parallel/ddp.h"

#include "common/str.h"

#include <string.h>

static const struct parallel_ops *const strategies[] = {&ddp_ops};

/* Those of the configuration, in the order of the documentation. */
static const char *const known[] = {"ddp", "fsdp", "zero1", "zero2", "hsdp", "dp"};

int parallel_find(const char *strategy, const struct parallel_ops **ret,
                  struct errmsg *msg)
{
    const char *nearest;

    for (size_t i = 0; i < ARRAY_LEN(strategies); i++) {
        if (strcmp(strategy, strategies[i]->name) == 0) {
            *ret = strategies[i];
            return 0;
        }
    }
    nearest = str_nearest(strategy, known, ARRAY_LEN(known));
    if (nearest && strcmp(nearest, strategy) == 0) {
        return errmsg_set(msg, ERR_UNSUPPORTED,
                          "parallel.strategy=%s is not there yet; use ddp", strategy);
    }
    return errmsg_set(msg, ERR_UNSUPPORTED, "parallel.strategy=%s is unknown; use ddp",
                      strategy);
}
