/* Happy path: nobody holds much. 1. Who does not read is not read (choked) once it
 * is behind; 2. once all
 * hold much together, everybody is choked early; 3. once they hold too much, one is
 * closed. 4. Most of a crowd have gone: the system gets their memory back. */

#include "rendezvous/output.h"

#include "common/err.h"

#include <linux/sockios.h>
#include <malloc.h>
#include <sys/ioctl.h>

enum { A_CROWD = 512 }; /* about 10 MiB, with TLS */

/* A limit of one connection, which is low when all hold much together. */
static size_t current_limit(const struct connection *c, size_t limit)
{
    const struct connection_pool *p = c->pool;
    bool is_scarce = p->buffered > p->config.max_buffered / 2;

    return is_scarce ? MIN(limit, (size_t)CONNECTION_CHOKED_AT) : limit;
}

static size_t output_of(const struct connection *c)
{
    return buf_len(&c->out) + c->bulk.size + buf_len(&c->wire) + buf_len(&c->sent);
}

bool connection_is_behind(const struct connection *c)
{
    return output_of(c) > current_limit(c, c->choke_at);
}

bool connection_is_full(const struct connection *c)
{
    return output_of(c) / 2 > current_limit(c, c->choke_at);
}

bool connection_owes_much(const struct connection *c, uint64_t generation,
                          uint32_t client)
{
    return fairq_size_of(&c->bulk, generation, client) > OUTPUT_SMALL;
}

bool connection_must_wait(const struct connection *c, uint64_t generation,
                          uint32_t client)
{
    return connection_is_full(c) || connection_owes_much(c, generation, client) ||
           fairq_size_of(&c->later, generation, client) > 0;
}

bool connection_is_choked(const struct connection *c)
{
    return connection_is_behind(c) && c->later.size >= current_limit(c, c->max_later);
}

/* What the peer's machine has not acknowledged. */
static uint64_t not_taken(const struct connection *c)
{
    size_t waiting = uv_stream_get_write_queue_size((const uv_stream_t *)&c->tcp);
    int in_kernel = 0;
    uv_os_fd_t fd;

    if (uv_fileno((const uv_handle_t *)&c->tcp, &fd) == 0 &&
        ioctl(fd, SIOCOUTQ, &in_kernel) < 0) {
        in_kernel = 0; /* it is no socket of TCP's: libuv's count must do */
    }
    return buf_len(&c->out) + c->bulk.size + buf_len(&c->wire) + waiting +
           (uint64_t)in_kernel;
}

bool connection_took(struct connection *c)
{
    uint64_t before = c->n_taken;

    if (!connection_is_behind(c)) {
        return false;
    }
    c->n_taken = c->n_queued - MIN(c->n_queued, not_taken(c));
    return c->n_taken > before;
}

/* Whether `c` is to be closed rather than `than`: an agent, on which a node depends, is
 * the last; else the one that holds more. */
static bool is_cheaper(const struct connection *c, const struct connection *than)
{
    bool is_agent = c->kind == CONN_AGENT;

    if (c->why != 0 || c->charged == 0) {
        return false;
    }
    if (!than || is_agent != (than->kind == CONN_AGENT)) {
        return !than || !is_agent;
    }
    return c->charged > than->charged;
}

void pool_shed(struct connection_pool *p)
{
    struct connection *victim = NULL;
    struct connection *c = NULL;

    while ((c = pool_next(p, c)) != NULL) {
        victim = is_cheaper(c, victim) ? c : victim;
    }
    if (victim) {
        connection_fail(victim, ERR_TOO_LARGE);
    }
}

bool pool_crowd_has_gone(size_t *crowd, size_t n)
{
    bool has_gone = *crowd >= A_CROWD && n <= *crowd / 4;

    *crowd = has_gone ? n : MAX(*crowd, n + 1); /* one has just gone */
    return has_gone;
}

void pool_settle(struct connection_pool *p)
{
    if (pool_crowd_has_gone(&p->crowd, p->connections.count)) {
        (void)malloc_trim(0); /* whether there was any */
    }
}
