/* Every collective as a few exchanges. Between nodes of equal size the work is split by
 * local rank: inside the node, then among the ranks of equal place, then inside again,
 * so that each byte crosses the network once per node and not once per rank. */

#include "worker/comm/host.h"

#include <string.h>

static bool is_hierarchical(const struct host_comm *c)
{
    return c->cross.size > 1 && c->node.size > 1;
}

static struct piece floats(int peer, float *data, size_t n)
{
    struct piece p = {.peer = peer, .bytes = n * sizeof(float)};

    p.data = data;
    return p;
}

static int swap(struct host_comm *c, size_t n_send, size_t n_recv,
                struct reducer *reducer, struct errmsg *msg)
{
    struct exchange ex = {c->send, c->recv, n_send, n_recv, reducer};

    return exchange_run(c, &ex, msg);
}

/* bounds[0 … parts]: n floats in parts of whole cache lines, as even as that allows */
static void split(size_t n, int parts, size_t *bounds)
{
    size_t lines = (n + 15) / 16;

    ASSERT(parts > 0);
    for (int i = 0; i <= parts; i++) {
        bounds[i] = MIN(n, (size_t)i * lines / (size_t)parts * 16);
    }
}

/* The own part of the sum, in place; `bounds` in floats, one part for each member. */
static int team_reduce(struct host_comm *c, const struct team *t, float *buf,
                       const size_t *bounds, struct errmsg *msg)
{
    int own = team_index(t, c->base.rank);
    struct reducer reducer = {.team = *t,
                              .own = buf + bounds[own],
                              .dest = buf + bounds[own],
                              .n = bounds[own + 1] - bounds[own]};
    size_t n = 0;

    for (int i = 0; i < t->size; i++) {
        if (i != own) {
            c->send[n++] =
                floats(team_rank(t, i), buf + bounds[i], bounds[i + 1] - bounds[i]);
        }
    }
    return swap(c, n, 0, &reducer, msg);
}

/* Each member brings its part and gets the others'. */
static int team_gather(struct host_comm *c, const struct team *t, float *buf,
                       const size_t *bounds, struct errmsg *msg)
{
    int own = team_index(t, c->base.rank);
    size_t n = 0;

    for (int i = 0; i < t->size; i++) {
        if (i != own) {
            c->send[n] = floats(team_rank(t, i), buf + bounds[own],
                                bounds[own + 1] - bounds[own]);
            c->recv[n++] =
                floats(team_rank(t, i), buf + bounds[i], bounds[i + 1] - bounds[i]);
        }
    }
    return swap(c, n, n, NULL, msg);
}

/* Everybody gets everything and sums for itself: one delay instead of two. */
static int team_all_reduce_small(struct host_comm *c, const struct team *t, float *buf,
                                 size_t n, struct errmsg *msg)
{
    struct reducer reducer = {.team = *t, .own = buf, .dest = c->small, .n = n};
    size_t n_send = 0;
    int rv;

    for (int i = 0; i < t->size; i++) {
        if (team_rank(t, i) != c->base.rank) {
            c->send[n_send++] = floats(team_rank(t, i), buf, n);
        }
    }
    rv = swap(c, n_send, 0, &reducer, msg);
    if (rv == 0) {
        memcpy(buf, c->small, n * sizeof(float));
    }
    return rv;
}

/* Floats that are reduced and gathered before the next. Where the team shares memory,
 * a block that stays in a core's second cache from the first exchange to the last, so
 * that memory is read and written once; that bounds it. Through sockets all, as each
 * exchange costs a delay. */
static size_t block_size(const struct host_comm *c, const struct team *t, size_t n)
{
    for (int i = 0; i < t->size; i++) {
        if (c->link[team_rank(t, i)].kind == LINK_TCP) {
            return n;
        }
    }
    return (size_t)t->size * BLOCK_PART;
}

static int team_all_reduce(struct host_comm *c, const struct team *t, float *buf,
                           size_t n, struct errmsg *msg)
{
    size_t *bounds = c->bounds, block = block_size(c, t, n);
    int rv = 0;

    if (n <= SMALL_FLOATS) {
        return team_all_reduce_small(c, t, buf, n, msg);
    }
    for (size_t at = 0; at < n && rv == 0; at += block) {
        split(MIN(block, n - at), t->size, bounds);
        rv = team_reduce(c, t, buf + at, bounds, msg);
        rv = rv < 0 ? rv : team_gather(c, t, buf + at, bounds, msg);
    }
    return rv;
}

