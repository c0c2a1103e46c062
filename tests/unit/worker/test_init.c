#include "tests/lib/cmocka.h"
#include "worker/model/init.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 1337, LAYERS = 8 };

static void make_layout(struct layout *l, int layers)
{
    struct model_config config = {.family = "gpt2",
                                  .layers = layers,
                                  .heads = 4,
                                  .dim = 64,
                                  .context = 33,
                                  .vocab = 301};
    struct errmsg msg;
    assert_int_equal(layout_gpt2(&config, l, &msg), 0);
}

static float *values_of(const struct layout *l, const char *name, size_t *ret_n)
{
    const struct tensor *t = layout_find(l, name, NULL);
    assert_non_null(t);
    float *out = mem_array(t->size, sizeof(float));
    init_tensor(t, SEED, LAYERS, out, 0, t->size);
    *ret_n = t->size;
    return out;
}

static double moment(const float *x, size_t n, int power)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum += pow((double)x[i], power);
    }
    return sum / (double)n;
}

static void expect_normal(const struct layout *l, const char *name, double std)
{
    size_t n;
    float *x = values_of(l, name, &n);
    double count = (double)n;
    /* five standard errors of mean, variance and fourth moment */
    assert_true(fabs(moment(x, n, 1)) < 5 * std / sqrt(count));
    assert_true(fabs(moment(x, n, 2) / (std * std) - 1) < 5 * sqrt(2 / count));
    assert_true(fabs(moment(x, n, 4) / pow(std, 4) - 3) < 5 * sqrt(96 / count));
    mem_free(x);
}

static void weights_are_normal_and_residual_projections_smaller(void **state)
{
    (void)state;
    struct layout l;
    make_layout(&l, LAYERS);
    expect_normal(&l, "wte.weight", 0.02);
    expect_normal(&l, "h.3.attn.c_attn.weight", 0.02);
    expect_normal(&l, "h.3.mlp.c_fc.weight", 0.02);
    expect_normal(&l, "h.0.attn.c_proj.weight", 0.02 / 4); /* √(2·8) = 4 */
    expect_normal(&l, "h.7.mlp.c_proj.weight", 0.02 / 4);
    layout_release(&l);
}

static void biases_are_0_and_norms_are_1(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        float value;
    } cases[] = {
        {"h.1.ln_1.weight", 1},   {"h.1.ln_1.bias", 0},
        {"h.1.ln_2.weight", 1},   {"ln_f.weight", 1},
        {"ln_f.bias", 0},         {"h.1.attn.c_attn.bias", 0},
        {"h.1.mlp.c_fc.bias", 0}, {"h.1.mlp.c_proj.bias", 0},
    };
    struct layout l;
    make_layout(&l, 2);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        size_t n;
        float *x = values_of(&l, cases[i].name, &n);
        for (size_t j = 0; j < n; j++) {
            assert_true(x[j] == cases[i].value);
        }
        mem_free(x);
    }
    layout_release(&l);
}

static void any_part_of_a_tensor_can_be_made_alone(void **state)
{
    (void)state;
    struct layout l;
    make_layout(&l, 1);
    size_t n;
    float *whole = values_of(&l, "h.0.mlp.c_fc.weight", &n);
    const struct tensor *t = layout_find(&l, "h.0.mlp.c_fc.weight", NULL);
    float part[23];
    for (size_t first = 0; first < 40; first++) {
        for (size_t size = 0; size <= ARRAY_LEN(part); size++) {
            init_tensor(t, SEED, LAYERS, part, first, size);
            assert_memory_equal(part, whole + first, size * sizeof(float));
        }
    }
    init_tensor(t, SEED, LAYERS, part, n - 3, 3);
    assert_memory_equal(part, whole + n - 3, 3 * sizeof(float));
    mem_free(whole);
    layout_release(&l);
}

