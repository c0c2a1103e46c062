#ifndef WORKER_DEVICE_CPU_ARENA_H
#define WORKER_DEVICE_CPU_ARENA_H

/* Big zeroed memory straight from the kernel: on huge pages where there are any, and
 * touched before the first step, so that training takes no page faults. */

#include "common/check.h"

#include <stddef.h>

/* 0 or -ENOMEM, both. The first only maps; the second touches some of it, which
 * several threads may do at once; `ptr` is the block's begin or whole huge pages
 * behind it. */
int arena_map(size_t bytes, void **ret) MUST_CHECK;
int arena_populate(void *ptr, size_t bytes) MUST_CHECK;
void arena_unmap(void *ptr, size_t bytes);

#endif
