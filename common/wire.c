#include "common/wire.h"

#include "common/err.h"

#include <endian.h>
#include <string.h>

void wire_reader_init(struct wire_reader *r, const void *data, size_t size)
{
    *r = (struct wire_reader){.data = data, .left = size};
}

const uint8_t *wire_get_raw(struct wire_reader *r, size_t size)
{
    const uint8_t *at = r->data;

    if (r->bad || size > r->left) {
        r->bad = true;
        return NULL;
    }
    r->data += size;
    r->left -= size;
    return at;
}

uint8_t wire_get_u8(struct wire_reader *r)
{
    const uint8_t *at = wire_get_raw(r, 1);

    return at ? at[0] : 0;
}

uint16_t wire_get_u16(struct wire_reader *r)
{
    const uint8_t *at = wire_get_raw(r, sizeof(uint16_t));
    uint16_t v = 0;

    if (at) {
        memcpy(&v, at, sizeof(v));
    }
    return le16toh(v);
}

uint32_t wire_get_u32(struct wire_reader *r)
{
    const uint8_t *at = wire_get_raw(r, sizeof(uint32_t));
    uint32_t v = 0;

    if (at) {
        memcpy(&v, at, sizeof(v));
    }
    return le32toh(v);
}

uint64_t wire_get_u64(struct wire_reader *r)
{
    const uint8_t *at = wire_get_raw(r, sizeof(uint64_t));
    uint64_t v = 0;

    if (at) {
        memcpy(&v, at, sizeof(v));
    }
    return le64toh(v);
}

const uint8_t *wire_get_bytes(struct wire_reader *r, size_t max, size_t *ret_size)
{
    size_t size = wire_get_u32(r);
    const uint8_t *at;

    if (size > max) {
        r->bad = true;
    }
    at = wire_get_raw(r, size);
    *ret_size = at ? size : 0;
    return at;
}

void wire_get_text(struct wire_reader *r, char *text, size_t size)
{
    size_t len = 0;
    const uint8_t *at = wire_get_bytes(r, size - 1, &len);

    if (at && memchr(at, 0, len)) {
        r->bad = true;
        len = 0;
    }
    if (at) {
        memcpy(text, at, len);
    }
    text[len] = '\0';
}

bool wire_reader_done(const struct wire_reader *r)
{
    return !r->bad && r->left == 0;
}

int wire_put_u8(struct buf *b, uint8_t v)
{
    return buf_append(b, &v, sizeof(v));
}

int wire_put_u16(struct buf *b, uint16_t v)
{
    uint16_t le = htole16(v);

    return buf_append(b, &le, sizeof(le));
}

int wire_put_u32(struct buf *b, uint32_t v)
{
    uint32_t le = htole32(v);

    return buf_append(b, &le, sizeof(le));
}

int wire_put_u64(struct buf *b, uint64_t v)
{
    uint64_t le = htole64(v);

    return buf_append(b, &le, sizeof(le));
}

int wire_put_bytes(struct buf *b, const void *data, size_t size)
{
    uint8_t *space;
    uint32_t le = htole32((uint32_t)size);
    int rv;

    if (size > UINT32_MAX - sizeof(le)) {
        return ERR_TOO_LARGE;
    }
    rv = buf_reserve(b, sizeof(le) + size, &space);
    if (rv < 0) {
        return rv;
    }
    memcpy(space, &le, sizeof(le));
    if (size > 0) {
        memcpy(space + sizeof(le), data, size);
    }
    buf_commit(b, sizeof(le) + size);
    return 0;
}

int wire_put_text(struct buf *b, const char *text)
{
    return wire_put_bytes(b, text, strlen(text));
}
