#ifndef WORKER_DEVICE_KERNELS_H
#define WORKER_DEVICE_KERNELS_H

/* The kernels of one device, on plain pointers and sizes. All tensors are fp32,
 * row-major, contiguous unless a leading dimension is given; tokens are int32.
 *
 * Every kernel writes its outputs (beta = 0), unless its comment says that it adds.
 * Results do not depend on the number of threads: work is cut over a fixed grid, and a
 * sum over rows keeps one order. They are enqueued on QUEUE_COMPUTE, but `sum_ordered`,
 * `scale`, `round` and `sumsq` which take their queue. Dimensions: B sequences, T
 * positions, C channels, H heads, V vocabulary, rows = B·T.
 *
 * The oracle is worker/device/cpu/scalar.c; tests/conformance/test_kernels.c compares
 * every variant with it, and it with finite differences in double. */

#include "worker/device/device.h"
#include "worker/device/dtype.h"

enum epilogue {
    EPILOGUE_NONE,
    EPILOGUE_BIAS,      /* C += bias (n) */
    EPILOGUE_BIAS_GELU, /* aux = C + bias; C = gelu(aux) */
    EPILOGUE_DGELU,     /* C = C · gelu'(aux) */
};

/* C (m, n) = alpha · op(A) (m, k) · op(B) (k, n) + beta · C, then the epilogue. */
struct matmul {
    bool trans_a, trans_b;
    int m, n, k;
    float alpha, beta; /* beta: 0 or 1 */
    const float *a, *b;
    float *c;
    int lda, ldb, ldc; /* row strides of the stored matrices */
    enum epilogue epilogue;
    const float *bias; /* (n); EPILOGUE_BIAS, EPILOGUE_BIAS_GELU */
    float *aux;        /* (m, ldc); written by BIAS_GELU, read by DGELU */
};

/* Who is dropped: a function of the element alone, so that backward, a recomputation and
 * any other rank see the same. Element e of sequence b has word e % 4 of the Philox block
 * with key `seed` and counter {e / 4, site, position + b: low, high}. Below p · 2³² it is
 * multiplied by 0, else by 1 / (1 − p). A sequence has at most 2³⁴ elements. */
struct dropout {
    double p; /* in [0, 1) */
    uint64_t seed;
    uint64_t position; /* of sequence 0 in the stream of samples */
    uint32_t site;     /* which of the model's dropouts */
};

/* One step of a fixed summation tree: buf[dst] += buf[src], element by element. */
struct addition {
    int dst;
    int src;
};

/* What AdamW needs each step, in device memory, so that the host never waits for it. In
 * double, as torch holds them: 1 − 0.999 has lost 5 of its 8 digits in fp32. */
struct adamw_scalars {
    double lr;
    double beta1, beta2, eps, weight_decay;
    double correction1, correction2; /* 1 − beta1^t, 1 − beta2^t */
    float unscale; /* multiplies the gradient first, and is rounded: 1 / loss scale */
    float grad_scale;     /* clip coefficient; multiplies what that gives */
    bool skip_not_finite; /* no update where the norm is not finite */
    bool skip;            /* so it is: by `clip`, for `adamw` */
};

enum { SUMSQ_CHUNK = 4096 };

struct kernels {
    void (*matmul)(struct device *d, const struct matmul *mm);

    /* out (rows, C) = wte[token] + wpe[position] */
    void (*embedding)(struct device *d, float *out, const int32_t *tokens,
                      const float *wte, const float *wpe, int B, int T, int C);
    /* dwte (V, C) and dwpe (P, C), all rows written; rows not met are 0 */
    void (*embedding_backward)(struct device *d, float *dwte, float *dwpe,
                               const float *dout, const int32_t *tokens, int B, int T,
                               int C, int V, int P);

