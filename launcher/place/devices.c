#include "launcher/place/devices.h"

#include "launcher/place/cpuset.h"

#include "common/str.h"

#include <ctype.h>
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES_MAX = 4096 }; /* of a list that somebody wrote */

/* A number is read as far as it goes. */
static bool is_same(const char *a, size_t a_size, const char *b, size_t b_size)
{
    if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
        return strtoul(a, NULL, 10) == strtoul(b, NULL, 10);
    }
    return a_size == b_size && memcmp(a, b, a_size) == 0;
}

/* Among the first n of the list. */
static bool is_among(const char *visible, uint32_t n, const char *entry, size_t size)
{
    for (uint32_t i = 0; i < n; i++) {
        size_t other_size = 0;
        const char *other = device_list_next(&visible, &other_size);

        if (other && is_same(other, other_size, entry, size)) {
            return true;
        }
    }
    return false;
}

uint32_t devices_count_visible(const char *visible)
{
    const char *at = visible;
    const char *entry;
    uint32_t n = 0;
    size_t size;

    while ((entry = device_list_next(&at, &size))) {
        if (n == DEVICES_MAX || is_among(visible, n, entry, size)) {
            return n == DEVICES_MAX ? n : 0;
        }
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

int devices_count(const struct launch_options *o, const struct device_list *visible,
                  uint32_t *ret, struct errmsg *msg)
{
    uint32_t n_gpus;

    if (o->nproc_kind == NPROC_NUMBER) {
        *ret = o->nproc;
        return 0;
    }
    n_gpus = o->nproc_kind == NPROC_CPU ? 0 : count_gpus(visible->text);
    if (o->nproc_kind == NPROC_GPU && n_gpus == 0 && visible->text) {
        return errmsg_set(
            msg, ERR_INVALID,
            "--nproc-per-node=gpu: %s=%.80s hides them all (and so does one that names "
            "a GPU twice); use cpu, auto or a number",
            visible->name, visible->text);
    }
    if (o->nproc_kind == NPROC_GPU && n_gpus == 0) {
        return errmsg_set(
            msg, ERR_INVALID,
            "--nproc-per-node=gpu: this node has no GPU (no /dev/nvidia0); "
            "use cpu, auto or a number");
    }
    *ret = n_gpus > 0 ? n_gpus : count_cpus();
    return 0;
}

void devices_name(const struct device_list *visible, uint32_t local_rank, char *ret,
                  size_t size)
{
    const char *at = visible->text;
    const char *entry = NULL;
    size_t len = 0;

    if (local_rank >= count_gpus(at)) {
        (void)snprintf(ret, size, "cpu");
        return;
    }
    for (uint32_t i = 0; at && i <= local_rank; i++) {
        entry = device_list_next(&at, &len); /* there are that many */
    }
    if (entry) {
        (void)snprintf(ret, size, "gpu %.*s", (int)len, entry);
    } else {
        (void)snprintf(ret, size, "gpu %u", local_rank);
    }
}
