#include "tests/lib/body.h"

#include "common/wire.h"

#include <string.h>

enum { BODY_MAX = 256 << 20 };

static int put_string(struct buf *out, const void *data, size_t size)
{
    int rv = wire_put_u64(out, size);

    return rv < 0 ? rv : buf_append(out, data, size);
}

/* NOLINTBEGIN(clang-analyzer-valist.Uninitialized): clang 14 loses sight of va_copy
 * when it reads several files */
void body_vmake(struct buf *out, const char *format, va_list given)
{
    va_list args;
    const void *data;
    int rv = 0;

    va_copy(args, given);
    buf_init(out, BODY_MAX);
    for (const char *p = format; *p != '\0'; p++) {
        switch (*p) {
        case 's':
            data = va_arg(args, const char *);
            rv = put_string(out, data, strlen(data));
            break;
        case 'b':
            data = va_arg(args, const void *);
            rv = put_string(out, data, va_arg(args, size_t));
            break;
        case 'i':
            rv = wire_put_u64(out, (uint64_t)va_arg(args, int64_t));
            break;
        case 'u':
            rv = wire_put_u32(out, va_arg(args, uint32_t));
            break;
        case 'n':
            rv = wire_put_u64(out, (uint64_t)va_arg(args, int));
            break;
        default:
            UNREACHABLE();
        }
        ASSERT(rv == 0);
    }
    va_end(args);
}
/* NOLINTEND(clang-analyzer-valist.Uninitialized) */

void body_make(struct buf *out, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    body_vmake(out, format, args);
    va_end(args);
}
