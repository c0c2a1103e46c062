#include "worker/losses.h"

#include "worker/parallel/tree.h"

#include "common/mem.h"

#include <string.h>

enum { HEAD = 2 }; /* before a rank's leaves: its flags, its note */

struct losses {
    struct device *device; /* borrowed */
    struct comm *comm;     /* borrowed; NULL for one rank */
    uint32_t n_leaves;
    int rank, world;
    size_t *offset; /* owned: bytes; rank r's part is [offset[r], offset[r + 1]) */
    double *values; /* owned, device memory: for each rank HEAD, then its leaves */
    size_t bytes;
    double note;
    struct ticket done;
};

size_t losses_bytes(uint32_t n_leaves, int world)
{
    return (n_leaves + HEAD * (size_t)world) * sizeof(double);
}

int losses_new(struct device *device, struct comm *comm, uint32_t n_leaves,
               struct losses **ret, struct errmsg *msg)
{
    struct losses *l = mem_zalloc(sizeof(*l));
    void *values;
    int rv;

    l->device = device;
    l->comm = comm;
    l->n_leaves = n_leaves;
    l->rank = comm ? comm->rank : 0;
    l->world = comm ? comm->world_size : 1;
    l->bytes = losses_bytes(n_leaves, l->world);
    l->offset = mem_array((size_t)l->world + 1, sizeof(*l->offset));
    for (int r = 0; r < l->world; r++) {
        uint32_t n = tree_run_begin(n_leaves, (uint32_t)l->world, (uint32_t)r + 1) -
                     tree_run_begin(n_leaves, (uint32_t)l->world, (uint32_t)r);

        l->offset[r + 1] = l->offset[r] + (n + HEAD) * sizeof(double);
    }
    ASSERT(l->offset[l->world] == l->bytes);
    rv = device_alloc(device, l->bytes, &values);
    if (rv < 0) {
        losses_free(l);
        return errmsg_set(msg, rv, "no memory for the losses");
    }
    l->values = values;
    *ret = l;
    return 0;
}

void losses_free(struct losses *l)
{
    if (!l) {
        return;
    }
    if (l->values) {
        device_free(l->device, l->values, l->bytes);
    }
    mem_free(l->offset);
    mem_free(l);
}

static double *part(const struct losses *l, int rank)
{
    return l->values + l->offset[rank] / sizeof(double);
}

double *losses_slot(struct losses *l, uint32_t leaf)
{
    uint32_t begin = tree_run_begin(l->n_leaves, (uint32_t)l->world, (uint32_t)l->rank);

    ASSERT(leaf >= begin);
    return part(l, l->rank) + HEAD + (leaf - begin);
}

void losses_note(struct losses *l, double value)
{
    l->note = value;
}

double losses_noted(const struct losses *l, int rank)
{
    ASSERT(rank >= 0 && rank < l->world);
    return part(l, rank)[1];
}

void losses_exchange(struct losses *l, unsigned flags)
{
    double head[HEAD] = {flags, l->note};

    device_copy(l->device, QUEUE_COMPUTE, part(l, l->rank), head, sizeof(head));
    l->done = device_mark(l->device, QUEUE_COMPUTE);
    if (l->comm) {
        device_wait(l->device, QUEUE_REDUCE, l->done);
        comm_all_gather(l->comm, QUEUE_REDUCE, l->values, l->offset);
        l->done = device_mark(l->device, QUEUE_REDUCE);
    }
}

int losses_finish(struct losses *l, int timeout_ms, double *ret_sum,
                  unsigned *ret_flags, struct errmsg *msg)
{
    unsigned flags = 0;
    double sum = 0;
    int rv;

    rv = device_finish(l->device, l->done, timeout_ms, msg);
    if (rv < 0) {
        return rv;
    }
    for (int r = 0; r < l->world; r++) {
        size_t n = (l->offset[r + 1] - l->offset[r]) / sizeof(double);

        flags |= (unsigned)part(l, r)[0];
        for (size_t i = HEAD; i < n; i++) {
            sum += part(l, r)[i];
        }
    }
    *ret_sum = sum;
    *ret_flags = flags;
    return 0;
}
