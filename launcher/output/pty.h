#ifndef LAUNCHER_OUTPUT_PTY_H
#define LAUNCHER_OUTPUT_PTY_H

/* A pseudo-terminal for one of a worker's output streams, so that a program draws bars
 * and colours as it would on the terminal that ctrun has. It is nobody's controlling
 * terminal, echoes nothing and changes no byte; its size is the terminal's. */

#include "common/check.h"

/* ends[0] is ours and does not block, ends[1] the worker's; both CLOEXEC. `terminal` is
 * the one to be like. 0 or -errno. */
int pty_open(int terminal, int ends[2]) MUST_CHECK;

/* The terminal's size may have changed. (Nobody is sent SIGWINCH by this.) */
void pty_resize(int ours, int terminal);

#endif
