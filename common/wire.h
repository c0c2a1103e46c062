#ifndef COMMON_WIRE_H
#define COMMON_WIRE_H

/* Bounds-checked little-endian cursors. A reader that runs past its end turns bad and
 * yields zeros from then on, so that a decoder checks once, at its end. */

#include "common/buf.h"

#include <stdbool.h>

struct wire_reader {
    const uint8_t *data; /* borrowed: the caller keeps it while it reads */
    size_t left;
    bool bad;
};

void wire_reader_init(struct wire_reader *r, const void *data, size_t size);
uint8_t wire_get_u8(struct wire_reader *r);
uint16_t wire_get_u16(struct wire_reader *r);
uint32_t wire_get_u32(struct wire_reader *r);
uint64_t wire_get_u64(struct wire_reader *r);

/* `size` raw bytes inside the reader's data; NULL (and bad) when they are not there. */
const uint8_t *wire_get_raw(struct wire_reader *r, size_t size);

/* A u32 length, then as many bytes; bad when the length passes `max`. */
const uint8_t *wire_get_bytes(struct wire_reader *r, size_t max, size_t *ret_size);

/* The same, copied into `text` of `size` bytes with a terminator; bad when it does not
 * fit or holds a zero byte. */
void wire_get_text(struct wire_reader *r, char *text, size_t size);

/* True when everything was read, and nothing past the end. */
bool wire_reader_done(const struct wire_reader *r);

/* Writers append to a buf; ERR_TOO_LARGE leaves it as it was. */
int wire_put_u8(struct buf *b, uint8_t v) MUST_CHECK;
int wire_put_u16(struct buf *b, uint16_t v) MUST_CHECK;
int wire_put_u32(struct buf *b, uint32_t v) MUST_CHECK;
int wire_put_u64(struct buf *b, uint64_t v) MUST_CHECK;
int wire_put_bytes(struct buf *b, const void *data,
                   size_t size) MUST_CHECK; /* u32 + bytes */
int wire_put_text(struct buf *b, const char *text) MUST_CHECK;

#endif
