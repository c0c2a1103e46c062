/* The kernel table of the CPU: checks sizes, cuts each kernel over its fixed grid and
 * spreads the pieces over the pool, or hands it to a queue's helper thread. */

#include "worker/device/kernels.h"

#include "worker/device/cpu/cpu.h"

#include <math.h>
#include <string.h>

/* Items of one piece. They are constants or follow from the shapes, never from the
 * number of threads; some 16 K elements make a piece last longer than its hand-over. */
enum { PIECE = 16384, ZERO_PIECE = 16 * PIECE, COLUMNS = 64 };

static size_t rows_of(size_t width)
{
    return MAX(1, PIECE / width);
}

/* --- a kernel on a helper queue: one piece, on its thread --- */

struct queued {
    tile_fn fn;
    const char *name;
    size_t n;
    union {
        struct flat_args flat;
        struct round_args round;
        struct sumsq_args sumsq;
        struct sum_ordered_args sum_ordered;
    } args;
};

static int on_queued(void *arg, struct errmsg *msg)
{
    const struct queued *t = arg;

    (void)msg;
    trace_name(t->name);
    t->fn(&t->args, 0, t->n);
    return 0;
}

static void spread_on(struct device *d, enum queue q, struct queued *t, size_t grain)
{
    if (q == QUEUE_COMPUTE) {
        cpu_spread(d, t->fn, &t->args, t->n, grain);
    } else {
        t->name = cpu_tile_name(cpu_of(d), t->fn);
        device_enqueue(d, q, on_queued, t, sizeof(*t));
    }
}

/* --- embedding --- */

static void check_ids(const int32_t *ids, size_t n, int limit)
{
    for (size_t i = 0; i < n; i++) {
        ASSERT(ids[i] >= 0 && ids[i] < limit);
    }
}

/* NOLINTBEGIN(readability-function-size, readability-non-const-parameter): the
 * parameter lists are kernels.h's */

static void embedding(struct device *d, float *out, const int32_t *tokens,
                      const float *wte, const float *wpe, int B, int T, int C)
{
    struct embedding_args a = {.out = out,
                               .tokens = tokens,
                               .wte = wte,
                               .wpe = wpe,
                               .T = (size_t)T,
                               .C = (size_t)C};

    ASSERT(B > 0 && T > 0 && C > 0);
    cpu_spread(d, cpu_of(d)->tiles->embedding, &a, (size_t)B * a.T, rows_of(a.C));
}

static void on_zero(const void *args, size_t begin, size_t end)
{
    const struct flat_args *a = args;

    memset(a->out + begin, 0, (end - begin) * sizeof(float));
}

static void embedding_backward(struct device *d, float *dwte, float *dwpe,
                               const float *dout, const int32_t *tokens, int B, int T,
                               int C, int V, int P)
{
    const struct tiles *tiles = cpu_of(d)->tiles;
    struct embedding_grad_args a = {.dwte = dwte,
                                    .dwpe = dwpe,
                                    .dout = dout,
                                    .tokens = tokens,
                                    .B = (size_t)B,
                                    .T = (size_t)T,
                                    .C = (size_t)C};
    struct flat_args rest = {.out = dwpe + a.T * a.C};

    ASSERT(B > 0 && T > 0 && C > 0 && V > 0 && P >= T);
    check_ids(tokens, a.B * a.T, V);
    cpu_spread(d, on_zero, &(struct flat_args){.out = dwte}, (size_t)V * a.C,
               ZERO_PIECE);
    cpu_spread(d, tiles->embedding_grad, &a, a.C, COLUMNS);
    cpu_spread(d, tiles->position_grad, &a, a.T, rows_of(a.C));
    cpu_spread(d, on_zero, &rest, ((size_t)P - a.T) * a.C, ZERO_PIECE);
}

/* --- norms, attention --- */

static void layernorm(struct device *d, float *out, float *mean, float *rstd,
                      const float *x, const float *gamma, const float *beta, int rows,
                      int C)
{
    struct layernorm_args a = {.out = out,
                               .mean = mean,
                               .rstd = rstd,
                               .x = x,
                               .gamma = gamma,
                               .beta = beta,
                               .C = (size_t)C};

    ASSERT(rows > 0 && C > 0);
    cpu_spread(d, cpu_of(d)->tiles->layernorm, &a, (size_t)rows, rows_of(a.C));
}

