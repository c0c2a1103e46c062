/* Against a plain AdamW in double; test_gpt2_torch.c compares with PyTorch's. */

#include "tests/lib/cmocka.h"
#include "worker/model/init.h"
#include "worker/optim/adamw.h"

#include "common/mem.h"

#include <math.h>
#include <string.h>

enum { STEPS = 5 };

struct rig {
    struct layout layout;
    struct device *device;
    struct adamw_config config;
    float *params, *grads;
    double *p, *m, *v; /* the reference */
};

static void rig_open(struct rig *r, double grad_clip)
{
    struct model_config model = {.family = "gpt2",
                                 .layers = 2,
                                 .heads = 1,
                                 .dim = 13,
                                 .context = 7,
                                 .vocab = 601};
    struct device_config device = {.local_world_size = 1, .threads = 2};
    struct errmsg msg;
    void *p;
    void *g;
    assert_int_equal(layout_gpt2(&model, &r->layout, &msg), 0);
    assert_int_equal(device_open("cpu", &device, &r->device, &msg), 0);
    assert_int_equal(device_alloc(r->device, r->layout.size * sizeof(float), &p), 0);
    assert_int_equal(device_alloc(r->device, r->layout.size * sizeof(float), &g), 0);
    r->params = p;
    r->grads = g;
    init_params(&r->layout, 1, 1, r->params);
    r->p = mem_array(r->layout.size, sizeof(double));
    r->m = mem_array(r->layout.size, sizeof(double));
    r->v = mem_array(r->layout.size, sizeof(double));
    for (size_t i = 0; i < r->layout.size; i++) {
        r->p[i] = r->params[i];
    }
    r->config = (struct adamw_config){
        .layout = &r->layout,
        .device = r->device,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .weight_decay = 0.3,
        .grad_clip = grad_clip,
        .schedule = {SCHEDULE_LINEAR, 0.02, 0.002, 2, STEPS},
    };
}

static void rig_close(struct rig *r)
{
    device_free(r->device, r->params, r->layout.size * sizeof(float));
    device_free(r->device, r->grads, r->layout.size * sizeof(float));
    device_close(r->device);
    layout_release(&r->layout);
    mem_free(r->p);
    mem_free(r->m);
    mem_free(r->v);
}

/* Another gradient for each step; padding stays zero, as the model leaves it. */
static double fill_grads(struct rig *r, uint64_t seed)
{
    double squares = 0.0;
    for (int i = 0; i < r->layout.n_units; i++) {
        const struct unit *u = &r->layout.unit[i];
        for (int j = 0; j < u->n_tensors; j++) {
            struct tensor t = u->tensor[j];
            t.init = INIT_NORMAL;
            init_tensor(&t, seed, 1, r->grads + u->offset + t.offset, 0, t.size);
        }
    }
    for (size_t i = 0; i < r->layout.size; i++) {
        squares += (double)r->grads[i] * (double)r->grads[i];
    }
    return sqrt(squares);
}

static void reference_tensor(struct rig *r, size_t at, const struct tensor *t,
                             const struct adamw_scalars *s)
{
    for (size_t i = at; i < at + t->size; i++) {
        double g = (double)r->grads[i] * (double)s->grad_scale;
        if (t->decay) {
            r->p[i] *= 1 - (double)s->lr * r->config.weight_decay;
        }
        r->m[i] = r->config.beta1 * r->m[i] + (1 - r->config.beta1) * g;
        r->v[i] = r->config.beta2 * r->v[i] + (1 - r->config.beta2) * g * g;
        r->p[i] -= (double)s->lr * (r->m[i] / (double)s->correction1) /
                   (sqrt(r->v[i] / (double)s->correction2) + r->config.eps);
    }
}

static void reference_step(struct rig *r, uint64_t step, double norm)
{
    double max = r->config.grad_clip;
    struct adamw_scalars s = {
        .lr = (float)schedule_lr(&r->config.schedule, step),
        .correction1 = (float)(1 - pow(r->config.beta1, (double)step)),
        .correction2 = (float)(1 - pow(r->config.beta2, (double)step)),
        .grad_scale = max > 0 ? (float)MIN(1.0, max / (norm + 1e-6)) : 1.0F,
    };
    for (int i = 0; i < r->layout.n_units; i++) {
        const struct unit *u = &r->layout.unit[i];
        for (int j = 0; j < u->n_tensors; j++) {
            reference_tensor(r, u->offset + u->tensor[j].offset, &u->tensor[j], &s);
        }
    }
}

