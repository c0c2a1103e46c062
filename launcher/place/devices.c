#include "launcher/place/devices.h"

#include "launcher/place/cpuset.h"
#include "launcher/place/device_list.h"

#include "common/str.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

uint32_t devices_count_visible(const char *visible)
{
    uint32_t n = 0;
    size_t size;

    while (device_list_next(&visible, &size)) {
        n++;
    }
    return n;
}

static uint32_t count_gpus(const char *visible)
{
    const struct dirent *entry;
    uint32_t n = 0;
    uint64_t number;
    DIR *dev;

    if (visible) {
        return devices_count_visible(visible);
    }
    dev = opendir("/dev");
    if (!dev) {
        return 0;
    }
    while ((entry = readdir(dev))) { /* NOLINT(concurrency-mt-unsafe): our own DIR */
        n += str_starts_with(entry->d_name, "nvidia") &&
             str_parse_u64(entry->d_name + strlen("nvidia"), &number) == 0;
    }
    (void)closedir(dev);
    return n;
}

static uint32_t count_cpus(void)
{
    struct cpuset set;
    void *mask = &set;

    if (sched_getaffinity(0, sizeof(set), mask) < 0) {
        return 1; /* more than CPUSET_MAX: the user knows how many */
    }
    return cpuset_count(&set);
}

int devices_count(const struct launch_options *o, const char *visible, uint32_t *ret,
                  struct errmsg *msg)
{
    uint32_t n_gpus;

    if (o->nproc_kind == NPROC_NUMBER) {
        *ret = o->nproc;
        return 0;
    }
    n_gpus = o->nproc_kind == NPROC_CPU ? 0 : count_gpus(visible);
    if (o->nproc_kind == NPROC_GPU && n_gpus == 0) {
        return errmsg_set(
            msg, ERR_INVALID,
            "--nproc-per-node=gpu: this node has no GPU (%s); use cpu, auto "
            "or a number",
            visible ? "CUDA_VISIBLE_DEVICES hides them" : "no /dev/nvidia0");
    }
    *ret = n_gpus > 0 ? n_gpus : count_cpus();
    return 0;
}

void devices_name(const char *visible, uint32_t local_rank, char *ret, size_t size)
{
    const char *entry = NULL;
    size_t len = 0;

    if (local_rank >= count_gpus(visible)) {
        (void)snprintf(ret, size, "cpu");
        return;
    }
    for (uint32_t i = 0; visible && i <= local_rank; i++) {
        entry = device_list_next(&visible, &len); /* there are that many */
    }
    if (entry) {
        (void)snprintf(ret, size, "gpu %.*s", (int)len, entry);
    } else {
        (void)snprintf(ret, size, "gpu %u", local_rank);
    }
}
