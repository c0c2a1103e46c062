#ifndef WORKER_LOSSES_H
#define WORKER_LOSSES_H

/* The loss sums of all leaves, exchanged between ranks once a step, with the flags that
 * all ranks must agree on. Every rank sums the same numbers in the same order (leaf
 * order), so the loss is bit-identical for every world size. */

#include "worker/comm/comm.h"

enum {
    LOSSES_LEAVE = 1,  /* this rank was asked to leave after the step */
    LOSSES_SAVING = 2, /* its last checkpoint is still in work */
    LOSSES_SAVE = 4,   /* rank 0: by its clock one is due */
};

struct losses;

size_t losses_bytes(uint32_t n_leaves, int world);

/* `comm` NULL for one rank. Leaves are shared out by leaf_run_of: `team` neighbouring
 * ranks take those of a run in turns. */
int losses_new(struct device *device, struct comm *comm, uint32_t n_leaves, int team,
               struct losses **ret, struct errmsg *msg) MUST_CHECK;
void losses_free(struct losses *l); /* NULL allowed */

/* Where the loss sum of one of this rank's leaves goes (device memory). */
double *losses_slot(struct losses *l, uint32_t leaf);

/* A number of this rank's own, which the next exchange takes to all; 0 at first. */
void losses_note(struct losses *l, double value);

/* After losses_finish: that of a rank. */
double losses_noted(const struct losses *l, int rank);

/* Enqueues the exchange after what is on the compute queue now. */
void losses_exchange(struct losses *l, unsigned flags);

/* Waits for it: the sum over all leaves, and the union of all ranks' flags. */
int losses_finish(struct losses *l, int timeout_ms, double *ret_sum,
                  unsigned *ret_flags, struct errmsg *msg) MUST_CHECK;

#endif
