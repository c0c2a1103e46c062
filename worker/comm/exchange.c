/* The progress engine. Happy path: every link is moved as far as it goes, in turn,
 * until all pieces are through. Nothing moved: spin briefly, then sleep: on the bell of
 * the own segment (futex) when only shared memory is awaited, else in poll. Sleeps are
 * short enough to notice an abort, the deadline, or a peer's death. */

#include "worker/comm/host.h"

#include "common/clock.h"

#include <errno.h>
#include <string.h>

enum {
    SLEEP_MS = 20,      /* between looks at the peers' pidfds */
    MIXED_SLEEP_MS = 1, /* where a futex and sockets are awaited at once */
    SOCKET_SLEEP_MS = 1000,
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* ---- sums ------------------------------------------------------------------------ */

typedef float vec __attribute__((vector_size(16), aligned(4), may_alias));

/* dst = a + b; dst may be a or b */
static void add(float *dst, const float *a, const float *b, size_t n)
{
    size_t i = 0;

    for (; i + 16 <= n; i += 16) {
        const vec *va = (const vec *)(a + i), *vb = (const vec *)(b + i);
        vec s0 = va[0] + vb[0], s1 = va[1] + vb[1];
        vec s2 = va[2] + vb[2], s3 = va[3] + vb[3];
        vec *to = (vec *)(dst + i);

        to[0] = s0;
        to[1] = s1;
        to[2] = s2;
        to[3] = s3;
    }
    for (; i < n; i++) {
        dst[i] = a[i] + b[i];
    }
}

/* Member i's `n` floats of the chunk, from `sub` on. Until the own turn the sum grows
 * in `sum`, since dest may hold what is still needed; the first two need no detour. */
static void take(struct host_comm *c, struct reducer *r, const float *x, size_t n)
{
    int own = team_index(&r->team, c->base.rank);
    float *dest = r->dest + r->done + r->sub, *sum = c->sum + r->sub;
    const float *mine = r->own + r->done + r->sub;

    if (r->at > own) {
        add(dest, dest, x, n);
    } else if (own == 1) {
        add(dest, x, mine, n);
    } else if (r->at == 0) {
        memcpy(sum, x, n * sizeof(float));
    } else {
        add(sum, sum, x, n);
    }
}

static void take_own(struct host_comm *c, struct reducer *r, size_t n)
{
    float *dest = r->dest + r->done;
    const float *mine = r->own + r->done;

    if (r->at == 0 && dest != mine) {
        memcpy(dest, mine, n * sizeof(float));
    } else if (r->at > 1) {
        add(dest, c->sum, mine, n);
    }
}

/* *ret: whether the member's part of the chunk is complete. */
static int take_member(struct host_comm *c, struct reducer *r, size_t chunk, bool *ret,
                       size_t *moved)
{
    struct link *l = &c->link[team_rank(&r->team, r->at)];
    const float *x;
    bool is_first;
    size_t n;
    int rv;

    while (r->sub < chunk) {
        is_first = r->done == 0 && r->sub == 0;
        rv = link_peek(l, is_first, &x, &n);
        if (rv < 0) {
            return rv;
        }
        n = MIN(n, chunk - r->sub);
        if (n == 0) {
            *ret = false;
            return 0;
        }
        take(c, r, x, n);
        link_consume(l, is_first, n);
        r->sub += n;
        *moved += n;
    }
    *ret = true;
    return 0;
}

/* At most a chunk, so that sends are not left waiting. */
static int reducer_move(struct host_comm *c, struct reducer *r, size_t *moved)
{
    size_t chunk = MIN(r->n - r->done, SUM_CHUNK);
    bool is_complete = true;
    int rv;

    if (chunk == 0) {
        return 0;
    }
    for (; r->at < r->team.size; r->at++, r->sub = 0) {
        if (team_rank(&r->team, r->at) == c->base.rank) {
            take_own(c, r, chunk);
            continue;
        }
        rv = take_member(c, r, chunk, &is_complete, moved);
        if (rv < 0 || !is_complete) {
            return rv;
        }
    }
    r->done += chunk;
    r->at = 0;
    *moved += 1;
    return 0;
}

static bool reducer_wants(const struct reducer *r, int rank)
{
    return r && r->done < r->n && r->at < r->team.size &&
           team_rank(&r->team, r->at) == rank;
}

/* ---- pieces ---------------------------------------------------------------------- */

/* The piece the cursor stands at, or the next one of this rank; NULL at the end. */
static const struct piece *current(const struct piece *p, size_t n, struct cursor *at,
                                   int rank)
{
    while (at->at < n && (p[at->at].peer != rank || p[at->at].bytes == 0)) {
        at->at++;
    }
    return at->at < n ? &p[at->at] : NULL;
}

static void advance(struct cursor *at, const struct piece *p, size_t n)
{
    at->done += n;
    if (at->done == p->bytes) {
        *at = (struct cursor){at->at + 1, 0};
    }
}

static const struct piece *to_send(const struct exchange *ex, struct link *l)
{
    return current(ex->send, ex->n_send, &l->sent, l->rank);
}

static const struct piece *to_recv(const struct exchange *ex, struct link *l)
{
    return current(ex->recv, ex->n_recv, &l->received, l->rank);
}

static int link_move(const struct exchange *ex, struct link *l, size_t *moved)
{
    const struct piece *out = to_send(ex, l), *in = to_recv(ex, l);
    size_t n = 0;
    int rv = 0;

    if (out) {
        rv = link_send(l, (const uint8_t *)out->data + l->sent.done,
                       out->bytes - l->sent.done, l->sent.done == 0, &n);
        *moved += rv < 0 ? 0 : n;
        advance(&l->sent, out, rv < 0 ? 0 : n);
    }
    if (in && rv == 0) {
        rv = link_recv(l, (uint8_t *)in->data + l->received.done,
                       in->bytes - l->received.done, l->received.done == 0, &n);
        *moved += rv < 0 ? 0 : n;
        advance(&l->received, in, rv < 0 ? 0 : n);
    }
    return rv;
}

static void copy_own(struct host_comm *c, const struct exchange *ex)
{
    struct link *own = &c->link[c->base.rank];
    const struct piece *from = to_send(ex, own), *to = to_recv(ex, own);

    while (from && to) {
        ASSERT(from->bytes == to->bytes);
        if (from->data != to->data) {
            memcpy(to->data, from->data, to->bytes);
        }
        advance(&own->sent, from, from->bytes);
        advance(&own->received, to, to->bytes);
        from = to_send(ex, own);
        to = to_recv(ex, own);
    }
    ASSERT(!from && !to);
}

/* ---- waiting --------------------------------------------------------------------- */

static bool wants_recv(const struct exchange *ex, struct link *l)
{
    return to_recv(ex, l) || reducer_wants(ex->reducer, l->rank);
}

static bool is_pending(const struct exchange *ex, struct link *l)
{
    return to_send(ex, l) || wants_recv(ex, l);
}

static int lost(struct host_comm *c, const struct link *l, struct errmsg *msg)
{
    return errmsg_set(msg, ERR_PEER_LOST, "%s of group %s: lost rank %d: %s", c->op,
                      c->group, l->rank, l->why);
}

/* Who keeps this rank waiting: rather one that owes it something; NULL: nobody. */
static const struct link *find_slow(struct host_comm *c, const struct exchange *ex)
{
    const struct link *slow = NULL;

    for (int r = 0; r < c->base.world_size; r++) {
        struct link *l = &c->link[r];

        if (wants_recv(ex, l)) {
            return l;
        }
        slow = slow || !to_send(ex, l) ? slow : l;
    }
    return slow;
}

/* `l` NULL: for nobody. */
static void say_awaited(const struct host_comm *c, const struct link *l)
{
    if (c->waiting) {
        atomic_store_explicit(
            c->waiting, l ? (uint32_t)(1 + c->first_rank + l->rank * c->stride) : 0,
            memory_order_relaxed);
    }
}

static int timed_out(const struct host_comm *c, const struct link *slow,
                     struct errmsg *msg)
{
    return errmsg_set(msg, ERR_TIMEOUT,
                      "%s of group %s: rank %d did not answer within %d ms "
                      "(comm.timeout)",
                      c->op, c->group, slow->rank, c->timeout_ms);
}

/* Abort, deadline, a dead peer on the node. */
static int check(struct host_comm *c, const struct exchange *ex, struct errmsg *msg)
{
    const struct link *slow = find_slow(c, ex);

    if (atomic_load(&c->is_aborted)) {
        return errmsg_set(msg, ERR_ABORTED, "%s of group %s: aborted", c->op, c->group);
    }
    for (int r = 0; r < c->base.world_size; r++) {
        struct link *l = &c->link[r];

        if (is_pending(ex, l) &&
            link_is_hopeless(l, to_send(ex, l), wants_recv(ex, l))) {
            return lost(c, l, msg);
        }
    }
    return clock_ms() >= c->deadline_ms && slow ? timed_out(c, slow, msg) : 0;
}

/* Fills fds with the sockets awaited; *ret_shm: whether shared memory is, too. */
static nfds_t awaited(struct host_comm *c, const struct exchange *ex, bool *ret_shm)
{
    nfds_t n = 0;

    *ret_shm = false;
    c->fds[n++] = (struct pollfd){c->abort_fd, POLLIN, 0};
    for (int r = 0; r < c->base.world_size; r++) {
        struct link *l = &c->link[r];
        short events =
            (short)((to_send(ex, l) ? POLLOUT : 0) | (wants_recv(ex, l) ? POLLIN : 0));

        if (events && l->kind == LINK_TCP) {
            c->fds[n++] = (struct pollfd){l->fd, events, 0};
        } else if (events) {
            *ret_shm = true;
        }
    }
    return n;
}

static int move_all(struct host_comm *c, const struct exchange *ex, size_t *moved,
                    struct errmsg *msg)
{
    int world = c->base.world_size, rv = 0;
    struct link *l;

