/* What holds for the model's forward and backward on every instruction set and for
 * every number of threads. Its numbers are compared with PyTorch's in
 * test_gpt2_torch.c. */

#include "tests/lib/cmocka.h"
#include "tests/lib/fixture.h"
#include "tests/lib/gpt2_rig.h"
#include "worker/model/gpt2_internal.h"
#include "worker/model/init.h"

#include "common/mem.h"

#include <math.h>
#include <string.h>

static const char *const isas[] = {"scalar", "avx2", "avx512"};

/* Odd sizes, and more than one tile of every matmul. */
static const struct gpt2_config odd = {
    .model = {.family = "gpt2",
              .layers = 2,
              .heads = 3,
              .dim = 105,
              .context = 150,
              .vocab = 517},
    .batch = 2,
    .seq_len = 149,
};

/* Blocks of attention that are cut, rows that are no whole quarters. */
static const struct gpt2_config ragged = {
    .model = {.family = "gpt2",
              .layers = 3,
              .heads = 3,
              .dim = 21,
              .context = 67,
              .vocab = 101},
    .batch = 2,
    .seq_len = 67,
};

struct result {
    double loss;
    size_t n, n_head;
    float *grads, *head;
};

static struct result result_of(struct gpt2_rig *r)
{
    struct result ret = {.n = r->layout.size, .n_head = gpt2_rig_head_size(r)};
    /* leftovers must not show through: every element is written */
    memset(r->grad_head, 0x7F, ret.n_head * sizeof(float));
    ret.loss = gpt2_rig_run(r);
    ret.grads = mem_dup(r->grads, ret.n * sizeof(float));
    ret.head = mem_dup(r->grad_head, ret.n_head * sizeof(float));
    return ret;
}

static void result_release(struct result *r)
{
    mem_free(r->grads);
    mem_free(r->head);
}

static void expect_same_bits(const struct result *a, const struct result *b)
{
    assert_memory_equal(&a->loss, &b->loss, sizeof(a->loss));
    assert_memory_equal(a->grads, b->grads, a->n * sizeof(float));
    assert_memory_equal(a->head, b->head, a->n_head * sizeof(float));
}

/* False when this machine lacks the instruction set. */
static bool run_odd(const char *isa, int threads, struct result *ret)
{
    struct gpt2_rig r;
    if (!gpt2_rig_open(&r, &odd, isa, threads)) {
        return false;
    }
    gpt2_rig_fill(&r, 1);
    *ret = result_of(&r);
    gpt2_rig_close(&r);
    return true;
}

static void expect_threads_change_nothing(const char *isa)
{
    struct result one = {0};
    if (!run_odd(isa, 1, &one)) {
        assert_string_not_equal(isa, "scalar"); /* every machine has it */
        return;
    }
    for (int threads = 2; threads <= 3; threads++) {
        struct result more = {0};
        assert_true(run_odd(isa, threads, &more));
        expect_same_bits(&one, &more);
        result_release(&more);
    }
    result_release(&one);
}

static void threads_do_not_change_a_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
        expect_threads_change_nothing(isas[i]);
    }
}

static void a_leaf_gives_the_same_bits_again_and_in_another_object(void **state)
{
    (void)state;
    struct gpt2_rig a;
    struct gpt2_rig b;
    assert_true(gpt2_rig_open(&a, &odd, NULL, 2));
    gpt2_rig_fill(&a, 2);
    struct result first = result_of(&a);
    gpt2_rig_fill(&a, 3); /* another leaf in between */
    struct result other = result_of(&a);
    assert_true(memcmp(first.grads, other.grads, first.n * sizeof(float)) != 0);
    gpt2_rig_fill(&a, 2);
    struct result again = result_of(&a);
    expect_same_bits(&first, &again);

    assert_true(gpt2_rig_open(&b, &odd, NULL, 2));
    gpt2_rig_fill(&b, 2);
    struct result elsewhere = result_of(&b);
    expect_same_bits(&first, &elsewhere);
    result_release(&first);
    result_release(&other);
    result_release(&again);
    result_release(&elsewhere);
    gpt2_rig_close(&a);
    gpt2_rig_close(&b);
}

static const enum gpt2_recompute recomputes[] = {RECOMPUTE_BLOCK, RECOMPUTE_SELECTIVE};

