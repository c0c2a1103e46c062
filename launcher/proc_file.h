#ifndef LAUNCHER_PROC_FILE_H
#define LAUNCHER_PROC_FILE_H

/* A file of /proc/PID. Any thread. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Its first size - 1 bytes, at most, as a text; false, and "": there is nothing in it,
 * or no such process. */
bool proc_file_read(pid_t pid, const char *name, char *ret, size_t size);

#endif
