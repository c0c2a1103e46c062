/* The oracle: every kernel as its definition reads, with sums in double, rounded once.
 * Slow on purpose where speed would cost clarity; tests compare all other tables with
 * this one, and this one with finite differences. */

#include "worker/device/cpu/tiles.h"
#include "worker/model/philox.h"

#include <math.h>
#include <string.h>

static const double gelu_scale = 0.79788456080286535588; /* √(2/π) */
static const double gelu_cube = 0.044715;
static const double layernorm_eps = 1e-5;

static double gelu(double x)
{
    return 0.5 * x * (1.0 + tanh(gelu_scale * (x + gelu_cube * x * x * x)));
}

static double gelu_derivative(double x)
{
    double t = tanh(gelu_scale * (x + gelu_cube * x * x * x));

    return 0.5 * (1.0 + t) +
           0.5 * x * (1.0 - t * t) * gelu_scale * (1.0 + 3.0 * gelu_cube * x * x);
}

static double element(const float *x, bool trans, int ld, int row, int col)
{
    size_t i = trans ? (size_t)col * (size_t)ld + (size_t)row
                     : (size_t)row * (size_t)ld + (size_t)col;

    return x[i];
}

static double product(const struct matmul *mm, int row, int col)
{
    double sum = 0;

    for (int k = 0; k < mm->k; k++) {
        sum += element(mm->a, mm->trans_a, mm->lda, row, k) *
               element(mm->b, mm->trans_b, mm->ldb, k, col);
    }
    return sum * mm->alpha;
}

static int scalar_gemm(const struct matmul *mm, const struct rect *tile)
{
    for (int i = tile->row; i < tile->row + tile->rows; i++) {
        for (int j = tile->col; j < tile->col + tile->cols; j++) {
            float *c = &mm->c[(size_t)i * (size_t)mm->ldc + (size_t)j];
            double old = mm->beta == 0 ? 0 : *c;

            *c = (float)(product(mm, i, j) + old);
        }
    }
    return 0;
}

static void finish(const struct matmul *mm, size_t i, int col)
{
    switch (mm->epilogue) {
    case EPILOGUE_NONE:
        break;
    case EPILOGUE_BIAS:
        mm->c[i] += mm->bias[col];
        break;
    case EPILOGUE_BIAS_GELU:
        mm->aux[i] = mm->c[i] + mm->bias[col];
        mm->c[i] = (float)gelu(mm->aux[i]);
        break;
    case EPILOGUE_DGELU:
        mm->c[i] = (float)(mm->c[i] * gelu_derivative(mm->aux[i]));
        break;
    }
}

static void scalar_epilogue(const struct matmul *mm, const struct rect *tile)
{
    for (int i = tile->row; i < tile->row + tile->rows; i++) {
        for (int j = tile->col; j < tile->col + tile->cols; j++) {
            finish(mm, (size_t)i * (size_t)mm->ldc + (size_t)j, j);
        }
    }
}

static void scalar_embedding(const void *args, size_t begin, size_t end)
{
    const struct embedding_args *a = args;

    for (size_t i = begin; i < end; i++) {
        const float *token = a->wte + (size_t)a->tokens[i] * a->C;
        const float *position = a->wpe + i % a->T * a->C;

        for (size_t c = 0; c < a->C; c++) {
            a->out[i * a->C + c] = token[c] + position[c];
        }
    }
}

static void scalar_embedding_grad(const void *args, size_t begin, size_t end)
{
    const struct embedding_grad_args *a = args;

    for (size_t i = 0; i < a->B * a->T; i++) {
        float *row = a->dwte + (size_t)a->tokens[i] * a->C;

        for (size_t c = begin; c < end; c++) {
            row[c] += a->dout[i * a->C + c];
        }
    }
}

static void scalar_position_grad(const void *args, size_t begin, size_t end)
{
    const struct embedding_grad_args *a = args;

    for (size_t i = begin * a->C; i < end * a->C; i++) {
        double sum = 0;

        for (size_t b = 0; b < a->B; b++) {
            sum += a->dout[b * a->T * a->C + i];
        }
        a->dwpe[i] = (float)sum;
    }
}

