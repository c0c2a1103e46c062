#include "worker/config_table.h"

#include "worker/optim/grad_scaler.h"

#include "common/str.h"

#include <stdio.h>
#include <string.h>

/* clang-format off */
#define FIELD(f)  offsetof(struct train_config, f), sizeof(((struct train_config *)0)->f)
#define TEXT(p, f, fallback, help) \
    {p, CONFIG_TEXT, FIELD(f), fallback, 0, 0, NULL, help}
#define CHOICE(p, f, fallback, choices, help) \
    {p, CONFIG_CHOICE, FIELD(f), fallback, 0, 0, choices, help}
#define TEXTS(p, f, help) \
    {p, CONFIG_TEXTS, FIELD(f), "[]", 0, 0, NULL, help}
#define INT(p, f, fallback, min, max, help) \
    {p, CONFIG_INT, FIELD(f), fallback, min, max, NULL, help}
#define AUTO_INT(p, f, min, max, help) \
    {p, CONFIG_AUTO_INT, FIELD(f), "auto", min, max, NULL, help}
#define AUTO_TEXT(p, f, min, max, help) \
    {p, CONFIG_AUTO_TEXT, FIELD(f), "auto", min, max, NULL, help}
#define NUMBER(p, f, fallback, min, max, help) \
    {p, CONFIG_NUMBER, FIELD(f), fallback, min, max, NULL, help}
#define FRACTION(p, f, fallback, help) \
    {p, CONFIG_FRACTION, FIELD(f), fallback, 0, 1, NULL, help}
#define PAIR(p, f, fallback, help) \
    {p, CONFIG_PAIR, FIELD(f), fallback, 0, 1, NULL, help}
#define INTERVAL(p, f, fallback, max, help) \
    {p, CONFIG_INTERVAL, FIELD(f), fallback, 0, max, NULL, help}
#define BOOL(p, f, fallback, help) \
    {p, CONFIG_BOOL, FIELD(f), fallback, 0, 0, NULL, help}
#define BOOL_TEXT(p, f, fallback, min, max, help) \
    {p, CONFIG_BOOL_TEXT, FIELD(f), fallback, min, max, NULL, help}

