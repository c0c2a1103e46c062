#ifndef LAUNCHER_TRACER_H
#define LAUNCHER_TRACER_H

/* Who traces a worker: gdb, strace, whatever a person has attached to it, or has
 * started it or its program under. Looks into /proc: called by threads. */

#include <stdbool.h>
#include <sys/types.h>

enum { TRACER_SIZE = 30 };

/* "gdb, pid 77"; false: nobody traces the process or the first few that descend from
 * it. Not what this process itself has started, to look where a rank is. */
bool tracer_find(pid_t pid, char ret[TRACER_SIZE]);

#endif
