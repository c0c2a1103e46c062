/* Accuracy of exp and log, and what happens to numbers that are none, on every
 * instruction set. */

#include "tests/conformance/kernel_case.h"
#include "worker/device/cpu/cpu.h"

static const char *const isas[] = {"scalar", "avx2", "avx512"};

static void on_each_isa(void (*check)(struct device *d))
{
    for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
        struct device *d = open_device(isas[i], 1);

        if (d) {
            check(d);
            device_close(d);
        }
    }
}

/* The distance in units of the last place of the right answer. */
static double ulps(float got, double want)
{
    float nearest = (float)want;

    return fabs(got - want) / ((double)nextafterf(nearest, INFINITY) - nearest);
}

static void check_exp(struct device *d)
{
    enum { N = 4096 };
    static float x[N], y[N];
    struct flat_args a = {.out = y, .a = x};

    for (int from = -87; from <= 87; from++) {
        for (int i = 0; i < N; i++) {
            x[i] = (float)(from + i * (1.5 / N));
        }
        cpu_of(d)->tiles->exp(&a, 0, N);
        for (int i = 0; i < N; i++) {
            assert_true(ulps(y[i], exp(x[i])) <= 2.0);
        }
    }
}

static void exp_is_at_most_two_ulp_off(void **state)
{
    (void)state;
    on_each_isa(check_exp);
}

static void check_exp_ends(struct device *d)
{
    float x[] = {0.0F, 89.0F, 1e30F, INFINITY, -104.0F, -1e30F, -INFINITY, NAN}, y[8];
    struct flat_args a = {.out = y, .a = x};

    cpu_of(d)->tiles->exp(&a, 0, 8);
    assert_true(y[0] == 1.0F);
    assert_true(isinf(y[1]) && isinf(y[2]) && isinf(y[3]));
    assert_true(y[4] == 0.0F && y[5] == 0.0F && y[6] == 0.0F);
    assert_true(isnan(y[7]));
}

static void exp_overflows_to_infinity_and_underflows_to_zero(void **state)
{
    (void)state;
    on_each_isa(check_exp_ends);
}

/* Equal logits: the loss is ln V, whatever the target. */
static void check_log(struct device *d)
{
    enum { MAX = 3000 };
    static float logits[MAX];

    for (int v = 1; v <= MAX; v++) {
        int32_t target = v / 2;
        float loss;

        d->k->softmax_xent(d, logits, &loss, &target, 1, v, 1.0F, false);
        assert_true(loss == (float)log(v));
    }
}

static void equal_logits_cost_exactly_the_logarithm_of_the_vocabulary(void **state)
{
    (void)state;
    on_each_isa(check_log);
}

/* The far tails: nothing to the left, the identity to the right. */
static void check_gelu_ends(struct device *d)
{
    const float x[] = {-3e38F, -1e20F, -1e10F, -50.0F, 50.0F, 1e10F},
                dout[] = {1, 1, 1, 1, 1, 1};
    float y[6], dx[6];

    d->k->gelu(d, y, x, 6);
    d->k->gelu_backward(d, dx, dout, x, 4);
    for (int i = 0; i < 4; i++) {
        assert_true(y[i] == 0.0F);
        assert_true(dx[i] == 0.0F || isnan(dx[i])); /* 0 · x² may be 0 · infinity */
    }
    assert_true(y[4] == 50.0F && y[5] == 1e10F);
}

static void gelu_is_zero_and_the_identity_at_its_ends(void **state)
{
    (void)state;
    on_each_isa(check_gelu_ends);
}

static void check_denormals(struct device *d)
{
    float x[17], y[17];

    for (int i = 0; i < 17; i++) {
        x[i] = 1e-30F;
    }
    d->k->scale(d, QUEUE_COMPUTE, memcpy(y, x, sizeof(y)), 1e-10F, 17);
    d->k->scale(d, QUEUE_REDUCE, x, 1e-10F, 17);
    assert_int_equal(device_finish(d, device_mark(d, QUEUE_REDUCE), 60000, NULL), 0);
    for (int i = 0; i < 17; i++) {
        assert_true(x[i] == 0.0F && y[i] == 0.0F);
    }
}

