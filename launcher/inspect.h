#ifndef LAUNCHER_INSPECT_H
#define LAUNCHER_INSPECT_H

/* What a worker's process does and where it is, as /proc and, if it is there, gdb have
 * it. Both take their time: they are called by threads. */

#include <stddef.h>
#include <sys/types.h>

enum { INSPECT_STATE_SIZE = 32, INSPECT_STACK_SIZE = 3072 };

/* Looks twice, a moment apart: "T" and "t" only where it was so both times; "R" if it
 * computes, whichever thread does; else with the place in the kernel: "S futex_wait",
 * or "O pipe_write" where that is an output nobody reads, or a terminal. "": there is no
 * such process. */
void inspect_state(pid_t pid, char ret[INSPECT_STATE_SIZE]);

/* Its main thread's, the inmost first, in lines; "": nobody may look, or nothing came
 * in time. */
void inspect_stack(pid_t pid, char ret[INSPECT_STACK_SIZE]);

#endif
