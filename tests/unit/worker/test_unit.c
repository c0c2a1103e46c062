#include "tests/lib/cmocka.h"
#include "worker/device/kernels.h"
#include "worker/model/unit.h"

#include <string.h>

static struct model_config gpt2_124m(void)
{
    return (struct model_config){.family = "gpt2",
                                 .layers = 12,
                                 .heads = 12,
                                 .dim = 768,
                                 .context = 1024,
                                 .vocab = 50257};
}

static void make(struct layout *l, const struct model_config *config)
{
    struct errmsg msg;
    assert_int_equal(layout_gpt2(config, l, &msg), 0);
}

static void gpt2_124m_has_its_published_size(void **state)
{
    (void)state;
    struct layout l;
    struct model_config config = gpt2_124m();
    make(&l, &config);
    assert_int_equal(l.n_params, 124439808);
    assert_int_equal(l.n_units, 14);
    layout_release(&l);
}

static void tensors_have_hugging_faces_names_and_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t rows, columns; /* columns 0: one dimension */
    } tensors[] = {
        {"wte.weight", 50257, 768},
        {"wpe.weight", 1024, 768},
        {"h.0.ln_1.weight", 768, 0},
        {"h.0.ln_1.bias", 768, 0},
        {"h.11.attn.c_attn.weight", 768, 2304},
        {"h.11.attn.c_attn.bias", 2304, 0},
        {"h.5.attn.c_proj.weight", 768, 768},
        {"h.5.attn.c_proj.bias", 768, 0},
        {"h.0.ln_2.weight", 768, 0},
        {"h.0.ln_2.bias", 768, 0},
        {"h.0.mlp.c_fc.weight", 768, 3072},
        {"h.0.mlp.c_fc.bias", 3072, 0},
        {"h.0.mlp.c_proj.weight", 3072, 768},
        {"h.0.mlp.c_proj.bias", 768, 0},
        {"ln_f.weight", 768, 0},
        {"ln_f.bias", 768, 0},
    };
    struct layout l;
    struct model_config config = gpt2_124m();
    make(&l, &config);
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        const struct unit *u;
        const struct tensor *t = layout_find(&l, tensors[i].name, &u);
        assert_non_null(t);
        assert_true(t >= u->tensor && t < u->tensor + u->n_tensors);
        assert_int_equal(t->shape[0], tensors[i].rows);
        assert_int_equal(t->n_dims, tensors[i].columns > 0 ? 2 : 1);
        assert_int_equal(t->size, tensors[i].rows * MAX(tensors[i].columns, 1));
        assert_int_equal(t->decay, tensors[i].columns > 0);
    }
    assert_null(layout_find(&l, "h.12.ln_1.weight", NULL));
    assert_null(layout_find(&l, "lm_head.weight", NULL));
    layout_release(&l);
}

static void expect_dense(const struct layout *l)
{
    size_t offset = 0;
    size_t n_params = 0;
    for (int i = 0; i < l->n_units; i++) {
        const struct unit *u = &l->unit[i];
        size_t at = 0;
        assert_int_equal(u->offset, offset);
        for (int j = 0; j < u->n_tensors; j++) {
            assert_int_equal(u->tensor[j].offset, at);
            at += u->tensor[j].size;
        }
        assert_int_equal(u->size % SUMSQ_CHUNK, 0);
        assert_true(u->size >= at && u->size - at < SUMSQ_CHUNK);
        offset += u->size;
        n_params += at;
    }
    assert_int_equal(l->size, offset);
    assert_int_equal(l->n_params, n_params);
}

static void tensors_are_dense_and_units_padded_to_chunks(void **state)
{
    (void)state;
    static const struct model_config configs[] = {
        {.family = "gpt2",
         .layers = 1,
         .heads = 1,
         .dim = 7,
         .context = 5,
         .vocab = 11},
        {.family = "gpt2",
         .layers = 3,
         .heads = 2,
         .dim = 64,
         .context = 8,
         .vocab = 56},
        {.family = "gpt2",
         .layers = 2,
         .heads = 3,
         .dim = 48,
         .context = 16,
         .vocab = 101},
    };
    for (size_t i = 0; i < ARRAY_LEN(configs); i++) {
        struct layout l;
        make(&l, &configs[i]);
        expect_dense(&l);
        layout_release(&l);
    }
}