static void expect_close(const float *ours, const double *theirs, size_t n)
{
    double difference = 0.0;
    double norm = 0.0;
    for (size_t i = 0; i < n; i++) {
        difference += pow((double)ours[i] - theirs[i], 2);
        norm += theirs[i] * theirs[i];
    }
    assert_true(difference <= 1e-12 * norm); /* 1e-6 of the norm */
}

static void compare_with_reference(double grad_clip)
{
    struct rig r;
    struct adamw *a;
    struct errmsg msg;
    rig_open(&r, grad_clip);
    assert_int_equal(adamw_new(&r.config, &a, &msg), 0);
    for (uint64_t step = 1; step <= STEPS; step++) {
        const double *norm;
        double expected = fill_grads(&r, step + 1);
        reference_step(&r, step, expected);
        adamw_step(a, r.params, r.grads, adamw_turn_of(step), &norm);
        assert_true(fabs(*norm - expected) <= 1e-12 * expected);
    }
    expect_close(r.params, r.p, r.layout.size);
    expect_close(adamw_exp_avg(a), r.m, r.layout.size);
    expect_close(adamw_exp_avg_sq(a), r.v, r.layout.size);
    adamw_free(a);
    rig_close(&r);
}

static void steps_equal_the_formula_without_clipping(void **state)
{
    (void)state;
    compare_with_reference(0.0);
}

static void steps_equal_the_formula_with_clipping(void **state)
{
    (void)state;
    compare_with_reference(0.5); /* the gradients' norm is about 2 */
}

static void steps_equal_the_formula_below_the_clip(void **state)
{
    (void)state;
    compare_with_reference(1e6);
}

static void padding_stays_zero(void **state)
{
    (void)state;
    struct rig r;
    struct adamw *a;
    struct errmsg msg;
    const double *norm;
    rig_open(&r, 1.0);
    assert_int_equal(adamw_new(&r.config, &a, &msg), 0);
    (void)fill_grads(&r, 9);
    adamw_step(a, r.params, r.grads, adamw_turn_of(1), &norm);
    size_t checked = 0;
    for (int i = 0; i < r.layout.n_units; i++) {
        const struct unit *u = &r.layout.unit[i];
        const struct tensor *last = &u->tensor[u->n_tensors - 1];
        for (size_t k = u->offset + last->offset + last->size; k < u->offset + u->size;
             k++, checked++) {
            assert_true(r.params[k] == 0 && adamw_exp_avg(a)[k] == 0 &&
                        adamw_exp_avg_sq(a)[k] == 0);
        }
    }
    assert_int_equal(checked, r.layout.size - r.layout.n_params);
    adamw_free(a);
    rig_close(&r);
}

static void moments_given_from_outside_are_continued(void **state)
{
    (void)state;
    struct rig r;
    struct adamw *a;
    struct adamw *b;
    struct errmsg msg;
    const double *norm;
    rig_open(&r, 1.0);
    size_t bytes = r.layout.size * sizeof(float);
    assert_int_equal(adamw_new(&r.config, &a, &msg), 0);
    assert_int_equal(adamw_new(&r.config, &b, &msg), 0);
    (void)fill_grads(&r, 2);
    adamw_step(a, r.params, r.grads, adamw_turn_of(1), &norm);
    float *params = mem_dup(r.params, bytes);
    memcpy(adamw_exp_avg(b), adamw_exp_avg(a), bytes);
    memcpy(adamw_exp_avg_sq(b), adamw_exp_avg_sq(a), bytes);
    (void)fill_grads(&r, 3);
    adamw_step(a, r.params, r.grads, adamw_turn_of(2), &norm);
    float *whole = mem_dup(r.params, bytes);
    memcpy(r.params, params, bytes);
    adamw_step(b, r.params, r.grads, adamw_turn_of(2), &norm);
    assert_memory_equal(r.params, whole, bytes);
    assert_memory_equal(adamw_exp_avg_sq(a), adamw_exp_avg_sq(b), bytes);
    mem_free(params);
    mem_free(whole);
    adamw_free(a);
    adamw_free(b);
    rig_close(&r);
}

