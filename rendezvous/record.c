#include "rendezvous/record.h"

#include "rendezvous/record_fields.h"

#include "common/wire_fields.h"

#include <string.h>

enum { max_bytes = RECORD_LOOSE_MAX };

/* Sizes of texts are those of the agents' protocol: a state may hold texts as long. */
_Static_assert(MSG_ID_MAX >= 256 && MSG_ADDR_MAX >= 64 && MSG_ROLE_MAX >= 128 &&
                   MSG_HASH_MAX >= 40 && MSG_TEXT_MAX >= 1024 && MSG_TAIL_MAX >= 8192,
               "a shorter text needs another version of the records that have it");

/* One encoder and one decoder per value, made from its field table. */
#define CODEC(NAME, name, version)                                           \
    int record_put_##name(const struct record_##name *from, struct buf *out) \
    {                                                                        \
        int rv = wire_put_u8(out, version);                                  \
                                                                             \
        RECORD_##NAME##_FIELDS(WIRE_PUT_U, WIRE_PUT_I, WIRE_PUT_T,           \
                               WIRE_PUT_B) return rv;                        \
    }                                                                        \
    int record_get_##name(struct bytes value, struct record_##name *to)      \
    {                                                                        \
        struct wire_reader reader;                                           \
        struct wire_reader *r = &reader;                                     \
                                                                             \
        wire_reader_init(r, value.data, value.size);                         \
        if (wire_get_u8(r) != (version)) {                                   \
            return r->bad ? ERR_CORRUPT : ERR_UNSUPPORTED;                   \
        }                                                                    \
        RECORD_##NAME##_FIELDS(WIRE_GET_U, WIRE_GET_I, WIRE_GET_T,           \
                               WIRE_GET_B) return wire_reader_done(r)        \
            ? 0                                                              \
            : ERR_CORRUPT;                                                   \
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