static struct gpt2_config dropped(struct gpt2_config config)
{
    config.dropout = 0.2;
    config.seed = 1337;
    return config;
}

static struct gpt2_config in_precision(struct gpt2_config config, enum dtype dtype)
{
    config.precision = dtype;
    return config;
}

/* Spoiled before the run: nothing of an earlier one helps. */
static struct result result_of_config(const struct gpt2_config *config, const char *isa)
{
    struct result ret = {0};
    struct gpt2_rig r;
    if (gpt2_rig_open(&r, config, isa, 2)) {
        gpt2_rig_fill(&r, 10);
        memset(r.model->arena, 0xFF, r.model->arena_bytes);
        ret = result_of(&r);
        gpt2_rig_close(&r);
    }
    return ret;
}

static void expect_recomputing_changes_nothing(struct gpt2_config config)
{
    for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
        config.recompute = RECOMPUTE_NONE;
        struct result kept = result_of_config(&config, isas[i]);
        for (size_t j = 0; j < ARRAY_LEN(recomputes) && kept.grads != NULL; j++) {
            config.recompute = recomputes[j];
            struct result again = result_of_config(&config, isas[i]);
            expect_same_bits(&kept, &again);
            result_release(&again);
        }
        result_release(&kept);
    }
}

static void recomputing_does_not_change_a_bit(void **state)
{
    (void)state;
    expect_recomputing_changes_nothing(ragged);
    expect_recomputing_changes_nothing(dropped(ragged));
    expect_recomputing_changes_nothing(in_precision(ragged, DTYPE_BF16));
    expect_recomputing_changes_nothing(dropped(in_precision(ragged, DTYPE_FP16)));
}

/* In floats of a row: the block's input is C; the rest 15 C + H + 4, of which the norms'
 * outputs and statistics and gelu's output, 6 C + 4, are cheap. */
static void recomputing_needs_the_memory_of_what_is_kept(void **state)
{
    (void)state;
    struct gpt2_config config = {.model = {.family = "gpt2",
                                           .layers = 5,
                                           .heads = 4,
                                           .dim = 64,
                                           .context = 64,
                                           .vocab = 100},
                                 .batch = 2,
                                 .seq_len = 64};
    size_t rows = 128;
    size_t others = 4; /* blocks beside the one that has it all */
    size_t none = gpt2_arena_bytes(&config);
    config.recompute = RECOMPUTE_SELECTIVE;
    size_t selective = gpt2_arena_bytes(&config);
    config.recompute = RECOMPUTE_BLOCK;
    size_t block = gpt2_arena_bytes(&config);
    assert_int_equal(none - selective, others * rows * (6 * 64 + 4) * sizeof(float));
    assert_int_equal(none - block, others * rows * (15 * 64 + 4 + 4) * sizeof(float));
}

/* One leaf of `n` sequences from stream position `first` on, of the fill of `all`. */
static double loss_at(struct gpt2_rig *r, const struct gpt2_rig *all, int first)
{
    struct gpt2_leaf leaf = gpt2_rig_leaf(r);
    size_t at = (size_t)first * (size_t)r->config.seq_len;
    leaf.tokens = all->tokens + at;
    leaf.targets = all->targets + at;
    leaf.params.flat = all->params;
    leaf.position = 1000 + (uint64_t)first;
    gpt2_forward_backward(r->model, &leaf);
    return *r->loss_sum;
}

static void dropout_follows_the_sample_into_whatever_leaf_it_is_put(void **state)
{
    (void)state;
    struct gpt2_config config = dropped(gpt2_rig_small);
    struct gpt2_rig two;
    struct gpt2_rig one;
    assert_true(gpt2_rig_open(&two, &config, NULL, 1));
    config.batch = 1;
    assert_true(gpt2_rig_open(&one, &config, NULL, 1));
    gpt2_rig_fill(&two, 11);
    double together = loss_at(&two, &two, 0);
    double apart = loss_at(&one, &two, 0) + loss_at(&one, &two, 1);
    assert_true(fabs(together - apart) <= 1e-5 * together);
    double first = loss_at(&one, &two, 0);
    struct gpt2_leaf leaf = gpt2_rig_leaf(&one);
    leaf.tokens = two.tokens;
    leaf.targets = two.targets;
    leaf.params.flat = two.params;
    leaf.position = 1001; /* the same tokens, seen again later */
    gpt2_forward_backward(one.model, &leaf);
    assert_true(fabs(*one.loss_sum - first) > 1e-3 * first);
    gpt2_rig_close(&two);
    gpt2_rig_close(&one);
}

