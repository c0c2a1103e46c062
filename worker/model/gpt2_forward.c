/* GPT-2's forward pass: embedding, blocks, last norm.
 *
 * Happy path of a block (in, mid, out = the residual stream):
 *   in  → ln_1 → c_attn → attention → c_proj → mid = in + it
 *   mid → ln_2 → c_fc, gelu         → c_proj → out = mid + it
 * In training, what is added, the attention's probabilities and the embedding are
 * dropped in part. */

#include "worker/model/gpt2_round.h"

/* C (rows, n) = A (rows, k) · W (k, n) + bias; the pointers are the caller's to set. */
static struct matmul linear(int rows, int n, int k)
{
    return (struct matmul){
        .m = rows,
        .n = n,
        .k = k,
        .alpha = 1.0F,
        .lda = k,
        .ldb = n,
        .ldc = n,
        .epilogue = EPILOGUE_BIAS,
    };
}

const float *gpt2_dropped(struct gpt2 *g, const struct gpt2_rows *rows, int site,
                          float *to, const float *x)
{
    size_t n = (size_t)rows->seq_len * (size_t)g->config.model.dim;
    struct dropout drop = gpt2_dropout(g, rows, site);

    if (!(drop.p > 0)) {
        return x;
    }
    g->device->k->dropout(g->device, to, x, rows->batch, n, &drop);
    gpt2_round(g, to, rows->n, g->config.model.dim);
    return to;
}

/* out = in + branch, dropped */
static void add_branch(struct gpt2 *g, const struct gpt2_rows *rows, int site,
                       float *out, const float *in)
{
    float *branch = g->acts.branch;

    g->device->k->residual(g->device, out, in,
                           gpt2_dropped(g, rows, site, branch, branch),
                           (size_t)rows->n * (size_t)g->config.model.dim);
    gpt2_round(g, out, rows->n, g->config.model.dim);
}

static void norm_1(struct gpt2 *g, const struct gpt2_rows *rows,
                   const struct gpt2_block_acts *a, const float *p)
{
    int dim = g->config.model.dim;

    g->device->k->layernorm(g->device, a->ln_1, a->ln_1_mean, a->ln_1_rstd, a->in,
                            p + g->at.ln_1_weight, p + g->at.ln_1_bias, rows->n, dim);
    gpt2_round(g, a->ln_1, rows->n, dim);
}

static void norm_2(struct gpt2 *g, const struct gpt2_rows *rows,
                   const struct gpt2_block_acts *a, const float *p)
{
    int dim = g->config.model.dim;

    g->device->k->layernorm(g->device, a->ln_2, a->ln_2_mean, a->ln_2_rstd, a->mid,
                            p + g->at.ln_2_weight, p + g->at.ln_2_bias, rows->n, dim);
    gpt2_round(g, a->ln_2, rows->n, dim);
}

static void gelu(struct gpt2 *g, const struct gpt2_rows *rows,
                 const struct gpt2_block_acts *a)
{
    int wide = 4 * g->config.model.dim;

    g->device->k->gelu(g->device, a->fc, a->fc_pre, (size_t)rows->n * (size_t)wide);
    gpt2_round(g, a->fc, rows->n, wide);
}

static void attention_half(struct gpt2 *g, const struct gpt2_rows *rows,
                           const struct gpt2_block_acts *a, const float *p)
{
    struct device *d = g->device;
    const struct kernels *k = d->k;
    const struct gpt2_block_offsets *at = &g->at;
    struct dropout drop = gpt2_dropout(g, rows, gpt2_site_of(g, a, SITE_PROBABILITIES));
    int dim = g->config.model.dim;

    norm_1(g, rows, a, p);
    struct matmul qkv = linear(rows->n, 3 * dim, dim);
    qkv.a = a->ln_1;
    qkv.b = p + at->c_attn_weight;
    qkv.bias = p + at->c_attn_bias;
    qkv.c = a->qkv;
    k->matmul(d, &qkv);
    gpt2_round(g, a->qkv, rows->n, 3 * dim);
    k->attention(d, a->att, a->lse, a->qkv, rows->batch, rows->seq_len, dim,
                 g->config.model.heads, drop.p > 0 ? &drop : NULL);
    gpt2_round(g, a->att, rows->n, dim);
    struct matmul proj = linear(rows->n, dim, dim);
    proj.a = a->att;
    proj.b = p + at->attn_proj_weight;
    proj.bias = p + at->attn_proj_bias;
    proj.c = g->acts.branch;
    k->matmul(d, &proj);
    gpt2_round(g, g->acts.branch, rows->n, dim);
    add_branch(g, rows, gpt2_site_of(g, a, SITE_ATTENTION_OUT), a->mid, a->in);
}

