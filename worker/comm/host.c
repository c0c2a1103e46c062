#include "worker/comm/host.h"

#include "worker/comm/bootstrap.h"

#include "common/clock.h"
#include "common/mem.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SPINS = 1000, /* some tens of microseconds */
    CLOSE_SLACK_MS = 1000,
};

enum op_kind {
    OP_ALL_REDUCE,
    OP_REDUCE_SCATTER,
    OP_ALL_GATHER,
    OP_ALL_TO_ALL,
    OP_BROADCAST,
    OP_BARRIER,
};

static const char *const op_names[] = {
    [OP_ALL_REDUCE] = "all_reduce", [OP_REDUCE_SCATTER] = "reduce_scatter",
    [OP_ALL_GATHER] = "all_gather", [OP_ALL_TO_ALL] = "all_to_all",
    [OP_BROADCAST] = "broadcast",   [OP_BARRIER] = "barrier",
};

struct op {
    struct host_comm *c;
    enum op_kind kind;
    int root;
    void *buf; /* what is written */
    size_t n;
    const float *from;
    const size_t *offsets;
    const struct piece *send, *recv;
    size_t n_send, n_recv;
};

static struct host_comm *host_of(struct comm *base)
{
    return CONTAINER_OF(base, struct host_comm, base);
}

/* ---- operations ------------------------------------------------------------------ */

static int broken(struct host_comm *c, struct errmsg *msg)
{
    int rv;

    pthread_mutex_lock(&c->lock);
    rv = c->error;
    if (rv < 0 && msg) {
        *msg = c->error_msg;
    }
    pthread_mutex_unlock(&c->lock);
    if (rv == 0 && atomic_load(&c->is_aborted)) {
        rv = errmsg_set(msg, ERR_ABORTED, "group %s: aborted", c->group);
    }
    return rv;
}

static int record(struct host_comm *c, int err, const struct errmsg *msg)
{
    pthread_mutex_lock(&c->lock);
    if (err < 0 && c->error == 0) {
        c->error = err;
        c->error_msg = *msg;
    }
    pthread_mutex_unlock(&c->lock);
    return err;
}

static int dispatch(const struct op *op, struct errmsg *msg)
{
    struct exchange ex = {op->send, op->recv, op->n_send, op->n_recv, NULL};

    switch (op->kind) {
    case OP_ALL_REDUCE:
        return host_all_reduce(op->c, op->buf, op->n, msg);
    case OP_REDUCE_SCATTER:
        return host_reduce_scatter(op->c, op->buf, op->from, op->n, msg);
    case OP_ALL_GATHER:
        return host_all_gather(op->c, op->buf, op->offsets, msg);
    case OP_ALL_TO_ALL:
        return exchange_run(op->c, &ex, msg);
    case OP_BROADCAST:
        return host_broadcast(op->c, op->buf, op->n, op->root, msg);
    case OP_BARRIER:
        return host_barrier(op->c, msg);
    }
    UNREACHABLE();
}

static int on_op(void *arg, struct errmsg *msg)
{
    const struct op *op = arg;
    struct host_comm *c = op->c;
    struct errmsg why = {""};
    int rv = broken(c, msg);

    if (rv < 0) {
        return rv;
    }
    c->op = op_names[op->kind];
    trace_name(c->op);
    c->deadline_ms = clock_ms() + (uint64_t)c->timeout_ms;
    rv = record(c, dispatch(op, &why), &why);
    if (rv < 0 && msg) {
        *msg = why;
    }
    return rv;
}

static void enqueue(enum queue q, const struct op *op)
{
    _Static_assert(sizeof(*op) <= DEVICE_TASK_ARG_MAX, "an operation fits a task");

    op->c->used_queues |= 1u << q;
    device_enqueue(op->c->base.device, q, on_op, op, sizeof(*op));
}

static void on_all_reduce(struct comm *base, enum queue q, float *buf, size_t n)
{
    enqueue(
        q, &(struct op){.c = host_of(base), .kind = OP_ALL_REDUCE, .buf = buf, .n = n});
}

static void on_reduce_scatter(struct comm *base, enum queue q, float *recv,
                              const float *send, size_t shard)
{
    enqueue(q, &(struct op){.c = host_of(base),
                            .kind = OP_REDUCE_SCATTER,
                            .buf = recv,
                            .n = shard,
                            .from = send});
}

static void on_all_gather(struct comm *base, enum queue q, void *buf,
                          const size_t *offsets)
{
    enqueue(q, &(struct op){.c = host_of(base),
                            .kind = OP_ALL_GATHER,
                            .buf = buf,
                            .offsets = offsets});
}

static void on_all_to_all(struct comm *base, enum queue q, const struct piece *send,
                          size_t n_send, const struct piece *recv, size_t n_recv)
{
    enqueue(q, &(struct op){.c = host_of(base),
                            .kind = OP_ALL_TO_ALL,
                            .send = send,
                            .n_send = n_send,
                            .recv = recv,
                            .n_recv = n_recv});
}

static void on_broadcast(struct comm *base, enum queue q, void *buf, size_t bytes,
                         int root)
{
    enqueue(q, &(struct op){.c = host_of(base),
                            .kind = OP_BROADCAST,
                            .root = root,
                            .buf = buf,
                            .n = bytes});
}

static void on_barrier(struct comm *base, enum queue q)
{
    enqueue(q, &(struct op){.c = host_of(base), .kind = OP_BARRIER});
}

/* ---- life ------------------------------------------------------------------------ */

static int on_poll(struct comm *base, struct errmsg *msg)
{
    return broken(host_of(base), msg);
}

