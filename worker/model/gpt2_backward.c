/* GPT-2's backward pass, from the last unit to the first. Every gradient is written,
 * never added; the stream's gradient alone is added to, in place, by the norms'
 * backward.
 *
 * Happy path of a block, d = acts.d_stream:
 *   what the block did not keep is computed again
 *   d → mlp.c_proj → gelu' → c_fc → ln_2 → added to d
 *   d → attn.c_proj → attention → c_attn → ln_1 → added to d
 *   the block's gradient is complete
 * Below the first unit that is trained there is none, and backward ends. */

#include "worker/model/gpt2_round.h"

/* One linear layer's backward: what goes in, and where it goes. */
struct linear_grad {
    const float *d_out;  /* (R, n) */
    const float *input;  /* (R, k) */
    const float *weight; /* (k, n) */
    float *d_weight;     /* (k, n) */
    float *d_bias;       /* (n) */
    float *d_input;      /* (R, k) */
    float *gelu_pre;     /* (R, k): d_input is multiplied by gelu' of it; or NULL */
    int n, k;
};

static void linear_backward(struct gpt2 *g, const struct gpt2_rows *rows,
                            const struct linear_grad *l)
{
    struct device *d = g->device;
    struct matmul weight = {
        .trans_a = true,
        .m = l->k,
        .n = l->n,
        .k = rows->n,
        .alpha = 1.0F,
        .a = l->input,
        .b = l->d_out,
        .c = l->d_weight,
        .lda = l->k,
        .ldb = l->n,
        .ldc = l->n,
    };
    d->k->matmul(d, &weight);
    d->k->column_sum(d, l->d_bias, l->d_out, rows->n, l->n);
    struct matmul input = {
        .trans_b = true,
        .m = rows->n,
        .n = l->k,
        .k = l->n,
        .alpha = 1.0F,
        .a = l->d_out,
        .b = l->weight,
        .c = l->d_input,
        .lda = l->n,
        .ldb = l->n,
        .ldc = l->k,
        .epilogue = l->gelu_pre != NULL ? EPILOGUE_DGELU : EPILOGUE_NONE,
        .aux = l->gelu_pre,
    };
    d->k->matmul(d, &input);
    gpt2_round(g, l->d_input, rows->n, l->k);
}

static void mlp_half(struct gpt2 *g, const struct gpt2_rows *rows,
                     const struct gpt2_block_acts *a, const float *p, float *grad)
{
    const struct gpt2_block_offsets *at = &g->at;
    const struct gpt2_acts *acts = &g->acts;
    int dim = g->config.model.dim;

    linear_backward(g, rows,
                    &(struct linear_grad){
                        .d_out = gpt2_dropped(g, rows, gpt2_site_of(g, a, SITE_MLP_OUT),
                                              acts->branch, acts->d_stream),
                        .input = a->fc,
                        .weight = p + at->mlp_proj_weight,
                        .d_weight = grad + at->mlp_proj_weight,
                        .d_bias = grad + at->mlp_proj_bias,
                        .d_input = acts->d_wide,
                        .gelu_pre = a->fc_pre,
                        .n = dim,
                        .k = 4 * dim,
                    });
    linear_backward(g, rows,
                    &(struct linear_grad){
                        .d_out = acts->d_wide,
                        .input = a->ln_2,
                        .weight = p + at->c_fc_weight,
                        .d_weight = grad + at->c_fc_weight,
                        .d_bias = grad + at->c_fc_bias,
                        .d_input = acts->d_branch,
                        .n = 4 * dim,
                        .k = dim,
                    });
    g->device->k->layernorm_backward(g->device, acts->d_stream, grad + at->ln_2_weight,
                                     grad + at->ln_2_bias, acts->d_branch, a->mid,
                                     p + at->ln_2_weight, a->ln_2_mean, a->ln_2_rstd,
                                     rows->n, dim, true);
    gpt2_round(g, acts->d_stream, rows->n, dim);
}

