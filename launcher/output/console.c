#include "launcher/output/console.h"

#include "common/check.h"

#include <string.h>

static enum console_rest rest_after(enum console_rest rest, const char *data,
                                    size_t size)
{
    const char *end = memrchr(data, '\n', size);
    const char *last = end ? end + 1 : data;
    size_t n = size - (size_t)(last - data);

    if (n == 0) {
        return CONSOLE_FRESH;
    }
    if (memchr(last, '\r', n)) {
        return CONSOLE_BAR;
    }
    return end || rest == CONSOLE_FRESH ? CONSOLE_TEXT : rest;
}

const char *console_join(struct console *c, const void *owner, const char *data,
                         size_t size)
{
    bool is_others = c->rest != CONSOLE_FRESH && c->owner != owner;
    const char *between = "";

    if (is_others && c->rest == CONSOLE_BAR && c->can_erase) {
        between = "\r\033[K";
    } else if (is_others && (c->rest == CONSOLE_TEXT || data[0] != '\r')) {
        between = "\n";
    }
    c->rest = rest_after(is_others ? CONSOLE_FRESH : c->rest, data, size);
    c->owner = owner;
    return between;
}

bool console_is_mid_line(const struct console *c, const void *owner)
{
    return c->rest != CONSOLE_FRESH && c->owner == owner;
}

static void show(struct console_bar *b, size_t kept, const char *text, size_t size)
{
    size_t added = MIN(size, CONSOLE_BAR_MAX - kept);

    memcpy(b->text + kept, text, added);
    b->size = kept + added;
}

void console_bar_note(struct console_bar *b, const char *data, size_t size)
{
    const char *end = memrchr(data, '\n', size);
    const char *line = end ? end + 1 : data;
    size_t n = size - (size_t)(line - data);
    const char *back = memrchr(line, '\r', n);
    const char *before;

    b->size = end ? 0 : b->size;
    if (!back && b->size > 0) {
        show(b, b->size, line, n);
    } else if (back && back + 1 < line + n) {
        show(b, 0, back + 1, n - (size_t)(back + 1 - line));
    } else if (back && back > line) { /* it goes back behind its text */
        before = memrchr(line, '\r', (size_t)(back - line));
        before = before ? before + 1 : line;
        show(b, 0, before, (size_t)(back - before));
    }
}
