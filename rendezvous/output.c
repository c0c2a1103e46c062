/* What is to be sent is put into a connection's buffers; connection_io.c writes it. */

#include "rendezvous/output.h"

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

void connection_send_msg(struct connection *c, const struct msg *m)
{
    size_t before = buf_len(&c->out);

    if (c->state != CONN_OPEN || c->why != 0) {
        return;
    }
    if (msg_encode(m, &c->out) < 0) {
        connection_fail(c, ERR_TOO_LARGE);
    }
    c->n_queued += buf_len(&c->out) - before;
    connection_mark_dirty(c);
}

void connection_send_bulk(struct connection *c, const struct msg *m)
{
    size_t before = c->bulk.size;

    if (c->state != CONN_OPEN || c->why != 0) {
        return;
    }
    if (fairq_is_empty(&c->bulk) && buf_len(&c->out) < OUTPUT_BULK_AT_ONCE) {
        connection_send_msg(c, m); /* nobody's turn is before it */
        return;
    }
    if (fairq_push(&c->bulk, m) < 0) {
        connection_fail(c, ERR_TOO_LARGE);
    }
    c->n_queued += c->bulk.size - before;
    connection_mark_dirty(c);
}

void connection_drop_bulk(struct connection *c, uint64_t generation, uint32_t client)
{
    c->n_queued -= fairq_drop_replies(&c->bulk, generation, client);
    connection_mark_dirty(c);
}