static void denormals_are_flushed_on_every_thread(void **state)
{
    (void)state;
    on_each_isa(check_denormals);
}

static bool has_nan(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i])) {
            return true;
        }
    }
    return false;
}

/* One NaN at any place of a row must reach the row's results. */
static void check_nan_rows(struct device *d)
{
    enum { C = 37 };
    struct run r = {.d = d, .seed = 8};
    float *gamma = run_input(&r, C), *out = run_output(&r, C), keep[2];

    for (size_t i = 0; i < C; i++) {
        int32_t target = (int32_t)(i + 1) % C;
        float row[C], loss;

        for (size_t c = 0; c < C; c++) {
            row[c] = c == i ? NAN : run_number(&r);
        }
        d->k->layernorm(d, out, &keep[0], &keep[1], row, gamma, gamma, 1, C);
        assert_true(has_nan(out, C) && isnan(keep[0]));
        d->k->gelu(d, out, row, C);
        assert_true(isnan(out[i]));
        d->k->gelu_backward(d, out, gamma, row, C);
        assert_true(isnan(out[i]));
        d->k->softmax_xent(d, row, &loss, &target, 1, C, 1.0F, true);
        assert_true(isnan(loss) && has_nan(row, C));
    }
    run_release(&r);
}

/* A NaN in q, k or v of the last position reaches its own result, and its gradient. */
static void check_nan_attention(struct device *d)
{
    const size_t t = 70, c = 19;
    struct run r = {.d = d, .seed = 9};
    float *qkv = run_input(&r, 3 * t * c), *out = run_output(&r, t * c);
    float *lse = run_output(&r, t), *grad = run_output(&r, 3 * t * c);

    for (size_t part = 0; part < 3; part++) {
        float *last = &qkv[(t - 1) * 3 * c + part * c + 3], before = *last;

        *last = NAN;
        d->k->attention(d, out, lse, qkv, 1, (int)t, (int)c, 1, NULL);
        assert_true(has_nan(out + (t - 1) * c, c));
        assert_false(has_nan(out, 64 * c));
        d->k->attention_backward(d, grad, qkv, qkv, out, lse, 1, (int)t, (int)c, 1,
                                 NULL);
        assert_true(has_nan(grad + (t - 1) * 3 * c, 3 * c));
        *last = before;
    }
    run_release(&r);
}

static void nan_reaches_the_results(void **state)
{
    (void)state;
    on_each_isa(check_nan_rows);
    on_each_isa(check_nan_attention);
}

static void check_nan_sums(struct device *d)
{
    enum { N = 4103 };
    static float x[N], p[N], m[N], v[N];
    double chunks[2], total;
    struct adamw_scalars s = {.lr = 1,
                              .beta1 = 0.9,
                              .beta2 = 0.9,
                              .eps = 1e-8,
                              .correction1 = 1,
                              .correction2 = 1,
                              .unscale = 1,
                              .grad_scale = 1};

    memset(m, 0, sizeof(m));
    memset(v, 0, sizeof(v));
    x[4099] = NAN;
    d->k->sumsq(d, QUEUE_COMPUTE, chunks, x, 1, N);
    d->k->sum(d, &total, x, N);
    d->k->adamw(d, p, m, v, x, N, true, &s);
    assert_true(isfinite(chunks[0]));
    assert_true(isnan(chunks[1]) && isnan(total));
    assert_true(isnan(p[4099]) && !isnan(p[4098]));
    p[4099] = 0;
}

static void nan_reaches_the_norm_and_the_weights(void **state)
{
    (void)state;
    on_each_isa(check_nan_sums);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_at_most_two_ulp_off),
        cmocka_unit_test(exp_overflows_to_infinity_and_underflows_to_zero),
        cmocka_unit_test(equal_logits_cost_exactly_the_logarithm_of_the_vocabulary),
        cmocka_unit_test(gelu_is_zero_and_the_identity_at_its_ends),
        cmocka_unit_test(denormals_are_flushed_on_every_thread),
        cmocka_unit_test(nan_reaches_the_results),
        cmocka_unit_test(nan_reaches_the_norm_and_the_weights),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
