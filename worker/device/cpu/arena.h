#ifndef WORKER_DEVICE_CPU_ARENA_H
#define WORKER_DEVICE_CPU_ARENA_H

/* Big zeroed memory straight from the kernel: on huge pages where there are any, and
 * touched before the first step, so that training takes no page faults. */

#include "common/check.h"

#include <stddef.h>

int arena_map(size_t bytes, void **ret) MUST_CHECK; /* 0 or -ENOMEM */
void arena_unmap(void *ptr, size_t bytes);

#endif
