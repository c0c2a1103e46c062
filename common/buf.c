#include "common/buf.h"

#include "common/err.h"
#include "common/mem.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){.max = max};
}

void buf_release(struct buf *b)
{
    mem_free(b->data);
    buf_init(b, b->max);
}

void buf_clear(struct buf *b)
{
    b->start = 0;
    b->end = 0;
}

int buf_reserve(struct buf *b, size_t size, uint8_t **ret)
{
    size_t used = buf_len(b);
    bool is_short = b->capacity - b->end < size;
    /* little was consumed: moving the rest up for that, again and again, would cost more
     * than the bytes themselves */
    bool is_cramped = is_short && b->start < used / 2 && b->capacity < b->max;
    size_t wanted;

    if (size > b->max || used > b->max - size) {
        return ERR_TOO_LARGE;
    }
    if (is_short && b->start > 0) {
        memmove(b->data, b->data + b->start, used);
        b->start = 0;
        b->end = used;
    }
    /* also for no bytes: NULL + 0 */
    if (!b->data || is_cramped || b->capacity - b->end < size) {
        wanted = MAX(used + size, MIN(b->capacity * 2, b->max));
        wanted = MAX(wanted, 64);
        b->data = mem_grow(b->data, wanted, 1);
        b->capacity = wanted;
    }
    *ret = b->data + b->end;
    return 0;
}

void buf_commit(struct buf *b, size_t size)
{
    ASSERT(size <= b->capacity - b->end);
    b->end += size;
}

int buf_append(struct buf *b, const void *data, size_t size)
{
    uint8_t *space;
    int rv;

    rv = buf_reserve(b, size, &space);
    if (rv < 0) {
        return rv;
    }
    if (size > 0) {
        memcpy(space, data, size);
    }
    b->end += size;
    return 0;
}

void buf_consume(struct buf *b, size_t size)
{
    ASSERT(size <= buf_len(b));
    b->start += size;
    if (b->start == b->end) {
        buf_clear(b);
    }
}

int buf_vprintf(struct buf *b, const char *fmt, va_list args)
{
    char *text = NULL;
    int n = vasprintf(&text, fmt, args);
    int rv;

    ASSERT(n >= 0);
    rv = buf_append(b, text, (size_t)n);
    mem_free(text);
    return rv;
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list args;
    int rv;

    va_start(args, fmt);
    rv = buf_vprintf(b, fmt, args);
    va_end(args);
    return rv;
}
