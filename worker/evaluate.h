#ifndef WORKER_EVALUATE_H
#define WORKER_EVALUATE_H

/* The mean loss over the first eval.batches micro-batches of data.val, shared out over
 * the ranks like the leaves of a step; all ranks call it together and get the same
 * bits. */

#include "worker/trainer.h"

int evaluate(struct trainer *t, double *ret_loss, struct errmsg *msg) MUST_CHECK;

/* Prints a text that the model continues from sample.prompt; rank 0 alone calls it. */
int evaluate_sample(struct trainer *t, struct errmsg *msg) MUST_CHECK;

#endif