static void nothing_is_dropped_in_evaluation_and_sampling(void **state)
{
    (void)state;
    struct gpt2_config config = dropped(gpt2_rig_small);
    size_t bytes = (size_t)config.model.vocab * sizeof(float);
    struct gpt2_rig with;
    struct gpt2_rig without;
    assert_true(gpt2_rig_open(&with, &config, NULL, 1));
    assert_true(gpt2_rig_open(&without, &gpt2_rig_small, NULL, 1));
    gpt2_rig_fill(&with, 12);
    gpt2_rig_fill(&without, 12);
    assert_true(gpt2_rig_run(&with) != gpt2_rig_run(&without)); /* training does */
    struct gpt2_leaf leaf = gpt2_rig_leaf(&with);
    gpt2_forward_loss(with.model, &leaf);
    assert_memory_equal(with.loss_sum, without.loss_sum, sizeof(double));
    gpt2_logits(with.model, &leaf.params, with.tokens, 5, with.logits);
    gpt2_logits(without.model, &leaf.params, with.tokens, 5, without.logits);
    assert_memory_equal(with.logits, without.logits, bytes);
    gpt2_rig_close(&with);
    gpt2_rig_close(&without);
}

struct asked {
    const struct gpt2_rig *rig;
    int n[16];   /* times that a unit was asked for */
    bool is_out; /* a unit is asked for and not given back */
    bool is_alone;
};

static const float *on_params_begin(void *arg, int unit)
{
    struct asked *a = arg;
    a->n[unit]++;
    a->is_alone = a->is_alone && !a->is_out;
    a->is_out = true;
    return a->rig->params + a->rig->layout.unit[unit].offset;
}

static void on_params_end(void *arg, int unit)
{
    struct asked *a = arg;
    (void)unit;
    a->is_out = false;
}

static void recomputing_asks_for_a_units_parameters_no_more_often(void **state)
{
    (void)state;
    for (size_t j = 0; j < ARRAY_LEN(recomputes); j++) {
        struct gpt2_config config = gpt2_rig_small;
        struct gpt2_rig r;
        config.recompute = recomputes[j];
        assert_true(gpt2_rig_open(&r, &config, NULL, 1));
        gpt2_rig_fill(&r, 4);
        struct asked asked = {.rig = &r, .is_alone = true};
        struct gpt2_leaf leaf = gpt2_rig_leaf(&r);
        leaf.params = (struct unit_params){
            .begin = on_params_begin, .end = on_params_end, .arg = &asked};
        gpt2_forward_backward(r.model, &leaf);
        assert_true(asked.is_alone);
        for (int i = 0; i < r.layout.n_units; i++) {
            assert_int_equal(asked.n[i], 2);
        }
        gpt2_rig_close(&r);
    }
}

struct units {
    struct gpt2_rig *rig;
    int seen[16];
    int n;
    bool written; /* the unit's gradient differs from the mark when it is told */
};

static void on_unit(void *arg, int unit)
{
    struct units *u = arg;
    const struct unit *which = &u->rig->layout.unit[unit];
    u->seen[u->n++] = unit;
    for (int i = 0; i < which->n_tensors; i++) {
        const float *g = u->rig->grads + which->offset + which->tensor[i].offset;
        u->written =
            u->written && isfinite(g[0]) && isfinite(g[which->tensor[i].size - 1]);
    }
    u->written = u->written && isfinite(u->rig->grad_head[0]);
}

static void units_are_told_from_the_last_to_the_first_when_written(void **state)
{
    (void)state;
    struct gpt2_rig r;
    assert_true(gpt2_rig_open(&r, &gpt2_rig_small, NULL, 1));
    gpt2_rig_fill(&r, 4);
    memset(r.grads, 0xFF, r.layout.size * sizeof(float)); /* NaN */
    memset(r.grad_head, 0xFF, gpt2_rig_head_size(&r) * sizeof(float));
    struct units units = {.rig = &r, .written = true};
    struct gpt2_leaf leaf = gpt2_rig_leaf(&r);
    leaf.grads.end = on_unit;
    leaf.grads.arg = &units;
    gpt2_forward_backward(r.model, &leaf);
    assert_true(units.written);
    assert_int_equal(units.n, 5);
    for (int i = 0; i < units.n; i++) {
        assert_int_equal(units.seen[i], 4 - i);
    }
    gpt2_rig_close(&r);
}