    /* out = (x − mean) · rstd · gamma + beta; eps 1e-5; mean, rstd (rows) are kept */
    void (*layernorm)(struct device *d, float *out, float *mean, float *rstd,
                      const float *x, const float *gamma, const float *beta, int rows,
                      int C);
    /* dx is added to when `add`; dgamma, dbeta (C) are written */
    void (*layernorm_backward)(struct device *d, float *dx, float *dgamma, float *dbeta,
                               const float *dout, const float *x, const float *gamma,
                               const float *mean, const float *rstd, int rows, int C,
                               bool add);

    /* Causal self-attention, scale 1/√(C/H). qkv (B, T, 3C): q, k, v side by side,
     * heads contiguous inside each. out (B, T, C); lse (B, H, T) = log-sum-exp of each
     * row, nothing dropped. With `drop` (NULL: none) the probabilities are dropped; that
     * of key k for query t of head h is element (h·T + t)·T4 + k, where T4 is T rounded
     * up to a multiple of 4. */
    void (*attention)(struct device *d, float *out, float *lse, const float *qkv, int B,
                      int T, int C, int H, const struct dropout *drop);
    void (*attention_backward)(struct device *d, float *dqkv, const float *dout,
                               const float *qkv, const float *out, const float *lse,
                               int B, int T, int C, int H, const struct dropout *drop);

    /* out (B, n) = x (B, n), dropped; out may be x. Backward is the same. */
    void (*dropout)(struct device *d, float *out, const float *x, int B, size_t n,
                    const struct dropout *drop);

    /* tanh approximation, as "gelu_new" */
    void (*gelu)(struct device *d, float *out, const float *x, size_t n);
    void (*gelu_backward)(struct device *d, float *dx, const float *dout,
                          const float *x, size_t n);
    void (*residual)(struct device *d, float *out, const float *a, const float *b,
                     size_t n);
    /* out (C) = sum over rows of x (rows, C) */
    void (*column_sum)(struct device *d, float *out, const float *x, int rows, int C);

    /* Row-wise cross-entropy. logits (rows, V) become (softmax − onehot) · scale when
     * `backward`, else stay. loss (rows) = −log softmax[target]. */
    void (*softmax_xent)(struct device *d, float *logits, float *loss,
                         const int32_t *targets, int rows, int V, float scale,
                         bool backward);

    /* *out = sum of x (n) in one fixed order, in double, rounded once */
    void (*sum)(struct device *d, double *out, const float *x, size_t n);

    /* chunks[i] = sum of squares of factor · x[i·4096 … (i+1)·4096): the products are
     * rounded, the rest is in double */
    void (*sumsq)(struct device *d, enum queue q, double *chunks, const float *x,
                  float factor, size_t n);

    /* Carries out the additions in their order over buf[0 … n_bufs), each of n
     * elements. `bufs` and `adds` are borrowed until the queue has done it. */
    void (*sum_ordered)(struct device *d, enum queue q, float *const *bufs, int n_bufs,
                        const struct addition *adds, int n_adds, size_t n);
    void (*scale)(struct device *d, enum queue q, float *x, float factor, size_t n);
    /* out (n) = x as bf16 or fp16 holds it (dtype.h); out may be x */
    void (*round)(struct device *d, enum queue q, float *out, const float *x, size_t n,
                  enum dtype dtype);

    /* One pass over a flat block: m, v, p from g. Decays the elements only if `decay`.
     * torch.optim.AdamW's arithmetic, in fp32. Nothing where scalars->skip. */
    void (*adamw)(struct device *d, float *p, float *m, float *v, const float *g,
                  size_t n, bool decay, const struct adamw_scalars *scalars);

    /* Clip coefficient: *norm = √(sum of chunks[0 … n) in order),
     * scalars->grad_scale = max_norm > 0 ? min(1, max_norm / (norm + 1e-6)) : 1,
     * scalars->skip = scalars->skip_not_finite and norm is not finite */
    void (*clip)(struct device *d, double *norm, struct adamw_scalars *scalars,
                 const double *chunks, size_t n, float max_norm);
};

#endif
