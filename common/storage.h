#ifndef COMMON_STORAGE_H
#define COMMON_STORAGE_H

/* What files that must survive a crash need beyond one system call. Blocking; any
 * thread. Results are 0 or -errno: the caller knows the words. Failure points for tests
 * (common/fault.h): storage.write, storage.fsync. */

#include "common/check.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* All of it, however the kernel cuts it up. */
int storage_write_all(int fd, const void *data, size_t size) MUST_CHECK;

/* fsync. An error is final: a second fsync would not tell it again. */
int storage_sync(int fd) MUST_CHECK;

/* Makes the names in a directory durable. */
int storage_sync_dir(const char *path) MUST_CHECK;

/* mkdir -p: makes `path` and what is missing above it, each name durable. What is there
 * already may be anything: the first use tells. */
int storage_make_dirs(const char *path) MUST_CHECK;

/* realpath, also of what will only be made: what is missing of it has no links. */
int storage_resolve(const char *path, char ret[PATH_MAX]) MUST_CHECK;

/* Whether a path is the folder or in it; both as storage_resolve gives them. */
bool storage_is_in(const char *path, const char *folder);

#endif
