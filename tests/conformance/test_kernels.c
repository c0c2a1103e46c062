/* Every kernel on every instruction set and odd shapes against the scalar reference,
 * and against itself with other numbers of threads. test_gradients.c checks the
 * reference. */

#include "tests/conformance/kernel_case.h"

#include <stdio.h>

struct kernel_case {
    const char *name;
    void (*run)(struct run *r, const int *dim);
    const int (*dims)[5]; /* ends with a row of zeros */
    double tolerance;
};

/* --- the cases --- */

static const int matmul_dims[][5] =
    {/* m, n, k, transpose flags */
     {1, 1, 1, 0},      {3, 5, 7, 0},     {5, 65, 33, 1},
     {64, 7, 64, 2},    {33, 11, 257, 3}, {257, 1, 65, 0},
     {260, 390, 40, 2}, {40, 770, 65, 1}, {0}};

/* All leading dimensions are one more than they need be. */
static struct matmul matmul_of(struct run *r, const int *dim)
{
    struct matmul mm = {.m = dim[0],
                        .n = dim[1],
                        .k = dim[2],
                        .trans_a = (dim[3] & 1) != 0,
                        .trans_b = (dim[3] & 2) != 0,
                        .alpha = 1.0F,
                        .ldc = dim[1] + 1};
    int a_rows = mm.trans_a ? mm.k : mm.m, b_rows = mm.trans_b ? mm.n : mm.k;

    mm.lda = (mm.trans_a ? mm.m : mm.k) + 1;
    mm.ldb = (mm.trans_b ? mm.k : mm.n) + 1;
    mm.a = run_input(r, (size_t)a_rows * (size_t)mm.lda);
    mm.b = run_input(r, (size_t)b_rows * (size_t)mm.ldb);
    mm.bias = run_input(r, (size_t)mm.n);
    return mm;
}

static float *matmul_output(struct run *r, const struct matmul *mm)
{
    float *p = run_input(r, (size_t)mm->m * (size_t)mm->ldc);

    run_declare(r, p, (size_t)mm->m * (size_t)mm->ldc);
    return p;
}

static void run_matmul(struct run *r, const int *dim)
{
    struct matmul mm = matmul_of(r, dim);

    mm.c = matmul_output(r, &mm);
    r->d->k->matmul(r->d, &mm);
    mm.beta = 1.0F;
    mm.alpha = -0.5F;
    r->d->k->matmul(r->d, &mm);
}

static void run_matmul_epilogues(struct run *r, const int *dim)
{
    struct matmul mm = matmul_of(r, dim);

    mm.c = matmul_output(r, &mm);
    mm.epilogue = EPILOGUE_BIAS;
    r->d->k->matmul(r->d, &mm);
    mm.c = matmul_output(r, &mm);
    mm.aux = matmul_output(r, &mm);
    mm.epilogue = EPILOGUE_BIAS_GELU;
    r->d->k->matmul(r->d, &mm);
    mm.c = matmul_output(r, &mm);
    mm.epilogue = EPILOGUE_DGELU;
    r->d->k->matmul(r->d, &mm);
}

static const int embedding_dims[][5] = {/* B, T, C, V, P */
                                        {1, 1, 1, 1, 1},
                                        {2, 5, 7, 11, 5},
                                        {3, 33, 64, 257, 40},
                                        {2, 17, 65, 11, 17},
                                        {0}};

static void run_embedding(struct run *r, const int *dim)
{
    int b = dim[0], t = dim[1], c = dim[2], v = dim[3], p = dim[4];
    size_t rows = (size_t)b * (size_t)t, width = (size_t)c;
    const int32_t *tokens = run_ids(r, rows, v);
    float *out = run_output(r, rows * width);

    r->d->k->embedding(r->d, out, tokens, run_input(r, (size_t)v * width),
                       run_input(r, (size_t)p * width), b, t, c);
    r->d->k->embedding_backward(r->d, run_output(r, (size_t)v * width),
                                run_output(r, (size_t)p * width), out, tokens, b, t, c,
                                v, p);
}

static const int rows_dims[][5] = {/* rows, C */
                                   {1, 1},    {3, 7},    {5, 64}, {33, 65},
                                   {70, 129}, {513, 96}, {0}};