static const struct config_key keys[] = {
    TEXT("run.name", run.name, "demo", "name of the run"),
    TEXT("run.dir", run.dir, "runs/${run.name}", "where everything of this run goes"),

    CHOICE("model.family", model.family, "gpt2", "gpt2|llama",
           "architecture; so far gpt2"),
    INT("model.layers", model.layers, "12", 1, 1024, "transformer blocks"),
    INT("model.heads", model.heads, "12", 1, 1024, "attention heads"),
    INT("model.kv_heads", model.kv_heads, "${model.heads}", 0, 1024,
        "key and value heads; so far as many as heads, which 0 means too"),
    INT("model.dim", model.dim, "768", 1, 1 << 17, "width; a multiple of heads"),
    INT("model.context", model.context, "1024", 1, 1 << 20, "longest sequence"),
    INT("model.vocab", model.vocab, "50257", 2, 1 << 20, "number of different tokens"),
    FRACTION("model.dropout", model.dropout, "0.0",
             "share of activations dropped in training"),
    TEXT("model.init_from", model.init_from, "",
         "first weights: an llm.c model file or a checkpoint; \"\": random"),

    TEXTS("data.train", data.train, "training files, folders or globs"),
    TEXTS("data.val", data.val, "held-out files, folders or globs; []: no evaluation"),
    CHOICE("data.format", data.format, "auto", "auto|text|u16|llmc|megatron",
           "auto: llm.c by its header, u16 for other .bin, else text; "
           "not yet: megatron"),
    TEXT("data.tokenizer", data.tokenizer, "bytes",
         "how text becomes tokens; so far bytes"),
    CHOICE("data.sampler", data.sampler, "permute", "permute|torch",
           "order of samples; torch: as DistributedSampler"),

    INT("train.steps", train.steps, "1000", 1, 1e9, "optimizer steps"),
    INT("train.seq_len", train.seq_len, "${model.context}", 1, 1 << 20,
        "tokens of a sequence"),
    INT("train.micro_batch", train.micro_batch, "4", 1, 1 << 16,
        "sequences at once on a rank"),
    INT("train.global_batch", train.global_batch, "32", 1, 1 << 24,
        "sequences of a step on all ranks together"),
    INT("train.seed", train.seed, "1337", 0, 9.2e18, "of weights, order and dropout"),
    NUMBER("train.grad_clip", train.grad_clip, "1.0", 0, 1e9,
           "largest gradient norm; 0: no clipping"),
    CHOICE("train.precision", train.precision, "fp32", "fp32|bf16|fp16",
           "of weights in use and activations, on the CPU by rounding them; masters are "
           "fp32"),
    CHOICE("train.grad_scaler", train.grad_scaler, "auto", "auto|true|false",
           "scale the loss, as torch's GradScaler; auto: with train.precision=fp16"),
    NUMBER("train.init_scale", train.init_scale, "65536", GRAD_SCALER_FLOOR,
           GRAD_SCALER_CEILING, "grad_scaler: the first scale"),
    NUMBER("train.growth_factor", train.growth_factor, "2.0", 1, 1e9,
           "grad_scaler: what growing multiplies the scale by; above 1"),
    FRACTION("train.backoff_factor", train.backoff_factor, "0.5",
             "grad_scaler: what an overflow multiplies the scale by; above 0"),
    INT("train.growth_interval", train.growth_interval, "2000", 1, INT32_MAX,
        "grad_scaler: updates in a row before the scale grows"),
    CHOICE("train.reduction", train.reduction, "exact", "exact|fast",
           "exact: the same bits for every number of ranks"),
    CHOICE("train.activation_checkpointing", train.activation_checkpointing, "none",
           "none|block|selective",
           "what backward computes again instead of keeping it; the same bits"),
    TEXTS("train.freeze", train.freeze,
          "tensors that are not trained: names or patterns, as \"h.0.*\""),
    INT("train.leaves_in_place", train.leaves_in_place, "1", 1, 1 << 16,
        "micro-batches summed without a buffer of their own; so far 1"),

    TEXT("optim.name", optim.name, "adamw", "optimizer; so far adamw"),
    NUMBER("optim.lr", optim.lr, "6.0e-4", 0, 1e3, "peak learning rate"),
    NUMBER("optim.min_lr", optim.min_lr, "6.0e-5", 0, 1e3, "learning rate at the end"),
    PAIR("optim.betas", optim.beta1, "[0.9, 0.95]", "AdamW's two averages"),
    NUMBER("optim.eps", optim.eps, "1.0e-8", 0, 1, "AdamW's epsilon"),
    NUMBER("optim.weight_decay", optim.weight_decay, "0.1", 0, 1e3,
           "of tensors with two or more dimensions"),
    INT("optim.warmup", optim.warmup, "100", 0, 1e9, "steps up to the peak"),
    CHOICE("optim.schedule", optim.schedule, "cosine", "cosine|linear|constant",
           "the way from lr to min_lr"),

    CHOICE("parallel.strategy", parallel.strategy, "ddp",
           "ddp|fsdp|zero1|zero2|hsdp|dp",
           "what is divided among the ranks; ddp: nothing, zero1: optimizer state, "
           "zero2: and gradients, fsdp: and weights, hsdp: inside a copy; dp: all that "
           "is rank 0's, to see why nobody should"),
    AUTO_TEXT("parallel.dp_replicate", parallel.dp_replicate, 1, 1 << 20,
              "data-parallel copies; auto: ddp one a rank, hsdp one a node (one in all where "
              "nodes have different numbers of ranks), else one"),
    AUTO_TEXT("parallel.dp_shard", parallel.dp_shard, 1, 1 << 20,
              "ranks that share one copy; auto: what dp_replicate leaves"),
    INT("parallel.tp", parallel.tp, "1", 1, 1 << 16, "tensor-parallel ranks; so far 1"),
    INT("parallel.pp", parallel.pp, "1", 1, 1 << 16, "pipeline stages; so far 1"),
    NUMBER("parallel.bucket_cap_mb", parallel.bucket_cap_mb, "25", 0, 1 << 20,
           "MiB of gradients sent at once"),
    CHOICE("parallel.reduce_dtype", parallel.reduce_dtype, "fp32", "fp32|bf16|fp16",
           "what a micro-batch's gradients are rounded to before they are summed, in fp32"),
    BOOL("parallel.find_unused_parameters", parallel.find_unused_parameters, "false",
         "as in PyTorch's DDP; the models here use all that is trained, so none is found"),
    BOOL("parallel.static_graph", parallel.static_graph, "false",
         "as in PyTorch's DDP; the graph here never changes, whatever this says"),
    INT("parallel.check_every", parallel.check_every, "100", 0, 1e9,
        "steps between comparisons of the weights that several ranks hold; 0: never"),
    BOOL_TEXT("parallel.reshard_after_forward", parallel.reshard_after_forward, "true", 1,
              1 << 20,
              "fsdp, hsdp: drop gathered weights after use, gather them again; N: keep 1/N "
              "of them, and gather that again from N neighbouring ranks alone"),
    INT("parallel.prefetch", parallel.prefetch, "1", 0, 64,
        "fsdp, hsdp: units gathered before they are needed"),
    INT("parallel.blocks_per_unit", parallel.blocks_per_unit, "1", 1, 1024,
        "blocks that are gathered and reduced together"),
    INT("parallel.min_unit_params", parallel.min_unit_params, "0", 0, 1LL << 40,
        "more blocks to a unit until it has so many"),
    BOOL("parallel.offload", parallel.offload, "false",
         "keep weights and optimizer state in the host's memory; so far false"),

    INT("eval.every", eval.every, "100", 0, 1e9, "steps between evaluations; 0: none"),
    INT("eval.batches", eval.batches, "8", 1, 1e6, "micro-batches of an evaluation"),

    INT("sample.every", sample.every, "0", 0, 1e9, "steps between samples; 0: none"),
    INT("sample.tokens", sample.tokens, "200", 1, 1 << 20, "length of a sample"),
    TEXT("sample.prompt", sample.prompt, "", "what a sample begins with"),
    NUMBER("sample.temperature", sample.temperature, "0.8", 0, 100,
           "0: always the likeliest token"),
    INT("sample.top_k", sample.top_k, "50", 0, 1 << 20,
        "choose among so many tokens; 0: all"),

    TEXT("checkpoint.dir", checkpoint.dir, "${run.dir}/ckpt", "where checkpoints go"),
    INTERVAL("checkpoint.every", checkpoint.every, "100", 1e9,
             "steps or time between checkpoints; auto: by their measured cost and the "
             "failures; 0: the last step's only"),
    INT("checkpoint.keep", checkpoint.keep, "3", 0, 1e6,
        "how many of the newest are kept; 0: all"),
    INT("checkpoint.keep_every", checkpoint.keep_every, "0", 0, 1e9,
        "every so many steps one is kept for good; 0: none"),
    INT("checkpoint.keep_best", checkpoint.keep_best, "0", 0, 1e6,
        "how many with the lowest val_loss are kept; 0: none"),
    BOOL("checkpoint.snapshot", checkpoint.snapshot, "true",
         "save a copy of the state; false: the state itself, so the next update waits"),
    TEXT("checkpoint.resume", checkpoint.resume, "auto",
         "auto: the newest, never, or the path of one"),

    INT("log.every", log.every, "1", 1, 1e9, "steps between progress lines"),
    CHOICE("log.level", log.level, "info", "error|warn|info|debug", "of messages"),
    BOOL("log.curve", log.curve, "false", "draw the loss curve at the end"),

    CHOICE("device.kind", device.kind, "auto", "auto|cpu|cuda",
           "what computes; so far cpu, which auto means"),
    AUTO_INT("device.threads", device.threads, 1, 4096,
             "threads of a rank; auto: cores / ranks of the node"),

    CHOICE("comm.kind", comm.kind, "auto", "auto|shm|tcp|nccl",
           "how ranks talk; auto: shm inside a node, tcp between; not yet: nccl"),
    NUMBER("comm.timeout", comm.timeout, "600", 0.1, 1e6, "seconds until a peer is lost"),
};