static void layernorm_backward(struct device *d, float *dx, float *dgamma, float *dbeta,
                               const float *dout, const float *x, const float *gamma,
                               const float *mean, const float *rstd, int rows, int C,
                               bool add)
{
    const struct tiles *tiles = cpu_of(d)->tiles;
    struct layernorm_grad_args a = {.dx = dx,
                                    .dgamma = dgamma,
                                    .dbeta = dbeta,
                                    .dout = dout,
                                    .x = x,
                                    .gamma = gamma,
                                    .mean = mean,
                                    .rstd = rstd,
                                    .rows = (size_t)rows,
                                    .C = (size_t)C,
                                    .add = add};

    ASSERT(rows > 0 && C > 0);
    cpu_spread(d, tiles->layernorm_dparam, &a, a.C, COLUMNS); /* dx may be dout */
    cpu_spread(d, tiles->layernorm_dx, &a, a.rows, rows_of(a.C));
}

/* The counter has 32 bits for a quarter of the element. */
static bool can_drop(size_t elements)
{
    return elements <= (size_t)1 << 34;
}

static void attention(struct device *d, float *out, float *lse, const float *qkv, int B,
                      int T, int C, int H, const struct dropout *drop)
{
    struct attention_args a = {.out = out,
                               .lse = lse,
                               .qkv = qkv,
                               .B = (size_t)B,
                               .T = (size_t)T,
                               .C = (size_t)C,
                               .H = (size_t)H,
                               .drop = drop};
    size_t blocks = (a.T + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK;

    ASSERT(B > 0 && T > 0 && C > 0 && H > 0 && C % H == 0);
    ASSERT(!drop || can_drop(dropout_row(a.H, 0, a.T)));
    cpu_spread(d, cpu_of(d)->tiles->attention, &a, a.B * a.H * blocks, 1);
}

static void attention_backward(struct device *d, float *dqkv, const float *dout,
                               const float *qkv, const float *out, const float *lse,
                               int B, int T, int C, int H, const struct dropout *drop)
{
    struct attention_grad_args a = {.dqkv = dqkv,
                                    .dout = dout,
                                    .qkv = qkv,
                                    .out = out,
                                    .lse = lse,
                                    .B = (size_t)B,
                                    .T = (size_t)T,
                                    .C = (size_t)C,
                                    .H = (size_t)H,
                                    .drop = drop};

    ASSERT(B > 0 && T > 0 && C > 0 && H > 0 && C % H == 0);
    ASSERT(!drop || can_drop(dropout_row(a.H, 0, a.T)));
    cpu_spread(d, cpu_of(d)->tiles->attention_grad, &a, a.B * a.H, 1);
}

static void dropout(struct device *d, float *out, const float *x, int B, size_t n,
                    const struct dropout *drop)
{
    struct dropout_args a = {.out = out, .x = x, .n = n, .drop = drop};
    size_t chunks = (n + DROPOUT_CHUNK - 1) / DROPOUT_CHUNK;

    ASSERT(B > 0 && can_drop(n));
    cpu_spread(d, cpu_of(d)->tiles->dropout, &a, (size_t)B * chunks,
               PIECE / DROPOUT_CHUNK);
}

static void softmax_xent(struct device *d, float *logits, float *loss,
                         const int32_t *targets, int rows, int V, float scale,
                         bool backward)
{
    struct xent_args a = {.logits = logits,
                          .loss = loss,
                          .targets = targets,
                          .V = (size_t)V,
                          .scale = scale,
                          .backward = backward};

    ASSERT(rows > 0 && V > 0);
    check_ids(targets, (size_t)rows, V);
    cpu_spread(d, cpu_of(d)->tiles->xent, &a, (size_t)rows, rows_of(a.V));
}

static void sum_ordered(struct device *d, enum queue q, float *const *bufs, int n_bufs,
                        const struct addition *adds, int n_adds, size_t n)
{
    struct queued t = {
        .fn = cpu_of(d)->tiles->sum_ordered,
        .n = n,
        .args.sum_ordered = {.bufs = bufs, .adds = adds, .n_adds = (size_t)n_adds}};

    for (int i = 0; i < n_adds; i++) {
        ASSERT(adds[i].dst >= 0 && adds[i].dst < n_bufs);
        ASSERT(adds[i].src >= 0 && adds[i].src < n_bufs && adds[i].src != adds[i].dst);
    }
    spread_on(d, q, &t, PIECE);
}

static void adamw(struct device *d, float *p, float *m, float *v, const float *g,
                  size_t n, bool decay, const struct adamw_scalars *scalars)
{
    struct adamw_args a = {
        .p = p, .m = m, .v = v, .g = g, .scalars = scalars, .decay = decay};

    if (scalars->skip) {
        return;
    }
    cpu_spread(d, cpu_of(d)->tiles->adamw, &a, n, PIECE);
}

/* --- element by element, and sums --- */

static void gelu(struct device *d, float *out, const float *x, size_t n)
{
    cpu_spread(d, cpu_of(d)->tiles->gelu, &(struct flat_args){.out = out, .a = x}, n,
               PIECE);
}

static void gelu_backward(struct device *d, float *dx, const float *dout,
                          const float *x, size_t n)
{
    struct flat_args a = {.out = dx, .a = dout, .b = x};

    cpu_spread(d, cpu_of(d)->tiles->gelu_grad, &a, n, PIECE);
}

static void residual(struct device *d, float *out, const float *x, const float *y,
                     size_t n)
{
    struct flat_args a = {.out = out, .a = x, .b = y};

    cpu_spread(d, cpu_of(d)->tiles->residual, &a, n, PIECE);
}

static void column_sum(struct device *d, float *out, const float *x, int rows, int C)
{
    struct column_sum_args a = {
        .out = out, .x = x, .rows = (size_t)rows, .C = (size_t)C};

    ASSERT(rows > 0 && C > 0);
    cpu_spread(d, cpu_of(d)->tiles->column_sum, &a, a.C, COLUMNS);
}

/* The losses of one leaf: few enough for one thread. */
static void sum(struct device *d, double *out, const float *x, size_t n)
{
    double total = 0;

    if (!cpu_compute_failed(cpu_of(d))) {
        for (size_t i = 0; i < n; i++) {
            total += x[i];
        }
        *out = total;
    }
}

static void sumsq(struct device *d, enum queue q, double *chunks, const float *x,
                  float factor, size_t n)
{
    struct queued t = {
        .fn = cpu_of(d)->tiles->sumsq,
        .n = (n + SUMSQ_CHUNK - 1) / SUMSQ_CHUNK,
        .args.sumsq = {.chunks = chunks, .x = x, .factor = factor, .n = n}};

    spread_on(d, q, &t, PIECE / SUMSQ_CHUNK);
}

static void scale(struct device *d, enum queue q, float *x, float factor, size_t n)
{
    struct queued t = {.fn = cpu_of(d)->tiles->scale,
                       .n = n,
                       .args.flat = {.out = x, .a = x, .factor = factor}};

    spread_on(d, q, &t, PIECE);
}

static void round_to(struct device *d, enum queue q, float *out, const float *x,
                     size_t n, enum dtype dtype)
{
    struct queued t = {.fn = cpu_of(d)->tiles->round,
                       .n = n,
                       .args.round = {.out = out, .x = x, .dtype = dtype}};

    ASSERT(dtype != DTYPE_FP32);
    spread_on(d, q, &t, PIECE);
}

struct adamw_coefficients adamw_coefficients(const struct adamw_args *a)
{
    const struct adamw_scalars *s = a->scalars;

    return (struct adamw_coefficients){
        .unscale = s->unscale,
        .grad_scale = s->grad_scale,
        .keep = a->decay ? (float)(1.0 - s->lr * s->weight_decay) : 1.0F,
        .one_minus_beta1 = (float)(1.0 - s->beta1),
        .beta2 = (float)s->beta2,
        .one_minus_beta2 = (float)(1.0 - s->beta2),
        .sqrt_correction2 = (float)sqrt(s->correction2),
        .eps = (float)s->eps,
        .minus_step_size = (float)-(s->lr / s->correction1)};
}

/* A norm that is not a number stays visible: it makes the coefficient, and so the
 * weights, NaN, as torch's clip_grad_norm_ does. */
static void clip(struct device *d, double *norm, struct adamw_scalars *scalars,
                 const double *chunks, size_t n, float max_norm)
{
    double total = 0, factor;

    if (cpu_compute_failed(cpu_of(d))) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        total += chunks[i];
    }
    *norm = sqrt(total);
    factor = (double)max_norm / (*norm + 1e-6);
    scalars->grad_scale = max_norm > 0 && !(factor >= 1.0) ? (float)factor : 1.0F;
    scalars->skip = scalars->skip_not_finite && !isfinite(*norm);
}

/* NOLINTEND(readability-function-size, readability-non-const-parameter) */

const struct kernels cpu_kernels = {
    .matmul = cpu_matmul,
    .embedding = embedding,
    .embedding_backward = embedding_backward,
    .layernorm = layernorm,
    .layernorm_backward = layernorm_backward,
    .attention = attention,
    .attention_backward = attention_backward,
    .dropout = dropout,
    .gelu = gelu,
    .gelu_backward = gelu_backward,
    .residual = residual,
    .column_sum = column_sum,
    .softmax_xent = softmax_xent,
    .sum = sum,
    .sumsq = sumsq,
    .sum_ordered = sum_ordered,
    .scale = scale,
    .round = round_to,
    .adamw = adamw,
    .clip = clip,
};