/* Peers need not wait for their own time-outs. */
static void leave(struct host_comm *c)
{
    if (c->segment.head) {
        atomic_store(&c->segment.head->has_left, 1);
    }
    for (int r = 0; r < c->base.world_size; r++) {
        if (c->link[r].segment.head) {
            segment_ring_bell(&c->link[r].segment);
        }
        if (c->link[r].fd >= 0) {
            (void)shutdown(c->link[r].fd, SHUT_RDWR); /* it may be closed already */
        }
    }
}

static void on_abort(struct comm *base)
{
    struct host_comm *c = host_of(base);
    uint64_t one = 1;
    ssize_t n;

    atomic_store(&c->is_aborted, true);
    n = write(c->abort_fd, &one, sizeof(one));
    ASSERT(n == (ssize_t)sizeof(one) || errno == EAGAIN);
    if (c->segment.head) {
        segment_ring_bell(&c->segment);
    }
    leave(c);
}

static void host_free(struct host_comm *c)
{
    for (int r = 0; r < c->base.world_size; r++) {
        link_close(&c->link[r]);
    }
    segment_close(&c->segment);
    if (c->abort_fd >= 0) {
        close(c->abort_fd);
    }
    pthread_mutex_destroy(&c->lock);
    mem_free(c->link);
    mem_free(c->send);
    mem_free(c->recv);
    mem_free(c->bounds);
    mem_free(c->fds);
    mem_free(c->sum);
    mem_free(c);
}

/* Operations still queued hold a pointer to us: they end first, well or by their
 * deadline. */
static void finish_queues(struct host_comm *c)
{
    struct device *d = c->base.device;

    for (int q = 0; q < QUEUE_COUNT; q++) {
        if (c->used_queues & (1u << q)) {
            int rv = device_finish(d, device_mark(d, (enum queue)q),
                                   c->timeout_ms + CLOSE_SLACK_MS, NULL);

            (void)
                rv; /* the queue's error was or will be told by whoever waits for it */
        }
    }
}

static void on_close(struct comm *base)
{
    struct host_comm *c = host_of(base);

    finish_queues(c);
    leave(c);
    host_free(c);
}

static void make_teams(struct host_comm *c)
{
    const struct comm *b = &c->base;

    c->all = (struct team){0, 1, b->world_size};
    c->node = (struct team){b->node_first, 1, b->node_size};
    c->cross = (struct team){b->rank, 1, 1};
    if (b->uniform) {
        c->cross = (struct team){b->rank - b->node_first, b->node_size,
                                 b->world_size / b->node_size};
    }
}

/* Spinning pays only while the peer has a core of its own. */
static int choose_spins(int node_size)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) < 0) {
        return 0;
    }
    return CPU_COUNT(&set) >= node_size ? SPINS : 0;
}

static struct host_comm *host_new(const struct comm_ops *ops,
                                  const struct comm_config *config,
                                  struct device *device)
{
    struct host_comm *c = mem_zalloc(sizeof(*c));
    size_t world = (size_t)config->world_size;

    ASSERT(strlen(config->group) < sizeof(c->group));
    (void)snprintf(c->group, sizeof(c->group), "%s", config->group);
    c->base = (struct comm){.ops = ops,
                            .device = device,
                            .rank = config->rank,
                            .world_size = config->world_size,
                            .node_first = config->rank,
                            .node_size = 1,
                            .uniform = true};
    c->timeout_ms = config->timeout_ms;
    c->waiting = config->waiting;
    c->first_rank = config->first_rank;
    c->stride = config->stride;
    c->link = mem_array(world, sizeof(*c->link));
    c->send = mem_array(world, sizeof(*c->send));
    c->recv = mem_array(world, sizeof(*c->recv));
    c->bounds = mem_array(2 * (world + 1), sizeof(*c->bounds));
    c->fds = mem_array(world + 1, sizeof(*c->fds));
    c->sum = mem_array(SUM_CHUNK, sizeof(*c->sum));
    c->op = "opening";
    pthread_mutex_init(&c->lock, NULL); /* cannot fail without attributes */
    for (int r = 0; r < config->world_size; r++) {
        link_init(&c->link[r], r);
    }
    c->abort_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return c;
}

int host_open(const struct comm_ops *ops, const struct comm_config *config,
              struct device *device, struct comm **ret, struct errmsg *msg)
{
    struct host_comm *c = host_new(ops, config, device);
    int rv =
        c->abort_fd < 0 ? errmsg_set(msg, -errno, "eventfd: %s", err_text(-errno)) : 0;

    c->deadline_ms = clock_ms() + (uint64_t)config->timeout_ms;
    if (rv == 0 && config->world_size > 1) {
        rv = bootstrap_run(c, config, msg);
    }
    make_teams(c);
    c->spins = choose_spins(c->base.node_size);
    rv = rv < 0 ? rv : host_barrier(c, msg); /* now all have opened all segments */
    segment_close_fd(&c->segment);
    if (rv < 0) {
        leave(c);
        host_free(c);
        return rv;
    }
    *ret = &c->base;
    return 0;
}

#define HOST_OPS(kind)                                                                 \
    {                                                                                  \
        .name = (kind), .close = on_close, .all_reduce = on_all_reduce,                \
        .reduce_scatter = on_reduce_scatter, .all_gather = on_all_gather,              \
        .all_to_all = on_all_to_all, .broadcast = on_broadcast, .barrier = on_barrier, \
        .poll = on_poll, .abort = on_abort,                                            \
    }

const struct comm_ops host_shm_ops = HOST_OPS("shm");
const struct comm_ops host_tcp_ops = HOST_OPS("tcp");
const struct comm_ops host_auto_ops = HOST_OPS("auto");
