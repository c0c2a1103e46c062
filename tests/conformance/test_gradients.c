/* The scalar reference against a second opinion: each forward is written again here in
 * double, and each backward must be the derivative of that, by central differences. */

#include "tests/conformance/kernel_case.h"
#include "worker/model/philox.h"

#include <stdio.h>

static struct device *scalar;

static int open_scalar(void **state)
{
    (void)state;
    scalar = open_device("scalar", 1);
    return 0;
}

static int close_scalar(void **state)
{
    (void)state;
    device_close(scalar);
    return 0;
}

/* A function of all inputs at once, in double. */
struct model {
    void (*forward)(const struct model *m, const double *in, double *out);
    size_t n_in, n_out;
    const int *dim;
    const int32_t *ids;
    const struct dropout *drop;
};

/* loss(in) = Σ weight[i] · out[i] */
static double loss(const struct model *m, const double *in, const float *weight)
{
    double *out = calloc(m->n_out, sizeof(double)), sum = 0;

    assert_non_null(out);
    m->forward(m, in, out);
    for (size_t i = 0; i < m->n_out; i++) {
        sum += out[i] * weight[i];
    }
    free(out);
    return sum;
}

static double *widen(const float *x, size_t n)
{
    double *p = calloc(n, sizeof(double));

    assert_non_null(p);
    for (size_t i = 0; i < n; i++) {
        p[i] = x[i];
    }
    return p;
}

static void assert_forward(const struct model *m, const float *in, const float *got)
{
    double *x = widen(in, m->n_in), *want = calloc(m->n_out, sizeof(double));

    assert_non_null(want);
    m->forward(m, x, want);
    for (size_t i = 0; i < m->n_out; i++) {
        assert_true(fabs(got[i] - want[i]) <= 1e-6 * (1.0 + fabs(want[i])));
    }
    free(x);
    free(want);
}

static void assert_near(size_t i, double got, double want)
{
    if (!(fabs(got - want) <= 2e-6 * (1.0 + fabs(want)))) {
        fail_msg("element %zu: %.9g, by differences %.9g", i, got, want);
    }
}

/* `gradient` must be d loss / d in, element by element. */
static void assert_gradient(const struct model *m, const float *in, const float *weight,
                            const float *gradient)
{
    const double h = 1e-5;
    double *x = widen(in, m->n_in);

    for (size_t i = 0; i < m->n_in; i++) {
        double at = x[i], above, below, want;

        x[i] = at + h;
        above = loss(m, x, weight);
        x[i] = at - h;
        below = loss(m, x, weight);
        x[i] = at;
        want = (above - below) / (2 * h);
        assert_near(i, gradient[i], want);
    }
    free(x);
}

/* --- the second opinions --- */

