#include "tests/lib/hex.h"

#include "common/check.h"

#include <ctype.h>
#include <string.h>

static unsigned digit(char c)
{
    const char *digits = "0123456789abcdef";
    const char *at = strchr(digits, tolower((unsigned char)c));

    ASSERT(c != '\0' && at);
    return (unsigned)(at - digits);
}

size_t hex_decode(const char *text, uint8_t *bytes, size_t max)
{
    size_t n = 0;

    for (const char *p = text; *p != '\0'; p++) {
        if (*p == ' ') {
            continue;
        }
        ASSERT(n < max);
        bytes[n++] = (uint8_t)(digit(p[0]) << 4 | digit(p[1]));
        p++;
    }
    return n;
}
