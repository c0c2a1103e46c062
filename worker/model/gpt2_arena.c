/* The activations of one leaf, laid out in one arena before the first step.
 *
 * Happy path: gpt2_arena_bytes runs the layout without a base to get the size;
 * gpt2_new allocates it and runs the same layout again to get the pointers. */

#include "worker/model/gpt2_internal.h"

/* The head's logits are made for some rows at a time, so that (R, V) never exists.
 * Fewer rows cost one more pass over the tied weight's gradient, (V, C), for each
 * chunk. */
enum { HEAD_LOGITS_MAX = 16 << 20, ALIGNMENT = 64 };

struct cursor {
    char *base;
    size_t used;
};

static float *take(struct cursor *c, size_t n)
{
    float *p = c->base == NULL ? NULL : (float *)(void *)(c->base + c->used);
    c->used += (n * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return p;
}

int gpt2_head_rows(const struct gpt2_config *config)
{
    size_t rows = (size_t)config->batch * (size_t)config->seq_len;
    size_t most = MAX((size_t)HEAD_LOGITS_MAX / (size_t)config->model.vocab, 1);
    size_t chunks = (rows + most - 1) / most;
    return (int)((rows + chunks - 1) / chunks); /* chunks of about equal size */
}

static void take_dear(struct cursor *c, const struct gpt2_config *config,
                      struct gpt2_block_acts *ret)
{
    size_t rows = (size_t)config->batch * (size_t)config->seq_len;
    size_t wide = rows * (size_t)config->model.dim;
    ret->qkv = take(c, 3 * wide);
    ret->lse = take(c, rows * (size_t)config->model.heads);
    ret->att = take(c, wide);
    ret->mid = take(c, wide);
    ret->fc_pre = take(c, 4 * wide);
}

static void take_cheap(struct cursor *c, const struct gpt2_config *config,
                       struct gpt2_block_acts *ret)
{
    size_t rows = (size_t)config->batch * (size_t)config->seq_len;
    size_t wide = rows * (size_t)config->model.dim;
    ret->ln_1 = take(c, wide);
    ret->ln_1_mean = take(c, rows);
    ret->ln_1_rstd = take(c, rows);
    ret->ln_2 = take(c, wide);
    ret->ln_2_mean = take(c, rows);
    ret->ln_2_rstd = take(c, rows);
    ret->fc = take(c, 4 * wide);
}

/* A block that does not take its own has the first one's. */
static void take_blocks(struct cursor *c, const struct gpt2_config *config,
                        struct gpt2_acts *acts)
{
    size_t wide =
        (size_t)config->batch * (size_t)config->seq_len * (size_t)config->model.dim;
    bool keeps = !config->inference_only;
    struct gpt2_block_acts block = {.out = take(c, wide)};
    for (int i = 0; i < config->model.layers; i++) {
        block.in = block.out;
        if (i == 0 || (keeps && config->recompute != RECOMPUTE_BLOCK)) {
            take_dear(c, config, &block);
        }
        if (i == 0 || (keeps && config->recompute == RECOMPUTE_NONE)) {
            take_cheap(c, config, &block);
        }
        if (keeps) {
            block.out = take(c, wide);
        }
        if (acts->block != NULL) {
            acts->block[i] = block;
        }
    }
}

/* NOLINTNEXTLINE(readability-non-const-parameter): acts point into it */
size_t gpt2_arena_layout(const struct gpt2_config *config, char *base,
                         struct gpt2_acts *acts)
{
    struct cursor c = {.base = base};
    size_t rows = (size_t)config->batch * (size_t)config->seq_len;
    size_t wide = rows * (size_t)config->model.dim;
    size_t head_rows = (size_t)gpt2_head_rows(config);
    take_blocks(&c, config, acts);
    acts->branch = take(&c, wide);
    acts->ln_f = take(&c, wide);
    acts->ln_f_mean = take(&c, rows);
    acts->ln_f_rstd = take(&c, rows);
    acts->logits = take(&c, head_rows * (size_t)config->model.vocab);
    acts->losses = take(&c, rows);
    if (!config->inference_only) {
        acts->d_stream = take(&c, wide);
        acts->d_branch = take(&c, wide);
        acts->d_wide = take(&c, 4 * wide);
    }
    return c.used;
}

size_t gpt2_arena_bytes(const struct gpt2_config *config)
{
    struct gpt2_acts acts = {0};
    return gpt2_arena_layout(config, NULL, &acts);
}

/* Multiply-adds count as two; backward is twice forward. Attention's T×T counts in
 * full, as in PaLM's formula, although half of it is masked. */
size_t gpt2_flops_per_leaf(const struct gpt2_config *config,
                           const struct layout *layout)
{
    size_t dim = (size_t)config->model.dim;
    size_t layers = (size_t)config->model.layers;
    size_t tokens = (size_t)config->batch * (size_t)config->seq_len;
    size_t head = (size_t)config->model.vocab * dim;
    size_t block = 12 * dim * dim;
    size_t attention = 2 * dim * (size_t)config->seq_len;
    size_t ended = (size_t)MAX(layout->first_trained - 1, 0); /* blocks */
    size_t forward = layers * (2 * block + 2 * attention) + 2 * head;
    size_t backward = (layers - MIN(ended, layers)) * (4 * block + 4 * attention) +
                      (layout->unit[0].tensor[0].frozen ? 2 : 4) * head;
    return tokens * (forward + backward);
}
