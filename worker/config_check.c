#include "worker/config.h"

#include "common/str.h"

#include <float.h>
#include <string.h>

/* What no single key can know: values that go with others, and values that are
 * understood but not built. Each refusal names the key, the value and what to do. */

typedef int (*check_cb)(const struct train_config *c, struct errmsg *msg);

static int refuse(struct errmsg *msg, const char *key, const char *value,
                  const char *remedy)
{
    return errmsg_set(msg, ERR_UNSUPPORTED, "%s: \"%s\" is not supported yet; use %s",
                      key, value, remedy);
}

static int refuse_int(struct errmsg *msg, const char *key, int64_t value,
                      const char *remedy)
{
    return errmsg_set(msg, ERR_UNSUPPORTED, "%s: %lld is not supported yet; use %s",
                      key, (long long)value, remedy);
}

static bool is(const char *value, const char *wanted)
{
    return strcmp(value, wanted) == 0;
}

static int check_model(const struct train_config *c, struct errmsg *msg)
{
    if (!is(c->model.family, "gpt2")) {
        return refuse(msg, "model.family", c->model.family, "gpt2");
    }
    if (c->model.kv_heads != c->model.heads) {
        return errmsg_set(
            msg, ERR_UNSUPPORTED,
            "model.kv_heads: %lld is not supported yet; use model.heads (%lld), or 0",
            (long long)c->model.kv_heads, (long long)c->model.heads);
    }
    if (c->model.dim % c->model.heads != 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "model.dim (%lld) is not a multiple of model.heads (%lld)",
                          (long long)c->model.dim, (long long)c->model.heads);
    }
    return 0;
}

static int check_data(const struct train_config *c, struct errmsg *msg)
{
    if (is(c->data.format, "megatron")) {
        return refuse(msg, "data.format", c->data.format, "auto, text, u16 or llmc");
    }
    if (!is(c->data.tokenizer, "bytes")) {
        return refuse(msg, "data.tokenizer", c->data.tokenizer, "bytes");
    }
    if (is(c->data.format, "text") && c->model.vocab < 256) {
        return errmsg_set(msg, ERR_INVALID,
                          "model.vocab (%lld) is less than the 256 tokens of "
                          "data.format=text with data.tokenizer=bytes",
                          (long long)c->model.vocab);
    }
    return 0;
}

/* A sequence's attention probabilities, rows of whole quarters, each with a number: see
 * struct dropout of kernels.h. A sequence so short has no more numbers elsewhere. */
static bool can_drop(int64_t heads, int64_t seq_len)
{
    return heads * seq_len * ((seq_len + 3) / 4 * 4) <= INT64_C(1) << 34;
}

bool config_scales_loss(const struct train_config *c)
{
    return is(c->train.grad_scaler, "auto") ? is(c->train.precision, "fp16")
                                            : is(c->train.grad_scaler, "true");
}

/* The scale is fp32: so near to 1 a factor changes nothing. */
static int check_scaler(const struct train_config *c, struct errmsg *msg)
{
    if (c->train.growth_factor < 1 + (double)FLT_EPSILON) {
        return errmsg_set(msg, ERR_INVALID,
                          "train.growth_factor (%g) must be above 1: the loss scale "
                          "could never grow again",
                          c->train.growth_factor);
    }
    if (c->train.backoff_factor <= 0) {
        return errmsg_set(
            msg, ERR_INVALID,
            "train.backoff_factor (%g) must be above 0: an overflow would "
            "leave no loss scale",
            c->train.backoff_factor);
    }
    if (c->train.backoff_factor > 1 - (double)FLT_EPSILON) {
        return errmsg_set(
            msg, ERR_INVALID,
            "train.backoff_factor (%g) must be below 1: an overflow would "
            "leave the loss scale as it is",
            c->train.backoff_factor);
    }
    return 0;
}

static int check_train(const struct train_config *c, struct errmsg *msg)
{
    if (c->train.seq_len > c->model.context) {
        return errmsg_set(msg, ERR_INVALID,
                          "train.seq_len (%lld) is larger than model.context (%lld)",
                          (long long)c->train.seq_len, (long long)c->model.context);
    }
    if (c->model.dropout > 0 && !can_drop(c->model.heads, c->train.seq_len)) {
        return errmsg_set(msg, ERR_UNSUPPORTED,
                          "model.dropout=%g: model.heads (%lld) times the square of "
                          "train.seq_len (%lld) is above 2^34, more than dropout can "
                          "number; use shorter sequences, or model.dropout=0",
                          c->model.dropout, (long long)c->model.heads,
                          (long long)c->train.seq_len);
    }
    if (c->train.global_batch % c->train.micro_batch != 0) {
        return errmsg_set(
            msg, ERR_INVALID,
            "train.global_batch (%lld) is not a multiple of train.micro_batch (%lld)",
            (long long)c->train.global_batch, (long long)c->train.micro_batch);
    }
    if (c->train.leaves_in_place != 1) {
        return refuse_int(msg, "train.leaves_in_place", c->train.leaves_in_place, "1");
    }
    return check_scaler(c, msg);
}