static void bad_dimensions_are_refused_by_key(void **state)
{
    (void)state;
    static const struct {
        struct model_config config;
        int err;
        const char *text;
    } cases[] = {
        {{"gpt2", 0, 1, 8, 8, 8}, ERR_INVALID, "model.layers=0"},
        {{"gpt2", 1, 0, 8, 8, 8}, ERR_INVALID, "model.heads=0"},
        {{"gpt2", 1, 3, 8, 8, 8},
         ERR_INVALID,
         "model.heads=3 does not divide model.dim=8"},
        {{"gpt2", 1, 1, -8, 8, 8}, ERR_INVALID, "model.dim=-8"},
        {{"gpt2", 1, 1, 8, 0, 8}, ERR_INVALID, "model.context=0"},
        {{"gpt2", 1, 1, 8, 8, 1 << 30}, ERR_INVALID, "model.vocab=1073741824"},
        {{"llama", 1, 1, 8, 8, 8}, ERR_UNSUPPORTED, "model.family=llama"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct layout l;
        struct errmsg msg;
        assert_int_equal(layout_gpt2(&cases[i].config, &l, &msg), cases[i].err);
        assert_non_null(strstr(msg.text, cases[i].text));
        layout_release(&l);
    }
}

static void freeze(struct layout *l, const char *pattern, size_t n_frozen, int first)
{
    struct errmsg msg = {""};
    assert_int_equal(layout_freeze(l, pattern, &msg), 0);
    assert_int_equal(l->n_frozen, n_frozen);
    assert_int_equal(l->first_trained, first);
}

static void patterns_freeze_the_tensors_that_they_match(void **state)
{
    (void)state;
    struct layout l;
    struct model_config config = {"gpt2", 11, 1, 8, 4, 16};
    size_t block = 12 * 8 * 8 + 13 * 8;
    make(&l, &config);
    freeze(&l, "h.1.ln_1.weight", 8, 0);
    freeze(&l, "h.1.ln_1.*", 16, 0); /* again: counts once */
    freeze(&l, "h.1.*", block, 0);   /* and not h.10 */
    assert_false(layout_find(&l, "h.10.ln_1.weight", NULL)->frozen);
    assert_true(layout_find(&l, "h.1.mlp.c_proj.bias", NULL)->frozen);
    freeze(&l, "w[tp]e.weight", block + 20 * 8, 1);
    freeze(&l, "h.?.*", 10 * block + 20 * 8, 11);
    freeze(&l, "*.weight", 11 * block + 21 * 8 - 11 * 8, 11);
    freeze(&l, "*", l.n_params, 13);
    layout_release(&l);
}

static void a_pattern_without_a_tensor_is_refused_with_the_nearest(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text;
    } cases[] = {
        {"h.0.atn.c_attn.weight", "\"h.0.atn.c_attn.weight\" matches no tensor; the "
                                  "nearest is \"h.0.attn.c_attn.weight\""},
        {"WTE.weight",
         "\"WTE.weight\" matches no tensor; the nearest is \"wte.weight\""},
        {"wte", "\"wte\" matches no tensor; the nearest is \"wte.weight\""},
        {"h.0.*.weigh", "\"h.0.*.weigh\" matches no tensor; the nearest is "
                        "\"h.0.ln_1.weight\""},
    };
    struct layout l;
    struct model_config config = {"gpt2", 2, 1, 8, 4, 16};
    make(&l, &config);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct errmsg msg = {""};
        assert_int_equal(layout_freeze(&l, cases[i].pattern, &msg), ERR_INVALID);
        assert_string_equal(msg.text, cases[i].text);
    }
    assert_int_equal(l.n_frozen, 0);
    layout_release(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_124m_has_its_published_size),
        cmocka_unit_test(tensors_have_hugging_faces_names_and_shapes),
        cmocka_unit_test(tensors_are_dense_and_units_padded_to_chunks),
        cmocka_unit_test(bad_dimensions_are_refused_by_key),
        cmocka_unit_test(patterns_freeze_the_tensors_that_they_match),
        cmocka_unit_test(a_pattern_without_a_tensor_is_refused_with_the_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
