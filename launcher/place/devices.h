#ifndef LAUNCHER_PLACE_DEVICES_H
#define LAUNCHER_PLACE_DEVICES_H

/* How many workers a node can take: --nproc-per-node=auto, cpu, gpu. Without CUDA: GPUs
 * are counted by their device files, or by CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES
 * (`visible`). */

#include "launcher/options/options.h"
#include "launcher/place/device_list.h"

#include "common/err.h"

/* ERR_INVALID when `gpu` is asked for and there is none. */
int devices_count(const struct launch_options *o, const struct device_list *visible,
                  uint32_t *ret, struct errmsg *msg) MUST_CHECK;

/* PURE. How many the variable names (device_list_next): none if it names one twice, as
 * CUDA has it, and PyTorch. */
uint32_t devices_count_visible(const char *visible);

/* What LOCAL_RANK chooses on this node: "gpu 3" (as the variable has it), or "cpu". */
void devices_name(const struct device_list *visible, uint32_t local_rank, char *ret,
                  size_t size);

#endif
