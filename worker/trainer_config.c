/* What each of the trainer's parts is to be, from the run's configuration and the
 * world. */

#include "worker/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOADER_AHEAD = 4 };

static enum gpt2_recompute recompute_kind(const char *name)
{
    if (strcmp(name, "block") == 0) {
        return RECOMPUTE_BLOCK;
    }
    return strcmp(name, "selective") == 0 ? RECOMPUTE_SELECTIVE : RECOMPUTE_NONE;
}

struct gpt2_config trainer_model_config(const struct train_config *config)
{
    struct gpt2_config ret = {
        .model = {.layers = (int)config->model.layers,
                  .heads = (int)config->model.heads,
                  .dim = (int)config->model.dim,
                  .context = (int)config->model.context,
                  .vocab = (int)config->model.vocab},
        .batch = (int)config->train.micro_batch,
        .seq_len = (int)config->train.seq_len,
        .recompute = recompute_kind(config->train.activation_checkpointing),
        .precision = dtype_of(config->train.precision),
        .dropout = config->model.dropout,
        .seed = (uint64_t)config->train.seed,
    };

    (void)snprintf(ret.model.family, sizeof(ret.model.family), "%s",
                   config->model.family);
    return ret;
}

/* Weights are dropped after use, even if a piece stays; 1 is all of it, as in PyTorch. */
static bool reshards(const struct train_config *c)
{
    return strcmp(c->parallel.reshard_after_forward, "false") != 0 &&
           strcmp(c->parallel.reshard_after_forward, "1") != 0;
}

struct parallel_config trainer_parallel_config(const struct trainer *t)
{
    const struct train_config *c = t->config;
    struct zero zero = t->strategy->zero;
    int n_secondary = atoi(c->parallel.reshard_after_forward); /* true, false: 0 */

    zero.params = zero.params && reshards(c);
    return (struct parallel_config){
        .ops = t->strategy,
        .layout = &t->layout,
        .device = t->device,
        .comm = t->comm,
        .gather = t->gather,
        .secondary = t->secondary,
        .shard = t->shard,
        .replica = t->replica,
        .rank = t->launch->rank,
        .world_size = t->launch->world_size,
        .mesh = t->mesh,
        .zero = zero,
        .blocks_per_group = (int)c->parallel.blocks_per_unit,
        .min_group_params = (size_t)c->parallel.min_unit_params,
        .ahead = (int)c->parallel.prefetch,
        .n_secondary = zero.params && n_secondary < t->mesh.dp_shard ? n_secondary : 0,
        .n_leaves = t->n_leaves,
        .bucket_cap_bytes = (size_t)(c->parallel.bucket_cap_mb * 1024 * 1024),
        .exact = strcmp(c->train.reduction, "exact") == 0,
        .param_dtype = dtype_of(c->train.precision),
        .reduce_dtype = dtype_of(c->parallel.reduce_dtype),
        .tied_size = (size_t)(c->model.vocab * c->model.dim),
    };
}

int trainer_team(const struct trainer *t)
{
    struct parallel_config c = trainer_parallel_config(t);

    return parallel_team(&c);
}

static enum schedule schedule_kind(const char *name)
{
    if (strcmp(name, "linear") == 0) {
        return SCHEDULE_LINEAR;
    }
    return strcmp(name, "constant") == 0 ? SCHEDULE_CONSTANT : SCHEDULE_COSINE;
}

static void share_chunks(void *arg, double *chunks)
{
    struct parallel *p = arg;

    p->ops->chunks(p, chunks);
}

struct adamw_config trainer_adamw_config(const struct trainer *t)
{
    const struct train_config *c = t->config;

    return (struct adamw_config){
        .layout = &t->layout,
        .own = t->parallel ? &t->parallel->own : NULL,
        .whole_grads = t->parallel && t->parallel->whole_grads,
        .share_chunks = t->parallel ? share_chunks : NULL,
        .arg = t->parallel,
        .device = t->device,
        .beta1 = c->optim.beta1,
        .beta2 = c->optim.beta2,
        .eps = c->optim.eps,
        .weight_decay = c->optim.weight_decay,
        .grad_clip = c->train.grad_clip,
        .schedule = {.kind = schedule_kind(c->optim.schedule),
                     .lr = c->optim.lr,
                     .min_lr = c->optim.min_lr,
                     .warmup = (uint64_t)c->optim.warmup,
                     .steps = (uint64_t)c->train.steps},
    };
}

struct loader_config trainer_loader_config(const struct trainer *t)
{
    struct leaf_run leaves = leaf_run_of(t->n_leaves, t->launch->world_size,
                                         trainer_team(t), t->launch->rank);

    if (trainer_is_fed(t)) {
        leaves = (struct leaf_run){.end = t->n_leaves, .stride = 1};
    }

    return (struct loader_config){
        .dataset = t->train_data,
        .sampler = t->sampler,
        .first_step = t->data_step,
        .leaf_begin = leaves.begin,
        .leaf_end = leaves.end,
        .leaf_stride = leaves.stride,
        .micro_batch = t->config->train.micro_batch,
        .global_batch = t->config->train.global_batch,
        .seq_len = t->config->train.seq_len,
        .n_ahead = LOADER_AHEAD,
    };
}

struct feed_config trainer_feed_config(const struct trainer *t, int rank)
{
    return (struct feed_config){.device = t->device,
                                .comm = t->comm,
                                .loader = t->loader,
                                .rank = rank,
                                .world_size = t->launch->world_size,
                                .n_leaves = t->n_leaves,
                                .leaf_tokens = (size_t)(t->config->train.micro_batch *
                                                        t->config->train.seq_len)};
}