static void first_loss_is_the_logarithm_of_the_vocabulary(void **state)
{
    (void)state;
    struct gpt2_config config = odd;
    config.model.vocab = 5003;
    struct gpt2_rig r;
    assert_true(gpt2_rig_open(&r, &config, NULL, 2));
    gpt2_rig_fill(&r, 5);
    init_params(&r.layout, 1337, config.model.layers, r.params);
    double expected = log(config.model.vocab);
    assert_true(fabs(gpt2_rig_run(&r) - expected) <= 0.05 * expected);
    gpt2_rig_close(&r);
}

/* The head works on rows in chunks; small leaves of the same rows have one chunk each.
 */
static void a_chunked_head_gives_the_gradient_of_small_leaves(void **state)
{
    (void)state;
    struct gpt2_config config = gpt2_rig_small;
    config.model.vocab = 300007;
    config.model.dim = 4;
    config.model.layers = 1;
    config.batch = 10;
    struct gpt2_config one = config;
    one.batch = 1;
    assert_true(gpt2_head_rows(&config) < config.batch * config.seq_len);
    assert_int_equal(gpt2_head_rows(&one), one.seq_len);

    struct gpt2_rig all;
    struct gpt2_rig part;
    assert_true(gpt2_rig_open(&all, &config, NULL, 2));
    assert_true(gpt2_rig_open(&part, &one, NULL, 2));
    gpt2_rig_fill(&all, 6);
    struct result whole = result_of(&all);
    struct result sum = {.n = whole.n, .n_head = whole.n_head};
    sum.grads = mem_array(sum.n, sizeof(float));
    sum.head = mem_array(sum.n_head, sizeof(float));
    for (int i = 0; i < config.batch; i++) {
        struct gpt2_leaf leaf = gpt2_rig_leaf(&part);
        leaf.tokens = all.tokens + (size_t)i * (size_t)config.seq_len;
        leaf.targets = all.targets + (size_t)i * (size_t)config.seq_len;
        leaf.params.flat = all.params;
        leaf.loss_scale = 1.0F / (float)gpt2_rig_rows(&all);
        gpt2_forward_backward(part.model, &leaf);
        sum.loss += *part.loss_sum;
        for (size_t j = 0; j < sum.n; j++) {
            sum.grads[j] += part.grads[j];
        }
        for (size_t j = 0; j < sum.n_head; j++) {
            sum.head[j] += part.grad_head[j];
        }
    }
    sum.loss /= gpt2_rig_rows(&all);
    assert_true(fabs(sum.loss - whole.loss) <= 1e-6 * whole.loss);
    assert_true(fixture_distance(whole.grads, sum.grads, sum.n) <= 1e-5);
    assert_true(fixture_distance(whole.head, sum.head, sum.n_head) <= 1e-5);
    result_release(&whole);
    result_release(&sum);
    gpt2_rig_close(&all);
    gpt2_rig_close(&part);
}

static void unfit_shapes_are_refused_by_key(void **state)
{
    (void)state;
    struct gpt2_rig r;
    struct gpt2 *model;
    struct errmsg msg;
    assert_true(gpt2_rig_open(&r, &gpt2_rig_small, NULL, 1));
    struct gpt2_config config = gpt2_rig_small;
    config.seq_len = config.model.context + 1;
    assert_int_equal(gpt2_new(&config, &r.layout, r.device, &model, &msg), ERR_INVALID);
    assert_non_null(strstr(msg.text, "train.seq_len=10"));
    assert_non_null(strstr(msg.text, "model.context=9"));
    config = gpt2_rig_small;
    config.batch = 0;
    assert_int_equal(gpt2_new(&config, &r.layout, r.device, &model, &msg), ERR_INVALID);
    assert_non_null(strstr(msg.text, "train.micro_batch=0"));
    gpt2_rig_close(&r);
}

