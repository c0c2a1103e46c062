#include "launcher/output/tail.h"

#include "common/check.h"

#include <string.h>

void tail_clear(struct tail *t)
{
    t->size = 0;
    t->is_cut = false;
}

void tail_add(struct tail *t, const void *data, size_t size)
{
    size_t skipped = size > TAIL_BYTES ? size - TAIL_BYTES : 0;
    size_t added = size - skipped;
    size_t kept = MIN(t->size, TAIL_BYTES - added);

    if (added == 0) {
        return;
    }
    t->is_cut = t->is_cut || skipped > 0 || kept < t->size;
    memmove(t->bytes, t->bytes + t->size - kept, kept);
    memcpy(t->bytes + kept, (const char *)data + skipped, added);
    t->size = kept + added;
}

/* Where the last lines begin. */
static size_t find_start(const struct tail *t)
{
    size_t end = t->size > 0 && t->bytes[t->size - 1] == '\n' ? t->size - 1 : t->size;
    unsigned n = 0;
    const char *first;

    for (size_t i = end; i > 0; i--) {
        if (t->bytes[i - 1] == '\n' && ++n == TAIL_LINES) {
            return i;
        }
    }
    first = t->is_cut ? memchr(t->bytes, '\n', end) : NULL;
    return first ? (size_t)(first - t->bytes) + 1 : 0;
}

const char *tail_text(struct tail *t)
{
    size_t start = find_start(t);
    size_t n = t->size - start;

    memcpy(t->text, t->bytes + start, n);
    for (size_t i = 0; i < n; i++) {
        if (t->text[i] == '\0') {
            t->text[i] = '?';
        }
    }
    t->text[n] = '\0';
    return t->text;
}
