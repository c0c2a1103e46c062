#include "rendezvous/turns.h"

#include "rendezvous/limits.h"
#include "rendezvous/output.h"
#include "rendezvous/service.h"

#include "common/err.h"
#include "common/log.h"

static bool is_open(const struct connection *c)
{
    return c->state == CONN_OPEN && c->why == 0;
}

static int take_message(const struct turns *t, struct connection *c,
                        const struct msg *m)
{
    int rv = t->on_message(t->arg, c, m);

    if (rv < 0) {
        log_debug("a message out of place", "peer=%s type=%s", c->peer,
                  msg_name(m->type));
    } else {
        connection_know(c);
    }
    return rv;
}

/* Whose request it is. */
static void client_of(const struct msg *m, uint64_t *ret_generation,
                      uint32_t *ret_client)
{
    bool is_close = m->type == MSG_STORE_CLOSE;

    *ret_generation = is_close ? m->u.store_close.generation : m->u.store.generation;
    *ret_client = is_close ? m->u.store_close.client : m->u.store.client;
}

/* Requests put aside, in turns of the clients, of those that have got their replies. A
 * turn may cost megabytes: who came last does not wait for all who came before, nor they
 * for those who come after them, but for half of the turns. */
static int take_later(const struct turns *t, struct connection *c)
{
    size_t n_owing = 0;
    uint64_t generation;
    uint64_t before;
    uint32_t client;
    struct msg m;
    int rv = 0;

    while (rv == 0 && is_open(c) && n_owing < c->later.clients.count &&
           !connection_is_full(c)) {
        struct bytes frame;
        int n;

        if (c->is_newest_next) {
            fairq_turn_back(&c->later);
        }
        frame = fairq_front(&c->later);
        n = msg_decode(frame.data, frame.size, &m);

        ASSERT(n > 0); /* it was before */
        client_of(&m, &generation, &client);
        if (connection_owes_much(c, generation, client)) {
            fairq_skip(&c->later);
            n_owing++;
            c->is_newest_next = false;
            continue;
        }
        before = c->n_queued;
        rv = take_message(t, c, &m);
        fairq_pop(&c->later, (size_t)(c->n_queued - before)); /* and its reply */
        c->is_newest_next = !c->is_newest_next;
    }
    return rv;
}

/* A worker's connection is gone: nobody waits for the replies, those that lie here are
 * left out, and what it asked for before is over with at once: it changes the store, or
 * costs nothing. */
static int take_end(const struct turns *t, struct connection *c, const struct msg *end)
{
    const struct msg_store_close *gone = &end->u.store_close;
    struct bytes frame;
    struct msg m;
    int rv = 0;

    frame = fairq_front_of(&c->later, gone->generation, gone->client);
    if (frame.size > 0) {
        service_forsake(t->service, c->id, gone);
    }
    while (rv == 0 && is_open(c) && frame.size > 0) {
        int n = msg_decode(frame.data, frame.size, &m);

        ASSERT(n > 0); /* it was before */
        rv = take_message(t, c, &m);
        fairq_pop_of(&c->later, gone->generation, gone->client);
        frame = fairq_front_of(&c->later, gone->generation, gone->client);
    }
    connection_drop_bulk(c, gone->generation, gone->client);
    return rv == 0 && is_open(c) ? take_message(t, c, end) : rv;
}

/* The requests of a worker that is behind with its replies are put aside: all else, a
 * commit above all, must not wait for them, and relies on them as little as on the
 * replies. */
static int take_request(const struct turns *t, struct connection *c,
                        const struct msg *m)
{
    uint64_t generation;
    uint32_t client;

    if (m->type == MSG_STORE_CLOSE && m->u.store_close.seq == 0) {
        return take_end(t, c, m);
    }
    client_of(m, &generation, &client);
    if (!connection_must_wait(c, generation, client)) {
        return take_message(t, c, m);
    }
    t->on_heard(t->arg, c);
    return fairq_push(&c->later, m);
}

int turns_take(const struct turns *t, struct connection *c, const uint8_t *data,
               size_t size)
{
    size_t at = 0;
    struct msg m;
    int n = 1;
    int rv = take_later(t, c);

    while (rv == 0 && is_open(c) && !connection_is_choked(c)) {
        n = msg_decode(data + at, size - at, &m);
        if (n <= 0) {
            break;
        }
        if (m.type == MSG_STORE || m.type == MSG_STORE_CLOSE) {
            rv = take_request(t, c, &m);
        } else {
            rv = take_message(t, c, &m);
        }
        at += (size_t)n;
    }
    n = rv < 0 ? rv : n;
    if (n == 0 && !c->is_known && size - at > LIMIT_HELLO) {
        n = ERR_TOO_LARGE;
    }
    return n < 0 ? n : (int)at;
}
