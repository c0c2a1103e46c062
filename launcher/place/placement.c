#include "launcher/place/placement.h"

#include "launcher/place/device_list.h"
#include "launcher/place/sysfs.h"

#include "common/mem.h"

#include <errno.h>
#include <sched.h>
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

static int read_allowed(struct cpuset *ret, struct errmsg *msg)
{
    void *mask = ret;

    if (sched_getaffinity(0, sizeof(*ret), mask) < 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "--numa-binding: cannot tell which CPUs ctrun may use: %s",
                          err_text(-errno));
    }
    return 0;
}

static int bind_workers(enum numa_binding binding, uint32_t nproc, const char *root,
                        struct placement *ret, struct errmsg *msg)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets the environment */
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    struct numa_machine machine;
    struct cpuset allowed;
    int rv = read_allowed(&allowed, msg);

    rv = rv < 0 ? rv : sysfs_read_machine(root, binding, &allowed, &machine, msg);
    if (rv < 0) {
        return rv;
    }
    ret->cpus = mem_array(nproc, sizeof(*ret->cpus));
    ret->share = mem_array(nproc, sizeof(*ret->share));
    rv = numa_plan(&machine, binding, visible, nproc, ret->cpus, msg);
    if (rv == 0) {
        numa_count_shares(ret->cpus, nproc, ret->share);
    } else {
        placement_release(ret);
    }
    numa_machine_release(&machine);
    return rv;
}

int placement_make(const struct launch_options *o, bool is_engine, uint32_t nproc,
                   const char *root, struct placement *ret, struct errmsg *msg)
{
    int rv = o->virtual_local_rank ? check_virtual(is_engine, nproc, msg) : 0;

    *ret = (struct placement){0};
    if (rv == 0 && o->numa_binding != NUMA_NONE) {
        rv = bind_workers(o->numa_binding, nproc, root, ret, msg);
    }
    return rv;
}

void placement_release(struct placement *p)
{
    mem_free(p->cpus);
    mem_free(p->share);
    *p = (struct placement){0};
}

char *placement_format_cpus(const struct placement *p, uint32_t local_rank)
{
    return p->cpus ? cpuset_format(&p->cpus[local_rank]) : NULL;
}
