#ifndef LAUNCHER_PLACE_DEVICES_H
#define LAUNCHER_PLACE_DEVICES_H

/* How many workers a node can take: --nproc-per-node=auto, cpu, gpu. Without CUDA: GPUs
 * are counted by their device files, or by CUDA_VISIBLE_DEVICES. */

#include "launcher/options/options.h"

#include "common/err.h"

/* ERR_INVALID when `gpu` is asked for and there is none. */
int devices_count(const struct launch_options *o, const char *visible, uint32_t *ret,
                  struct errmsg *msg) MUST_CHECK;

/* PURE. How many CUDA_VISIBLE_DEVICES names (device_list_next). */
uint32_t devices_count_visible(const char *visible);

/* What LOCAL_RANK chooses on this node: "gpu 3" (as CUDA_VISIBLE_DEVICES has it), or
 * "cpu". */
void devices_name(const char *visible, uint32_t local_rank, char *ret, size_t size);

#endif
