#ifndef WORKER_MODEL_SAMPLE_H
#define WORKER_MODEL_SAMPLE_H

/* PURE. The next token from logits, and byte tokens as text for a terminal. */

#include "common/buf.h"

#include <stdint.h>

struct sample_config {
    double temperature; /* 0: always the likeliest */
    int top_k;          /* only the k likeliest; ≤ 0: all */
    uint64_t seed;
};

/* Philox with key = seed and counter = {position, 0, 0, hash of "sample"}: the same
 * seed and logits give the same text. Equal logits: the lower token first. A NaN counts
 * as −∞. */
int32_t sample_token(const struct sample_config *config, const float *logits, int vocab,
                     uint64_t position);

/* Appends byte tokens (0…255) as text that harms no terminal: printable UTF-8, newlines
 * and tabs as they are; control characters, broken UTF-8 and tokens above 255 as \xNN.
 */
int sample_text(const int32_t *tokens, size_t n, struct buf *ret) MUST_CHECK;

#endif
