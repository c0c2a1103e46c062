/* How the ranks of a group find each other.
 *
 *   1  everybody stores node/<rank>; from all of them follow the teams and each link's
 *      kind
 *   2  everybody stores link/<rank>: token, pid and descriptor of its segment, address
 *      and port of its listener (what is not needed is absent)
 *   3  segments are opened, connections made; a barrier ends it
 *
 * A record is read with bounds: other ranks are trusted no more than other input. */

#include "worker/comm/bootstrap.h"

#include "worker/store_client.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { RECORD_MAX = 256 };

struct bootstrap {
    struct host_comm *c;
    const struct comm_config *config;
    struct segment_address *address; /* owned; of each rank's segment */
    struct tcp_peer *peer;           /* owned; each rank's listener */
    int *node;                       /* owned; of each rank */
    struct tcp_mesh mesh;
    uint64_t deadline_ms;
};

/* ---- the store ------------------------------------------------------------------- */

static int publish(struct bootstrap *b, const char *what, const struct buf *record,
                   struct errmsg *msg)
{
    char key[128];

    (void)snprintf(key, sizeof(key), "comm/%s/%s/%d", b->config->group, what,
                   b->config->rank);
    return store_client_set(b->config->store, key, buf_bytes(record), buf_len(record),
                            msg);
}

static int fetch(struct bootstrap *b, const char *what, int rank,
                 uint8_t record[RECORD_MAX], struct wire_reader *ret,
                 struct errmsg *msg)
{
    char key[128];
    size_t size = 0;
    int rv;

    (void)snprintf(key, sizeof(key), "comm/%s/%s/%d", b->config->group, what, rank);
    rv = store_client_get(b->config->store, key, record, RECORD_MAX, &size, msg);
    if (rv < 0) {
        return errmsg_wrap(msg, rv, "group %s waits for rank %d", b->config->group,
                           rank);
    }
    wire_reader_init(ret, record, size);
    return 0;
}

static int bad_record(struct bootstrap *b, int rank, struct errmsg *msg)
{
    return errmsg_set(msg, ERR_PROTOCOL, "group %s: rank %d published a bad record",
                      b->config->group, rank);
}

/* ---- 1: nodes -------------------------------------------------------------------- */

static int exchange_nodes(struct bootstrap *b, struct errmsg *msg)
{
    uint8_t bytes[RECORD_MAX];
    struct wire_reader r;
    struct buf record;
    int rv;

    buf_init(&record, RECORD_MAX);
    rv = wire_put_u32(&record, (uint32_t)b->config->node);
    ASSERT(rv == 0);
    rv = publish(b, "node", &record, msg);
    buf_release(&record);
    for (int i = 0; i < b->config->world_size && rv == 0; i++) {
        rv = fetch(b, "node", i, bytes, &r, msg);
        if (rv == 0) {
            b->node[i] = (int)wire_get_u32(&r);
            rv = wire_reader_done(&r) ? 0 : bad_record(b, i, msg);
        }
    }
    return rv;
}

/* The size of the run of equal nodes that begins at `first`. */
static int run_size(const int *node, int first, int world)
{
    int n = 1;

    while (first + n < world && node[first + n] == node[first]) {
        n++;
    }
    return n;
}

static bool has_node_before(const int *node, int first)
{
    for (int i = 0; i < first; i++) {
        if (node[i] == node[first]) {
            return true;
        }
    }
    return false;
}

static int arrange(struct bootstrap *b, struct errmsg *msg)
{
    struct comm *base = &b->c->base;
    int world = base->world_size, size, first_size = run_size(b->node, 0, world);

    base->uniform = true;
    for (int first = 0; first < world; first += size) {
        size = run_size(b->node, first, world);
        if (has_node_before(b->node, first)) {
            return errmsg_set(msg, ERR_INVALID,
                              "group %s: the ranks of node %d are not contiguous",
                              b->config->group, b->node[first]);
        }
        base->uniform = base->uniform && size == first_size;
        if (base->rank >= first && base->rank < first + size) {
            base->node_first = first;
            base->node_size = size;
        }
    }
    return 0;
}