int host_all_reduce(struct host_comm *c, float *buf, size_t n, struct errmsg *msg)
{
    size_t *bounds =
        c->bounds + c->base.world_size + 1; /* the first half is the cross's */
    int own = team_index(&c->node, c->base.rank), rv;

    if (!is_hierarchical(c)) {
        return team_all_reduce(c, &c->all, buf, n, msg);
    }
    if (n <= SMALL_FLOATS) {
        rv = team_all_reduce_small(c, &c->node, buf, n, msg);
        return rv < 0 ? rv : team_all_reduce_small(c, &c->cross, buf, n, msg);
    }
    split(n, c->node.size, bounds);
    rv = team_reduce(c, &c->node, buf, bounds, msg);
    rv = rv < 0 ? rv
                : team_all_reduce(c, &c->cross, buf + bounds[own],
                                  bounds[own + 1] - bounds[own], msg);
    return rv < 0 ? rv : team_gather(c, &c->node, buf, bounds, msg);
}

/* NOLINTNEXTLINE(readability-non-const-parameter): written through the reducer */
int host_reduce_scatter(struct host_comm *c, float *recv, const float *send,
                        size_t shard, struct errmsg *msg)
{
    const float *own = send + (size_t)c->base.rank * shard;
    struct reducer reducer = {.team = c->all, .own = own, .dest = recv, .n = shard};
    size_t n = 0;

    for (int r = 0; r < c->base.world_size; r++) {
        if (r != c->base.rank) {
            /* not const, since receives are pieces too; a send is only read */
            float *data = (float *)(uintptr_t)(send + (size_t)r * shard);

            c->send[n++] = floats(r, data, shard);
        }
    }
    return swap(c, n, 0, &reducer, msg);
}

static struct piece part(uint8_t *buf, const size_t *offsets, int peer, int r)
{
    return (struct piece){peer, buf + offsets[r], offsets[r + 1] - offsets[r]};
}

static int gather_from(struct host_comm *c, const struct team *t, uint8_t *buf,
                       const size_t *offsets, struct errmsg *msg)
{
    size_t n = 0;
    int peer;

    for (int i = 0; i < t->size; i++) {
        peer = team_rank(t, i);
        if (peer != c->base.rank) {
            c->send[n] = part(buf, offsets, peer, c->base.rank);
            c->recv[n++] = part(buf, offsets, peer, peer);
        }
    }
    return swap(c, n, n, NULL, msg);
}

/* Inside the node everybody passes on the parts of all ranks of its own place. */
static int spread(struct host_comm *c, uint8_t *buf, const size_t *offsets,
                  struct errmsg *msg)
{
    size_t n = 0;
    int peer;

    for (int i = 0; i < c->node.size; i++) {
        peer = team_rank(&c->node, i);
        for (int k = 0; k < c->cross.size && peer != c->base.rank; k++) {
            c->send[n] = part(buf, offsets, peer, team_rank(&c->cross, k));
            c->recv[n++] = part(buf, offsets, peer, k * c->node.size + i);
        }
    }
    return swap(c, n, n, NULL, msg);
}

int host_all_gather(struct host_comm *c, uint8_t *buf, const size_t *offsets,
                    struct errmsg *msg)
{
    int rv;

    if (!is_hierarchical(c)) {
        return gather_from(c, &c->all, buf, offsets, msg);
    }
    rv = gather_from(c, &c->cross, buf, offsets, msg);
    return rv < 0 ? rv : spread(c, buf, offsets, msg);
}

static int team_broadcast(struct host_comm *c, const struct team *t, void *buf,
                          size_t bytes, int root, struct errmsg *msg)
{
    size_t n = 0;

    if (c->base.rank != root) {
        c->recv[0] = (struct piece){root, buf, bytes};
        return swap(c, 0, 1, NULL, msg);
    }
    for (int i = 0; i < t->size; i++) {
        if (team_rank(t, i) != root) {
            c->send[n++] = (struct piece){team_rank(t, i), buf, bytes};
        }
    }
    return swap(c, n, 0, NULL, msg);
}

int host_broadcast(struct host_comm *c, void *buf, size_t bytes, int root,
                   struct errmsg *msg)
{
    int place = root % c->node.size, rv = 0;

    if (!is_hierarchical(c)) {
        return team_broadcast(c, &c->all, buf, bytes, root, msg);
    }
    if (c->cross.first == place) {
        rv = team_broadcast(c, &c->cross, buf, bytes, root, msg);
    }
    return rv < 0 ? rv
                  : team_broadcast(c, &c->node, buf, bytes, team_rank(&c->node, place),
                                   msg);
}

/* Dissemination: after round k each has heard, directly or not, from 2^(k+1) ranks. */
int host_barrier(struct host_comm *c, struct errmsg *msg)
{
    int world = c->base.world_size, rv = 0;
    uint8_t out = 1, in;

    for (int step = 1; step < world && rv == 0; step *= 2) {
        c->send[0] = (struct piece){(c->base.rank + step) % world, &out, 1};
        c->recv[0] = (struct piece){(c->base.rank + world - step) % world, &in, 1};
        rv = swap(c, 1, 1, NULL, msg);
    }
    return rv;
}
