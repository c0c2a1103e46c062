#include "worker/evaluate.h"

#include "worker/model/generate.h"

#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TOKEN_TIMEOUT_MS = 60000, TEXT_MAX = 1024 * 1024, BYTES = 256 };

uint32_t evaluate_batches(const struct trainer *t)
{
    uint64_t available;

    if (!t->val_data) {
        return 0;
    }
    available = dataset_samples(t->val_data) / (uint64_t)t->config->train.micro_batch;
    return (uint32_t)MIN(available, (uint64_t)t->config->eval.batches);
}

/* Reads batch `batch` into the leaf's device buffers. `row` has seq_len + 1 elements.
 */
static int read_batch(struct trainer *t, uint32_t batch, int32_t *row,
                      struct errmsg *msg)
{
    size_t seq_len = (size_t)t->config->train.seq_len;
    size_t bytes = seq_len * sizeof(int32_t);

    for (size_t i = 0; i < (size_t)t->config->train.micro_batch; i++) {
        uint64_t sample = batch * (uint64_t)t->config->train.micro_batch + i;
        int rv = dataset_read(t->val_data, sample, row, msg);

        if (rv < 0) {
            return rv;
        }
        device_copy(t->device, QUEUE_COMPUTE, t->tokens + i * seq_len, row, bytes);
        device_copy(t->device, QUEUE_COMPUTE, t->targets + i * seq_len, row + 1, bytes);
    }
    return 0;
}

static int run_batch(struct trainer *t, uint32_t batch, int32_t *row,
                     struct errmsg *msg)
{
    struct gpt2_leaf leaf = {
        .tokens = t->tokens,
        .targets = t->targets,
        .params = t->strategy->pass(t->parallel, false),
        .loss_sum = losses_slot(t->val_losses, batch),
    };
    int rv = read_batch(t, batch, row, msg);

    if (rv == 0) {
        gpt2_forward_loss(t->model, &leaf);
    }
    return rv;
}

/* A team's ranks make the same number of passes. Where parameters are gathered, even a
 * rank without a batch has its part to give, once. */
static int run_batches(struct trainer *t, uint32_t n, struct errmsg *msg)
{
    const struct launch *l = t->launch;
    struct leaf_run run = leaf_run_of(n, l->world_size, t->parallel->team, l->rank);
    uint32_t rounds = leaf_run_rounds(n, l->world_size, t->parallel->team, l->rank);
    int32_t *row = mem_array((size_t)t->config->train.seq_len + 1, sizeof(*row));
    int rv = 0;

    rounds = MAX(rounds, t->parallel->gathers ? 1U : 0U);
    for (uint32_t i = 0; i < rounds && rv == 0; i++) {
        uint32_t batch = run.begin + i * run.stride;

        if (batch < run.end) {
            rv = run_batch(t, batch, row, msg);
        } else {
            parallel_idle(t->parallel, false);
        }
    }
    mem_free(row);
    return rv;
}

int evaluate(struct trainer *t, double *ret_loss, struct errmsg *msg)
{
    uint32_t n = evaluate_batches(t);
    unsigned flags;
    double sum = 0;
    int rv = run_batches(t, n, msg);

    if (rv == 0) {
        losses_exchange(t->val_losses, 0);
        rv = losses_finish(t->val_losses, t->timeout_ms, &sum, &flags, msg);
        *ret_loss = sum / ((double)n * (double)t->config->train.micro_batch *
                           (double)t->config->train.seq_len);
    }
    return rv;
}

int evaluate_check(const struct trainer *t, struct errmsg *msg)
{
    if (t->val_data && t->config->eval.every > 0 && evaluate_batches(t) == 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "data.val has only %" PRIu64 " samples, train.micro_batch is "
                          "%lld: give it more data, or eval.every=0",
                          dataset_samples(t->val_data),
                          (long long)t->config->train.micro_batch);
    }
    if (t->config->sample.every == 0 || t->config->model.vocab <= BYTES ||
        dataset_is_text(t->train_data)) {
        return 0;
    }
    return errmsg_set(msg, ERR_UNSUPPORTED,
                      "sample.every=%lld: data.tokenizer=bytes cannot make a text of "
                      "data.train's 16-bit tokens; use sample.every=0",
                      (long long)t->config->sample.every);
}

void evaluate_warn(const struct trainer *t)
{
    if (t->config->model.vocab > BYTES && dataset_is_text(t->train_data)) {
        (void)fprintf(stderr,
                      "ctrun-worker: model.vocab is %lld, but data.tokenizer=bytes has "
                      "only %d tokens: the rest is never learnt nor sampled; "
                      "model.vocab=%d is smaller and faster\n",
                      (long long)t->config->model.vocab, BYTES, BYTES);
    }
}

static struct unit_params pass_of(void *arg)
{
    const struct trainer *t = arg;

    return t->strategy->pass(t->parallel, false);
}

/* Rank 0 computes; those that hold shards of its parameters give them for each token. */
static int share_params(struct trainer *t, struct errmsg *msg)
{
    bool shares = t->parallel->gathers && mesh_replica(&t->mesh, t->launch->rank) == 0;
    int rv = 0;

    for (int64_t i = 0; i < t->config->sample.tokens && shares && rv == 0; i++) {
        parallel_idle(t->parallel, false);
        rv = device_finish(t->device, device_mark(t->device, QUEUE_COMPUTE),
                           TOKEN_TIMEOUT_MS, msg);
    }
    return rv;
}

static int print_sample(struct trainer *t, struct errmsg *msg)
{
    const char *prompt = t->config->sample.prompt[0] ? t->config->sample.prompt : "\n";
    size_t n_prompt = strlen(prompt);
    size_t n = n_prompt + (size_t)t->config->sample.tokens;
    struct generate_config config = {
        .model = t->model,
        .device = t->device,
        .pass = pass_of,
        .arg = t,
        .sample = {.temperature = t->config->sample.temperature,
                   .top_k = (int)t->config->sample.top_k,
                   .seed = (uint64_t)t->config->train.seed},
        .vocab = (int)t->config->model.vocab,
        .n_tokens = (int)MIN(t->config->model.vocab, BYTES),
        .window = (int)t->config->train.seq_len,
        .timeout_ms = TOKEN_TIMEOUT_MS,
    };
    int32_t *tokens = mem_array(n, sizeof(*tokens));
    struct buf text;
    int rv;

    for (size_t i = 0; i < n_prompt; i++) {
        tokens[i] = (unsigned char)prompt[i];
    }
    buf_init(&text, TEXT_MAX);
    rv = generate(&config, tokens, n_prompt, n, msg);
    rv = rv < 0 ? rv : sample_text(tokens, n, &text);
    if (rv == 0) {
        (void)printf("--- sample at step %" PRIu64 " ---\n%.*s\n---\n", t->step,
                     (int)buf_len(&text), (const char *)buf_bytes(&text));
        (void)fflush(stdout);
    }
    buf_release(&text);
    mem_free(tokens);
    return rv;
}

int evaluate_sample(struct trainer *t, struct errmsg *msg)
{
    return trainer_leads(t) ? print_sample(t, msg) : share_params(t, msg);
}
