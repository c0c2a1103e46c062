#include "common/msg.h"

#include "common/err.h"
#include "common/wire_fields.h"

#include <signal.h>
#include <string.h>

enum { MAX_EXIT_CODE = 255, max_bytes = MSG_MAX_FRAME };

/* One encoder and one decoder per message, made from its field table. */
#define CODEC(NAME, name, number)                                                      \
    static int put_##name(const struct msg_##name *from, struct buf *out)              \
    {                                                                                  \
        int rv = 0;                                                                    \
                                                                                       \
        MSG_##NAME##_FIELDS(WIRE_PUT_U, WIRE_PUT_I, WIRE_PUT_T, WIRE_PUT_B) return rv; \
    }                                                                                  \
    static void get_##name(struct msg_##name *to, struct wire_reader *r)               \
    {                                                                                  \
        MSG_##NAME##_FIELDS(WIRE_GET_U, WIRE_GET_I, WIRE_GET_T, WIRE_GET_B)            \
    }
MSG_MAP(CODEC)
#undef CODEC

static int put_payload(const struct msg *m, struct buf *out)
{
    switch (m->type) {
#define PUT_CASE(NAME, name, number) \
    case MSG_##NAME:                 \
        return put_##name(&m->u.name, out);
        MSG_MAP(PUT_CASE)
#undef PUT_CASE
    }
    UNREACHABLE();
}

static int get_payload(struct msg *m, struct wire_reader *r)
{
    switch (m->type) {
#define GET_CASE(NAME, name, number) \
    case MSG_##NAME:                 \
        get_##name(&m->u.name, r);   \
        return 0;
        MSG_MAP(GET_CASE)
#undef GET_CASE
    }
    return ERR_PROTOCOL;
}

int msg_encode(const struct msg *m, struct buf *out)
{
    size_t before = buf_len(out);
    size_t length;
    uint8_t *head;
    int rv;

    rv = wire_put_u32(out, 0);
    rv = rv < 0 ? rv : wire_put_u8(out, (uint8_t)m->type);
    rv = rv < 0 ? rv : put_payload(m, out);
    length = buf_len(out) - before;
    if (rv == 0 && length - sizeof(uint32_t) > MSG_MAX_FRAME) {
        rv = ERR_TOO_LARGE;
    }
    if (rv < 0) {
        out->end -= length; /* as if nothing had been appended */
        return rv;
    }
    length -= sizeof(uint32_t);
    head = out->data + out->start + before;
    for (unsigned i = 0; i < sizeof(uint32_t); i++) {
        head[i] = (uint8_t)(length >> (8 * i));
    }
    return 0;
}

/* Who begins a conversation says its version first: of another one nothing else can be
 * understood, but that it is another. */
static bool is_of_another_version(struct msg *m, struct wire_reader *r)
{
    struct wire_reader first = *r;
    uint16_t version = wire_get_u16(&first);

    if ((m->type != MSG_HELLO && m->type != MSG_OPERATOR) || first.bad ||
        version == MSG_VERSION) {
        return false;
    }
    if (m->type == MSG_HELLO) {
        m->u.hello = (struct msg_hello){.version = version};
    } else {
        m->u.operator=(struct msg_operator){.version = version};
    }
    return true;
}

int msg_decode(const uint8_t *data, size_t size, struct msg *ret)
{
    struct wire_reader r;
    size_t length;

    wire_reader_init(&r, data, size);
    if (size < sizeof(uint32_t)) {
        return 0;
    }
    length = wire_get_u32(&r);
    if (length == 0) {
        return ERR_PROTOCOL;
    }
    if (length > MSG_MAX_FRAME) {
        return ERR_TOO_LARGE;
    }
    if (r.left < length) {
        return 0;
    }
    r.left = length;
    ret->type = (enum msg_type)wire_get_u8(&r);
    if (!is_of_another_version(ret, &r) &&
        (get_payload(ret, &r) < 0 || !wire_reader_done(&r))) {
        return ERR_PROTOCOL;
    }
    return (int)(sizeof(uint32_t) + length);
}

const char *msg_name(enum msg_type type)
{
    switch (type) {
#define NAME_CASE(NAME, name, number) \
    case MSG_##NAME:                  \
        return #name;
        MSG_MAP(NAME_CASE)
#undef NAME_CASE
    }
    return "unknown";
}

bool msg_is_end(int32_t exit_code, int32_t signal)
{
    return exit_code >= 0 && exit_code <= MAX_EXIT_CODE && signal >= 0 &&
           signal < _NSIG;
}

int msg_node_encode(const struct msg_node *node, struct buf *out)
{
    int rv;

    rv = wire_put_u32(out, node->nproc);
    rv = rv < 0 ? rv : wire_put_text(out, node->addr);
    rv = rv < 0 ? rv : wire_put_u16(out, node->port);
    return rv < 0 ? rv : wire_put_text(out, node->host);
}

int msg_place_encode(const struct msg_place *place, struct buf *out)
{
    int rv;

    rv = wire_put_u32(out, place->rank);
    rv = rv < 0 ? rv : wire_put_u8(out, place->what);
    return rv < 0 ? rv : wire_put_u64(out, place->offset);
}

bool msg_place_take(struct bytes *places, struct msg_place *ret)
{
    struct wire_reader r;

    wire_reader_init(&r, places->data, places->size);
    ret->rank = wire_get_u32(&r);
    ret->what = wire_get_u8(&r);
    ret->offset = wire_get_u64(&r);
    if (r.bad) {
        return false;
    }
    *places = (struct bytes){r.data, r.left};
    return true;
}

uint32_t msg_round_nodes(const struct msg_round *m)
{
    return m->group_rank == 0 ? m->group_world : 1;
}

int msg_nodes_decode(struct bytes table, struct msg_node *nodes, size_t n)
{
    struct wire_reader r;

    wire_reader_init(&r, table.data, table.size);
    for (size_t i = 0; i < n && !r.bad; i++) {
        nodes[i].nproc = wire_get_u32(&r);
        wire_get_text(&r, nodes[i].addr, sizeof(nodes[i].addr));
        nodes[i].port = wire_get_u16(&r);
        wire_get_text(&r, nodes[i].host, sizeof(nodes[i].host));
    }
    return wire_reader_done(&r) ? 0 : ERR_PROTOCOL;
}
