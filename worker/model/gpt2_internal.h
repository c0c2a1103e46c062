#ifndef WORKER_MODEL_GPT2_INTERNAL_H
#define WORKER_MODEL_GPT2_INTERNAL_H

/* What gpt2.c, gpt2_arena.c, gpt2_forward.c and gpt2_backward.c share; nobody else
 * includes it. R = batch · seq_len rows, T = seq_len, C = dim, V = vocab. */

#include "worker/model/gpt2.h"

/* What a block's forward leaves for its backward. Each block has its own `in` and
 * `out`, and of the others those that backward does not compute again; these are one
 * for all blocks. Without backward everything is, and `in` and `out` are the same. */
struct gpt2_block_acts {
    float *in;  /* (R, C): the residual stream before the block */
    float *out; /* (R, C): the next block's `in` */
    /* dear: a matmul or attention made them */
    float *qkv;    /* (R, 3C) */
    float *lse;    /* (B, H, T) */
    float *att;    /* (R, C): attention's output, before its projection */
    float *mid;    /* (R, C): the residual stream after attention */
    float *fc_pre; /* (R, 4C): before gelu */
    /* cheap */
    float *ln_1;                  /* (R, C) */
    float *ln_1_mean, *ln_1_rstd; /* (R) */
    float *ln_2;                  /* (R, C) */
    float *ln_2_mean, *ln_2_rstd; /* (R) */
    float *fc;                    /* (R, 4C): after gelu */
};

struct gpt2_acts {
    struct gpt2_block_acts
        *block;    /* one per layer; mem_array'ed, NULL while only sizing */
    float *branch; /* (R, C): what is about to be added to the stream; in backward,
                      the stream's gradient, dropped */
    float *ln_f;   /* (R, C) */
    float *ln_f_mean, *ln_f_rstd; /* (R) */
    float *logits;                /* (head_rows, V) */
    float *losses;                /* (R) */
    /* backward only */
    float *d_stream; /* (R, C): gradient of the residual stream */
    float *d_branch; /* (R, C) */
    float *d_wide;   /* (R, 4C): gradient of fc_pre, or of qkv */
};

/* Offsets inside a block's unit, elements. */
struct gpt2_block_offsets {
    size_t ln_1_weight, ln_1_bias;
    size_t c_attn_weight, c_attn_bias;       /* (C, 3C), (3C) */
    size_t attn_proj_weight, attn_proj_bias; /* (C, C), (C) */
    size_t ln_2_weight, ln_2_bias;
    size_t c_fc_weight, c_fc_bias;         /* (C, 4C), (4C) */
    size_t mlp_proj_weight, mlp_proj_bias; /* (4C, C), (C) */
};

struct gpt2 {
    struct gpt2_config config;
    const struct layout *layout; /* borrowed */
    struct device *device;       /* borrowed */
    void *arena;
    size_t arena_bytes;
    struct gpt2_acts acts;
    struct gpt2_block_offsets at;
    size_t wte, wpe, ln_f_weight, ln_f_bias; /* offsets in their units */
};

/* The rows of one forward: all of the leaf, or the begin of one sequence for sampling.
 */
struct gpt2_rows {
    const int32_t *tokens; /* (batch, seq_len) */
    const struct unit_params *params;
    int batch, seq_len;
    int n; /* batch · seq_len */
    double dropout;
    uint64_t position; /* of the first sequence in the stream of samples */
};

/* Where something is dropped, as Hugging Face's GPT-2 does: embd_pdrop, attn_pdrop, and
 * resid_pdrop twice. Block i's are 3·i more. Part of the numerics: they never change. */
enum gpt2_site {
    SITE_EMBEDDING = 1, /* 0 is not used: init's counters may have it */
    SITE_PROBABILITIES,
    SITE_ATTENTION_OUT,
    SITE_MLP_OUT,
};

/* Rows of the head that are worked on at once: a function of the shape alone. */
int gpt2_head_rows(const struct gpt2_config *config);

/* Lays the activations out from `base` on (NULL: only the size); returns the bytes. */
size_t gpt2_arena_layout(const struct gpt2_config *config, char *base,
                         struct gpt2_acts *acts);

/* Up to the last norm: acts.ln_f is written. */
void gpt2_forward_body(struct gpt2 *g, const struct gpt2_rows *rows);

/* Makes again what block `i` does not keep, from its parameters `p` and what it keeps.
 */
void gpt2_recompute_block(struct gpt2 *g, const struct gpt2_rows *rows, int i,
                          const float *p);

/* Logits, losses and their sum. With `backward` also leaf->grad_head, and acts.d_branch
 * = the gradient of acts.ln_f. */
void gpt2_head_loss(struct gpt2 *g, const struct gpt2_rows *rows,
                    const struct gpt2_leaf *leaf, bool backward);

/* Logits (V) of one row. */
void gpt2_head_logits(struct gpt2 *g, const struct unit_params *params, int row,
                      float *logits);

/* From acts.d_branch down to the embedding. */
void gpt2_backward_body(struct gpt2 *g, const struct gpt2_rows *rows,
                        const struct unit_grads *to);

/* x (R, C) with a site's dropout: x itself where nothing is dropped, else `to`, which
 * may be x. Its own backward. */
const float *gpt2_dropped(struct gpt2 *g, const struct gpt2_rows *rows, int site,
                          float *to, const float *x);

/* A site of the block that has `a`. */
static inline int gpt2_site_of(const struct gpt2 *g, const struct gpt2_block_acts *a,
                               enum gpt2_site site)
{
    return 3 * (int)(a - g->acts.block) + (int)site;
}

static inline struct dropout gpt2_dropout(const struct gpt2 *g,
                                          const struct gpt2_rows *rows, int site)
{
    return (struct dropout){
        .p = rows->dropout,
        .seed = g->config.seed,
        .position = rows->position,
        .site = (uint32_t)site,
    };
}

static inline const float *gpt2_params_begin(const struct gpt2 *g,
                                             const struct unit_params *p, int unit)
{
    return p->begin ? p->begin(p->arg, unit) : p->flat + g->layout->unit[unit].offset;
}

static inline void gpt2_params_end(const struct unit_params *p, int unit)
{
    if (p->end) {
        p->end(p->arg, unit);
    }
}

#endif
