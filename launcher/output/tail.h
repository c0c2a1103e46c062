#ifndef LAUNCHER_OUTPUT_TAIL_H
#define LAUNCHER_OUTPUT_TAIL_H

/* PURE. The last bytes of a stream of output, and its last lines as text. */

#include <stdbool.h>
#include <stddef.h>

enum { TAIL_LINES = 20, TAIL_BYTES = 8191 };

struct tail {
    char bytes[TAIL_BYTES];
    size_t size;
    bool is_cut; /* something before the first byte was dropped */
    char text[TAIL_BYTES + 1];
};

void tail_clear(struct tail *t);
void tail_add(struct tail *t, const void *data, size_t size);

/* At most TAIL_LINES whole lines (a single longer one is cut in front), '\0' shown as
 * '?'. Valid until the next call. */
const char *tail_text(struct tail *t);

#endif
