#ifndef COMMON_BUF_H
#define COMMON_BUF_H

/* Growable bytes with a ceiling: nothing that a peer sends can make it grow past `max`.
 * Bytes are appended at the end and consumed at the front. One owner, any thread. */

#include "common/check.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    uint8_t *data; /* owned; first unread byte is data[start] */
    size_t start;
    size_t end;
    size_t capacity;
    size_t max; /* ceiling of end - start */
};

void buf_init(struct buf *b, size_t max);
void buf_release(struct buf *b);
void buf_clear(struct buf *b);

static inline size_t buf_len(const struct buf *b)
{
    return b->end - b->start;
}

static inline const uint8_t *buf_bytes(const struct buf *b)
{
    return b->data + b->start;
}

/* ERR_TOO_LARGE when the ceiling would be passed; then nothing is appended. */
int buf_append(struct buf *b, const void *data, size_t size) MUST_CHECK;

/* Room for `size` more bytes; *ret is where to write them, then call buf_commit. */
int buf_reserve(struct buf *b, size_t size, uint8_t **ret) MUST_CHECK;
void buf_commit(struct buf *b, size_t size);

/* Drops `size` bytes (at most buf_len) from the front. */
void buf_consume(struct buf *b, size_t size);

/* Appends formatted text, without its terminator. */
int buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
int buf_vprintf(struct buf *b, const char *fmt, va_list args) PRINTF_LIKE(2, 0);

#endif
