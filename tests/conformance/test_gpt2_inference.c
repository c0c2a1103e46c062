/* The model as it is used once it is trained: logits and new tokens. */

#include "tests/lib/cmocka.h"
#include "tests/lib/gpt2_rig.h"
#include "worker/model/generate.h"
#include "worker/model/gpt2_internal.h"

#include "common/mem.h"

#include <string.h>

static void inference_needs_less_memory_and_gives_the_same_logits(void **state)
{
    (void)state;
    struct gpt2_config config = gpt2_rig_small;
    config.inference_only = true;
    assert_true(gpt2_arena_bytes(&config) < gpt2_arena_bytes(&gpt2_rig_small) / 2);
    struct gpt2_rig train;
    struct gpt2_rig infer;
    assert_true(gpt2_rig_open(&train, &gpt2_rig_small, NULL, 1));
    assert_true(gpt2_rig_open(&infer, &config, NULL, 1));
    gpt2_rig_fill(&train, 7);
    size_t bytes = (size_t)config.model.vocab * sizeof(float);
    for (int pos = 0; pos < config.seq_len; pos++) {
        gpt2_logits(train.model, &(struct unit_params){.flat = train.params},
                    train.tokens, pos, train.logits);
        gpt2_logits(infer.model, &(struct unit_params){.flat = train.params},
                    train.tokens, pos, infer.logits);
        assert_memory_equal(train.logits, infer.logits, bytes);
    }
    gpt2_rig_close(&train);
    gpt2_rig_close(&infer);
}

static void later_tokens_do_not_change_earlier_logits(void **state)
{
    (void)state;
    struct gpt2_rig r;
    assert_true(gpt2_rig_open(&r, &gpt2_rig_small, NULL, 1));
    gpt2_rig_fill(&r, 8);
    struct gpt2_leaf leaf = gpt2_rig_leaf(&r);
    gpt2_forward_loss(r.model, &leaf);
    double before = *r.loss_sum;
    gpt2_logits(r.model, &(struct unit_params){.flat = r.params}, r.tokens, 3,
                r.logits);
    float *logits = mem_dup(r.logits, (size_t)r.config.model.vocab * sizeof(float));
    r.tokens[4] = (r.tokens[4] + 1) % r.config.model.vocab;
    gpt2_logits(r.model, &(struct unit_params){.flat = r.params}, r.tokens, 3,
                r.logits);
    assert_memory_equal(logits, r.logits, (size_t)r.config.model.vocab * sizeof(float));
    gpt2_forward_loss(r.model, &leaf);
    assert_true(*r.loss_sum != before);
    mem_free(logits);
    gpt2_rig_close(&r);
}

static struct unit_params flat_pass(void *arg)
{
    return (struct unit_params){.flat = arg};
}

/* At temperature 0 each new token is the likeliest after the last `window` tokens, of
 * those that may be chosen. */
static void check_generation(int n_tokens)
{
    struct gpt2_rig r;
    assert_true(gpt2_rig_open(&r, &gpt2_rig_small, NULL, 1));
    gpt2_rig_fill(&r, 9);
    struct generate_config config = {
        .model = r.model,
        .device = r.device,
        .pass = flat_pass,
        .arg = r.params,
        .sample = {.temperature = 0.0},
        .vocab = gpt2_rig_small.model.vocab,
        .n_tokens = n_tokens,
        .window = gpt2_rig_small.seq_len,
        .timeout_ms = 60000,
    };
    int32_t tokens[20] = {1, 2, 3};
    struct errmsg msg;
    assert_int_equal(generate(&config, tokens, 3, ARRAY_LEN(tokens), &msg), 0);
    for (size_t n = 3; n < ARRAY_LEN(tokens); n++) {
        int used = (int)MIN(n, (size_t)gpt2_rig_small.seq_len);
        gpt2_logits(r.model, &(struct unit_params){.flat = r.params},
                    tokens + n - (size_t)used, used - 1, r.logits);
        assert_in_range(tokens[n], 0, n_tokens - 1);
        for (int i = 0; i < n_tokens; i++) {
            assert_true(r.logits[tokens[n]] >= r.logits[i]);
        }
    }
    gpt2_rig_close(&r);
}

static void generation_continues_a_prompt_past_its_window(void **state)
{
    (void)state;
    check_generation(gpt2_rig_small.model.vocab);
    check_generation(4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inference_needs_less_memory_and_gives_the_same_logits),
        cmocka_unit_test(later_tokens_do_not_change_earlier_logits),
        cmocka_unit_test(generation_continues_a_prompt_past_its_window),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
