#ifndef WORKER_MODEL_GPT2_H
#define WORKER_MODEL_GPT2_H

/* GPT-2: forward and backward of one leaf (micro-batch) through a device's kernels.
 *
 * The activations of one leaf live in one arena, sized by gpt2_arena_bytes before the
 * first step. Gradients of a leaf are written (never added), unit by unit, from the
 * last unit to the first; the end of each is told, so that its reduction can start
 * while backward still runs. The tied embedding has two gradients: the head's,
 * written with the head unit at the begin of backward into `grad_head` (V, C), and the
 * lookup's, in unit 0. Gradients of frozen tensors are zeros; backward ends below the
 * first unit that is trained. */

#include "worker/device/kernels.h"
#include "worker/model/unit.h"

struct gpt2;

/* What backward computes again rather than keep; the bits are the same. Every block's
 * input is kept. BLOCK: nothing else; a block's forward runs again before its backward,
 * without its last matmul. SELECTIVE: also the outcome of every matmul and of attention
 * that backward needs; the norms' outputs and gelu's are made again, element by
 * element. */
enum gpt2_recompute { RECOMPUTE_NONE, RECOMPUTE_BLOCK, RECOMPUTE_SELECTIVE };

struct gpt2_config {
    struct model_config model;
    int batch;           /* sequences of a leaf */
    int seq_len;         /* ≤ model.context */
    bool inference_only; /* no backward: fewer activations */
    enum gpt2_recompute recompute;
    enum dtype precision; /* of activations, and parameters are given in it */
    double dropout;       /* in [0, 1): of gpt2_forward_backward alone */
    uint64_t seed;        /* of dropout */
};

/* How the passes come by a unit's parameters: asked for when its work is about to be
 * enqueued on the compute queue, given back behind it. A leaf asks for units 0 … n − 1,
 * then for 0 (the tied head); backward for n − 1 … 1, once each, also where it computes
 * a block's forward again. Who keeps all units in one flat block, in layout order, sets
 * `flat` and no functions. */
struct unit_params {
    const float *flat;
    const float *(*begin)(void *arg, int unit);
    void (*end)(void *arg, int unit);
    void *arg;
};

/* Where a unit's gradient goes, from unit n − 1 to unit 0. `end`: it is complete once
 * what is on the compute queue now is done, and with that of n − 1 (ln_f) the head's
 * tied gradient. With `flat`, `begin` and `end` may be NULL. */
struct unit_grads {
    float *flat;
    float *(*begin)(void *arg, int unit);
    void (*end)(void *arg, int unit);
    void *arg;
};

struct gpt2_leaf {
    const int32_t *tokens;  /* (batch, seq_len) device memory */
    const int32_t *targets; /* (batch, seq_len) */
    struct unit_params params;
    struct unit_grads grads; /* written */
    float *grad_head;  /* (V, C); written: the tied weight's gradient as the head */
    float loss_scale;  /* 1 / (global_batch · seq_len): scales dlogits, once */
    double *loss_sum;  /* device: sum of the token losses of the leaf */
    uint64_t position; /* of its first sequence in the stream of samples: for dropout */
    void (*on_backward)(
        void *arg); /* when backward begins; NULL: nobody wants to know */
    void *arg;
};

size_t gpt2_arena_bytes(const struct gpt2_config *config);
/* Forward + backward, without what is computed again and, as far as backward skips it,
 * without what is frozen. */
size_t gpt2_flops_per_leaf(const struct gpt2_config *config,
                           const struct layout *layout);

int gpt2_new(const struct gpt2_config *config, const struct layout *layout,
             struct device *device, struct gpt2 **ret, struct errmsg *msg) MUST_CHECK;
void gpt2_free(struct gpt2 *g); /* NULL allowed */

void gpt2_forward_backward(struct gpt2 *g, const struct gpt2_leaf *leaf);

/* Loss alone (evaluation): tokens, targets, params and loss_sum of `leaf` are used. */
void gpt2_forward_loss(struct gpt2 *g, const struct gpt2_leaf *leaf);

/* Logits (V) of position `pos` of sequence 0 into device memory, for sampling. */
void gpt2_logits(struct gpt2 *g, const struct unit_params *params,
                 const int32_t *tokens, int pos, float *logits);

#endif
