/* The list of implementations, and the wrappers that check what all may rely on. */

#include "worker/comm/comm.h"

#include "worker/comm/host.h"
#include "worker/comm/shm.h"

#include <string.h>

static const struct comm_ops *const kinds[] = {
    &host_auto_ops,
    &host_shm_ops,
    &host_tcp_ops,
};

int comm_open(const char *kind, const struct comm_config *config, struct device *device,
              struct comm **ret, struct errmsg *msg)
{
    ASSERT(config->world_size > 0 && config->rank >= 0 &&
           config->rank < config->world_size && config->timeout_ms > 0);
    ASSERT(config->world_size == 1 || config->store);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (strcmp(kind, kinds[i]->name) == 0) {
            return host_open(kinds[i], config, device, ret, msg);
        }
    }
    return errmsg_set(msg, ERR_UNSUPPORTED,
                      "comm.kind=%s is not there%s; use auto, shm or tcp", kind,
                      strcmp(kind, "nccl") == 0 ? " yet" : "");
}

size_t comm_bytes(const char *kind, int node_size)
{
    return strcmp(kind, "tcp") == 0 ? 0 : 2 * (size_t)(node_size - 1) * SHM_RING_SIZE;
}

void comm_close(struct comm *c)
{
    if (c) {
        c->ops->close(c);
    }
}

void comm_all_reduce(struct comm *c, enum queue q, float *buf, size_t n)
{
    ASSERT(buf || n == 0);
    c->ops->all_reduce(c, q, buf, n);
}

void comm_reduce_scatter(struct comm *c, enum queue q, float *recv, const float *send,
                         size_t shard)
{
    ASSERT(recv != send || shard == 0);
    c->ops->reduce_scatter(c, q, recv, send, shard);
}

void comm_all_gather(struct comm *c, enum queue q, void *buf, const size_t *offsets)
{
    for (int r = 0; r < c->world_size; r++) {
        ASSERT(offsets[r] <= offsets[r + 1]);
    }
    c->ops->all_gather(c, q, buf, offsets);
}

static void check_pieces(const struct comm *c, const struct piece *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ASSERT(p[i].peer >= 0 && p[i].peer < c->world_size &&
               (p[i].data || !p[i].bytes));
    }
}

void comm_all_to_all(struct comm *c, enum queue q, const struct piece *send,
                     size_t n_send, const struct piece *recv, size_t n_recv)
{
    check_pieces(c, send, n_send);
    check_pieces(c, recv, n_recv);
    c->ops->all_to_all(c, q, send, n_send, recv, n_recv);
}

void comm_broadcast(struct comm *c, enum queue q, void *buf, size_t bytes, int root)
{
    ASSERT(root >= 0 && root < c->world_size);
    c->ops->broadcast(c, q, buf, bytes, root);
}

void comm_barrier(struct comm *c, enum queue q)
{
    c->ops->barrier(c, q);
}

int comm_poll(struct comm *c, struct errmsg *msg)
{
    return c->ops->poll(c, msg);
}

void comm_abort(struct comm *c)
{
    c->ops->abort(c);
}