/* The rest's gradients have the bits that they have without. */
static void check_frozen(const char *const *patterns, size_t n, bool is_head)
{
    struct gpt2_rig r;
    struct errmsg msg;
    assert_true(gpt2_rig_open(&r, &gpt2_rig_small, NULL, 2));
    gpt2_rig_fill(&r, 5);
    struct result all = result_of(&r);
    memset(r.grads, 0, all.n * sizeof(float)); /* padding is written by nobody */
    for (int i = 0; i < r.layout.n_units; i++) {
        const struct unit *u = &r.layout.unit[i];
        for (int j = 0; j < u->n_tensors; j++) { /* leftovers must not show through */
            memset(r.grads + u->offset + u->tensor[j].offset, 0x7F,
                   u->tensor[j].size * sizeof(float));
        }
    }
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(layout_freeze(&r.layout, patterns[i], &msg), 0);
    }
    struct result some = result_of(&r);
    for (int i = 0; i < r.layout.n_units; i++) {
        const struct unit *u = &r.layout.unit[i];
        for (int j = 0; j < u->n_tensors; j++) {
            const struct tensor *t = &u->tensor[j];
            if (t->frozen) {
                memset(all.grads + u->offset + t->offset, 0, t->size * sizeof(float));
            }
        }
    }
    if (is_head) {
        memset(all.head, 0, all.n_head * sizeof(float));
    }
    expect_same_bits(&all, &some);
    result_release(&all);
    result_release(&some);
    gpt2_rig_close(&r);
}

static void frozen_tensors_have_no_gradient_and_change_no_other(void **state)
{
    (void)state;
    static const char *const lower[] = {"w?e.weight", "h.0.*", "h.1.*",
                                        "h.2.ln_1.weight"};
    static const char *const upper[] = {"h.2.*", "ln_f.*"};
    check_frozen(lower, ARRAY_LEN(lower), true);
    check_frozen(lower, 1, true); /* the embedding alone */
    check_frozen(upper, ARRAY_LEN(upper), false);
    check_frozen((const char *const[]){"*.weight"}, 1, true);
    check_frozen((const char *const[]){"*.bias"}, 1, false);
}

static void flops_are_those_of_palms_formula(void **state)
{
    (void)state;
    struct gpt2_config config = {.model = {.family = "gpt2",
                                           .layers = 12,
                                           .heads = 12,
                                           .dim = 768,
                                           .context = 1024,
                                           .vocab = 50257},
                                 .batch = 4,
                                 .seq_len = 64};
    struct layout l;
    struct errmsg msg;
    assert_int_equal(layout_gpt2(&config.model, &l, &msg), 0);
    /* 256 tokens · (6 · (84,934,656 + 38,597,376) + 12 · 12 · 768 · 64) */
    assert_int_equal(gpt2_flops_per_leaf(&config, &l), 191557140480);
    assert_int_equal(layout_freeze(&l, "w?e.weight", &msg), 0);
    assert_int_equal(layout_freeze(&l, "h.[0-4].*", &msg), 0);
    /* less 256 · (5 · (4 · 7,077,888 + 8 · 768 · 64) + 2 · 38,597,376) */
    assert_int_equal(gpt2_flops_per_leaf(&config, &l), 191557140480 - 56503959552);
    layout_release(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(frozen_tensors_have_no_gradient_and_change_no_other),
        cmocka_unit_test(a_leaf_gives_the_same_bits_again_and_in_another_object),
        cmocka_unit_test(recomputing_does_not_change_a_bit),
        cmocka_unit_test(recomputing_needs_the_memory_of_what_is_kept),
        cmocka_unit_test(recomputing_asks_for_a_units_parameters_no_more_often),
        cmocka_unit_test(dropout_follows_the_sample_into_whatever_leaf_it_is_put),
        cmocka_unit_test(nothing_is_dropped_in_evaluation_and_sampling),
        cmocka_unit_test(units_are_told_from_the_last_to_the_first_when_written),
        cmocka_unit_test(first_loss_is_the_logarithm_of_the_vocabulary),
        cmocka_unit_test(a_chunked_head_gives_the_gradient_of_small_leaves),
        cmocka_unit_test(unfit_shapes_are_refused_by_key),
        cmocka_unit_test(flops_are_those_of_palms_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
