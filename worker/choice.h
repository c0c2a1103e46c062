#ifndef WORKER_CHOICE_H
#define WORKER_CHOICE_H

/* Where a run goes on: rank 0 finishes the rename of the last commit that the service
 * knows, sweeps the rubbish of other generations, and takes the newest checkpoint that
 * verifies (one line for each that does not), or the one that was named; verifying loads
 * its part. Then it tells the other ranks. */

#include "worker/checkpoint/checkpoint.h"
#include "worker/restore.h"

enum { CHOICE_RUN_MAX = 128 };

struct trainer;

struct choice {
    uint64_t step, position;
    struct checkpoint_scaler scaler;
    char path[CHECKPOINT_PATH_MAX]; /* "": fresh */
    char run[CHOICE_RUN_MAX];       /* another run.name's, quoted; rank 0 knows */
    bool is_given;                  /* by checkpoint.resume=PATH; rank 0 knows */
};

/* Rank 0, with the arenas open. Zeros: no checkpoint. ERR_INVALID: it is of another model
 * or other data; an error of the storage. */
int choice_make(struct trainer *t, struct choice *ret, struct errmsg *msg) MUST_CHECK;

/* All ranks: rank 0's becomes everybody's. */
int choice_share(struct trainer *t, struct choice *choice,
                 struct errmsg *msg) MUST_CHECK;

/* The rank's part of the state, borrowed. */
struct own_block choice_own_block(const struct trainer *t);

#endif
