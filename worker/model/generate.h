#ifndef WORKER_MODEL_GENERATE_H
#define WORKER_MODEL_GENERATE_H

/* Continues a prompt with a model: a window of at most `window` tokens, one forward
 * pass per new token. Blocks until done; the caller's thread drives the device. */

#include "worker/model/gpt2.h"
#include "worker/model/sample.h"

struct generate_config {
    struct gpt2 *model;
    struct device *device;
    struct unit_params (*pass)(void *arg); /* the parameters of one forward pass */
    void *arg;
    struct sample_config sample;
    int vocab;
    int n_tokens;   /* only tokens below it are chosen; at most vocab */
    int window;     /* the model's seq_len */
    int timeout_ms; /* of one token */
};

/* tokens[0 … n_prompt) is the prompt, at least one token; tokens[n_prompt … n_total) is
 * written. Host memory. */
int generate(const struct generate_config *config, int32_t *tokens, size_t n_prompt,
             size_t n_total, struct errmsg *msg) MUST_CHECK;

#endif