static void run_layernorm(struct run *r, const int *dim)
{
    size_t rows = (size_t)dim[0], c = (size_t)dim[1], n = rows * c;
    const float *x = run_input(r, n), *gamma = run_input(r, c), *dout = run_input(r, n);
    float *mean = run_output(r, rows), *rstd = run_output(r, rows);
    float *dx = run_input(r, n), *dparam = run_output(r, 2 * c);
    float *out = run_output(r, n);

    r->d->k->layernorm(r->d, out, mean, rstd, x, gamma, run_input(r, c), dim[0],
                       dim[1]);
    run_declare(r, dx, n);
    r->d->k->layernorm_backward(r->d, dx, dparam, dparam + c, dout, x, gamma, mean,
                                rstd, dim[0], dim[1], true);
    r->d->k->layernorm_backward(r->d, run_output(r, n), dparam, dparam + c, dout, x,
                                gamma, mean, rstd, dim[0], dim[1], false);
}

static void run_column_sum(struct run *r, const int *dim)
{
    size_t rows = (size_t)dim[0], c = (size_t)dim[1];

    r->d->k->column_sum(r->d, run_output(r, c), run_input(r, rows * c), dim[0], dim[1]);
}

static const int attention_dims[][5] =
    {/* B, T, C, H */
     {1, 1, 1, 1},    {2, 5, 7, 1},    {1, 33, 14, 2},
     {2, 64, 64, 1},  {1, 65, 130, 2}, {2, 129, 36, 4},
     {1, 200, 65, 1}, {1, 70, 129, 1}, {0}};

static void attend(struct run *r, const int *dim, const struct dropout *drop)
{
    int b = dim[0], t = dim[1], c = dim[2], h = dim[3];
    size_t n = (size_t)(b * t) * (size_t)c;
    float *qkv = run_input(r, 3 * n), *out = run_output(r, n);
    float *lse = run_output(r, (size_t)(b * h) * (size_t)t);

    for (size_t i = 0; i < 3 * n; i++) {
        qkv[i] *= 3.0F; /* some sharp, some flat rows */
    }
    r->d->k->attention(r->d, out, lse, qkv, b, t, c, h, drop);
    r->d->k->attention_backward(r->d, run_output(r, 3 * n), run_input(r, n), qkv, out,
                                lse, b, t, c, h, drop);
}

static void run_attention(struct run *r, const int *dim)
{
    attend(r, dim, NULL);
}

/* Every word of key and counter is in use. */
static const struct dropout some = {.p = 0.3,
                                    .seed = 0x123456789ABCDEF0,
                                    .position = 0xFFFFFFFF, /* the next has a carry */
                                    .site = 77};

static const int attention_dropped_dims[][5] = {/* B, T, C, H */
                                                {1, 1, 1, 1},
                                                {2, 33, 14, 2},
                                                {1, 65, 36, 4},
                                                {1, 131, 17, 1},
                                                {0}};

static void run_attention_dropped(struct run *r, const int *dim)
{
    attend(r, dim, &some);
}

static const int dropout_dims[][5] = {/* B, elements of a sequence */
                                      {1, 1},    {3, 7},    {2, 63},    {2, 1023},
                                      {3, 1024}, {2, 1025}, {1, 40003}, {0}};

static void run_dropout(struct run *r, const int *dim)
{
    size_t n = (size_t)dim[1], all = (size_t)dim[0] * n;
    float *x = run_input(r, all);

    r->d->k->dropout(r->d, run_output(r, all), x, dim[0], n, &some);
    run_declare(r, x, all); /* in place */
    r->d->k->dropout(r->d, x, x, dim[0], n, &some);
}

static const int xent_dims[][5] = {/* rows, V */
                                   {1, 1},    {5, 7},     {33, 11}, {3, 257},
                                   {2, 5003}, {70, 1024}, {0}};

static void run_xent(struct run *r, const int *dim)
{
    size_t rows = (size_t)dim[0], n = rows * (size_t)dim[1];
    const int32_t *targets = run_ids(r, rows, dim[1]);
    float *logits = run_input(r, n), *unchanged = run_input(r, n);

    for (size_t i = 0; i < n; i++) {
        logits[i] *= 20.0F;
    }
    run_declare(r, logits, n);
    run_declare(r, unchanged, n);
    r->d->k->softmax_xent(r->d, logits, run_output(r, rows), targets, dim[0], dim[1],
                          0.25F, true);
    r->d->k->softmax_xent(r->d, unchanged, run_output(r, rows), targets, dim[0], dim[1],
                          0.25F, false);
}

static const int flat_dims[][5] = {{1}, {7}, {16}, {65}, {4096}, {4097}, {40001}, {0}};

