/* The tied head and the loss, forward and backward together, some rows at a time: the
 * logits of all rows never exist. Only here does a matmul add (beta = 1): the head's
 * gradient is summed over the chunks of one leaf, in their order. */

#include "worker/model/gpt2_round.h"

struct chunk {
    int first, n;  /* rows */
    float *hidden; /* (n, C): ln_f's output */
};

static void chunk_logits(struct gpt2 *g, const float *wte, const struct chunk *c)
{
    int dim = g->config.model.dim;
    int vocab = g->config.model.vocab;
    struct matmul mm = {
        .trans_b = true,
        .m = c->n,
        .n = vocab,
        .k = dim,
        .alpha = 1.0F,
        .a = c->hidden,
        .b = wte,
        .c = g->acts.logits,
        .lda = dim,
        .ldb = dim,
        .ldc = vocab,
    };
    g->device->k->matmul(g->device, &mm);
    gpt2_round(g, g->acts.logits, c->n, vocab);
}

/* The head is wte. */
static bool is_frozen(const struct gpt2 *g)
{
    return g->layout->unit[0].tensor[0].frozen;
}

/* acts.logits hold the gradient of the logits. */
static void chunk_backward(struct gpt2 *g, const float *wte, const struct chunk *c,
                           const struct gpt2_leaf *leaf)
{
    int dim = g->config.model.dim;
    int vocab = g->config.model.vocab;
    gpt2_round(g, g->acts.logits, c->n, vocab);
    struct matmul hidden = {
        .m = c->n,
        .n = dim,
        .k = vocab,
        .alpha = 1.0F,
        .a = g->acts.logits,
        .b = wte,
        .c = g->acts.d_branch + (size_t)c->first * (size_t)dim,
        .lda = vocab,
        .ldb = dim,
        .ldc = dim,
    };
    g->device->k->matmul(g->device, &hidden);
    gpt2_round(g, hidden.c, c->n, dim);
    if (is_frozen(g)) {
        return;
    }
    struct matmul weight = {
        .trans_a = true,
        .m = vocab,
        .n = dim,
        .k = c->n,
        .alpha = 1.0F,
        .beta = c->first == 0 ? 0.0F : 1.0F,
        .a = g->acts.logits,
        .b = c->hidden,
        .c = leaf->grad_head,
        .lda = vocab,
        .ldb = dim,
        .ldc = dim,
    };
    g->device->k->matmul(g->device, &weight);
}

void gpt2_head_loss(struct gpt2 *g, const struct gpt2_rows *rows,
                    const struct gpt2_leaf *leaf, bool backward)
{
    struct device *d = g->device;
    const float *wte = gpt2_params_begin(g, rows->params, 0) + g->wte;
    int most = gpt2_head_rows(&g->config);
    if (backward && is_frozen(g)) {
        device_fill(d, QUEUE_COMPUTE, leaf->grad_head, 0,
                    g->layout->unit[0].tensor[0].size * sizeof(float));
    }
    for (int first = 0; first < rows->n; first += most) {
        struct chunk c = {
            .first = first,
            .n = MIN(most, rows->n - first),
            .hidden = g->acts.ln_f + (size_t)first * (size_t)g->config.model.dim,
        };
        chunk_logits(g, wte, &c);
        d->k->softmax_xent(d, g->acts.logits, g->acts.losses + first,
                           leaf->targets + first, c.n, g->config.model.vocab,
                           leaf->loss_scale, backward);
        if (backward) {
            chunk_backward(g, wte, &c, leaf);
        }
    }
    gpt2_params_end(rows->params, 0);
    d->k->sum(d, leaf->loss_sum, g->acts.losses, (size_t)rows->n);
}

void gpt2_head_logits(struct gpt2 *g, const struct unit_params *params, int row,
                      float *logits)
{
    int dim = g->config.model.dim;
    int vocab = g->config.model.vocab;
    struct chunk c = {
        .n = 1,
        .hidden = g->acts.ln_f + (size_t)row * (size_t)dim,
    };
    chunk_logits(g, gpt2_params_begin(g, params, 0) + g->wte, &c);
    gpt2_params_end(params, 0);
    device_copy(g->device, QUEUE_COMPUTE, logits, g->acts.logits,
                (size_t)vocab * sizeof(float));
}
