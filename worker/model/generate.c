/* Continues a prompt, token by token. See generate.h.
 *
 * Happy path of a token: the last `window` tokens to the device → logits of the last
 * one → back to the host → sample. The device memory lives as long as the call. */

#include "worker/model/generate.h"

#include "common/mem.h"

struct scratch {
    void *window; /* int32_t (window) */
    void *logits; /* float (vocab), device */
    void *host;   /* float (vocab), read by sample_token */
};

static size_t window_bytes(const struct generate_config *c)
{
    return (size_t)c->window * sizeof(int32_t);
}

static size_t logits_bytes(const struct generate_config *c)
{
    return (size_t)c->vocab * sizeof(float);
}

static void scratch_release(struct scratch *s, const struct generate_config *c)
{
    if (s->window != NULL) {
        device_free(c->device, s->window, window_bytes(c));
    }
    if (s->logits != NULL) {
        device_free(c->device, s->logits, logits_bytes(c));
    }
    mem_free(s->host);
}

static int scratch_init(struct scratch *s, const struct generate_config *c,
                        struct errmsg *msg)
{
    *s = (struct scratch){.host = mem_alloc(logits_bytes(c))};
    int rc = device_alloc(c->device, window_bytes(c), &s->window);
    rc = rc != 0 ? rc : device_alloc(c->device, logits_bytes(c), &s->logits);
    if (rc != 0) {
        scratch_release(s, c);
        return errmsg_set(msg, rc, "no memory to sample a text");
    }
    return 0;
}

static int next_token(const struct generate_config *c, struct scratch *s,
                      int32_t *tokens, size_t n, struct errmsg *msg)
{
    struct unit_params params = c->pass(c->arg);
    size_t used = MIN(n, (size_t)c->window);
    device_copy(c->device, QUEUE_COMPUTE, s->window, tokens + (n - used),
                used * sizeof(int32_t));
    gpt2_logits(c->model, &params, s->window, (int)used - 1, s->logits);
    device_copy(c->device, QUEUE_COMPUTE, s->host, s->logits, logits_bytes(c));
    int rc = device_finish(c->device, device_mark(c->device, QUEUE_COMPUTE),
                           c->timeout_ms, msg);
    if (rc != 0) {
        return rc;
    }
    tokens[n] = sample_token(&c->sample, s->host, c->n_tokens, n);
    return 0;
}

int generate(const struct generate_config *config, int32_t *tokens, size_t n_prompt,
             size_t n_total, struct errmsg *msg)
{
    ASSERT(n_prompt >= 1 && config->window >= 1);
    ASSERT(config->n_tokens >= 1 && config->n_tokens <= config->vocab);
    struct scratch s;
    int rc = scratch_init(&s, config, msg);
    if (rc != 0) {
        return rc;
    }
    for (size_t n = n_prompt; n < n_total && rc == 0; n++) {
        rc = next_token(config, &s, tokens, n, msg);
    }
    scratch_release(&s, config);
    return rc;
}
