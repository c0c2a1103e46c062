#ifndef LAUNCHER_PLACE_SYSFS_H
#define LAUNCHER_PLACE_SYSFS_H

/* What the kernel says of the machine (sysfs, and /proc and /dev for NVIDIA's driver):
 * for numa.h, read once. */

#include "launcher/place/numa.h"

/* `root`: "", or a folder in which sys, proc and dev are looked for; `allowed`: the CPUs
 * that ctrun may use. Only what the binding needs is read. A kernel without NUMA nodes
 * has one. GPUs are NVIDIA's on the PCI bus (class 0300 or 0302); where the driver lists
 * its own (/proc/driver/nvidia/gpus), those alone, and of them those that have a device
 * file: in a container others are seen on the bus. ERR_INVALID with one line; then
 * there is nothing to release. */
int sysfs_read_machine(const char *root, enum numa_binding binding,
                       const struct cpuset *allowed, struct numa_machine *ret,
                       struct errmsg *msg) MUST_CHECK;

#endif