static void run_flat(struct run *r, const int *dim)
{
    size_t n = (size_t)dim[0];
    float *x = run_input(r, n), *y = run_input(r, n), *scaled = run_input(r, n);

    for (size_t i = 0; i < n; i++) {
        x[i] *= 6.0F;
    }
    r->d->k->gelu(r->d, run_output(r, n), x, n);
    r->d->k->gelu_backward(r->d, run_output(r, n), y, x, n);
    r->d->k->residual(r->d, run_output(r, n), x, y, n);
    run_declare(r, scaled, n);
    r->d->k->scale(r->d, QUEUE_REDUCE, scaled, -0.7F, n);
    assert_int_equal(device_finish(r->d, device_mark(r->d, QUEUE_REDUCE), 60000, NULL),
                     0);
    r->d->k->scale(r->d, QUEUE_COMPUTE, scaled, 3.0F, n);
}

static void run_sums(struct run *r, const int *dim)
{
    size_t n = (size_t)dim[0], n_chunks = (n + SUMSQ_CHUNK - 1) / SUMSQ_CHUNK;
    const float *x = run_input(r, n);
    double *chunks = malloc(n_chunks * sizeof(double)), total, norm;
    float *out = run_output(r, n_chunks + 3);
    struct adamw_scalars scalars = {0};

    assert_non_null(chunks);
    r->d->k->sumsq(r->d, QUEUE_COMPUTE, chunks, x, 0.7F, n);
    r->d->k->sum(r->d, &total, x, n);
    r->d->k->clip(r->d, &norm, &scalars, chunks, n_chunks, 0.5F);
    for (size_t i = 0; i < n_chunks; i++) {
        out[i] = (float)chunks[i];
    }
    out[n_chunks] = (float)total;
    out[n_chunks + 1] = (float)norm;
    out[n_chunks + 2] = scalars.grad_scale;
    free(chunks);
}

static void run_sum_ordered(struct run *r, const int *dim)
{
    static const struct addition adds[] = {{0, 1}, {2, 3}, {0, 2}, {0, 4}};
    size_t n = (size_t)dim[0];
    float *bufs[5];

    for (size_t i = 0; i < ARRAY_LEN(bufs); i++) {
        bufs[i] = run_input(r, n);
    }
    run_declare(r, bufs[0], n);
    run_declare(r, bufs[2], n);
    r->d->k->sum_ordered(r->d, QUEUE_COMPUTE, bufs, 5, adds, 4, n);
    r->d->k->sum_ordered(r->d, QUEUE_REDUCE, bufs, 5, adds, 4, n);
    assert_int_equal(device_finish(r->d, device_mark(r->d, QUEUE_REDUCE), 60000, NULL),
                     0);
}

static void run_round(struct run *r, const int *dim)
{
    size_t n = (size_t)dim[0];
    const float *x = run_input(r, n);

    r->d->k->round(r->d, QUEUE_COMPUTE, run_output(r, n), x, n, DTYPE_BF16);
    r->d->k->round(r->d, QUEUE_COMPUTE, run_output(r, n), x, n, DTYPE_FP16);
}

static void run_adamw(struct run *r, const int *dim)
{
    size_t n = (size_t)dim[0];
    float *p = run_input(r, n), *m = run_input(r, n), *v = run_input(r, n);
    struct adamw_scalars s = {.lr = 3e-3,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .eps = 1e-8,
                              .weight_decay = 0.1,
                              .correction1 = 0.1,
                              .correction2 = 0.05,
                              .unscale = 0.7F,
                              .grad_scale = 0.3F};

    for (size_t i = 0; i < n; i++) {
        v[i] = fabsf(v[i]);
    }
    run_declare(r, p, n);
    run_declare(r, m, n);
    run_declare(r, v, n);
    r->d->k->adamw(r->d, p, m, v, run_input(r, n), n, true, &s);
    r->d->k->adamw(r->d, p, m, v, run_input(r, n), n, false, &s);
}

static const struct kernel_case cases[] = {
    {"matmul", run_matmul, matmul_dims, 2e-6},
    {"matmul_epilogues", run_matmul_epilogues, matmul_dims, 2e-6},
    {"embedding", run_embedding, embedding_dims, 1e-6},
    {"layernorm", run_layernorm, rows_dims, 5e-6},
    {"column_sum", run_column_sum, rows_dims, 1e-6},
    {"attention", run_attention, attention_dims, 5e-6},
    {"attention_dropped", run_attention_dropped, attention_dropped_dims, 5e-6},
    {"dropout", run_dropout, dropout_dims, 0},
    {"xent", run_xent, xent_dims, 1e-6},
    {"flat", run_flat, flat_dims, 1e-6},
    {"round", run_round, flat_dims, 0},
    {"sums", run_sums, flat_dims, 1e-6},
    {"sum_ordered", run_sum_ordered, flat_dims, 0},
    {"adamw", run_adamw, flat_dims, 1e-6},
};

/* The widest vectors first: the first device decides what oneDNN may use. */
static const char *const isas[] = {"scalar", "avx512", "avx2"};

/* --- the tests --- */

