/* In bf16 and fp16 whatever a kernel of the model reads is rounded: parameters,
 * activations, their gradients. What a GPU keeps in fp32 is not. Every kernel that
 * reads such a tensor is watched. */

#include "tests/lib/cmocka.h"
#include "tests/lib/gpt2_rig.h"
#include "worker/model/gpt2_internal.h"

static const struct gpt2_config shape = {
    .model = {.family = "gpt2",
              .layers = 2,
              .heads = 3,
              .dim = 21,
              .context = 33,
              .vocab = 101},
    .batch = 2,
    .seq_len = 33,
    .seed = 1337,
};

static const struct kernels *real;
static enum dtype dtype;
static int n_watched;

static bool is_rounded(const float *x, size_t n)
{
    bool ret = true;
    for (size_t i = 0; i < n; i++) {
        ret = ret && x[i] == dtype_round(x[i], dtype);
    }
    return ret;
}

static void expect(const char *kernel, const char *input, const float *x, int rows,
                   int width)
{
    n_watched++;
    if (!is_rounded(x, (size_t)rows * (size_t)width)) {
        fail_msg("%s reads %s, which is not rounded", kernel, input);
    }
}

/* --- the watched kernels --- */

static void matmul(struct device *d, const struct matmul *mm)
{
    expect("matmul", "a", mm->a, mm->trans_a ? mm->k : mm->m, mm->lda);
    expect("matmul", "b", mm->b, mm->trans_b ? mm->n : mm->k, mm->ldb);
    if (mm->epilogue == EPILOGUE_BIAS) {
        expect("matmul", "bias", mm->bias, 1, mm->n);
    }
    if (mm->epilogue == EPILOGUE_DGELU) {
        expect("matmul", "aux", mm->aux, mm->m, mm->ldc);
    }
    assert_int_not_equal(mm->epilogue, EPILOGUE_BIAS_GELU); /* gelu of what? */
    real->matmul(d, mm);
}

/* NOLINTBEGIN(readability-function-size, readability-non-const-parameter): the
 * parameter lists are kernels.h's */

static void embedding_backward(struct device *d, float *dwte, float *dwpe,
                               const float *dout, const int32_t *tokens, int B, int T,
                               int C, int V, int P)
{
    expect("embedding_backward", "dout", dout, B * T, C);
    real->embedding_backward(d, dwte, dwpe, dout, tokens, B, T, C, V, P);
}

static void layernorm(struct device *d, float *out, float *mean, float *rstd,
                      const float *x, const float *gamma, const float *beta, int rows,
                      int C)
{
    expect("layernorm", "x", x, rows, C);
    real->layernorm(d, out, mean, rstd, x, gamma, beta, rows, C);
    assert_false(is_rounded(mean, (size_t)rows));
}

static void layernorm_backward(struct device *d, float *dx, float *dgamma, float *dbeta,
                               const float *dout, const float *x, const float *gamma,
                               const float *mean, const float *rstd, int rows, int C,
                               bool add)
{
    expect("layernorm_backward", "dout", dout, rows, C);
    expect("layernorm_backward", "x", x, rows, C);
    if (add) {
        expect("layernorm_backward", "dx", dx, rows, C);
    }
    assert_false(is_rounded(mean, (size_t)rows));
    assert_false(is_rounded(rstd, (size_t)rows));
    real->layernorm_backward(d, dx, dgamma, dbeta, dout, x, gamma, mean, rstd, rows, C,
                             add);
}

static void attention(struct device *d, float *out, float *lse, const float *qkv, int B,
                      int T, int C, int H, const struct dropout *drop)
{
    expect("attention", "qkv", qkv, B * T, 3 * C);
    real->attention(d, out, lse, qkv, B, T, C, H, drop);
}