static int choose_links(struct bootstrap *b, struct errmsg *msg)
{
    const char *kind = b->c->base.ops->name;
    struct link *l;

    for (int i = 0; i < b->config->world_size; i++) {
        bool is_near = b->node[i] == b->config->node;

        l = &b->c->link[i];
        if (strcmp(kind, "shm") == 0 && !is_near) {
            return errmsg_set(
                msg, ERR_UNSUPPORTED,
                "comm.kind=shm needs all ranks under one agent, but rank %d "
                "is on another node; use auto or tcp",
                i);
        }
        if (i != b->config->rank) {
            l->kind = is_near && strcmp(kind, "tcp") != 0 ? LINK_SHM : LINK_TCP;
            b->peer[i].is_wanted = l->kind == LINK_TCP;
        }
    }
    return 0;
}

/* ---- 2: links -------------------------------------------------------------------- */

static bool has_links(const struct host_comm *c, enum link_kind kind)
{
    for (int i = 0; i < c->base.world_size; i++) {
        if (c->link[i].kind == kind) {
            return true;
        }
    }
    return false;
}

static int make_ends(struct bootstrap *b, struct errmsg *msg)
{
    struct tcp_peer *own = &b->peer[b->config->rank];
    struct tcp_mesh *m = &b->mesh;
    int rv = 0;

    if (getrandom(m->token, sizeof(m->token), 0) != (ssize_t)sizeof(m->token)) {
        return errmsg_set(msg, -errno, "getrandom: %s", err_text(-errno));
    }
    if (has_links(b->c, LINK_SHM)) {
        rv = segment_create(&b->c->segment, b->c->base.node_size - 1, m->token, msg);
    }
    if (rv == 0 && has_links(b->c, LINK_TCP)) {
        (void)snprintf(own->address, sizeof(own->address), "%s",
                       b->config->address ? b->config->address : "127.0.0.1");
        rv = tcp_listen(own->address, &m->listener, &own->port, msg);
    }
    return rv;
}

static int publish_ends(struct bootstrap *b, struct errmsg *msg)
{
    const struct tcp_peer *own = &b->peer[b->config->rank];
    struct buf record;
    int rv;

    buf_init(&record, RECORD_MAX);
    rv = buf_append(&record, b->mesh.token, SHM_TOKEN_SIZE);
    rv = rv < 0 ? rv : wire_put_u32(&record, (uint32_t)getpid());
    rv = rv < 0 ? rv : wire_put_u32(&record, (uint32_t)b->c->segment.fd);
    rv = rv < 0 ? rv : wire_put_u16(&record, own->port);
    rv = rv < 0 ? rv : wire_put_text(&record, own->address);
    ASSERT(rv == 0);
    rv = publish(b, "link", &record, msg);
    buf_release(&record);
    return rv;
}

static int fetch_ends(struct bootstrap *b, int rank, struct errmsg *msg)
{
    struct tcp_peer *p = &b->peer[rank];
    struct wire_reader r;
    uint8_t bytes[RECORD_MAX];
    const uint8_t *token;
    int rv = fetch(b, "link", rank, bytes, &r, msg);

    if (rv < 0) {
        return rv;
    }
    token = wire_get_raw(&r, SHM_TOKEN_SIZE);
    b->address[rank].pid = (pid_t)wire_get_u32(&r);
    b->address[rank].fd = (int)wire_get_u32(&r);
    p->port = wire_get_u16(&r);
    wire_get_text(&r, p->address, sizeof(p->address));
    if (!wire_reader_done(&r) || b->address[rank].pid <= 0) {
        return bad_record(b, rank, msg);
    }
    memcpy(p->token, token, SHM_TOKEN_SIZE);
    return 0;
}

/* ---- 3: connect ------------------------------------------------------------------ */

