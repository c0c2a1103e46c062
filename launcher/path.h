#ifndef LAUNCHER_PATH_H
#define LAUNCHER_PATH_H

#include "common/check.h"

#include <stdbool.h>
#include <stddef.h>

/* What stands behind the last slash. */
const char *path_base(const char *path);

/* The folder of this program; "" when it cannot be known. */
void path_own_folder(char *ret, size_t size);

/* Makes the folder that the first `len` bytes name, and those above it; 0 or -errno. */
int path_make_folders(const char *path, size_t len) MUST_CHECK;

/* Do two descriptors show the same terminal, file or pipe? */
bool path_is_same_file(int a, int b);

#endif
