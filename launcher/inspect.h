#ifndef LAUNCHER_INSPECT_H
#define LAUNCHER_INSPECT_H

/* What a worker's process does and where it is, as /proc and, if it is there, gdb have
 * it. Both take their time: they are called by threads. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum {
    INSPECT_STATE_SIZE = 32,
    INSPECT_STACK_SIZE = 3072,
    INSPECT_STACK_MS =
        8000, /* gdb's time: PyTorch's symbols alone take it six seconds */
};

/* Looks twice, a moment apart: "T" and "t" only where it was so both times; "R" if it
 * computes, whichever thread does; else with the place in the kernel: "S futex_wait",
 * or "O pipe_write" where that is an output nobody reads, or a terminal. Where somebody
 * traces it, "t gdb, pid 77" while it is stopped by him, else "P gdb, pid 77". "": there
 * is no such process. */
void inspect_state(pid_t pid, char ret[INSPECT_STATE_SIZE]);

/* Whether the process has a handler for the signal. Does not take its time. */
bool inspect_catches(pid_t pid, int signal);

/* Its main thread's, the inmost first, in lines; "": nobody may look. gdb has that long,
 * and is killed then: the process goes on as it was. */
void inspect_stack(pid_t pid, unsigned limit_ms, char ret[INSPECT_STACK_SIZE]);

#endif
