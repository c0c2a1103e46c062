#ifndef WORKER_DEVICE_CPU_TILES_H
#define WORKER_DEVICE_CPU_TILES_H

/* The kernels' single-threaded pieces: one table for each instruction set. kernels.c
 * cuts a kernel into pieces and spreads them over the pool; a piece is a range of the
 * kernel's independent items, and an item's result does not depend on the range it came
 * in.
 *
 * scalar.c is the oracle: plain loops in double. vector_avx2.c and vector_avx512.c are
 * the same source (vector_*.inc) compiled twice. */

#include "worker/device/kernels.h"

/* Any change of a kernel's bits raises it: part of the device's signature. */
enum { KERNELS_VERSION = 1 };

/* Queries and keys of one block of attention; elements of one item of dropout. */
enum { ATTENTION_BLOCK = 64, DROPOUT_CHUNK = 1024 };

struct embedding_args {
    float *out;
    const int32_t *tokens;
    const float *wte, *wpe;
    size_t T, C;
};

struct embedding_grad_args {
    float *dwte, *dwpe;
    const float *dout;
    const int32_t *tokens;
    size_t B, T, C;
};

struct layernorm_args {
    float *out, *mean, *rstd;
    const float *x, *gamma, *beta;
    size_t C;
};

struct layernorm_grad_args {
    float *dx, *dgamma, *dbeta;
    const float *dout, *x, *gamma, *mean, *rstd;
    size_t rows, C;
    bool add;
};

struct attention_args {
    float *out, *lse;
    const float *qkv;
    size_t B, T, C, H;
    const struct dropout *drop; /* NULL: none */
};

struct attention_grad_args {
    float *dqkv;
    const float *dout, *qkv, *out, *lse;
    size_t B, T, C, H;
    const struct dropout *drop; /* NULL: none */
};

struct dropout_args {
    float *out;
    const float *x;
    size_t n; /* elements of a sequence */
    const struct dropout *drop;
};

/* out[i] = f(a[i], b[i], factor), as far as the kernel uses them */
struct flat_args {
    float *out;
    const float *a, *b;
    float factor;
};

struct round_args {
    float *out;
    const float *x;
    enum dtype dtype; /* not fp32 */
};

struct column_sum_args {
    float *out;
    const float *x;
    size_t rows, C;
};

struct xent_args {
    float *logits, *loss;
    const int32_t *targets;
    size_t V;
    float scale;
    bool backward;
};

struct sumsq_args {
    double *chunks;
    const float *x;
    float factor;
    size_t n;
};

struct sum_ordered_args {
    float *const *bufs;
    const struct addition *adds;
    size_t n_adds;
};

struct adamw_args {
    float *p, *m, *v;
    const float *g;
    const struct adamw_scalars *scalars;
    bool decay;
};

struct rect {
    int row, col, rows, cols;
};

/* `args` is the kernel's struct from above. */
typedef void (*tile_fn)(const void *args, size_t begin, size_t end);

struct tiles {
    const char *isa;
    /* one tile of C, without and with the epilogue's part; 0 or an error */
    int (*gemm)(const struct matmul *mm, const struct rect *tile);
    void (*epilogue)(const struct matmul *mm, const struct rect *tile);

    tile_fn embedding;        /* rows */
    tile_fn embedding_grad;   /* columns; adds to dwte, in the order of the tokens */
    tile_fn position_grad;    /* positions of dwpe below T */
    tile_fn layernorm;        /* rows */
    tile_fn layernorm_dx;     /* rows */
    tile_fn layernorm_dparam; /* columns */
    tile_fn attention;        /* (b, h, block of queries), the last blocks first */
    tile_fn attention_grad;   /* (b, h) */
    tile_fn dropout;          /* chunks of each sequence */
    tile_fn gelu;             /* elements, here and below */
    tile_fn gelu_grad;
    tile_fn residual;
    tile_fn scale;
    tile_fn round;
    tile_fn column_sum;  /* columns */
    tile_fn xent;        /* rows */
    tile_fn sumsq;       /* chunks */
    tile_fn sum_ordered; /* elements */
    tile_fn adamw;       /* elements */
    tile_fn exp;         /* elements; no kernel: its error is measured by a test */
};

extern const struct tiles cpu_tiles_scalar;
extern const struct tiles cpu_tiles_avx2;
extern const struct tiles cpu_tiles_avx512;

/* GEMM by oneDNN, for the vector tables. */
int onednn_gemm(const struct matmul *mm, const struct rect *tile) MUST_CHECK;

/* AdamW's coefficients of one step, each rounded once, as torch rounds its Python
 * floats. */
struct adamw_coefficients {
    float unscale, grad_scale, keep, one_minus_beta1, beta2, one_minus_beta2;
    float sqrt_correction2, eps, minus_step_size;
};

struct adamw_coefficients adamw_coefficients(const struct adamw_args *a);

/* Words below it are dropped. */
static inline uint32_t dropout_limit(const struct dropout *drop)
{
    return (uint32_t)(drop->p * 4294967296.0); /* p ≤ 1 − 2⁻⁵³: it fits */
}

static inline float dropout_scale(const struct dropout *drop)
{
    return (float)(1.0 / (1.0 - drop->p));
}

/* The first element of query t of head h: rows of probabilities begin with a block. */
static inline uint64_t dropout_row(size_t h, size_t t, size_t T)
{
    return (uint64_t)(h * T + t) * ((T + 3) / 4 * 4);
}

#endif
