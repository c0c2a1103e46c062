/* What is to be sent is put into a connection's buffers; connection.c writes it. */

#include "rendezvous/output.h"

#include "rendezvous/frames.h"

#include "common/err.h"

void connection_set_limits(struct connection *c, size_t choke_at, size_t max)
{
    c->choke_at = choke_at;
    c->out.max = max;
    c->bulk.max = max;
}

void connection_set_max_later(struct connection *c, size_t max_later)
{
    c->max_later = max_later;
}

void connection_send(struct connection *c, const void *data, size_t size)
{
    if (c->state != CONN_OPEN || c->why != 0) {
        return;
    }
    if (buf_append(&c->out, data, size) < 0) {
        connection_fail(c, ERR_TOO_LARGE);
    }
    c->n_queued += size;
    connection_mark_dirty(c);
}

static void add_frame(struct connection *c, const struct msg *m, struct buf *to)
{
    size_t before = buf_len(to);

    if (c->state != CONN_OPEN || c->why != 0) {
        return;
    }
    if (msg_encode(m, to) < 0) {
        connection_fail(c, ERR_TOO_LARGE);
    }
    c->n_queued += buf_len(to) - before;
    connection_mark_dirty(c);
}

void connection_send_msg(struct connection *c, const struct msg *m)
{
    add_frame(c, m, &c->out);
}

void connection_send_bulk(struct connection *c, const struct msg *m)
{
    add_frame(c, m, &c->bulk);
}

void connection_drop_bulk(struct connection *c, uint64_t generation, uint32_t client)
{
    if (buf_len(&c->bulk) == 0) {
        return;
    }
    if (!frames_gone_add(&c->gone, generation, client)) {
        c->n_queued -= frames_drop_replies(&c->bulk, &c->gone);
    }
    connection_mark_dirty(c);
}
