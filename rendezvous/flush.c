/* The end of a turn: what was queued is sent, input that was kept is taken, what failed
 * is closed. */

#include "rendezvous/connection_internal.h"
#include "rendezvous/output.h"

#include "common/err.h"

#include <sys/socket.h>

/* DRAINING, and all is sent. An agent is left the time to read it: closing with its
 * bytes unread would reset the connection, and what was sent with it. */
static void say_end(struct connection *c)
{
    uv_os_fd_t fd;

    if (c->kind != CONN_AGENT && !c->is_refused) {
        connection_fail(c, ERR_CLOSED);
    } else if (!c->is_shut) {
        c->is_shut = true;
        if (uv_fileno((uv_handle_t *)&c->tcp, &fd) < 0 || shutdown(fd, SHUT_WR) < 0) {
            connection_fail(c, ERR_CLOSED);
        }
    }
}

static bool may_go_on(const struct connection *c)
{
    return c->is_choked ? !connection_is_choked(c)
                        : c->state == CONN_OPEN &&
                              (c->has_held ||
                               (!fairq_is_empty(&c->later) && !connection_is_full(c)));
}

static bool has_output(const struct connection *c)
{
    return buf_len(&c->out) > 0 || !fairq_is_empty(&c->bulk) || buf_len(&c->wire) > 0;
}

static void send_out(struct connection *c)
{
    bool may_write = c->why == 0 && c->held_end == 0 && !c->is_writing;

    if (c->state != CONN_CLOSING && may_write && has_output(c)) {
        connection_write_out(c);
    }
}

static void go_on(struct connection *c)
{
    bool is_sent;

    if (c->state == CONN_CLOSING) {
        if (c->is_closed) {
            connection_free(c);
        }
        return;
    }
    if (c->why == 0 && (may_go_on(c) || c->held_end != 0)) {
        connection_take_kept(c);
    }
    is_sent = !c->is_writing && !has_output(c);
    if (c->state == CONN_DRAINING && c->why == 0 && is_sent) {
        say_end(c);
    }
    if (c->why != 0) {
        connection_close_now(c);
    } else {
        connection_charge(c);
    }
}

void pool_flush(struct connection_pool *p)
{
    while (p->dirty && p->hold == HOLD_NOTHING) {
        struct connection *c = p->dirty;

        p->dirty = c->next_dirty;
        c->is_dirty = false;
        send_out(c);
        go_on(c); /* may make others dirty, and itself again */
        if (!p->dirty && p->buffered > p->config.max_buffered) {
            pool_shed(p);
        }
    }
}

void pool_set_hold(struct connection_pool *p, enum pool_hold hold)
{
    p->hold = hold;
}

void pool_send(struct connection_pool *p)
{
    ASSERT(p->hold == HOLD_OUTPUT);
    for (struct connection *c = p->dirty; c; c = c->next_dirty) {
        send_out(c);
    }
}

bool pool_go_on(struct connection_pool *p)
{
    struct connection *c = p->dirty;

    ASSERT(p->hold == HOLD_OUTPUT);
    p->dirty = NULL;
    while (c) {
        struct connection *next = c->next_dirty;

        c->is_dirty = false;
        go_on(c); /* may make others dirty, and itself again */
        c = next;
    }
    if (!p->dirty && p->buffered > p->config.max_buffered) {
        pool_shed(p);
    }
    return p->dirty != NULL;
}
