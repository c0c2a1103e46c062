#ifndef WORKER_SCALING_H
#define WORKER_SCALING_H

/* Dynamic loss scaling in the course of a training: the scaler of optim/grad_scaler.h
 * between the configuration, the steps and the checkpoints.
 *
 * The learning rate is that of the training step, skipped or not, as where torch's users
 * call scheduler.step() each iteration: a run ends at min_lr, and a step's rate does not
 * depend on what came before. Adam's own count is of the updates alone, as torch's. */

#include "worker/trainer.h"

void scaling_open(struct trainer *t);

/* What a checkpoint of `t->step` says, and going on from one; off, too: the updates
 * count. */
void scaling_save(struct trainer *t);
void scaling_restore(struct trainer *t, const struct checkpoint_scaler *saved);

/* What multiplies the gradient of a leaf's summed loss: 1 / tokens of a step, times the
 * scale, each rounded. So gradients in fp16 do not depend on the number of ranks; W ranks
 * of torch's DDP, which divide by W after backward, have them W times as large. */
float scaling_of_leaf(const struct trainer *t);

/* Of the step that comes: everything that its update needs is known before it. */
struct adamw_turn scaling_turn(const struct trainer *t);

/* With the step's grad_norm: fills loss_scale and skipped, chooses the next scale. Every
 * rank has the same norm (adamw_step), so the same scale. */
void scaling_after(struct trainer *t, struct metrics_line *line);

#endif