static void attention_backward(struct device *d, float *dqkv, const float *dout,
                               const float *qkv, const float *out, const float *lse,
                               int B, int T, int C, int H, const struct dropout *drop)
{
    expect("attention_backward", "dout", dout, B * T, C);
    expect("attention_backward", "qkv", qkv, B * T, 3 * C);
    expect("attention_backward", "out", out, B * T, C);
    assert_false(is_rounded(lse, (size_t)B * (size_t)H * (size_t)T));
    real->attention_backward(d, dqkv, dout, qkv, out, lse, B, T, C, H, drop);
}

static void dropout(struct device *d, float *out, const float *x, int B, size_t n,
                    const struct dropout *drop)
{
    expect("dropout", "x", x, B, (int)n);
    real->dropout(d, out, x, B, n, drop);
}

static void gelu(struct device *d, float *out, const float *x, size_t n)
{
    expect("gelu", "x", x, 1, (int)n);
    real->gelu(d, out, x, n);
}

static void residual(struct device *d, float *out, const float *a, const float *b,
                     size_t n)
{
    expect("residual", "a", a, 1, (int)n);
    expect("residual", "b", b, 1, (int)n);
    real->residual(d, out, a, b, n);
}

static void column_sum(struct device *d, float *out, const float *x, int rows, int C)
{
    expect("column_sum", "x", x, rows, C);
    real->column_sum(d, out, x, rows, C);
}

static void softmax_xent(struct device *d, float *logits, float *loss,
                         const int32_t *targets, int rows, int V, float scale,
                         bool backward)
{
    expect("softmax_xent", "logits", logits, rows, V);
    real->softmax_xent(d, logits, loss, targets, rows, V, scale, backward);
}

/* NOLINTEND(readability-function-size, readability-non-const-parameter) */

static struct kernels watched_kernels(void)
{
    struct kernels ret = *real;
    ret.matmul = matmul;
    ret.embedding_backward = embedding_backward;
    ret.layernorm = layernorm;
    ret.layernorm_backward = layernorm_backward;
    ret.attention = attention;
    ret.attention_backward = attention_backward;
    ret.dropout = dropout;
    ret.gelu = gelu;
    ret.residual = residual;
    ret.column_sum = column_sum;
    ret.softmax_xent = softmax_xent;
    return ret;
}

/* --- the cases --- */

static void check_run(struct gpt2_rig *r)
{
    struct gpt2_leaf leaf = gpt2_rig_leaf(r);
    n_watched = 0;
    gpt2_forward_backward(r->model, &leaf);
    assert_true(n_watched > 60);
    assert_false(is_rounded(r->grads, r->layout.size));
    assert_false(is_rounded(r->grad_head, gpt2_rig_head_size(r)));
    gpt2_forward_loss(r->model, &leaf);
    gpt2_logits(r->model, &leaf.params, r->tokens, 5, r->logits);
    assert_true(is_rounded(r->logits, (size_t)r->config.model.vocab));
}

static void check_precision(enum dtype precision, enum gpt2_recompute recompute,
                            double dropped)
{
    struct gpt2_config c = shape;
    struct kernels watched;
    struct gpt2_rig r;
    c.precision = dtype = precision;
    c.recompute = recompute;
    c.dropout = dropped;
    assert_true(gpt2_rig_open(&r, &c, NULL, 2));
    gpt2_rig_fill(&r, 13);
    real = r.device->k;
    real->round(r.device, QUEUE_COMPUTE, r.params, r.params, r.layout.size, precision);
    watched = watched_kernels();
    r.device->k = &watched;
    check_run(&r);
    r.device->k = real;
    gpt2_rig_close(&r);
}

static void kernels_read_what_is_rounded(void **state)
{
    (void)state;
    for (enum gpt2_recompute i = RECOMPUTE_NONE; i <= RECOMPUTE_SELECTIVE; i++) {
        check_precision(DTYPE_BF16, i, 0);
        check_precision(DTYPE_BF16, i, 0.2);
        check_precision(DTYPE_FP16, i, 0.2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_read_what_is_rounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
