#include "worker/losses.h"

#include "worker/parallel/tree.h"

#include "common/mem.h"

#include <string.h>

enum { HEAD = 2 }; /* before a rank's leaves: its flags, its note */

struct losses {
    struct device *device; /* borrowed */
    struct comm *comm;     /* borrowed; NULL for one rank */
    uint32_t n_leaves;
    int rank, world, team;
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

static struct leaf_run run_of(const struct losses *l, int rank)
{
    return leaf_run_of(l->n_leaves, l->world, l->team, rank);
}

int losses_new(struct device *device, struct comm *comm, uint32_t n_leaves, int team,
               struct losses **ret, struct errmsg *msg)
{
    struct losses *l = mem_zalloc(sizeof(*l));
    void *values;
    int rv;

    l->device = device;
    l->comm = comm;
    l->n_leaves = n_leaves;
    l->team = team;
    l->rank = comm ? comm->rank : 0;
    l->world = comm ? comm->world_size : 1;
    l->bytes = losses_bytes(n_leaves, l->world);
    l->offset = mem_array((size_t)l->world + 1, sizeof(*l->offset));
    for (int r = 0; r < l->world; r++) {
        struct leaf_run run = run_of(l, r);

        l->offset[r + 1] =
            l->offset[r] + (leaf_run_count(&run) + HEAD) * sizeof(double);
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
    struct leaf_run run = run_of(l, l->rank);

    ASSERT(leaf >= run.begin && (leaf - run.begin) % run.stride == 0);
    return part(l, l->rank) + HEAD + (leaf - run.begin) / run.stride;
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
    for (int r = 0; r < l->world; r += l->team) {
        struct leaf_run run = run_of(l, r);

        for (uint32_t i = 0; i < run.end - run.begin; i++) {
            sum += part(l, r + (int)(i % run.stride))[HEAD + i / run.stride];
        }
    }
    for (int r = 0; r < l->world; r++) {
        flags |= (unsigned)part(l, r)[0];
    }
    *ret_sum = sum;
    *ret_flags = flags;
    return 0;
}
