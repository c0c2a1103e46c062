#include "launcher/placement.h"

#include "launcher/device_list.h"

#include <stdlib.h>

/* ctrun-worker takes its part of the node by LOCAL_RANK, whatever its devices. */
static int check_virtual(bool is_engine, uint32_t nproc, struct errmsg *msg)
{
    /* NOLINTBEGIN(concurrency-mt-unsafe): nobody sets the environment */
    struct device_list list = device_list_choose(getenv("CUDA_VISIBLE_DEVICES"),
                                                 getenv("HIP_VISIBLE_DEVICES"));
    /* NOLINTEND(concurrency-mt-unsafe) */

    if (is_engine) {
        return errmsg_set(msg, ERR_INVALID,
                          "--virtual-local-rank is for programs that use the device "
                          "LOCAL_RANK names; ctrun-worker finds its own: leave it out");
    }
    return device_list_check(&list, nproc, msg);
}

int placement_check(const struct launch_options *o, bool is_engine, uint32_t nproc,
                    struct errmsg *msg)
{
    return o->virtual_local_rank ? check_virtual(is_engine, nproc, msg) : 0;
}