static double gelu_again(double x)
{
    return 0.5 * x *
           (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static void gelu_forward(const struct model *m, const double *in, double *out)
{
    for (size_t i = 0; i < m->n_out; i++) {
        out[i] = gelu_again(in[i]);
    }
}

/* in: x (rows, C), gamma (C), beta (C) */
static void layernorm_forward(const struct model *m, const double *in, double *out)
{
    size_t rows = (size_t)m->dim[0], width = (size_t)m->dim[1];
    const double *gamma = in + rows * width, *beta = gamma + width;

    for (size_t r = 0; r < rows; r++) {
        const double *x = in + r * width;
        double sum = 0, squares = 0, mean;

        for (size_t c = 0; c < width; c++) {
            sum += x[c];
        }
        mean = sum / (double)width;
        for (size_t c = 0; c < width; c++) {
            squares += (x[c] - mean) * (x[c] - mean);
        }
        for (size_t c = 0; c < width; c++) {
            double norm = (x[c] - mean) / sqrt(squares / (double)width + 1e-5);

            out[r * width + c] = norm * gamma[c] + beta[c];
        }
    }
}

/* 0 or 1 / (1 − p), by kernels.h's words. */
static double factor_again(const struct dropout *drop, size_t b, size_t element)
{
    uint64_t position = drop->position + b;
    struct philox counter = {{(uint32_t)(element / 4), drop->site, (uint32_t)position,
                              (uint32_t)(position >> 32)}};
    uint32_t word = philox_block(drop->seed, counter).word[element % 4];

    return word / 4294967296.0 < drop->p ? 0 : 1 / (1 - drop->p);
}

/* What head h of sequence b multiplies its T × T probabilities by. */
static void factors_again(const struct dropout *drop, size_t b, size_t h, size_t T,
                          double *ret)
{
    size_t stride = T + 3 - (T + 3) % 4;

    for (size_t i = 0; i < T * T; i++) {
        size_t element = (h * T + i / T) * stride + i % T;

        ret[i] = drop ? factor_again(drop, b, element) : 1;
    }
}

/* Row t of one head, with the whole row of probabilities in memory. */
static void attend_again(const double *q, size_t t, const size_t C_D[2],
                         const double *factor, double *out)
{
    size_t width = C_D[0], depth = C_D[1];
    const double *k = q + width, *v = q + 2 * width;
    double p[64], sum = 0;

    for (size_t j = 0; j <= t; j++) {
        double score = 0;

        for (size_t d = 0; d < depth; d++) {
            score += q[t * 3 * width + d] * k[j * 3 * width + d];
        }
        p[j] = exp(score / sqrt((double)depth));
        sum += p[j];
    }
    for (size_t d = 0; d < depth; d++) {
        out[d] = 0;
        for (size_t j = 0; j <= t; j++) {
            out[d] += factor[j] * p[j] / sum * v[j * 3 * width + d];
        }
    }
}

/* in: qkv (B, T, 3C) */
static void attention_forward(const struct model *m, const double *in, double *out)
{
    size_t n_seqs = (size_t)m->dim[0], length = (size_t)m->dim[1];
    size_t width = (size_t)m->dim[2], heads = (size_t)m->dim[3], depth = width / heads;
    double factors[256];

    assert_true(length * length <= ARRAY_LEN(factors));
    for (size_t i = 0; i < n_seqs * heads; i++) {
        size_t h = i % heads, b = i / heads;
        const double *q = in + b * length * 3 * width + h * depth;

        factors_again(m->drop, b, h, length, factors);
        for (size_t t = 0; t < length; t++) {
            attend_again(q, t, (size_t[]){width, depth}, factors + t * length,
                         out + (b * length + t) * width + h * depth);
        }
    }
}

/* in: x (B, n) */
static void dropout_forward(const struct model *m, const double *in, double *out)
{
    for (size_t i = 0; i < m->n_out; i++) {
        size_t n = (size_t)m->dim[1];

        out[i] = in[i] * factor_again(m->drop, i / n, i % n);
    }
}

/* in: logits (rows, V); out: loss (rows) */
static void xent_forward(const struct model *m, const double *in, double *out)
{
    size_t v = (size_t)m->dim[1];

    for (size_t r = 0; r < m->n_out; r++) {
        double sum = 0;

        for (size_t i = 0; i < v; i++) {
            sum += exp(in[r * v + i]);
        }
        out[r] = log(sum) - in[r * v + (size_t)m->ids[r]];
    }
}

/* in: wte (V, C), wpe (P, C) */
static void embedding_forward(const struct model *m, const double *in, double *out)
{
    size_t t = (size_t)m->dim[1], c = (size_t)m->dim[2], v = (size_t)m->dim[3];

    for (size_t i = 0; i < m->n_out; i++) {
        size_t row = i / c, col = i % c;

        out[i] = in[(size_t)m->ids[row] * c + col] + in[(v + row % t) * c + col];
    }
}

/* in: a (m, k), b (k, n), bias (n); out: gelu(a · b + bias) */
static void linear_forward(const struct model *m, const double *in, double *out)
{
    size_t n = (size_t)m->dim[1], depth = (size_t)m->dim[2];
    const double *b = in + (size_t)m->dim[0] * depth, *bias = b + depth * n;

    for (size_t i = 0; i < m->n_out; i++) {
        double sum = bias[i % n];

        for (size_t k = 0; k < depth; k++) {
            sum += in[i / n * depth + k] * b[k * n + i % n];
        }
        out[i] = gelu_again(sum);
    }
}

/* --- the tests --- */

static void gelu_is_the_tanh_form_and_has_its_derivative(void **state)
{
    struct run r = {.d = scalar, .seed = 2};
    struct model m = {.forward = gelu_forward, .n_in = 65, .n_out = 65};
    float *x = run_input(&r, 65), *weight = run_input(&r, 65);
    float *out = run_output(&r, 65), *dx = run_output(&r, 65);

    (void)state;
    for (size_t i = 0; i < 65; i++) {
        x[i] *= 4.0F;
    }
    scalar->k->gelu(scalar, out, x, 65);
    scalar->k->gelu_backward(scalar, dx, weight, x, 65);
    assert_forward(&m, x, out);
    assert_gradient(&m, x, weight, dx);
    run_release(&r);
}

static void layernorm_backward_is_its_derivative(void **state)
{
    static const int dim[] = {5, 7};
    struct run r = {.d = scalar, .seed = 3};
    struct model m = {
        .forward = layernorm_forward, .n_in = 35 + 14, .n_out = 35, .dim = dim};
    float *in = run_input(&r, 49), *weight = run_input(&r, 35),
          *out = run_output(&r, 35);
    float *mean = run_output(&r, 5), *rstd = run_output(&r, 5),
          *grad = run_output(&r, 49);

    (void)state;
    scalar->k->layernorm(scalar, out, mean, rstd, in, in + 35, in + 42, 5, 7);
    scalar->k->layernorm_backward(scalar, grad, grad + 35, grad + 42, weight, in,
                                  in + 35, mean, rstd, 5, 7, false);
    assert_forward(&m, in, out);
    assert_gradient(&m, in, weight, grad);
    run_release(&r);
}

static const struct dropout some = {
    .p = 0.4, .seed = 5, .position = UINT64_C(1) << 40, .site = 3};

static void check_attention(const struct dropout *drop)
{
    static const int dim[] = {2, 9, 6, 2};
    struct run r = {.d = scalar, .seed = 4};
    const size_t n = 108;
    struct model m = {.forward = attention_forward,
                      .n_in = 3 * n,
                      .n_out = n,
                      .dim = dim,
                      .drop = drop};
    float *qkv = run_input(&r, 3 * n), *weight = run_input(&r, n);
    float *out = run_output(&r, n), *lse = run_output(&r, 36);
    float *grad = run_output(&r, 3 * n);

    scalar->k->attention(scalar, out, lse, qkv, 2, 9, 6, 2, drop);
    scalar->k->attention_backward(scalar, grad, weight, qkv, out, lse, 2, 9, 6, 2,
                                  drop);
    assert_forward(&m, qkv, out);
    assert_gradient(&m, qkv, weight, grad);
    run_release(&r);
}

static void attention_backward_is_its_derivative(void **state)
{
    (void)state;
    check_attention(NULL);
}

static void attention_backward_is_its_derivative_with_dropout(void **state)
{
    (void)state;
    check_attention(&some);
}

static void dropout_backward_is_its_derivative(void **state)
{
    static const int dim[] = {3, 7};
    struct run r = {.d = scalar, .seed = 8};
    struct model m = {
        .forward = dropout_forward, .n_in = 21, .n_out = 21, .dim = dim, .drop = &some};
    float *x = run_input(&r, 21), *weight = run_input(&r, 21);
    float *out = run_output(&r, 21), *grad = run_output(&r, 21);

    (void)state;
    scalar->k->dropout(scalar, out, x, 3, 7, &some);
    scalar->k->dropout(scalar, grad, weight, 3, 7, &some);
    assert_forward(&m, x, out);
    assert_gradient(&m, x, weight, grad);
    run_release(&r);
}

/* The kernel's scale is one number for all rows: so are the weights here. */
static void cross_entropy_backward_is_its_derivative(void **state)
{
    static const int dim[] = {4, 11};
    struct run r = {.d = scalar, .seed = 5};
    const int32_t *ids = run_ids(&r, 4, 11);
    struct model m = {
        .forward = xent_forward, .n_in = 44, .n_out = 4, .dim = dim, .ids = ids};
    float *logits = run_input(&r, 44), *grad = run_buffer(&r, 44);
    float *losses = run_output(&r, 4);
    const float weight[] = {0.3F, 0.3F, 0.3F, 0.3F};

    (void)state;
    memcpy(grad, logits, 44 * sizeof(float));
    scalar->k->softmax_xent(scalar, grad, losses, ids, 4, 11, 0.3F, true);
    assert_forward(&m, logits, losses);
    assert_gradient(&m, logits, weight, grad);
    run_release(&r);
}

static void embedding_backward_is_its_derivative(void **state)
{
    static const int dim[] = {2, 5, 3, 4,
                              6}; /* B T C V P: a position and maybe a token idle */
    struct run r = {.d = scalar, .seed = 6};
    const int32_t *ids = run_ids(&r, 10, 4);
    struct model m = {
        .forward = embedding_forward, .n_in = 30, .n_out = 30, .dim = dim, .ids = ids};
    float *in = run_input(&r, 30), *weight = run_input(&r, 30);
    float *out = run_output(&r, 30), *grad = run_output(&r, 30);

    (void)state;
    scalar->k->embedding(scalar, out, ids, in, in + 12, 2, 5, 3);
    scalar->k->embedding_backward(scalar, grad, grad + 12, weight, ids, 2, 5, 3, 4, 6);
    assert_forward(&m, in, out);
    assert_gradient(&m, in, weight, grad);
    run_release(&r);
}

/* dz = weight · gelu'(z); da = dz · bᵀ, db = aᵀ · dz, dbias = column sums of dz. The
 * kernel offers the first step as the epilogue of a product, here with the unit matrix.
 */
static void matmul_and_its_epilogues_give_the_derivative_of_a_layer(void **state)
{
    static const int dim[] = {5, 3, 4};
    struct run r = {.d = scalar, .seed = 7};
    struct model m = {
        .forward = linear_forward, .n_in = 20 + 12 + 3, .n_out = 15, .dim = dim};
    float *in = run_input(&r, 35), *weight = run_input(&r, 15),
          *grad = run_output(&r, 35);
    float *out = run_output(&r, 15), *z = run_output(&r, 15), *dz = run_output(&r, 15);
    const float unit[] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    const struct matmul steps[] = {
        {.m = 5,
         .n = 3,
         .k = 4,
         .alpha = 1,
         .a = in,
         .b = in + 20,
         .c = out,
         .lda = 4,
         .ldb = 3,
         .ldc = 3,
         .epilogue = EPILOGUE_BIAS_GELU,
         .bias = in + 32,
         .aux = z},
        {.m = 5,
         .n = 3,
         .k = 3,
         .alpha = 1,
         .a = weight,
         .b = unit,
         .c = dz,
         .lda = 3,
         .ldb = 3,
         .ldc = 3,
         .epilogue = EPILOGUE_DGELU,
         .aux = z},
        {.m = 5,
         .n = 4,
         .k = 3,
         .alpha = 1,
         .a = dz,
         .b = in + 20,
         .trans_b = true,
         .c = grad,
         .lda = 3,
         .ldb = 3,
         .ldc = 4},
        {.m = 4,
         .n = 3,
         .k = 5,
         .alpha = 1,
         .a = in,
         .trans_a = true,
         .b = dz,
         .c = grad + 20,
         .lda = 4,
         .ldb = 3,
         .ldc = 3},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        scalar->k->matmul(scalar, &steps[i]);
    }
    scalar->k->column_sum(scalar, grad + 32, dz, 5, 3);
    assert_forward(&m, in, out);
    assert_gradient(&m, in, weight, grad);
    run_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gelu_is_the_tanh_form_and_has_its_derivative),
        cmocka_unit_test(layernorm_backward_is_its_derivative),
        cmocka_unit_test(attention_backward_is_its_derivative),
        cmocka_unit_test(attention_backward_is_its_derivative_with_dropout),
        cmocka_unit_test(dropout_backward_is_its_derivative),
        cmocka_unit_test(cross_entropy_backward_is_its_derivative),
        cmocka_unit_test(embedding_backward_is_its_derivative),
        cmocka_unit_test(matmul_and_its_epilogues_give_the_derivative_of_a_layer),
    };

    return cmocka_run_group_tests(tests, open_scalar, close_scalar);
}
