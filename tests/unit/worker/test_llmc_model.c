/* Files are written here as llm.c's train_gpt2.py writes them: each value tells its
 * place. */

#include "tests/lib/cmocka.h"
#include "worker/given.h"
#include "worker/model/llmc_model.h"

#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { L = 2, C = 6, P = 5, V = 11, VP = 128, HEADER = 256 };

static const struct model_config model = {
    .family = "gpt2", .layers = L, .heads = 3, .dim = C, .context = P, .vocab = V};

struct rig {
    char path[64];
    struct layout layout;
    float *params;
    int32_t header[HEADER];
    float *values; /* of the body, in file order */
    size_t n_values;
};

static int setup(void **state)
{
    struct rig *r = mem_zalloc(sizeof(*r));
    struct errmsg msg;
    strcpy(r->path, "/tmp/test_llmc_model.XXXXXX");
    int fd = mkstemp(r->path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(layout_gpt2(&model, &r->layout, &msg), 0);
    r->params = mem_array(r->layout.size, sizeof(float));
    r->n_values = r->layout.n_params + (size_t)(VP - V) * C;
    r->values = mem_array(r->n_values, sizeof(float));
    const int32_t header[] = {20240326, 3, P, V, L, 3, C, VP};
    memcpy(r->header, header, sizeof(header));
    for (size_t i = 0; i < r->n_values; i++) {
        r->values[i] = (float)(i % 251) - 100.0F; /* eight bits: exact in bf16 too */
    }
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;
    assert_int_equal(unlink(r->path), 0);
    layout_release(&r->layout);
    mem_free(r->params);
    mem_free(r->values);
    mem_free(r);
    return 0;
}

static void write_bf16(const struct rig *r, FILE *file)
{
    for (size_t i = 0; i < r->n_values; i++) {
        uint32_t bits;
        memcpy(&bits, &r->values[i], sizeof(bits));
        assert_int_equal(bits & 0xFFFF, 0);
        uint16_t half = (uint16_t)(bits >> 16);
        assert_int_equal(fwrite(&half, sizeof(half), 1, file), 1);
    }
}

/* `change` bytes are added to the end, or cut off. */
static void write_file(const struct rig *r, long change)
{
    FILE *file = fopen(r->path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(r->header, sizeof(r->header), 1, file), 1);
    if (r->header[1] == 5) {
        write_bf16(r, file);
    } else {
        assert_int_equal(fwrite(r->values, sizeof(float), r->n_values, file),
                         r->n_values);
    }
    long size = ftell(file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(truncate(r->path, size + change), 0);
}

static const float *tensor_of(const struct rig *r, int layer, const char *name)
{
    char full[64];
    const struct unit *u;
    bool fits = layer < 0 ? str_format(full, sizeof(full), "%s", name)
                          : str_format(full, sizeof(full), "h.%d.%s", layer, name);
    assert_true(fits);
    const struct tensor *t = layout_find(&r->layout, full, &u);
    assert_non_null(t);
    return r->params + u->offset + t->offset;
}

/* Takes `n` values of the file as they are. */
static size_t expect_plain(const struct rig *r, size_t at, const float *got, size_t n)
{
    assert_memory_equal(got, r->values + at, n * sizeof(float));
    return at + n;
}

/* Takes (out, in) values of the file and expects [in, out]. */
static size_t expect_transposed(const struct rig *r, size_t at, const float *got,
                                size_t out, size_t in)
{
    for (size_t o = 0; o < out; o++) {
        for (size_t i = 0; i < in; i++) {
            assert_true(got[i * out + o] == r->values[at + o * in + i]);
        }
    }
    return at + out * in;
}

static void expect_params(const struct rig *r)
{
    static const struct {
        const char *name;
        size_t out, in; /* in 0: plain */
    } tensors[] = {
        {"ln_1.weight", C, 0},
        {"ln_1.bias", C, 0},
        {"attn.c_attn.weight", 3 * (size_t)C, C},
        {"attn.c_attn.bias", 3 * (size_t)C, 0},
        {"attn.c_proj.weight", C, C},
        {"attn.c_proj.bias", C, 0},
        {"ln_2.weight", C, 0},
        {"ln_2.bias", C, 0},
        {"mlp.c_fc.weight", 4 * (size_t)C, C},
        {"mlp.c_fc.bias", 4 * (size_t)C, 0},
        {"mlp.c_proj.weight", C, 4 * (size_t)C},
        {"mlp.c_proj.bias", C, 0},
    };
    (void)expect_plain(r, 0, tensor_of(r, -1, "wte.weight"), (size_t)V * C);
    size_t at = (size_t)VP * C;
    at = expect_plain(r, at, tensor_of(r, -1, "wpe.weight"), (size_t)P * C);
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        for (int layer = 0; layer < L; layer++) {
            const float *got = tensor_of(r, layer, tensors[i].name);
            at = tensors[i].in == 0
                     ? expect_plain(r, at, got, tensors[i].out)
                     : expect_transposed(r, at, got, tensors[i].out, tensors[i].in);
        }
    }
    at = expect_plain(r, at, tensor_of(r, -1, "ln_f.weight"), C);
    at = expect_plain(r, at, tensor_of(r, -1, "ln_f.bias"), C);
    assert_int_equal(at, r->n_values);
}

static int load(struct rig *r, struct errmsg *msg)
{
    *msg = (struct errmsg){0};
    return llmc_model_load(r->path, &model, &r->layout, NULL, r->params, msg);
}

static void fp32_files_fill_the_block_transposed(void **state)
{
    struct rig *r = *state;
    struct errmsg msg;
    write_file(r, 0);
    assert_int_equal(load(r, &msg), 0);
    expect_params(r);
    assert_int_equal(llmc_model_is(r->path), 1);
}

static void bf16_files_are_widened_exactly(void **state)
{
    struct rig *r = *state;
    struct errmsg msg;
    r->header[1] = 5;
    write_file(r, 0);
    assert_int_equal(load(r, &msg), 0);
    expect_params(r);
}

/* Parts that begin and end anywhere, one of each unit. */
static void a_rank_reads_what_it_holds(void **state)
{
    struct rig *r = *state;
    struct shard_range ranges[L + 2];
    struct shard_map own = {.range = ranges, .n_ranges = L + 2};
    struct errmsg msg = {0};
    write_file(r, 0);
    assert_int_equal(load(r, &msg), 0);
    for (size_t part = 0; part < 7; part++) {
        own.size = 0;
        for (int u = 0; u < L + 2; u++) {
            const struct unit *unit = &r->layout.unit[u];
            const struct tensor *last = &unit->tensor[unit->n_tensors - 1];
            size_t n = last->offset + last->size; /* without the padding */
            ranges[u] =
                (struct shard_range){unit->offset + n * part / 7,
                                     unit->offset + n * (part + 1) / 7, own.size};
            own.size += ranges[u].end - ranges[u].begin;
        }
        float *got = mem_array(own.size, sizeof(float));
        assert_int_equal(llmc_model_load(r->path, &model, &r->layout, &own, got, &msg),
                         0);
        for (int u = 0; u < L + 2; u++) {
            assert_memory_equal(got + ranges[u].at, r->params + ranges[u].begin,
                                (ranges[u].end - ranges[u].begin) * sizeof(float));
        }
        mem_free(got);
    }
}

static void expect_refused(struct rig *r, int err, const char *text)
{
    struct errmsg msg;
    assert_int_equal(load(r, &msg), err);
    if (strstr(msg.text, text) == NULL || strstr(msg.text, r->path) == NULL) {
        fail_msg("\"%s\" lacks \"%s\" or the path", msg.text, text);
    }
}

static void other_dimensions_are_refused_with_both_numbers(void **state)
{
    struct rig *r = *state;
    static const struct {
        int field;
        const char *text;
    } cases[] = {
        {2, "model.context=5, but"}, {3, "model.vocab=11, but"},
        {4, "model.layers=2, but"},  {5, "model.heads=3, but"},
        {6, "model.dim=6, but"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int32_t right = r->header[cases[i].field];
        r->header[cases[i].field] = 777;
        write_file(r, 0);
        expect_refused(r, ERR_INVALID, cases[i].text);
        expect_refused(r, ERR_INVALID, "has 777");
        r->header[cases[i].field] = right;
    }
}

static void sizes_that_are_not_exact_are_damage(void **state)
{
    struct rig *r = *state;
    static const long changes[] = {-1, -4, -1000, 1, 4};
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        write_file(r, changes[i]);
        expect_refused(r, ERR_CORRUPT, "its header says");
    }
    assert_int_equal(truncate(r->path, 1000), 0); /* inside the header */
    expect_refused(r, ERR_CORRUPT, "cut short");
}

static void absurd_headers_are_refused(void **state)
{
    struct rig *r = *state;
    r->header[7] = V - 1;
    write_file(r, 0);
    expect_refused(r, ERR_CORRUPT, "padded vocabulary");
    r->header[7] = -1;
    write_file(r, 0);
    expect_refused(r, ERR_CORRUPT, "padded vocabulary");
    r->header[7] = INT32_MAX;
    write_file(r, 0);
    expect_refused(r, ERR_CORRUPT, "its header says");
    r->header[7] = VP;
    r->header[1] = 1;
    write_file(r, 0);
    expect_refused(r, ERR_UNSUPPORTED, "version 1");
    r->header[0] = 20240520;
    write_file(r, 0);
    expect_refused(r, ERR_INVALID, "not an llm.c model file");
    assert_int_equal(llmc_model_is(r->path), 0);
}

static void missing_files_are_named(void **state)
{
    struct rig *r = *state;
    struct errmsg msg;
    assert_int_equal(llmc_model_load("/nowhere/model.bin", &model, &r->layout, NULL,
                                     r->params, &msg),
                     -2 /* ENOENT */);
    assert_non_null(strstr(msg.text, "/nowhere/model.bin"));
    assert_int_equal(llmc_model_is("/nowhere/model.bin"), 0);
    assert_int_equal(llmc_model_is("/"), 0);
}

/* It may be there, and a model: that is no mistake of the configuration. */
static void a_file_that_cannot_be_read_now_is_told_from_a_wrong_one(void **state)
{
    struct rlimit old;
    struct rlimit none;
    struct errmsg msg;
    int is_llmc;
    int given;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    is_llmc = llmc_model_is("/proc/self/stat");
    given = given_is_weights("/proc/self/stat", &msg);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(is_llmc, -EMFILE);
    assert_int_equal(given, -EMFILE);
    assert_int_equal(given_is_weights("/proc/self/stat", &msg), ERR_INVALID);
    assert_int_equal(given_is_checkpoint("/nowhere/step", &msg), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(fp32_files_fill_the_block_transposed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(bf16_files_are_widened_exactly, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_rank_reads_what_it_holds, setup, teardown),
        cmocka_unit_test_setup_teardown(other_dimensions_are_refused_with_both_numbers,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(sizes_that_are_not_exact_are_damage, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(absurd_headers_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(missing_files_are_named, setup, teardown),
        cmocka_unit_test(a_file_that_cannot_be_read_now_is_told_from_a_wrong_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
