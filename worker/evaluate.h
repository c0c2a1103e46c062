#ifndef WORKER_EVALUATE_H
#define WORKER_EVALUATE_H

/* The mean loss over the first eval.batches micro-batches of data.val, shared out over
 * the ranks like the leaves of a step; all ranks call it together and get the same
 * bits. */

#include "worker/trainer.h"

/* How many those are: fewer when data.val has no more, 0 without it. */
uint32_t evaluate_batches(const struct trainer *t);

int evaluate(struct trainer *t, double *ret_loss, struct errmsg *msg) MUST_CHECK;

/* What the open data cannot do: ERR_INVALID when data.val has no whole micro-batch to
 * evaluate; ERR_UNSUPPORTED when texts are wanted (sample.every) and the data are
 * tokens that no text can be made of: data.tokenizer=bytes knows bytes only. */
int evaluate_check(const struct trainer *t, struct errmsg *msg) MUST_CHECK;

/* One line on stderr when the model has tokens that its data never do. */
void evaluate_warn(const struct trainer *t);

/* Prints a text that the model continues from sample.prompt, on rank 0. Where parameters
 * are gathered all ranks call it, else rank 0 alone may. Every token takes a forward of
 * the whole text, and where they are dropped after use a gather of all of them. */
int evaluate_sample(struct trainer *t, struct errmsg *msg) MUST_CHECK;

#endif
