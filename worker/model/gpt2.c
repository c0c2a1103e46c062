/* GPT-2: the life of a model object, and its three ways to run. See gpt2.h.
 *
 * Happy path of a leaf: body forward → head's loss and gradient → body backward. */

#include "worker/model/gpt2_internal.h"

#include "common/mem.h"

#include <limits.h>
#include <string.h>

/* In its unit. All blocks have the first one's table. */
static size_t offset_of(const struct layout *layout, const char *name)
{
    const struct unit *u;
    const struct tensor *t = layout_find(layout, name, &u);
    ASSERT(t != NULL);
    return t->offset;
}

static void resolve(struct gpt2 *g)
{
    const struct layout *l = g->layout;
    g->wte = offset_of(l, "wte.weight");
    g->wpe = offset_of(l, "wpe.weight");
    g->ln_f_weight = offset_of(l, "ln_f.weight");
    g->ln_f_bias = offset_of(l, "ln_f.bias");
    g->at = (struct gpt2_block_offsets){
        .ln_1_weight = offset_of(l, "h.0.ln_1.weight"),
        .ln_1_bias = offset_of(l, "h.0.ln_1.bias"),
        .c_attn_weight = offset_of(l, "h.0.attn.c_attn.weight"),
        .c_attn_bias = offset_of(l, "h.0.attn.c_attn.bias"),
        .attn_proj_weight = offset_of(l, "h.0.attn.c_proj.weight"),
        .attn_proj_bias = offset_of(l, "h.0.attn.c_proj.bias"),
        .ln_2_weight = offset_of(l, "h.0.ln_2.weight"),
        .ln_2_bias = offset_of(l, "h.0.ln_2.bias"),
        .c_fc_weight = offset_of(l, "h.0.mlp.c_fc.weight"),
        .c_fc_bias = offset_of(l, "h.0.mlp.c_fc.bias"),
        .mlp_proj_weight = offset_of(l, "h.0.mlp.c_proj.weight"),
        .mlp_proj_bias = offset_of(l, "h.0.mlp.c_proj.bias"),
    };
}

static int check_config(const struct gpt2_config *c, struct errmsg *msg)
{
    if (c->seq_len < 1 || c->seq_len > c->model.context) {
        return errmsg_set(msg, ERR_INVALID,
                          "train.seq_len=%d: must be 1 to model.context=%d", c->seq_len,
                          c->model.context);
    }
    if (c->batch < 1 || c->batch > INT_MAX / c->seq_len) {
        return errmsg_set(msg, ERR_INVALID,
                          "train.micro_batch=%d: must be 1 to %d with train.seq_len=%d",
                          c->batch, INT_MAX / c->seq_len, c->seq_len);
    }
    return 0;
}

int gpt2_new(const struct gpt2_config *config, const struct layout *layout,
             struct device *device, struct gpt2 **ret, struct errmsg *msg)
{
    ASSERT(layout->n_units == config->model.layers + 2);
    int rc = check_config(config, msg);
    if (rc != 0) {
        return rc;
    }
    struct gpt2 *g = mem_zalloc(sizeof(*g));
    g->config = *config;
    g->layout = layout;
    g->device = device;
    g->arena_bytes = gpt2_arena_bytes(config);
    rc = device_alloc(device, g->arena_bytes, &g->arena);
    if (rc != 0) {
        size_t bytes = g->arena_bytes;
        mem_free(g);
        return errmsg_set(
            msg, rc,
            "no memory for %zu MiB of activations: lower train.micro_batch or "
            "train.seq_len, or set train.activation_checkpointing=block",
            bytes >> 20);
    }
    g->acts.block = mem_array((size_t)config->model.layers, sizeof(*g->acts.block));
    gpt2_arena_layout(config, g->arena, &g->acts);
    resolve(g);
    *ret = g;
    return 0;
}

void gpt2_free(struct gpt2 *g)
{
    if (g == NULL) {
        return;
    }
    device_free(g->device, g->arena, g->arena_bytes);
    mem_free(g->acts.block);
    mem_free(g);
}

static struct gpt2_rows rows_of(const struct gpt2 *g, const struct gpt2_leaf *leaf)
{
    return (struct gpt2_rows){
        .tokens = leaf->tokens,
        .params = &leaf->params,
        .batch = g->config.batch,
        .seq_len = g->config.seq_len,
        .n = g->config.batch * g->config.seq_len,
    };
}

void gpt2_forward_backward(struct gpt2 *g, const struct gpt2_leaf *leaf)
{
    ASSERT(!g->config.inference_only);
    struct gpt2_rows rows = rows_of(g, leaf);
    rows.dropout = g->config.dropout;
    rows.position = leaf->position;
    gpt2_forward_body(g, &rows);
    gpt2_head_loss(g, &rows, leaf, true);
    if (leaf->on_backward) {
        leaf->on_backward(leaf->arg);
    }
    gpt2_backward_body(g, &rows, &leaf->grads);
}

void gpt2_forward_loss(struct gpt2 *g, const struct gpt2_leaf *leaf)
{
    struct gpt2_rows rows = rows_of(g, leaf);
    gpt2_forward_body(g, &rows);
    gpt2_head_loss(g, &rows, leaf, false);
}

/* Attention is causal, so that what comes after `pos` need not be computed. */
void gpt2_logits(struct gpt2 *g, const struct unit_params *params,
                 const int32_t *tokens, int pos, float *logits)
{
    ASSERT(pos >= 0 && pos < g->config.seq_len);
    struct gpt2_rows rows = {
        .tokens = tokens,
        .params = params,
        .batch = 1,
        .seq_len = pos + 1,
        .n = pos + 1,
    };
    gpt2_forward_body(g, &rows);
    gpt2_head_logits(g, params, pos, logits);
}