static void scalar_layernorm(const void *args, size_t begin, size_t end)
{
    const struct layernorm_args *a = args;
    double n = (double)a->C;

    for (size_t i = begin; i < end; i++) {
        const float *x = a->x + i * a->C;
        double mean = 0, variance = 0, rstd;

        for (size_t c = 0; c < a->C; c++) {
            mean += x[c] / n;
        }
        for (size_t c = 0; c < a->C; c++) {
            variance += (x[c] - mean) * (x[c] - mean) / n;
        }
        rstd = 1.0 / sqrt(variance + layernorm_eps);
        for (size_t c = 0; c < a->C; c++) {
            a->out[i * a->C + c] =
                (float)((x[c] - mean) * rstd * a->gamma[c] + a->beta[c]);
        }
        a->mean[i] = (float)mean;
        a->rstd[i] = (float)rstd;
    }
}

static double normalized(const struct layernorm_grad_args *a, size_t row, size_t c)
{
    return ((double)a->x[row * a->C + c] - a->mean[row]) * a->rstd[row];
}

static void scalar_layernorm_dx(const void *args, size_t begin, size_t end)
{
    const struct layernorm_grad_args *a = args;
    double n = (double)a->C;

    for (size_t i = begin; i < end; i++) {
        const float *dout = a->dout + i * a->C;
        float *dx = a->dx + i * a->C;
        double mean = 0, mean_norm = 0;

        for (size_t c = 0; c < a->C; c++) {
            mean += (double)dout[c] * a->gamma[c] / n;
            mean_norm += (double)dout[c] * a->gamma[c] * normalized(a, i, c) / n;
        }
        for (size_t c = 0; c < a->C; c++) {
            double g = (double)dout[c] * a->gamma[c] - mean;
            double d = (g - normalized(a, i, c) * mean_norm) * a->rstd[i];

            dx[c] = (float)(a->add ? dx[c] + d : d);
        }
    }
}

static void scalar_layernorm_dparam(const void *args, size_t begin, size_t end)
{
    const struct layernorm_grad_args *a = args;

    for (size_t c = begin; c < end; c++) {
        double dgamma = 0, dbeta = 0;

        for (size_t i = 0; i < a->rows; i++) {
            dgamma += a->dout[i * a->C + c] * normalized(a, i, c);
            dbeta += a->dout[i * a->C + c];
        }
        a->dgamma[c] = (float)dgamma;
        a->dbeta[c] = (float)dbeta;
    }
}

static double drop_factor(const struct dropout *drop, size_t b, uint64_t element)
{
    uint64_t position = drop->position + b;
    struct philox counter = {{(uint32_t)(element / 4), drop->site, (uint32_t)position,
                              (uint32_t)(position >> 32)}};
    struct philox block = philox_block(drop->seed, counter);

    return block.word[element % 4] < dropout_limit(drop) ? 0.0 : dropout_scale(drop);
}

static void scalar_dropout(const void *args, size_t begin, size_t end)
{
    const struct dropout_args *a = args;
    size_t chunks = (a->n + DROPOUT_CHUNK - 1) / DROPOUT_CHUNK;

    for (size_t i = begin; i < end; i++) {
        size_t b = i / chunks, first = i % chunks * DROPOUT_CHUNK;

        for (size_t e = first; e < MIN(first + DROPOUT_CHUNK, a->n); e++) {
            float factor = (float)drop_factor(a->drop, b, e);

            a->out[b * a->n + e] = a->x[b * a->n + e] * factor;
        }
    }
}

/* One head of one sequence: row t of q, k, v, out begins at [t · stride]. */
struct head {
    const float *q, *k, *v;
    size_t stride, D;
    double scale;
};

static struct head head_of(const float *qkv, size_t b, size_t h, size_t T, size_t C,
                           size_t H)
{
    size_t depth = C / H;
    const float *q = qkv + b * T * 3 * C + h * depth;

    return (struct head){.q = q,
                         .k = q + C,
                         .v = q + 2 * C,
                         .stride = 3 * C,
                         .D = depth,
                         .scale = 1.0 / sqrt((double)depth)};
}

static double dot(const float *x, const float *y, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += (double)x[i] * y[i];
    }
    return sum;
}

static double score(const struct head *h, size_t t, size_t key)
{
    return dot(h->q + t * h->stride, h->k + key * h->stride, h->D) * h->scale;
}

/* Scores are computed anew wherever they are needed, rather than kept. */
static double log_sum_exp(const struct head *h, size_t t)
{
    double max = -INFINITY, sum = 0;

    for (size_t key = 0; key <= t; key++) {
        max = fmax(max, score(h, t, key));
    }
    for (size_t key = 0; key <= t; key++) {
        sum += exp(score(h, t, key) - max);
    }
    return max + log(sum);
}