    *moved = 0;
    for (int i = 1; i < world; i++) {
        l = &c->link[(c->base.rank + i) % world];
        rv = link_move(ex, l, moved);
        if (rv < 0) {
            return lost(c, l, msg);
        }
    }
    if (ex->reducer) {
        rv = reducer_move(c, ex->reducer, moved);
        if (rv < 0) {
            return lost(c, &c->link[team_rank(&ex->reducer->team, ex->reducer->at)],
                        msg);
        }
    }
    return rv;
}

/* Sleeps unless something moves now. */
static int sleep_on_bell(struct host_comm *c, const struct exchange *ex, int timeout_ms,
                         struct errmsg *msg)
{
    uint32_t seen = segment_begin_sleep(&c->segment);
    size_t moved;
    int rv = move_all(c, ex, &moved, msg);

    if (rv == 0 && moved == 0 && !atomic_load(&c->is_aborted)) {
        segment_sleep(&c->segment, seen, timeout_ms);
    }
    segment_end_sleep(&c->segment);
    return rv;
}

static int wait_for_peers(struct host_comm *c, const struct exchange *ex,
                          struct errmsg *msg)
{
    uint64_t now = clock_ms();
    bool has_shm;
    nfds_t n = awaited(c, ex, &has_shm);
    int limit = has_shm ? (n > 1 ? MIXED_SLEEP_MS : SLEEP_MS) : SOCKET_SLEEP_MS, rv;

