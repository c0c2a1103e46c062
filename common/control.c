#include "common/control.h"

#include "common/err.h"
#include "common/wire.h"

/* All fields of all types: short, and one place to read. A packet is far below
 * CONTROL_MAX even so. */
int control_encode(const struct control *c, struct buf *out)
{
    int rv;

    buf_clear(out);
    rv = wire_put_u8(out, (uint8_t)c->type);
    rv = rv < 0 ? rv : wire_put_text(out, c->path);
    rv = rv < 0 ? rv : wire_put_text(out, c->phase);
    rv = rv < 0 ? rv : wire_put_u32(out, c->max_world);
    rv = rv < 0 ? rv : wire_put_u32(out, c->code);
    rv = rv < 0 ? rv : wire_put_text(out, c->text);
    rv = rv < 0 ? rv : wire_put_u32(out, c->run);
    rv = rv < 0 ? rv : wire_put_u64(out, c->step);
    rv = rv < 0 ? rv : wire_put_text(out, c->hash);
    rv = rv < 0 ? rv : wire_put_u64(out, c->cluster);
    rv = rv < 0 ? rv : wire_put_u32(out, c->tok_s);
    rv = rv < 0 ? rv : wire_put_u32(out, c->waits_for);
    rv = rv < 0 ? rv : wire_put_text(out, c->loss);
    rv = rv < 0 ? rv : wire_put_u8(out, c->accepted);
    return rv < 0 ? rv : wire_put_u8(out, c->is_commit);
}

static bool is_known(enum control_type type)
{
    return (type >= CONTROL_HELLO && type <= CONTROL_COMMIT) ||
           (type >= CONTROL_START && type <= CONTROL_DECISION);
}

int control_decode(const void *data, size_t size, struct control *ret)
{
    struct wire_reader r;

    wire_reader_init(&r, data, size);
    ret->type = (enum control_type)wire_get_u8(&r);
    wire_get_text(&r, ret->path, sizeof(ret->path));
    wire_get_text(&r, ret->phase, sizeof(ret->phase));
    ret->max_world = wire_get_u32(&r);
    ret->code = wire_get_u32(&r);
    wire_get_text(&r, ret->text, sizeof(ret->text));
    ret->run = wire_get_u32(&r);
    ret->step = wire_get_u64(&r);
    wire_get_text(&r, ret->hash, sizeof(ret->hash));
    ret->cluster = wire_get_u64(&r);
    ret->tok_s = wire_get_u32(&r);
    ret->waits_for = wire_get_u32(&r);
    wire_get_text(&r, ret->loss, sizeof(ret->loss));
    ret->loss_step = ret->step;
    ret->accepted = wire_get_u8(&r) != 0;
    ret->is_commit = wire_get_u8(&r) != 0;
    return wire_reader_done(&r) && is_known(ret->type) ? 0 : ERR_PROTOCOL;
}
