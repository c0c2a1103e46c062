#ifndef LAUNCHER_OUTPUT_CONSOLE_H
#define LAUNCHER_OUTPUT_CONSOLE_H

/* PURE. One console that several streams write to: where its last line stands, and what
 * has to come between that and the next text, so that a line is whole and nobody writes
 * into another's. A line that a carriage return has gone back in is a bar: its owner
 * will draw it again. */

#include <stdbool.h>
#include <stddef.h>

enum console_rest { CONSOLE_FRESH, CONSOLE_TEXT, CONSOLE_BAR };

struct console {
    bool can_erase; /* a terminal that knows ESC [ K */
    enum console_rest rest;
    const void *owner; /* whose line it is that has no end yet */
};

/* `owner` writes the data (not nothing), after what is returned: "", a line's end, or
 * what takes another's bar away. */
const char *console_join(struct console *c, const void *owner, const char *data,
                         size_t size);

/* What a stream's bar shows, so that it can be drawn once more where another has taken
 * its place before its line's end comes. */
enum { CONSOLE_BAR_MAX = 512 };

struct console_bar {
    size_t size; /* 0: the stream has no bar */
    char text[CONSOLE_BAR_MAX];
};

/* The stream's next text, in any pieces. */
void console_bar_note(struct console_bar *b, const char *data, size_t size);

/* Has this owner begun the line that has no end yet? */
bool console_is_mid_line(const struct console *c, const void *owner);

#endif
