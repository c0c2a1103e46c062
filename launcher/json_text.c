#include "launcher/json_text.h"

#include <stdarg.h>
#include <stdint.h>
#include <string.h>

enum { REPLACEMENT = 0xfffd, MAX_ASCII = 0x7f, LAST_PLANE = 0x10ffff };

void json_put(struct buf *out, const char *fmt, ...)
{
    va_list ap;
    int rv;

    va_start(ap, fmt);
    rv = buf_vprintf(out, fmt, ap);
    va_end(ap);
    ASSERT(rv == 0);
}

/* Of the character that begins so, in bytes; 0: none does. */
static size_t length_of(unsigned char first)
{
    if (first < 0x80) {
        return 1;
    }
    if (first < 0xc0 || first >= 0xf8) {
        return 0;
    }
    return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
}

/* The character at `text` and how many bytes it takes. */
static size_t decode(const char *text, uint32_t *ret)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *p = (const unsigned char *)text;
    size_t len = length_of(*p);
    uint32_t c = len == 1 ? *p : *p & (0x7fU >> len);

    *ret = REPLACEMENT;
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) { /* the terminator is none either */
            return 1;
        }
        c = c << 6 | (p[i] & 0x3fU);
    }
    if (len == 0 || c < least[len] || c > LAST_PLANE || (c >= 0xd800 && c < 0xe000)) {
        return 1;
    }
    *ret = c;
    return len;
}

static void put_character(struct buf *out, uint32_t c)
{
    static const char letters[] = "btn?fr"; /* from 8 on; 11 has none */

    if (c == '"' || c == '\\') {
        json_put(out, "\\%c", (int)c);
    } else if (c >= '\b' && c <= '\r' && c != '\v') {
        json_put(out, "\\%c", letters[c - '\b']);
    } else if (c >= ' ' && c < MAX_ASCII) {
        json_put(out, "%c", (int)c);
    } else if (c < 0x10000) {
        json_put(out, "\\u%04x", (unsigned)c);
    } else {
        c -= 0x10000;
        json_put(out, "\\u%04x\\u%04x", (unsigned)(0xd800 + (c >> 10)),
                 (unsigned)(0xdc00 + (c & 0x3ff)));
    }
}

void json_put_text(struct buf *out, const char *text)
{
    uint32_t c;

    if (!text) {
        json_put(out, "null");
        return;
    }
    json_put(out, "\"");
    while (*text != '\0') {
        text += decode(text, &c);
        put_character(out, c);
    }
    json_put(out, "\"");
}
