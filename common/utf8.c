#include "common/utf8.h"

#include "common/err.h"

#include <stdbool.h>
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd";

struct range {
    uint32_t first, last;
};

static bool is_in(const struct range *ranges, size_t n, uint32_t code)
{
    for (size_t i = 0; i < n; i++) {
        if (code >= ranges[i].first && code <= ranges[i].last) {
            return true;
        }
    }
    return false;
}

/* The least code that may be written in so many bytes. */
static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};

size_t utf8_decode(const uint8_t *s, size_t size, uint32_t *ret_code)
{
    static const uint8_t masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    size_t n;
    uint32_t code;

    if (size == 0) {
        return 0;
    }
    n = s[0] < 0x80 ? 1 : s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n == 0 || n > size || s[0] > 0xf4) {
        return 0;
    }
    code = s[0] & masks[n];
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
        code = code << 6 | (s[i] & 0x3fU);
    }
    if (code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
        return 0;
    }
    *ret_code = code;
    return n;
}

/* Control characters; what Unicode 14 has as Bidi_Control (PropList.txt), as separators
 * of lines and paragraphs (Zl, Zp), and further format characters that are none of a
 * text's own: deprecated ones, annotations, tags. */
bool utf8_is_wild(uint32_t code)
{
    static const struct range wild[] = {
        {0, 0x1f},        {0x7f, 0x9f},     {0x61c, 0x61c},   {0x200e, 0x200f},
        {0x2028, 0x202e}, {0x2066, 0x206f}, {0xfff9, 0xfffb}, {0xe0000, 0xe0fff},
    };

    return is_in(wild, ARRAY_LEN(wild), code);
}

/* The rest of Default_Ignorable_Code_Point (DerivedCoreProperties.txt), but for variation
 * selectors, which change how a character looks. */
static bool is_unseen(uint32_t code)
{
    static const struct range unseen[] = {
        {0xad, 0xad},       {0x34f, 0x34f},   {0x115f, 0x1160}, {0x17b4, 0x17b5},
        {0x180e, 0x180e},   {0x200b, 0x200d}, {0x2060, 0x2065}, {0x3164, 0x3164},
        {0xfeff, 0xfeff},   {0xffa0, 0xffa0}, {0xfff0, 0xfff8}, {0x1bca0, 0x1bca3},
        {0x1d173, 0x1d17a},
    };

    return is_in(unseen, ARRAY_LEN(unseen), code);
}

bool utf8_is_name(const char *text)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t size = strlen(text);
    uint32_t code;

    while (size > 0) {
        size_t n = utf8_decode(s, size, &code);

        if (n == 0 || utf8_is_wild(code) || is_unseen(code)) {
            return false;
        }
        s += n;
        size -= n;
    }
    return true;
}

int utf8_clean(struct buf *out, const void *data, size_t size)
{
    const uint8_t *s = data;
    int rv = 0;

    for (size_t i = 0; i < size && rv == 0;) {
        uint32_t code = 0;
        size_t n = utf8_decode(s + i, size - i, &code);

        rv = code == 0 ? buf_append(out, replacement, sizeof(replacement) - 1)
                       : buf_append(out, s + i, n);
        i += n > 0 ? n : 1;
    }
    return rv;
}

int utf8_tame(struct buf *out, const void *data, size_t size)
{
    const uint8_t *s = data;
    int rv = 0;

    for (size_t i = 0; i < size && rv == 0;) {
        uint32_t code = 0;
        size_t n = utf8_decode(s + i, size - i, &code);

        if (n == 0) {
            rv = buf_append(out, replacement, sizeof(replacement) - 1);
        } else if (code == '\t' || code == '\n') {
            rv = buf_append(out, " ", 1);
        } else if (utf8_is_wild(code)) {
            rv = buf_append(out, "?", 1);
        } else {
            rv = buf_append(out, s + i, n);
        }
        i += n > 0 ? n : 1;
    }
    return rv;
}

static size_t columns_of(uint32_t code)
{
    static const struct range combining[] = {
        {0x300, 0x36f},   {0x200b, 0x200d}, {0x20d0, 0x20ff},
        {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xfeff, 0xfeff},
    };
    static const struct range wide[] = {
        {0x1100, 0x115f},   {0x2e80, 0xa4cf},   {0xac00, 0xd7a3}, {0xf900, 0xfaff},
        {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6}, {0x1f300, 0x1f64f},
        {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd},
    };

    return is_in(combining, ARRAY_LEN(combining), code) ? 0
           : is_in(wide, ARRAY_LEN(wide), code)         ? 2
                                                        : 1;
}

size_t utf8_columns(const char *text, size_t size)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t columns = 0;

    for (size_t i = 0; i < size;) {
        uint32_t code = 0;
        size_t n = utf8_decode(s + i, size - i, &code);

        columns += columns_of(code);
        i += n > 0 ? n : 1;
    }
    return columns;
}
