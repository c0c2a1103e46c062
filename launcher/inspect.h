#ifndef LAUNCHER_INSPECT_H
#define LAUNCHER_INSPECT_H

/* What a worker's process does and where it is, as /proc and, if it is there, gdb have
 * it. The state and gdb take their time: these are called by threads. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum {
    INSPECT_STATE_SIZE = 32,
    INSPECT_KERNEL_SIZE = 1024,
    INSPECT_STACK_SIZE = 2048,
    /* gdb's time: PyTorch's symbols alone take it six seconds … */
    INSPECT_STACK_MS = 8000,
    /* … and where a restart waits for it, with another stack at hand. */
    INSPECT_HURRY_MS = 2500,
};

/* Looks twice, a moment apart: "T" and "t" only where it was so both times; "R" if it
 * computes, whichever thread does; else with the place in the kernel: "S futex_wait",
 * or "O pipe_write" where that is an output nobody reads, or a terminal. Where somebody
 * traces it, "t gdb, pid 77" while it is stopped by him, else "P gdb, pid 77". "": there
 * is no such process. */
void inspect_state(pid_t pid, char ret[INSPECT_STATE_SIZE]);

/* Whether the process has a handler for the signal. Does not take its time. */
bool inspect_catches(pid_t pid, int signal);

/* Where its main thread is in the kernel, the inmost first, in lines; "": only root may
 * look. Does not take its time. */
void inspect_kernel(pid_t pid, char ret[INSPECT_KERNEL_SIZE]);

/* Its main thread's stack, as gdb has it, in the same order; "": it is not there, or may
 * not look. It has that long, and is killed then, which is said, as where others kill
 * it: the process goes on as it was. */
void inspect_stack(pid_t pid, unsigned limit_ms, char ret[INSPECT_STACK_SIZE]);

/* What is said then. */
void inspect_no_stack(unsigned limit_ms, char *ret, size_t size);

#endif