static void attention_half(struct gpt2 *g, const struct gpt2_rows *rows,
                           const struct gpt2_block_acts *a, const float *p, float *grad)
{
    const struct gpt2_block_offsets *at = &g->at;
    const struct gpt2_acts *acts = &g->acts;
    struct device *d = g->device;
    struct dropout drop = gpt2_dropout(g, rows, gpt2_site_of(g, a, SITE_PROBABILITIES));
    int dim = g->config.model.dim;

    linear_backward(
        g, rows,
        &(struct linear_grad){
            .d_out = gpt2_dropped(g, rows, gpt2_site_of(g, a, SITE_ATTENTION_OUT),
                                  acts->branch, acts->d_stream),
            .input = a->att,
            .weight = p + at->attn_proj_weight,
            .d_weight = grad + at->attn_proj_weight,
            .d_bias = grad + at->attn_proj_bias,
            .d_input = acts->d_branch,
            .n = dim,
            .k = dim,
        });
    d->k->attention_backward(d, acts->d_wide, acts->d_branch, a->qkv, a->att, a->lse,
                             rows->batch, rows->seq_len, dim, g->config.model.heads,
                             drop.p > 0 ? &drop : NULL);
    gpt2_round(g, acts->d_wide, rows->n, 3 * dim);
    linear_backward(g, rows,
                    &(struct linear_grad){
                        .d_out = acts->d_wide,
                        .input = a->ln_1,
                        .weight = p + at->c_attn_weight,
                        .d_weight = grad + at->c_attn_weight,
                        .d_bias = grad + at->c_attn_bias,
                        .d_input = acts->d_branch,
                        .n = 3 * dim,
                        .k = dim,
                    });
    d->k->layernorm_backward(
        d, acts->d_stream, grad + at->ln_1_weight, grad + at->ln_1_bias, acts->d_branch,
        a->in, p + at->ln_1_weight, a->ln_1_mean, a->ln_1_rstd, rows->n, dim, true);
    gpt2_round(g, acts->d_stream, rows->n, dim);
}

static float *grads_begin(const struct gpt2 *g, const struct unit_grads *to, int unit)
{
    return to->begin ? to->begin(to->arg, unit)
                     : to->flat + g->layout->unit[unit].offset;
}

/* Zeros in the place of what is not trained: so it is nothing to the sum, the norm and
 * whoever looks for infinite numbers. */
static void clear_frozen(struct gpt2 *g, int unit, float *grad)
{
    const struct unit *u = &g->layout->unit[unit];

    for (int j = 0; j < u->n_tensors; j++) {
        const struct tensor *t = &u->tensor[j];

        if (t->frozen) {
            device_fill(g->device, QUEUE_COMPUTE, grad + t->offset, 0,
                        t->size * sizeof(float));
        }
    }
}

static void grads_end(struct gpt2 *g, const struct unit_grads *to, int unit,
                      float *grad)
{
    clear_frozen(g, unit, grad);
    if (to->end) {
        to->end(to->arg, unit);
    }
}

static void last_norm(struct gpt2 *g, const struct gpt2_rows *rows,
                      const struct unit_grads *to)
{
    const struct gpt2_acts *acts = &g->acts;
    int unit = g->config.model.layers + 1;
    const float *p = gpt2_params_begin(g, rows->params, unit);
    float *grad = grads_begin(g, to, unit);

    g->device->k->layernorm_backward(
        g->device, acts->d_stream, grad + g->ln_f_weight, grad + g->ln_f_bias,
        acts->d_branch, acts->block[unit - 2].out, p + g->ln_f_weight, acts->ln_f_mean,
        acts->ln_f_rstd, rows->n, g->config.model.dim, false);
    gpt2_round(g, acts->d_stream, rows->n, g->config.model.dim);
    gpt2_params_end(rows->params, unit);
    grads_end(g, to, unit, grad);
}

void gpt2_backward_body(struct gpt2 *g, const struct gpt2_rows *rows,
                        const struct unit_grads *to)
{
    struct device *d = g->device;
    const struct gpt2_acts *acts = &g->acts;
    const struct model_config *m = &g->config.model;
    float *grad;

    last_norm(g, rows, to);
    for (int i = m->layers - 1; i >= 0; i--) {
        const float *p = gpt2_params_begin(g, rows->params, i + 1);

        if (i + 1 < g->layout->first_trained) { /* others make the same passes */
            gpt2_params_end(rows->params, i + 1);
            grads_end(g, to, i + 1, grads_begin(g, to, i + 1));
            continue;
        }
        gpt2_recompute_block(g, rows, i, p);
        grad = grads_begin(g, to, i + 1);
        mlp_half(g, rows, &acts->block[i], p, grad);
        attention_half(g, rows, &acts->block[i], p, grad);
        gpt2_params_end(rows->params, i + 1);
        grads_end(g, to, i + 1, grad);
    }
    grad = grads_begin(g, to, 0);
    if (g->layout->first_trained == 0) {
        d->k->embedding_backward(
            d, grad + g->wte, grad + g->wpe,
            gpt2_dropped(g, rows, SITE_EMBEDDING, acts->branch, acts->d_stream),
            rows->tokens, rows->batch, rows->seq_len, m->dim, m->vocab, m->context);
    }
    grads_end(g, to, 0, grad);
}