    say_awaited(c, find_slow(c, ex));
    if (now >= c->deadline_ms) {
        limit = 0;
    } else if (c->deadline_ms - now < (uint64_t)limit) {
        limit = (int)(c->deadline_ms - now);
    }
    if (has_shm && n == 1) {
        rv = sleep_on_bell(c, ex, limit, msg);
    } else {
        rv = poll(c->fds, n, limit) < 0 && errno != EINTR ? -errno : 0;
        if (rv < 0) {
            (void)errmsg_set(msg, rv, "poll: %s", err_text(rv));
        }
    }
    return rv < 0 ? rv : check(c, ex, msg);
}

static bool is_complete(struct host_comm *c, const struct exchange *ex)
{
    if (ex->reducer && ex->reducer->done < ex->reducer->n) {
        return false;
    }
    for (int r = 0; r < c->base.world_size; r++) {
        if (is_pending(ex, &c->link[r])) {
            return false;
        }
    }
    return true;
}

/* After a turn in which nothing moved. */
static int rest(struct host_comm *c, const struct exchange *ex, int *idle,
                struct errmsg *msg)
{
    if (++*idle <= c->spins) {
        relax();
        return 0;
    }
    return wait_for_peers(c, ex, msg);
}

int exchange_run(struct host_comm *c, struct exchange *ex, struct errmsg *msg)
{
    bool has_slept = false;
    int idle = 0, rv = 0;
    size_t moved;

    for (int r = 0; r < c->base.world_size; r++) {
        c->link[r].sent = c->link[r].received = (struct cursor){0, 0};
    }
    copy_own(c, ex);
    while (rv == 0 && !is_complete(c, ex)) {
        if (atomic_load(&c->is_aborted)) {
            return check(c, ex, msg);
        }
        rv = move_all(c, ex, &moved, msg);
        if (rv == 0 && moved == 0) {
            rv = rest(c, ex, &idle, msg);
            has_slept = has_slept || idle > c->spins;
        } else {
            idle = 0;
        }
    }
    if (has_slept) {
        say_awaited(c, NULL);
    }
    if (rv < 0 && atomic_load(&c->is_aborted)) {
        return check(c, ex, msg); /* the abort closed our own sockets under us */
    }
    return rv;
}
