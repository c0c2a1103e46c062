#ifndef LAUNCHER_PLACE_DEVICE_LIST_H
#define LAUNCHER_PLACE_DEVICE_LIST_H

/* PURE. The variables that list devices: CUDA_VISIBLE_DEVICES or, where that is not
 * empty, HIP_VISIBLE_DEVICES. --virtual-local-rank: every worker sees one device, its
 * own, as number 0: the list's entry of the local rank's number. */

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

struct device_list {
    const char *name; /* of the variable that lists them */
    const char *text; /* borrowed: its value; NULL: unset, then devices have numbers */
};

/* Either may be NULL: unset. */
struct device_list device_list_choose(const char *cuda, const char *hip);

/* ERR_INVALID with one line unless each of `nproc` workers has a device. A list that is
 * empty on purpose will do for one worker, which then sees none. */
int device_list_check(const struct device_list *list, uint32_t nproc,
                      struct errmsg *msg) MUST_CHECK;

/* What the worker's variables say; mem_alloc'ed. For a list that was checked. */
char *device_list_entry(const struct device_list *list, uint32_t local_rank);

/* One after the other, the devices that CUDA takes from its variable: numbers and UUIDs
 * (GPU-…, MIG-…), without the blanks around them. `*at` is what is left of the value and
 * moves on. NULL: there is no more, or what stands there is no device, as -1 and Slurm's
 * NoDevFiles, where CUDA reads no further. */
const char *device_list_next(const char **at, size_t *ret_size);

#endif
