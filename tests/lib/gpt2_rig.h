#ifndef TESTS_LIB_GPT2_RIG_H
#define TESTS_LIB_GPT2_RIG_H

/* A CPU device with a GPT-2, its parameters and gradients: what tests of the model
 * share. Everything that fails here aborts the test. */

#include "worker/model/gpt2.h"

extern const struct gpt2_config gpt2_rig_small;

struct gpt2_rig {
    struct gpt2_config config;
    struct layout layout;
    struct device *device;
    struct gpt2 *model;
    float *params, *grads;     /* layout order */
    float *grad_head;          /* (V, C) */
    int32_t *tokens, *targets; /* (batch, seq_len) */
    float *logits;             /* (V) */
    double *loss_sum;
};

/* False when this machine has no such instruction set: skip the case. */
bool gpt2_rig_open(struct gpt2_rig *r, const struct gpt2_config *config,
                   const char *isa, int threads);
void gpt2_rig_close(struct gpt2_rig *r);

/* Random parameters of every tensor, random tokens and targets: the same for each seed.
 */
void gpt2_rig_fill(struct gpt2_rig *r, uint64_t seed);

/* One leaf over all rows, the mean's gradient. Returns the mean loss. */
double gpt2_rig_run(struct gpt2_rig *r);

/* The leaf that gpt2_rig_run runs. */
struct gpt2_leaf gpt2_rig_leaf(const struct gpt2_rig *r);

/* Adds the head's gradient to wte's, as the strategy does after reduction. */
void gpt2_rig_tie(struct gpt2_rig *r);

size_t gpt2_rig_head_size(const struct gpt2_rig *r);
int gpt2_rig_rows(const struct gpt2_rig *r);

#endif