/* What other tools call them: { their name, ours }. */
static const char *const other_names[][2] = {
    {"learning_rate", "optim.lr"},      {"max_lr", "optim.lr"},
    {"min_learning_rate", "optim.min_lr"}, {"warmup_steps", "optim.warmup"},
    {"warmup_iters", "optim.warmup"},   {"lr_scheduler", "optim.schedule"},
    {"lr_scheduler_type", "optim.schedule"}, {"optimizer", "optim.name"},
    {"epsilon", "optim.eps"},           {"beta1", "optim.betas"},
    {"beta2", "optim.betas"},           {"n_layer", "model.layers"},
    {"num_layers", "model.layers"},     {"num_hidden_layers", "model.layers"},
    {"n_head", "model.heads"},          {"num_heads", "model.heads"},
    {"num_attention_heads", "model.heads"}, {"num_key_value_heads", "model.kv_heads"},
    {"n_embd", "model.dim"},            {"hidden_size", "model.dim"},
    {"d_model", "model.dim"},           {"n_positions", "model.context"},
    {"block_size", "model.context"},    {"max_seq_len", "model.context"},
    {"embd_pdrop", "model.dropout"},    {"attn_pdrop", "model.dropout"},
    {"resid_pdrop", "model.dropout"},
    {"vocab_size", "model.vocab"},      {"max_steps", "train.steps"},
    {"max_iters", "train.steps"},       {"num_steps", "train.steps"},
    {"sequence_length", "train.seq_len"}, {"micro_batch_size", "train.micro_batch"},
    {"batch_size", "train.micro_batch"}, {"global_batch_size", "train.global_batch"},
    {"max_grad_norm", "train.grad_clip"}, {"gradient_clipping", "train.grad_clip"},
    {"gradient_checkpointing", "train.activation_checkpointing"},
    {"dtype", "train.precision"},       {"param_dtype", "train.precision"},
    {"mixed_precision", "train.precision"}, {"output_dir", "run.dir"},
    {"gradscaler", "train.grad_scaler"}, {"scaler", "train.grad_scaler"},
    {"loss_scale", "train.init_scale"}, {"initial_loss_scale", "train.init_scale"},
    {"loss_scale_window", "train.growth_interval"},
    {"scale_growth_factor", "train.growth_factor"},
    {"scale_backoff_factor", "train.backoff_factor"},
    {"scale_growth_interval", "train.growth_interval"},
    {"save_interval", "checkpoint.every"}, {"save_steps", "checkpoint.every"},
    {"save_total_limit", "checkpoint.keep"}, {"eval_interval", "eval.every"},
    {"eval_steps", "eval.every"},       {"log_interval", "log.every"},
    {"logging_steps", "log.every"},     {"num_threads", "device.threads"},
    {"backend", "comm.kind"},
};
/* clang-format on */