/* Up to gelu: what is left is not needed to go back. The fused kernel's gelu would see
 * what is not rounded yet, and gelu made again from what is kept would differ. */
static void mlp_begin(struct gpt2 *g, const struct gpt2_rows *rows,
                      const struct gpt2_block_acts *a, const float *p)
{
    struct device *d = g->device;
    const struct gpt2_block_offsets *at = &g->at;
    int dim = g->config.model.dim;

    norm_2(g, rows, a, p);
    struct matmul fc = linear(rows->n, 4 * dim, dim);
    fc.a = a->ln_2;
    fc.b = p + at->c_fc_weight;
    fc.bias = p + at->c_fc_bias;
    if (g->config.precision == DTYPE_FP32) {
        fc.c = a->fc;
        fc.epilogue = EPILOGUE_BIAS_GELU;
        fc.aux = a->fc_pre;
        d->k->matmul(d, &fc);
        return;
    }
    fc.c = a->fc_pre;
    d->k->matmul(d, &fc);
    gpt2_round(g, a->fc_pre, rows->n, 4 * dim);
    gelu(g, rows, a);
}

static void mlp_end(struct gpt2 *g, const struct gpt2_rows *rows,
                    const struct gpt2_block_acts *a, const float *p)
{
    struct device *d = g->device;
    const struct gpt2_block_offsets *at = &g->at;
    int dim = g->config.model.dim;

    struct matmul proj = linear(rows->n, dim, 4 * dim);
    proj.a = a->fc;
    proj.b = p + at->mlp_proj_weight;
    proj.bias = p + at->mlp_proj_bias;
    proj.c = g->acts.branch;
    d->k->matmul(d, &proj);
    gpt2_round(g, g->acts.branch, rows->n, dim);
    add_branch(g, rows, gpt2_site_of(g, a, SITE_MLP_OUT), a->out, a->mid);
}

static void cheap_again(struct gpt2 *g, const struct gpt2_rows *rows,
                        const struct gpt2_block_acts *a, const float *p)
{
    norm_1(g, rows, a, p);
    norm_2(g, rows, a, p);
    gelu(g, rows, a);
}

/* What the blocks share still holds the last one's. */
void gpt2_recompute_block(struct gpt2 *g, const struct gpt2_rows *rows, int i,
                          const float *p)
{
    const struct gpt2_block_acts *a = &g->acts.block[i];

    if (i == g->config.model.layers - 1) {
        return;
    }
    switch (g->config.recompute) {
    case RECOMPUTE_NONE:
        break;
    case RECOMPUTE_BLOCK:
        attention_half(g, rows, a, p);
        mlp_begin(g, rows, a, p);
        break;
    case RECOMPUTE_SELECTIVE:
        cheap_again(g, rows, a, p);
        break;
    }
}

void gpt2_forward_body(struct gpt2 *g, const struct gpt2_rows *rows)
{
    struct device *d = g->device;
    const struct gpt2_acts *acts = &g->acts;
    int layers = g->config.model.layers;
    int dim = g->config.model.dim;
    const float *p = gpt2_params_begin(g, rows->params, 0);

    d->k->embedding(d, acts->block[0].in, rows->tokens, p + g->wte, p + g->wpe,
                    rows->batch, rows->seq_len, dim);
    gpt2_round(g, acts->block[0].in, rows->n, dim);
    (void)gpt2_dropped(g, rows, SITE_EMBEDDING, acts->block[0].in, acts->block[0].in);
    gpt2_params_end(rows->params, 0);
    for (int i = 0; i < layers; i++) {
        p = gpt2_params_begin(g, rows->params, i + 1);
        attention_half(g, rows, &acts->block[i], p);
        mlp_begin(g, rows, &acts->block[i], p);
        mlp_end(g, rows, &acts->block[i], p);
        gpt2_params_end(rows->params, i + 1);
    }
    p = gpt2_params_begin(g, rows->params, layers + 1);
    d->k->layernorm(d, acts->ln_f, acts->ln_f_mean, acts->ln_f_rstd,
                    acts->block[layers - 1].out, p + g->ln_f_weight, p + g->ln_f_bias,
                    rows->n, dim);
    gpt2_round(g, acts->ln_f, rows->n, dim);
    gpt2_params_end(rows->params, layers + 1);
}