/* Ring i of a segment is that of its owner's i-th peer on the node. */
static struct ring ring_of(const struct segment *s, int owner, int writer)
{
    return segment_ring(s, writer < owner ? writer : writer - 1);
}

/* The pidfd comes first: then the token shows that it is the publisher's. */
static int open_shm(struct bootstrap *b, int rank, struct errmsg *msg)
{
    struct host_comm *c = b->c;
    struct link *l = &c->link[rank];
    int us = c->base.rank - c->base.node_first, rv;
    int them = rank - c->base.node_first;

    l->pidfd = (int)syscall(SYS_pidfd_open, b->address[rank].pid, 0);
    if (l->pidfd < 0) {
        rv = -errno;
        return errmsg_set(msg, rv == -ESRCH ? ERR_PEER_LOST : rv,
                          "group %s: lost rank %d: its process %d: %s", c->group, rank,
                          (int)b->address[rank].pid, err_text(rv));
    }
    rv = segment_open(&l->segment, &b->address[rank], c->segment.n_rings,
                      b->peer[rank].token, msg);
    if (rv < 0) {
        return errmsg_wrap(msg, rv, "group %s: rank %d", c->group, rank);
    }
    l->in = ring_of(&c->segment, us, them);
    l->out = ring_of(&l->segment, them, us);
    return 0;
}

static int connect_links(struct bootstrap *b, struct errmsg *msg)
{
    struct host_comm *c = b->c;
    int rv = 0;

    for (int i = 0; i < c->base.world_size && rv == 0; i++) {
        rv = c->link[i].kind == LINK_SHM ? open_shm(b, i, msg) : 0;
    }
    if (rv == 0 && b->mesh.listener >= 0) {
        rv = tcp_mesh_connect(&b->mesh, b->deadline_ms, msg);
        rv = rv < 0 ? errmsg_wrap(msg, rv, "group %s", c->group) : 0;
    }
    for (int i = 0; i < c->base.world_size && rv == 0; i++) {
        if (c->link[i].kind == LINK_TCP) {
            rv = link_open_tcp(&c->link[i], b->peer[i].fd, c->timeout_ms, msg);
            b->peer[i].fd = -1;
        }
    }
    return rv;
}

static int run(struct bootstrap *b, struct errmsg *msg)
{
    int rv = exchange_nodes(b, msg);

    rv = rv < 0 ? rv : arrange(b, msg);
    rv = rv < 0 ? rv : choose_links(b, msg);
    rv = rv < 0 ? rv : make_ends(b, msg);
    rv = rv < 0 ? rv : publish_ends(b, msg);
    for (int i = 0; i < b->config->world_size && rv == 0; i++) {
        rv = fetch_ends(b, i, msg);
    }
    return rv < 0 ? rv : connect_links(b, msg);
}

int bootstrap_run(struct host_comm *c, const struct comm_config *config,
                  struct errmsg *msg)
{
    size_t world = (size_t)config->world_size;
    struct bootstrap b = {
        .c = c,
        .config = config,
        .address = mem_array(world, sizeof(*b.address)),
        .peer = mem_array(world, sizeof(*b.peer)),
        .node = mem_array(world, sizeof(*b.node)),
        .mesh = {.rank = config->rank,
                 .world_size = config->world_size,
                 .listener = -1},
        .deadline_ms = clock_ms() + (uint64_t)config->timeout_ms,
    };
    int rv;

    b.mesh.peer = b.peer;
    memcpy(b.mesh.group, c->group, sizeof(b.mesh.group));
    for (size_t i = 0; i < world; i++) {
        b.peer[i].fd = -1;
    }
    rv = run(&b, msg);
    for (size_t i = 0; i < world; i++) {
        if (b.peer[i].fd >= 0) {
            close(b.peer[i].fd);
        }
    }
    if (b.mesh.listener >= 0) {
        close(b.mesh.listener);
    }
    mem_free(b.address);
    mem_free(b.peer);
    mem_free(b.node);
    return rv;
}