size_t config_n_keys(void)
{
    return ARRAY_LEN(keys);
}

const struct config_key *config_key_at(size_t i)
{
    ASSERT(i < ARRAY_LEN(keys));
    return &keys[i];
}

const struct config_key *config_key_find(const char *path)
{
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (strcmp(keys[i].path, path) == 0) {
            return &keys[i];
        }
    }
    return NULL;
}

bool config_is_section(const char *path)
{
    size_t len = strlen(path);

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (strncmp(keys[i].path, path, len) == 0 && keys[i].path[len] == '.') {
            return true;
        }
    }
    return false;
}

static const char *leaf_of(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot ? dot + 1 : path;
}

static const char *other_name(const char *leaf)
{
    for (size_t i = 0; i < ARRAY_LEN(other_names); i++) {
        if (strcmp(other_names[i][0], leaf) == 0) {
            return other_names[i][1];
        }
    }
    return NULL;
}

/* The key of that last name whose path is the most alike. */
static const char *same_leaf(const char *path, const char *leaf)
{
    const char *found = NULL;
    unsigned best = 0;

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        unsigned distance = str_distance(path, keys[i].path);

        if (strcmp(leaf_of(keys[i].path), leaf) == 0 && (!found || distance < best)) {
            found = keys[i].path;
            best = distance;
        }
    }
    return found;
}

/* The nearest of the names, where at least half of the text is right: of short names
 * everything is near. */
static const char *half_right(const char *text, const char *const *names, size_t n)
{
    const char *found = str_nearest(text, names, n);

    return found && str_distance(text, found) <= strlen(text) / 2 ? found : NULL;
}