static int check_optim(const struct train_config *c, struct errmsg *msg)
{
    if (!is(c->optim.name, "adamw")) {
        return refuse(msg, "optim.name", c->optim.name, "adamw");
    }
    if (!is(c->optim.schedule, "constant") && c->optim.lr < c->optim.min_lr) {
        return errmsg_set(
            msg, ERR_INVALID,
            "optim.lr (%g) is below optim.min_lr (%g, which does not follow it): the "
            "rate would rise to the end; set optim.min_lr, too, to %g for instance, or "
            "optim.schedule=constant",
            c->optim.lr, c->optim.min_lr, c->optim.lr / 10);
    }
    return 0;
}

/* The number that the words are not; whether it fits the mesh is known later. */
static int check_reshard(const struct train_config *c, struct errmsg *msg)
{
    const char *value = c->parallel.reshard_after_forward;

    if (is(value, "true") || is(value, "false") || is(c->parallel.strategy, "fsdp") ||
        is(c->parallel.strategy, "hsdp")) {
        return 0;
    }
    return errmsg_set(
        msg, ERR_INVALID,
        "parallel.reshard_after_forward=%s: parallel.strategy=%s drops no "
        "weights after use; set it to true, or take fsdp or hsdp",
        value, c->parallel.strategy);
}

static int check_parallel(const struct train_config *c, struct errmsg *msg)
{
    if (c->parallel.tp != 1) {
        return refuse_int(msg, "parallel.tp", c->parallel.tp, "1");
    }
    if (c->parallel.pp != 1) {
        return refuse_int(msg, "parallel.pp", c->parallel.pp, "1");
    }
    if (c->parallel.offload) {
        return refuse(msg, "parallel.offload", "true",
                      "false: the CPU's own memory is the host's");
    }
    return check_reshard(c, msg);
}

/* Of what goes to terminals. */
static bool has_control_characters(const char *text)
{
    for (const char *c = text; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f) {
            return true;
        }
    }
    return false;
}

/* run.name is one folder's name. */
static int check_name(const char *name, struct errmsg *msg)
{
    bool is_bad = name[0] == '\0' || strcmp(name, ".") == 0 ||
                  strcmp(name, "..") == 0 || strchr(name, '/') ||
                  has_control_characters(name);

    return is_bad
               ? errmsg_set(msg, ERR_INVALID,
                            "run.name must be a folder's name without '/' or control "
                            "characters; run.dir says where it lies")
               : 0;
}

static int check_dirs(const struct train_config *c, struct errmsg *msg)
{
    if (c->run.dir[0] == '\0' || c->checkpoint.dir[0] == '\0') {
        return errmsg_set(msg, ERR_INVALID,
                          "run.dir and checkpoint.dir must not be empty");
    }
    return has_control_characters(c->run.dir) ||
                   has_control_characters(c->checkpoint.dir)
               ? errmsg_set(msg, ERR_INVALID,
                            "run.dir and checkpoint.dir must be paths without control "
                            "characters")
               : 0;
}

/* A prompt's bytes are tokens; an empty one begins with a newline. */
static int check_sample(const struct train_config *c, struct errmsg *msg)
{
    const char *prompt = c->sample.prompt[0] ? c->sample.prompt : "\n";

    for (const char *p = prompt; *p && c->sample.every > 0; p++) {
        if ((unsigned char)*p >= c->model.vocab) {
            return errmsg_set(
                msg, ERR_INVALID,
                "sample.prompt holds byte %d, but model.vocab is %lld: give a "
                "prompt of smaller bytes, or sample.every=0",
                (unsigned char)*p, (long long)c->model.vocab);
        }
    }
    return 0;
}

static int check_machine(const struct train_config *c, struct errmsg *msg)
{
    if (is(c->device.kind, "cuda")) {
        return refuse(msg, "device.kind", c->device.kind, "cpu or auto");
    }
    if (is(c->comm.kind, "nccl")) {
        return refuse(msg, "comm.kind", c->comm.kind, "auto, shm or tcp");
    }
    return 0;
}

static int check_run(const struct train_config *c, struct errmsg *msg)
{
    int rv = check_name(c->run.name, msg); /* first: by default run.dir ends in it */

    return rv < 0 ? rv : check_dirs(c, msg);
}

/* The best are known by their val_loss. */
static int check_checkpoint(const struct train_config *c, struct errmsg *msg)
{
    if (c->checkpoint.keep_best > 0 && (c->data.val.n == 0 || c->eval.every == 0)) {
        return errmsg_set(msg, ERR_INVALID,
                          "checkpoint.keep_best=%lld needs a val_loss: set %s, or "
                          "keep_best to 0",
                          (long long)c->checkpoint.keep_best,
                          c->data.val.n == 0 ? "data.val" : "eval.every");
    }
    if (c->checkpoint.keep == 0 &&
        (c->checkpoint.keep_best > 0 || c->checkpoint.keep_every > 0)) {
        return errmsg_set(msg, ERR_INVALID,
                          "checkpoint.keep=0 keeps all, so checkpoint.keep_every and "
                          "keep_best choose nothing: set keep to 1 or more, or them to "
                          "0");
    }
    return 0;
}

int config_check(const struct train_config *config, struct errmsg *msg)
{
    static const check_cb checks[] = {check_model, check_data,     check_train,
                                      check_optim, check_parallel, check_machine,
                                      check_run,   check_sample,   check_checkpoint};
    int rv = 0;

    for (size_t i = 0; i < ARRAY_LEN(checks) && rv == 0; i++) {
        rv = checks[i](config, msg);
    }
    return rv;
}