static void seeds_and_names_give_other_numbers(void **state)
{
    (void)state;
    struct layout l;
    make_layout(&l, 2);
    const struct tensor *a = layout_find(&l, "h.0.attn.c_attn.weight", NULL);
    const struct tensor *b = layout_find(&l, "h.1.attn.c_attn.weight", NULL);
    float x[8];
    float y[8];
    init_tensor(a, SEED, 2, x, 0, 8);
    init_tensor(b, SEED, 2, y, 0, 8);
    assert_memory_not_equal(x, y, sizeof(x));
    init_tensor(a, SEED + 1, 2, y, 0, 8);
    assert_memory_not_equal(x, y, sizeof(x));
    init_tensor(a, SEED + (UINT64_C(1) << 32), 2, y, 0, 8);
    assert_memory_not_equal(x, y, sizeof(x));
    layout_release(&l);
}

static int on_compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Two names with one hash would get the same numbers. */
static void names_of_large_models_have_different_hashes(void **state)
{
    (void)state;
    struct layout l;
    make_layout(&l, 200);
    size_t n = 0;
    uint32_t *hash = mem_array((size_t)l.n_units * UNIT_MAX_TENSORS, sizeof(*hash));
    for (int i = 0; i < l.n_units; i++) {
        for (int j = 0; j < l.unit[i].n_tensors; j++) {
            hash[n++] = init_name_hash(l.unit[i].tensor[j].name);
        }
    }
    qsort(hash, n, sizeof(*hash), on_compare);
    for (size_t i = 1; i < n; i++) {
        assert_true(hash[i] != hash[i - 1]);
    }
    mem_free(hash);
    layout_release(&l);
    assert_int_equal(init_name_hash("foobar"), 0xbf9cf968); /* FNV's own vector */
}

static void the_block_is_its_tensors_with_zero_padding(void **state)
{
    (void)state;
    struct layout l;
    make_layout(&l, 2);
    float *params = mem_alloc(l.size * sizeof(float));
    memset(params, 0xFF, l.size * sizeof(float));
    init_params(&l, SEED, LAYERS, params);
    for (int i = 0; i < l.n_units; i++) {
        const struct unit *u = &l.unit[i];
        size_t end = 0;
        for (int j = 0; j < u->n_tensors; j++) {
            size_t n;
            float *x = values_of(&l, u->tensor[j].name, &n);
            assert_memory_equal(params + u->offset + u->tensor[j].offset, x,
                                n * sizeof(float));
            end = u->tensor[j].offset + n;
            mem_free(x);
        }
        for (; end < u->size; end++) {
            assert_true(params[u->offset + end] == 0.0F);
        }
    }
    mem_free(params);
    layout_release(&l);
}

/* Cuts at and around the seams of tensors, padding and units. */
static void the_block_can_be_made_in_ranges(void **state)
{
    (void)state;
    struct layout l;
    make_layout(&l, 2);
    float *whole = mem_alloc(l.size * sizeof(float));
    float *parts = mem_alloc(l.size * sizeof(float));
    init_params(&l, SEED, LAYERS, whole);
    for (size_t step = 1021; step < l.size; step += 4093) {
        memset(parts, 0xFF, l.size * sizeof(float));
        for (size_t at = 0; at < l.size; at += step) {
            init_range(&l, SEED, LAYERS, parts + at, at, MIN(at + step, l.size));
        }
        assert_memory_equal(parts, whole, l.size * sizeof(float));
    }
    mem_free(whole);
    mem_free(parts);
    layout_release(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_normal_and_residual_projections_smaller),
        cmocka_unit_test(biases_are_0_and_norms_are_1),
        cmocka_unit_test(any_part_of_a_tensor_can_be_made_alone),
        cmocka_unit_test(seeds_and_names_give_other_numbers),
        cmocka_unit_test(names_of_large_models_have_different_hashes),
        cmocka_unit_test(the_block_is_its_tensors_with_zero_padding),
        cmocka_unit_test(the_block_can_be_made_in_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