/* What the other shards would bring. */
struct all_chunks {
    struct rig *rig;
    const double *chunks;
};

static void bring_chunks(void *arg, double *chunks)
{
    const struct all_chunks *all = arg;
    memcpy(chunks, all->chunks, all->rig->layout.size / SUMSQ_CHUNK * sizeof(*chunks));
}

/* One step of shard `s` of `n`, gradients whole or its own; into `r->params`' place in
 * `out`. */
static void step_shard(struct rig *r, struct all_chunks *all, int n, int s, bool whole,
                       float *out)
{
    struct unit_groups groups;
    struct shard_map own;
    const double *norm;
    struct errmsg msg;
    struct adamw *a;
    unit_groups_each(&groups, &r->layout);
    shard_map_init(&own, &r->layout, &groups, n, s);
    float *params = mem_array(own.size + 1, sizeof(float));
    float *grads = mem_array(own.size + 1, sizeof(float));
    for (int i = 0; i < own.n_ranges; i++) {
        const struct shard_range *x = &own.range[i];
        size_t bytes = (x->end - x->begin) * sizeof(float);
        memcpy(params + x->at, r->params + x->begin, bytes);
        memcpy(grads + x->at, r->grads + x->begin, bytes);
    }
    struct adamw_config config = r->config;
    config.own = &own;
    config.whole_grads = whole;
    config.share_chunks = bring_chunks;
    config.arg = all;
    assert_int_equal(adamw_new(&config, &a, &msg), 0);
    adamw_step(a, params, whole ? r->grads : grads, adamw_turn_of(1), &norm);
    for (int i = 0; i < own.n_ranges; i++) {
        const struct shard_range *x = &own.range[i];
        memcpy(out + x->begin, params + x->at, (x->end - x->begin) * sizeof(float));
    }
    adamw_free(a);
    mem_free(params);
    mem_free(grads);
    shard_map_release(&own);
    unit_groups_release(&groups);
}

static void shards_make_the_same_step_together(void **state)
{
    (void)state;
    struct rig r;
    struct adamw *a;
    struct errmsg msg;
    const double *norm;
    rig_open(&r, 0.5);
    size_t bytes = r.layout.size * sizeof(float);
    size_t n_chunks = r.layout.size / SUMSQ_CHUNK;
    double *chunks = mem_array(n_chunks, sizeof(*chunks));
    float *params = mem_dup(r.params, bytes);
    float *out = mem_array(r.layout.size, sizeof(*out));
    struct all_chunks all = {&r, chunks};
    (void)fill_grads(&r, 2);
    r.device->k->sumsq(r.device, QUEUE_COMPUTE, chunks, r.grads, 1, r.layout.size);
    assert_int_equal(adamw_new(&r.config, &a, &msg), 0);
    adamw_step(a, r.params, r.grads, adamw_turn_of(1), &norm);
    float *whole = mem_dup(r.params, bytes);
    memcpy(r.params, params, bytes);
    for (int n = 1; n <= 5; n++) {
        memset(out, 0xff, bytes);
        for (int s = 0; s < n; s++) {
            step_shard(&r, &all, n, s, n % 2 == 0, out);
        }
        assert_memory_equal(out, whole, bytes);
    }
    mem_free(chunks);
    mem_free(params);
    mem_free(out);
    mem_free(whole);
    adamw_free(a);
    rig_close(&r);
}

/* Ways to make one step, side by side. */
struct pair {
    struct rig rig;
    struct adamw *a, *b;
    float *params_a, *params_b;
    size_t bytes;
};

static void pair_open(struct pair *p, const struct schedule_config *of_b)
{
    struct errmsg msg;

    rig_open(&p->rig, 0.5);
    p->bytes = p->rig.layout.size * sizeof(float);
    assert_int_equal(adamw_new(&p->rig.config, &p->a, &msg), 0);
    p->rig.config.schedule = of_b ? *of_b : p->rig.config.schedule;
    assert_int_equal(adamw_new(&p->rig.config, &p->b, &msg), 0);
    p->params_a = mem_dup(p->rig.params, p->bytes);
    p->params_b = mem_dup(p->rig.params, p->bytes);
}

static void pair_close(struct pair *p)
{
    adamw_free(p->a);
    adamw_free(p->b);
    mem_free(p->params_a);
    mem_free(p->params_b);
    rig_close(&p->rig);
}