/* What the probability is multiplied by. */
static double kept(const struct dropout *drop, const size_t b_h_T[3], size_t t,
                   size_t key)
{
    return drop ? drop_factor(drop, b_h_T[0], dropout_row(b_h_T[1], t, b_h_T[2]) + key)
                : 1.0;
}

static void attend(const struct attention_args *a, size_t b, size_t h, size_t t)
{
    struct head head = head_of(a->qkv, b, h, a->T, a->C, a->H);
    double lse = log_sum_exp(&head, t);
    float *out = a->out + (b * a->T + t) * a->C + h * head.D;

    for (size_t d = 0; d < head.D; d++) {
        double sum = 0;

        for (size_t key = 0; key <= t; key++) {
            sum += exp(score(&head, t, key) - lse) *
                   kept(a->drop, (size_t[]){b, h, a->T}, t, key) *
                   head.v[key * head.stride + d];
        }
        out[d] = (float)sum;
    }
    a->lse[(b * a->H + h) * a->T + t] = (float)lse;
}

static void scalar_attention(const void *args, size_t begin, size_t end)
{
    const struct attention_args *a = args;
    size_t heads = a->B * a->H;
    size_t blocks = (a->T + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK;

    for (size_t i = begin; i < end; i++) {
        size_t first = (blocks - 1 - i / heads) * ATTENTION_BLOCK;

        for (size_t t = first; t < MIN(first + ATTENTION_BLOCK, a->T); t++) {
            attend(a, i % heads / a->H, i % a->H, t);
        }
    }
}

/* What query t sends back along its edge to one key. */
static void attend_back(const struct attention_grad_args *a, const struct head *h,
                        size_t b, size_t offset, size_t t, size_t key)
{
    size_t at = (b * a->T + t) * a->C + offset;
    float *dq = a->dqkv + (b * a->T + t) * 3 * a->C + offset;
    float *dk = a->dqkv + (b * a->T + key) * 3 * a->C + a->C + offset;
    float *dv = dk + a->C;
    size_t lse_at = (b * a->H + offset / h->D) * a->T + t;
    double p = exp(score(h, t, key) - a->lse[lse_at]);
    double keep = kept(a->drop, (size_t[]){b, offset / h->D, a->T}, t, key);
    double dp = dot(a->dout + at, h->v + key * h->stride, h->D) * keep;
    double ds = p * (dp - dot(a->dout + at, a->out + at, h->D)) * h->scale;

    for (size_t d = 0; d < h->D; d++) {
        dq[d] = (float)(dq[d] + ds * h->k[key * h->stride + d]);
        dk[d] = (float)(dk[d] + ds * h->q[t * h->stride + d]);
        dv[d] = (float)(dv[d] + p * keep * a->dout[at + d]);
    }
}

static void attend_head_back(const struct attention_grad_args *a, size_t b, size_t h)
{
    struct head head = head_of(a->qkv, b, h, a->T, a->C, a->H);

    for (size_t row = 0; row < 3 * a->T; row++) {
        memset(a->dqkv + (b * a->T * 3 + row) * a->C + h * head.D, 0,
               head.D * sizeof(float));
    }
    for (size_t t = 0; t < a->T; t++) {
        for (size_t key = 0; key <= t; key++) {
            attend_back(a, &head, b, h * head.D, t, key);
        }
    }
}

static void scalar_attention_grad(const void *args, size_t begin, size_t end)
{
    const struct attention_grad_args *a = args;

    for (size_t i = begin; i < end; i++) {
        attend_head_back(a, i / a->H, i % a->H);
    }
}

static void scalar_gelu(const void *args, size_t begin, size_t end)
{
    const struct flat_args *a = args;

    for (size_t i = begin; i < end; i++) {
        a->out[i] = (float)gelu(a->a[i]);
    }
}

static void scalar_gelu_grad(const void *args, size_t begin, size_t end)
{
    const struct flat_args *a = args;

    for (size_t i = begin; i < end; i++) {
        a->out[i] = (float)(a->a[i] * gelu_derivative(a->b[i]));
    }
}

static void scalar_residual(const void *args, size_t begin, size_t end)
{
    const struct flat_args *a = args;

    for (size_t i = begin; i < end; i++) {
        a->out[i] = a->a[i] + a->b[i];
    }
}

static void scalar_scale(const void *args, size_t begin, size_t end)
{
    const struct flat_args *a = args;

    for (size_t i = begin; i < end; i++) {
        a->out[i] = a->a[i] * a->factor;
    }
}

static void scalar_round(const void *args, size_t begin, size_t end)
{
    const struct round_args *a = args;

    for (size_t i = begin; i < end; i++) {
        a->out[i] = dtype_round(a->x[i], a->dtype);
    }
}

static void scalar_exp(const void *args, size_t begin, size_t end)
{
    const struct flat_args *a = args;

    for (size_t i = begin; i < end; i++) {
        a->out[i] = (float)exp(a->a[i]);
    }
}

static void scalar_column_sum(const void *args, size_t begin, size_t end)
{
    const struct column_sum_args *a = args;

    for (size_t c = begin; c < end; c++) {
        double sum = 0;

        for (size_t i = 0; i < a->rows; i++) {
            sum += a->x[i * a->C + c];
        }
        a->out[c] = (float)sum;
    }
}

static void scalar_xent(const void *args, size_t begin, size_t end)
{
    const struct xent_args *a = args;

    for (size_t i = begin; i < end; i++) {
        float *x = a->logits + i * a->V;
        size_t target = (size_t)a->targets[i];
        double max = -INFINITY, sum = 0;

        for (size_t v = 0; v < a->V; v++) {
            max = fmax(max, x[v]);
        }
        for (size_t v = 0; v < a->V; v++) {
            sum += exp(x[v] - max);
        }
        a->loss[i] = (float)(log(sum) + max - x[target]);
        for (size_t v = 0; v < a->V && a->backward; v++) {
            double p = exp(x[v] - max) / sum;

            x[v] = (float)((p - (v == target ? 1.0 : 0.0)) * a->scale);
        }
    }
}

static void scalar_sumsq(const void *args, size_t begin, size_t end)
{
    const struct sumsq_args *a = args;

    for (size_t i = begin; i < end; i++) {
        double sum = 0;

        for (size_t j = i * SUMSQ_CHUNK; j < MIN(a->n, (i + 1) * SUMSQ_CHUNK); j++) {
            double x = a->x[j] * a->factor;

            sum += x * x;
        }
        a->chunks[i] = sum;
    }
}

static void scalar_sum_ordered(const void *args, size_t begin, size_t end)
{
    const struct sum_ordered_args *a = args;

    for (size_t k = 0; k < a->n_adds; k++) {
        float *dst = a->bufs[a->adds[k].dst];
        const float *src = a->bufs[a->adds[k].src];

        for (size_t i = begin; i < end; i++) {
            dst[i] += src[i];
        }
    }
}

/* In fp32, step by step as torch.optim.AdamW does it. */
static void scalar_adamw(const void *args, size_t begin, size_t end)
{
    const struct adamw_args *a = args;
    struct adamw_coefficients k = adamw_coefficients(a);

    for (size_t i = begin; i < end; i++) {
        float g = a->g[i] * k.unscale * k.grad_scale;

        a->p[i] *= k.keep;
        a->m[i] += k.one_minus_beta1 * (g - a->m[i]);
        a->v[i] = a->v[i] * k.beta2 + k.one_minus_beta2 * g * g;
        a->p[i] +=
            k.minus_step_size * a->m[i] / (sqrtf(a->v[i]) / k.sqrt_correction2 + k.eps);
    }
}

const struct tiles cpu_tiles_scalar = {
    .isa = "scalar",
    .gemm = scalar_gemm,
    .epilogue = scalar_epilogue,
    .embedding = scalar_embedding,
    .embedding_grad = scalar_embedding_grad,
    .position_grad = scalar_position_grad,
    .layernorm = scalar_layernorm,
    .layernorm_dx = scalar_layernorm_dx,
    .layernorm_dparam = scalar_layernorm_dparam,
    .attention = scalar_attention,
    .attention_grad = scalar_attention_grad,
    .dropout = scalar_dropout,
    .gelu = scalar_gelu,
    .gelu_grad = scalar_gelu_grad,
    .residual = scalar_residual,
    .scale = scalar_scale,
    .round = scalar_round,
    .column_sum = scalar_column_sum,
    .xent = scalar_xent,
    .sumsq = scalar_sumsq,
    .sum_ordered = scalar_sum_ordered,
    .adamw = scalar_adamw,
    .exp = scalar_exp,
};
