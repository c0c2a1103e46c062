#include "rendezvous/record.h"

#include "rendezvous/record_fields.h"

#include "common/wire.h"

#include <string.h>

static int put_i32(struct buf *b, int32_t v)
{
    return wire_put_u32(b, (uint32_t)v);
}

static int put_bytes(struct buf *b, struct bytes bytes)
{
    return wire_put_bytes(b, bytes.data, bytes.size);
}

static struct bytes get_bytes(struct wire_reader *r)
{
    struct bytes bytes;

    bytes.data = wire_get_bytes(r, RECORD_LOOSE_MAX, &bytes.size);
    return bytes;
}

/* One encoder and one decoder per value, made from its field table. */
#define PUT_U(bits, field) rv = rv < 0 ? rv : wire_put_u##bits(out, v->field);
#define PUT_I(field)       rv = rv < 0 ? rv : put_i32(out, v->field);
#define PUT_T(size, field) rv = rv < 0 ? rv : wire_put_text(out, v->field);
#define PUT_B(field)       rv = rv < 0 ? rv : put_bytes(out, v->field);
#define GET_U(bits, field) ret->field = wire_get_u##bits(&r);
#define GET_I(field)       ret->field = (int32_t)wire_get_u32(&r);
#define GET_T(size, field) wire_get_text(&r, ret->field, size);
#define GET_B(field)       ret->field = get_bytes(&r);
#define CODEC(NAME, name)                                                              \
    int record_put_##name(const struct record_##name *v, struct buf *out)              \
    {                                                                                  \
        int rv = wire_put_u8(out, RECORD_VERSION);                                     \
                                                                                       \
        RECORD_##NAME##_FIELDS(PUT_U, PUT_I, PUT_T, PUT_B) return rv;                  \
    }                                                                                  \
    int record_get_##name(struct bytes value, struct record_##name *ret)               \
    {                                                                                  \
        struct wire_reader r;                                                          \
                                                                                       \
        wire_reader_init(&r, value.data, value.size);                                  \
        if (wire_get_u8(&r) != RECORD_VERSION) {                                       \
            return r.bad ? ERR_CORRUPT : ERR_UNSUPPORTED;                              \
        }                                                                              \
        RECORD_##NAME##_FIELDS(GET_U, GET_I, GET_T, GET_B) return wire_reader_done(&r) \
            ? 0                                                                        \
            : ERR_CORRUPT;                                                             \
    }
RECORD_FIELDS_MAP(CODEC)
#undef CODEC

bool record_list_next(struct bytes *list, struct bytes *ret)
{
    struct wire_reader r;

    if (list->size == 0) {
        return false;
    }
    wire_reader_init(&r, list->data, list->size);
    ret->data = wire_get_bytes(&r, RECORD_VALUE_MAX, &ret->size);
    if (r.bad) {
        return false;
    }
    list->data += list->size - r.left;
    list->size = r.left;
    return true;
}

/* --- keys --- */

static void add_number(struct record_key *k, uint64_t v, size_t size)
{
    ASSERT(k->size + size <= sizeof(k->data));
    for (size_t i = 0; i < size; i++) {
        k->data[k->size++] = (uint8_t)(v >> (8 * (size - 1 - i)));
    }
}

void record_key_u64(struct record_key *k, uint64_t v)
{
    add_number(k, v, sizeof(v));
}

void record_key_u32(struct record_key *k, uint32_t v)
{
    add_number(k, v, sizeof(v));
}

void record_key_u8(struct record_key *k, uint8_t v)
{
    add_number(k, v, sizeof(v));
}

struct bytes record_key_bytes(const struct record_key *k)
{
    return (struct bytes){k->data, k->size};
}

int record_take_number(struct bytes *key, size_t size, uint64_t *ret)
{
    if (key->size < size) {
        return ERR_CORRUPT;
    }
    *ret = 0;
    for (size_t i = 0; i < size; i++) {
        *ret = *ret << 8 | key->data[i];
    }
    key->data += size;
    key->size -= size;
    return 0;
}

/* --- order --- */

static int compare_numbers(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare_bytes(struct bytes a, struct bytes b)
{
    size_t size = MIN(a.size, b.size);
    int order = size > 0 ? memcmp(a.data, b.data, size) : 0;

    return order != 0 ? order : compare_numbers(a.size, b.size);
}

int record_compare(const struct record *a, const struct record *b)
{
    int order = compare_numbers(a->kind, b->kind);

    order = order != 0 ? order : strcmp(a->job, b->job);
    order = order != 0 ? order : compare_numbers(a->generation, b->generation);
    return order != 0 ? order : compare_bytes(a->key, b->key);
}