static const char *near_section(const char *path)
{
    static const char *const sections[] = {"run",        "model",    "data",   "train",
                                           "optim",      "parallel", "eval",   "sample",
                                           "checkpoint", "log",      "device", "comm"};

    return strchr(path, '.') ? NULL : half_right(path, sections, ARRAY_LEN(sections));
}

/* "train" of "train.steps" when that is a section; returns its length, else 0. */
static size_t section_length(const char *path)
{
    char section[CONFIG_PATH_MAX];
    size_t len = strcspn(path, ".");

    if (path[len] != '.' || len >= sizeof(section)) {
        return 0;
    }
    memcpy(section, path, len);
    section[len] = '\0';
    return config_is_section(section) ? len : 0;
}

/* The key of the same section whose last name is near. */
static const char *near_in_section(const char *path)
{
    size_t len = section_length(path);
    const char *leaves[ARRAY_LEN(keys)];
    const char *paths[ARRAY_LEN(keys)];
    const char *leaf;
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(keys) && len > 0; i++) {
        if (strncmp(keys[i].path, path, len + 1) == 0) {
            paths[n] = keys[i].path;
            leaves[n++] = keys[i].path + len + 1;
        }
    }
    leaf = n > 0 ? str_nearest(path + len + 1, leaves, n) : NULL;
    for (size_t i = 0; i < n && leaf; i++) {
        if (leaves[i] == leaf) {
            return paths[i];
        }
    }
    return NULL;
}

const char *config_key_nearest(const char *path)
{
    const char *paths[ARRAY_LEN(keys)];
    const char *leaves[ARRAY_LEN(keys)];
    const char *leaf = leaf_of(path);
    const char *found = other_name(leaf);

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        paths[i] = keys[i].path;
        leaves[i] = leaf_of(keys[i].path);
    }
    found = found ? found : same_leaf(path, leaf);
    found = found ? found : near_section(path);
    found = found ? found : near_in_section(path);
    if (!found && section_length(path) == 0) {
        found = half_right(path, paths, ARRAY_LEN(keys));
    }
    if (!found) {
        leaf = half_right(leaf, leaves, ARRAY_LEN(keys));
        found = leaf ? same_leaf(path, leaf) : NULL;
    }
    return found;
}

void config_section_keys(const char *path, char *text, size_t size)
{
    size_t len = section_length(path);
    size_t used = 0;

    ASSERT(size > 0);
    text[0] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(keys) && len > 0; i++) {
        const char *comma = used > 0 ? ", " : "";
        const char *name = keys[i].path + len + 1;

        if (strncmp(keys[i].path, path, len + 1) != 0) {
            continue;
        }
        if (used + strlen(comma) + strlen(name) >= size) {
            return; /* half a name would be one that does not exist */
        }
        used += (size_t)snprintf(text + used, size - used, "%s%s", comma, name);
    }
}

static void describe_choices(const char *choices, char *text, size_t size)
{
    size_t used = strlen("one of ");

    ASSERT(size > used);
    (void)snprintf(text, size, "one of "); /* the table's texts fit */
    for (const char *c = choices; *c && used + 3 < size; c++) {
        if (*c == '|') {
            text[used++] = ',';
            text[used++] = ' ';
        } else {
            text[used++] = *c;
        }
    }
    text[used] = '\0';
}

void config_key_describe(const struct config_key *key, char *text, size_t size)
{
    static const char *const names[] = {
        [CONFIG_TEXT] = "a text",
        [CONFIG_CHOICE] = "",
        [CONFIG_TEXTS] = "a list of texts",
        [CONFIG_INT] = "an integer",
        [CONFIG_AUTO_INT] = "auto or an integer",
        [CONFIG_AUTO_TEXT] = "auto or an integer",
        [CONFIG_NUMBER] = "a number",
        [CONFIG_FRACTION] = "a number in [0, 1)",
        [CONFIG_PAIR] = "a list of two numbers in [0, 1)",
        [CONFIG_BOOL] = "true or false",
        [CONFIG_BOOL_TEXT] = "true, false or an integer",
        [CONFIG_INTERVAL] = "auto, a number of steps, or a time such as 30s, 10m, 2h",
    };

    if (key->type == CONFIG_CHOICE) {
        describe_choices(key->choices, text, size);
    } else {
        (void)snprintf(text, size, "%s", names[key->type]); /* the table's texts fit */
    }
}
