#ifndef LAUNCHER_OUTPUT_TERMINAL_H
#define LAUNCHER_OUTPUT_TERMINAL_H

/* The user's terminal, which is every worker's stdin too (so that a debugger works in
 * one): a worker that is killed at a prompt leaves it without echo. */

#include <stdbool.h>
#include <termios.h>

struct terminal {
    bool is_known;
    struct termios mode;
};

/* Of stdin; not known when that is no terminal. */
void terminal_remember(struct terminal *ret);

/* Puts stdin back as it was, if ctrun is in its foreground. */
void terminal_restore(const struct terminal *t);

#endif