static void expect_same_state(const struct pair *p)
{
    assert_memory_equal(p->params_a, p->params_b, p->bytes);
    assert_memory_equal(adamw_exp_avg(p->a), adamw_exp_avg(p->b), p->bytes);
    assert_memory_equal(adamw_exp_avg_sq(p->a), adamw_exp_avg_sq(p->b), p->bytes);
}

static void scaled_gradients_are_unscaled_then_clipped_each_rounded(void **state)
{
    const float unscale = 1.0F / 1000.1F;
    struct adamw_turn turn = adamw_turn_of(1);
    const double *norm_a;
    const double *norm_b;
    struct pair p;

    (void)state;
    pair_open(&p, NULL);
    (void)fill_grads(&p.rig, 2);
    for (size_t i = 0; i < p.rig.layout.size; i++) {
        p.rig.grads[i] *= 1000.1F;
    }
    turn.unscale = unscale;
    adamw_step(p.a, p.params_a, p.rig.grads, turn, &norm_a);
    for (size_t i = 0; i < p.rig.layout.size; i++) {
        p.rig.grads[i] *= unscale;
    }
    adamw_step(p.b, p.params_b, p.rig.grads, adamw_turn_of(1), &norm_b);
    assert_true(*norm_a == *norm_b && *norm_a > 0.5); /* it is clipped */
    expect_same_state(&p);
    pair_close(&p);
}

static void a_gradient_that_is_not_finite_changes_nothing(void **state)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    struct adamw_turn turn = adamw_turn_of(1);
    const double *norm;
    struct pair p;

    (void)state;
    pair_open(&p, NULL);
    (void)fill_grads(&p.rig, 2);
    turn.skip_not_finite = true;
    adamw_step(p.a, p.params_a, p.rig.grads, turn, &norm);
    adamw_step(p.b, p.params_b, p.rig.grads, turn, &norm);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        (void)fill_grads(&p.rig, 3);
        p.rig.grads[p.rig.layout.size / 5 * (i + 1)] = bad[i];
        adamw_step(p.a, p.params_a, p.rig.grads, turn, &norm);
        assert_true(!isfinite(*norm));
        expect_same_state(&p);
    }
    turn.step = 5;
    turn.update = 2;
    (void)fill_grads(&p.rig, 4);
    adamw_step(p.a, p.params_a, p.rig.grads, turn, &norm);
    adamw_step(p.b, p.params_b, p.rig.grads, turn, &norm);
    expect_same_state(&p);
    pair_close(&p);
}

static void the_rate_is_the_steps_the_bias_correction_the_updates(void **state)
{
    struct schedule_config constant = {.kind = SCHEDULE_CONSTANT};
    struct adamw_turn turn = adamw_turn_of(1);
    const double *norm;
    struct pair p;

    (void)state;
    rig_open(&p.rig, 0);
    constant.lr = schedule_lr(&p.rig.config.schedule, 4);
    rig_close(&p.rig);
    pair_open(&p, &constant);
    (void)fill_grads(&p.rig, 2);
    turn.step = 4;
    adamw_step(p.a, p.params_a, p.rig.grads, turn, &norm);
    adamw_step(p.b, p.params_b, p.rig.grads, adamw_turn_of(1), &norm);
    expect_same_state(&p);
    pair_close(&p);
}

static void bytes_are_two_blocks_and_a_little(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 1.0);
    size_t blocks = 2 * r.layout.size * sizeof(float);
    assert_true(adamw_bytes(&r.config) > blocks);
    assert_true(adamw_bytes(&r.config) <= blocks + blocks / 100 + 1024);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_equal_the_formula_without_clipping),
        cmocka_unit_test(steps_equal_the_formula_with_clipping),
        cmocka_unit_test(steps_equal_the_formula_below_the_clip),
        cmocka_unit_test(padding_stays_zero),
        cmocka_unit_test(moments_given_from_outside_are_continued),
        cmocka_unit_test(scaled_gradients_are_unscaled_then_clipped_each_rounded),
        cmocka_unit_test(a_gradient_that_is_not_finite_changes_nothing),
        cmocka_unit_test(the_rate_is_the_steps_the_bias_correction_the_updates),
        cmocka_unit_test(bytes_are_two_blocks_and_a_little),
        cmocka_unit_test(shards_make_the_same_step_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