static struct run run_case(const struct kernel_case *c, const int *dim,
                           struct device *d)
{
    struct run r = {.d = d, .seed = (uint64_t)dim[0] * 1000003 + (uint64_t)dim[1]};

    c->run(&r, dim);
    assert_int_equal(device_last_error(d, NULL), 0);
    return r;
}

static void compare(const struct kernel_case *c, const int *dim, const char *isa,
                    const struct run *got, const struct run *want)
{
    for (int i = 0; i < want->n_out; i++) {
        double error = worst_error(got->out[i].data, want->out[i].data, want->out[i].n);
        bool is_near = error <= c->tolerance; /* false for NaN */

        if (is_near) {
            continue;
        }
        fail_msg("%s on %s, shape %d %d %d %d %d, output %d: off by %g", c->name, isa,
                 dim[0], dim[1], dim[2], dim[3], dim[4], i, error);
    }
}

typedef void (*pair_fn)(const struct kernel_case *c, const int *dim, const char *isa,
                        const struct run *x, const struct run *y);

/* Each case and shape on both devices. */
static void on_each_case(struct device *x, struct device *y, const char *isa,
                         pair_fn check)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (const int *dim = cases[i].dims[0]; dim[0] > 0; dim += 5) {
            struct run one = run_case(&cases[i], dim, x),
                       two = run_case(&cases[i], dim, y);

            check(&cases[i], dim, isa, &one, &two);
            run_release(&one);
            run_release(&two);
        }
    }
}

static void every_instruction_set_agrees_with_the_scalar_reference(void **state)
{
    struct device *oracle = open_device("scalar", 2);

    (void)state;
    for (size_t i = 1; i < ARRAY_LEN(isas); i++) {
        struct device *d = open_device(isas[i], 2);

        if (d) {
            on_each_case(d, oracle, isas[i], compare);
            device_close(d);
        }
    }
    device_close(oracle);
}

static void same_bytes(const struct kernel_case *c, const int *dim, const char *isa,
                       const struct run *x, const struct run *y)
{
    (void)dim;
    for (int i = 0; i < x->n_out; i++) {
        bool is_same =
            memcmp(x->out[i].data, y->out[i].data, x->out[i].n * sizeof(float)) == 0;

        if (is_same) {
            continue;
        }
        fail_msg("%s on %s: output %d depends on the number of threads", c->name, isa,
                 i);
    }
}

static void results_do_not_depend_on_the_number_of_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
        struct device *one = open_device(isas[i], 1);

        for (int threads = 2; one && threads <= 3; threads++) {
            struct device *more = open_device(isas[i], threads);

            on_each_case(one, more, isas[i], same_bytes);
            device_close(more);
        }
        device_close(one);
    }
}

static void softmax_keeps_the_logits_when_there_is_no_backward(void **state)
{
    struct device *d = open_device(NULL, 2);
    struct run r = {.d = d, .seed = 1};
    float before[5 * 65], *logits = run_input(&r, ARRAY_LEN(before));

    (void)state;
    memcpy(before, logits, sizeof(before));
    d->k->softmax_xent(d, logits, run_output(&r, 5), run_ids(&r, 5, 65), 5, 65, 1.0F,
                       false);
    assert_memory_equal(logits, before, sizeof(before));
    run_release(&r);
    device_close(d);
}

static void clip_is_one_below_the_limit_and_nan_for_a_norm_that_is_none(void **state)
{
    static const struct {
        double chunk;
        float max_norm, want;
        bool may_skip, skip;
    } rows[] = {
        {4.0, 0.0F, 1.0F, false, false},      {4.0, 3.0F, 1.0F, true, false},
        {4.0, 1.0F, 0.5F, true, false},       {NAN, 1.0F, NAN, false, false},
        {INFINITY, 1.0F, 0.0F, false, false}, {NAN, 1.0F, NAN, true, true},
        {INFINITY, 0.0F, 1.0F, true, true},
    };
    struct device *d = open_device(NULL, 1);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct adamw_scalars s = {.skip_not_finite = rows[i].may_skip};
        double norm;

        d->k->clip(d, &norm, &s, &rows[i].chunk, 1, rows[i].max_norm);
        if (isnan(rows[i].want)) {
            assert_true(isnan(s.grad_scale) && isnan(norm));
        } else {
            assert_float_equal(s.grad_scale, rows[i].want, 1e-6F);
        }
        assert_int_equal(s.skip, rows[i].skip);
    }
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set_agrees_with_the_scalar_reference),
        cmocka_unit_test(results_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(softmax_keeps_the_logits_when_there_is_no_backward),
        cmocka_unit_test(clip_is_one_below_the_limit_and_nan_for_a_norm_that_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
