/* Whole checkpoints: any number of ranks writes, any number reads. With CTRUN_CKPT_OUT
 * set it writes checkpoints into that folder instead of testing, for tests/torch. */

#include "tests/lib/checkpoint_rig.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"
#include "common/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Loads what each rank of another world wants and compares it with the state. */
static void assert_loads(struct checkpoint_rig *f, const char *path, int world,
                         bool verified)
{
    struct box boxes[TINY_TENSORS];
    float data[TINY_TENSORS][64];

    for (int rank = 0; rank < world; rank++) {
        size_t n = tiny_shard(&f->tiny, rank, world, boxes);

        for (size_t i = 0; i < n; i++) {
            memset(data[i], 0xff, sizeof(data[i]));
            boxes[i].data = data[i];
        }
        assert_int_equal(checkpoint_rig_load(path, boxes, n, verified, &f->msg), 0);
        for (size_t i = 0; i < n; i++) {
            size_t row = boxes[i].n_dims == 2 ? boxes[i].shape[1] : 1;
            const float *wanted = f->tiny.whole[i].data + boxes[i].row * row;
            const uint8_t *after = (const uint8_t *)(data[i] + boxes[i].n_rows * row);

            assert_memory_equal(data[i], wanted, boxes[i].n_rows * row * sizeof(float));
            assert_int_equal(*after, 0xff); /* and nothing past the box */
        }
    }
}

/* --- round trips --- */

static void any_number_of_ranks_loads_any_others_checkpoint(void **state)
{
    struct checkpoint_rig *f = *state;

    for (int written = 1; written <= 9; written++) {
        tiny_commit(&f->tiny, f->dir, (uint64_t)written, 1, written);
        assert_int_equal(checkpoint_verify(checkpoint_rig_path(f, (uint64_t)written, 1),
                                           NULL, &f->msg),
                         0);
        for (int wanted = 1; wanted <= 9; wanted++) {
            assert_loads(f, checkpoint_rig_path(f, (uint64_t)written, 1), wanted,
                         false);
            assert_loads(f, checkpoint_rig_path(f, (uint64_t)written, 1), wanted, true);
        }
    }
}

static int compare_whole(const void *a, const void *b)
{
    const struct box *x = a;
    const struct box *y = b;
    bool x_state = strstr(x->name, ".exp_avg") != NULL;
    bool y_state = strstr(y->name, ".exp_avg") != NULL;

    return x_state != y_state ? (int)x_state - (int)y_state : strcmp(x->name, y->name);
}

/* The definition, by hand: parameters by name, then optimizer state by name. */
static void expected_hash(const struct tiny *t, char hash[CHECKPOINT_HASH_HEX])
{
    struct box sorted[TINY_TENSORS];
    XXH3_state_t *x = XXH3_createState();
    XXH128_hash_t h;

    memcpy(sorted, t->whole, sizeof(sorted));
    qsort(sorted, TINY_TENSORS, sizeof(sorted[0]), compare_whole);
    assert_string_equal(sorted[0].name, "h.0.ln_1.weight");
    assert_string_equal(sorted[5].name, "h.0.ln_1.weight.exp_avg");
    assert_string_equal(sorted[6].name, "h.0.ln_1.weight.exp_avg_sq");
    assert_int_equal(XXH3_128bits_reset(x), XXH_OK);
    for (size_t i = 0; i < TINY_TENSORS; i++) {
        size_t n = sorted[i].n_rows * (sorted[i].n_dims == 2 ? sorted[i].shape[1] : 1);

        assert_int_equal(XXH3_128bits_update(x, sorted[i].data, n * sizeof(float)),
                         XXH_OK);
    }
    h = XXH3_128bits_digest(x);
    assert_true(str_format(hash, CHECKPOINT_HASH_HEX, "%016llx%016llx",
                           (unsigned long long)h.high64, (unsigned long long)h.low64));
    assert_int_equal(XXH3_freeState(x), XXH_OK);
}

static void state_hash_is_the_same_for_every_sharding(void **state)
{
    struct checkpoint_rig *f = *state;
    char wanted[CHECKPOINT_HASH_HEX];
    char hash[CHECKPOINT_HASH_HEX];
    struct tiny other;

    expected_hash(&f->tiny, wanted);
    for (int world = 1; world <= 5; world++) {
        tiny_commit(&f->tiny, f->dir, (uint64_t)world, world, world);
        assert_int_equal(
            checkpoint_state_hash(checkpoint_rig_path(f, (uint64_t)world, world), hash,
                                  &f->msg),
            0);
        assert_string_equal(hash, wanted);
    }
    tiny_init(&other, 1);
    tiny_commit(&other, f->dir, 9, 9, 2);
    assert_int_equal(checkpoint_state_hash(checkpoint_rig_path(f, 9, 9), hash, &f->msg),
                     0);
    assert_string_not_equal(hash, wanted);
    tiny_release(&other);
}

static void the_manifest_gives_back_what_was_put_in(void **state)
{
    struct checkpoint_rig *f = *state;
    struct checkpoint_meta meta;

    tiny_commit(&f->tiny, f->dir, 100, 3, 2);
    assert_int_equal(checkpoint_verify(checkpoint_rig_path(f, 100, 3), &meta, &f->msg),
                     0);
    assert_int_equal(meta.step, 100);
    assert_int_equal(meta.run_generation, 3);
    assert_int_equal(meta.position, 3200);
    assert_true(meta.seed == UINT64_MAX);
    assert_int_equal(meta.world_size, 2);
    assert_string_equal(meta.signature, "micro_batch=4 fp32 avx2");
    assert_string_equal(meta.model_json, "{\"family\": \"gpt2\", \"dropout\": 0.1}");
    assert_string_equal(meta.config_json,
                        "{\"model.dim\":\"3\",\"run.name\":\"t\\u00efny \\\"q\\\"\"}");
    assert_string_equal(meta.data_json, "[{\"path\":\"a.txt\",\"bytes\":17}]");
    checkpoint_meta_release(&meta);
}

static void writing_twice_gives_the_same_bytes(void **state)
{
    struct checkpoint_rig *f = *state;
    struct checkpoint_file first;
    struct checkpoint_file second;
    struct box boxes[TINY_TENSORS];
    struct box reversed[TINY_TENSORS];
    size_t n = tiny_shard(&f->tiny, 1, 3, boxes);

    for (size_t i = 0; i < n; i++) {
        reversed[i] = boxes[n - 1 - i];
    }
    assert_int_equal(checkpoint_write_shard(f->dir, 1, boxes, n, &first, &f->msg), 0);
    assert_int_equal(checkpoint_write_shard(f->dir, 1, reversed, n, &second, &f->msg),
                     0);
    assert_string_equal(first.name, "shard-00002-model-00001-of-00001.safetensors");
    assert_memory_equal(&first, &second, sizeof(first));
}

/* Larger than the staging buffer, with an end off every boundary. */
static void large_shards_pass_through_the_staging_buffer(void **state)
{
    struct checkpoint_rig *f = *state;
    const size_t n = ((size_t)9 << 20) / sizeof(float) + 3;
    float *data = mem_alloc(n * sizeof(float));
    float *back = mem_alloc(n * sizeof(float));
    struct box box = {
        .name = "w", .n_dims = 1, .shape = {n, 0}, .n_rows = n, .data = data};
    struct checkpoint_file file;
    char path[CHECKPOINT_PATH_MAX];

    for (size_t i = 0; i < n; i++) {
        data[i] = (float)i;
    }
    checkpoint_path(path, sizeof(path), f->dir, 1, 1, true);
    assert_int_equal(checkpoint_write_shard(path, 0, &box, 1, &file, &f->msg), 0);
    assert_int_equal(tiny_manifest(f->dir, 1, 1, &file, 1, &f->msg), 0);
    assert_int_equal(checkpoint_commit(f->dir, 1, 1, &f->msg), 0);
    assert_int_equal(checkpoint_verify(checkpoint_rig_path(f, 1, 1), NULL, &f->msg), 0);
    box.data = back;
    assert_int_equal(
        checkpoint_rig_load(checkpoint_rig_path(f, 1, 1), &box, 1, false, &f->msg), 0);
    assert_memory_equal(data, back, n * sizeof(float));
    mem_free(data);
    mem_free(back);
}

/* Rows [begin, end) of tensors that are cut between two shards, whose ends lie anywhere
 * in the blocks that are read. */
enum { WIDE_TENSORS = 23, WIDE_ROWS = 101, WIDE = 1009 };

static void wide_boxes(struct box *boxes, float *data, size_t begin, size_t end)
{
    for (size_t i = 0; i < WIDE_TENSORS; i++) {
        boxes[i] = (struct box){.n_dims = 2,
                                .shape = {WIDE_ROWS, WIDE},
                                .row = begin,
                                .n_rows = end - begin,
                                .data = data + (i * WIDE_ROWS + begin) * WIDE};
        assert_true(str_format(boxes[i].name, sizeof(boxes[i].name), "t.%02zu", i));
    }
}

static void commit_wide(struct checkpoint_rig *f, float *data)
{
    struct box boxes[WIDE_TENSORS];
    struct checkpoint_file files[2];
    char path[CHECKPOINT_PATH_MAX];

    checkpoint_path(path, sizeof(path), f->dir, 1, 1, true);
    for (int rank = 0; rank < 2; rank++) {
        wide_boxes(boxes, data, rank == 0 ? 0 : 37, rank == 0 ? 37 : WIDE_ROWS);
        assert_int_equal(checkpoint_write_shard(path, rank, boxes, WIDE_TENSORS,
                                                &files[rank], &f->msg),
                         0);
    }
    assert_int_equal(tiny_manifest(f->dir, 1, 1, files, 2, &f->msg), 0);
    assert_int_equal(checkpoint_commit(f->dir, 1, 1, &f->msg), 0);
}

static void rows_are_loaded_from_all_the_blocks_they_touch(void **state)
{
    static const size_t rows[][2] = {{0, WIDE_ROWS}, {0, 1}, {36, 38}, {50, 101}};
    struct checkpoint_rig *f = *state;
    size_t n = (size_t)WIDE_TENSORS * WIDE_ROWS * WIDE;
    float *data = mem_array(n, sizeof(float));
    float *back = mem_array(n, sizeof(float));
    float *wanted = mem_array(n, sizeof(float));
    struct box boxes[WIDE_TENSORS];

    for (size_t i = 0; i < n; i++) {
        data[i] = (float)i;
    }
    commit_wide(f, data);
    for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
        memset(back, 0xff, n * sizeof(float));
        memset(wanted, 0xff, n * sizeof(float));
        wide_boxes(boxes, back, rows[k][0], rows[k][1]);
        assert_int_equal(checkpoint_rig_load(checkpoint_rig_path(f, 1, 1), boxes,
                                             WIDE_TENSORS, true, &f->msg),
                         0);
        for (size_t i = 0; i < WIDE_TENSORS; i++) {
            size_t at = (i * WIDE_ROWS + rows[k][0]) * WIDE;

            memcpy(wanted + at, data + at,
                   (rows[k][1] - rows[k][0]) * WIDE * sizeof(float));
        }
        assert_memory_equal(back, wanted, n * sizeof(float));
    }
    mem_free(data);
    mem_free(back);
    mem_free(wanted);
}

/* Loads the cut both ways; nothing before or behind it is touched. */
static void assert_cut(struct checkpoint_rig *f, const char *path, size_t tensor,
                       size_t first, size_t n)
{
    struct cut cut = cut_of_box(&f->tiny.whole[tensor]);
    float data[64];
    float wanted[64];

    memset(wanted, 0xff, sizeof(wanted));
    memcpy(wanted + 1, cut.data + first, n * sizeof(float));
    cut.first = first;
    cut.n = n;
    cut.data = data + 1;
    memset(data, 0xff, sizeof(data));
    assert_int_equal(checkpoint_load(path, &cut, 1, &f->msg), 0);
    assert_memory_equal(data, wanted, sizeof(data));
    memset(data, 0xff, sizeof(data));
    assert_int_equal(checkpoint_load_verified(path, &cut, 1, NULL, &f->msg), 0);
    assert_memory_equal(data, wanted, sizeof(data));
}

static void a_cut_may_begin_and_end_inside_a_row(void **state)
{
    struct checkpoint_rig *f = *state;

    for (int world = 1; world <= 5; world += 2) {
        const char *path = checkpoint_rig_path(f, (uint64_t)world, 1);

        tiny_commit(&f->tiny, f->dir, (uint64_t)world, 1, world);
        for (size_t t = 0; t < TINY_TENSORS; t += 4) {
            size_t size = cut_of_box(&f->tiny.whole[t]).n;

            for (size_t first = 0; first < size; first += 2) {
                for (size_t n = 0; n <= size - first; n += 3) {
                    assert_cut(f, path, t, first, n);
                }
            }
        }
    }
}

/* What this process has read so far, from wherever. */
static size_t bytes_read(void)
{
    FILE *file = fopen("/proc/self/io", "re");
    size_t n = 0;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "rchar: %zu", &n), 1); /* NOLINT: the kernel's */
    assert_int_equal(fclose(file), 0);
    return n;
}

static void a_load_reads_little_more_than_its_cuts(void **state)
{
    enum { N = 1000, AT = 40 * WIDE + 3, TABLES = 64 << 10 };
    struct checkpoint_rig *f = *state;
    size_t n = (size_t)WIDE_TENSORS * WIDE_ROWS * WIDE;
    float *data = mem_array(n, sizeof(float));
    struct box boxes[WIDE_TENSORS];
    float back[N];
    struct cut cut;
    size_t before;

    for (size_t i = 0; i < n; i++) {
        data[i] = (float)i;
    }
    commit_wide(f, data);
    wide_boxes(boxes, data, 0, WIDE_ROWS);
    cut = cut_of_box(&boxes[5]);
    cut.first = AT;
    cut.n = N;
    cut.data = back;
    before = bytes_read();
    assert_int_equal(checkpoint_load(checkpoint_rig_path(f, 1, 1), &cut, 1, &f->msg),
                     0);
    assert_in_range(bytes_read() - before, sizeof(back), sizeof(back) + TABLES);
    assert_memory_equal(back, boxes[5].data + AT, sizeof(back));
    mem_free(data);
}

/* What does not fit is told only of a checkpoint that is right: a damaged one is
 * passed over, whatever is in it. */
static void a_load_verifies_before_it_judges_the_cuts(void **state)
{
    struct checkpoint_rig *f = *state;
    struct checkpoint_meta meta = {0};
    float data[64];
    struct cut cut = cut_of_box(&f->tiny.whole[0]);
    const char *path = checkpoint_rig_path(f, 7, 1);

    tiny_commit(&f->tiny, f->dir, 7, 1, 2);
    cut.shape[1]++;
    cut.data = data;
    assert_int_equal(checkpoint_load_verified(path, &cut, 1, &meta, &f->msg),
                     ERR_INVALID);
    assert_non_null(strstr(f->msg.text, "'wte.weight'"));
    assert_int_equal(meta.step, 7);
    checkpoint_meta_release(&meta);
    checkpoint_rig_damage(path, "shard-00002-model-00001-of-00001.safetensors");
    assert_int_equal(checkpoint_load_verified(path, &cut, 1, NULL, &f->msg),
                     ERR_CORRUPT);
}

static void a_missing_tensor_and_another_shape_are_named(void **state)
{
    struct checkpoint_rig *f = *state;
    float data[64];
    struct box box = {
        .name = "none", .n_dims = 1, .shape = {4, 0}, .n_rows = 4, .data = data};

    tiny_commit(&f->tiny, f->dir, 1, 1, 2);
    assert_int_equal(
        checkpoint_rig_load(checkpoint_rig_path(f, 1, 1), &box, 1, false, &f->msg),
        ERR_MISSING);
    assert_non_null(strstr(f->msg.text, "'none'"));
    assert_true(str_format(box.name, sizeof(box.name), "wte.weight"));
    assert_int_equal(
        checkpoint_rig_load(checkpoint_rig_path(f, 1, 1), &box, 1, false, &f->msg),
        ERR_INVALID);
    assert_non_null(strstr(f->msg.text, "'wte.weight'"));
    box = f->tiny.whole[0];
    box.shape[1]++;
    box.data = data;
    assert_int_equal(
        checkpoint_rig_load(checkpoint_rig_path(f, 1, 1), &box, 1, false, &f->msg),
        ERR_INVALID);
}

static void boxes_that_make_no_sense_are_refused(void **state)
{
    struct checkpoint_rig *f = *state;
    struct box boxes[2] = {f->tiny.whole[0], f->tiny.whole[0]};
    struct checkpoint_file file;

    assert_int_equal(checkpoint_write_shard(f->dir, 0, boxes, 2, &file, &f->msg),
                     ERR_INVALID);
    assert_non_null(strstr(f->msg.text, "two boxes"));
    boxes[0].n_rows++;
    assert_int_equal(checkpoint_write_shard(f->dir, 0, boxes, 1, &file, &f->msg),
                     ERR_INVALID);
}

/* For tests/torch/test_checkpoint.py. */
static int write_samples(const char *dir)
{
    struct tiny t;

    tiny_init(&t, 5);
    for (int world = 1; world <= 4; world++) {
        tiny_commit(&t, dir, (uint64_t)world, 1, world);
    }
    tiny_release(&t);
    return 0;
}

#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, checkpoint_rig_setup, checkpoint_rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(any_number_of_ranks_loads_any_others_checkpoint),
        CASE(state_hash_is_the_same_for_every_sharding),
        CASE(the_manifest_gives_back_what_was_put_in),
        CASE(writing_twice_gives_the_same_bytes),
        CASE(large_shards_pass_through_the_staging_buffer),
        CASE(rows_are_loaded_from_all_the_blocks_they_touch),
        CASE(a_cut_may_begin_and_end_inside_a_row),
        CASE(a_load_reads_little_more_than_its_cuts),
        CASE(a_load_verifies_before_it_judges_the_cuts),
        CASE(a_missing_tensor_and_another_shape_are_named),
        CASE(boxes_that_make_no_sense_are_refused),
    };
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here ever calls setenv */
    const char *samples = getenv("CTRUN_CKPT_OUT");

    return samples ? write_samples(samples) : cmocka_run_group_tests(tests, NULL, NULL);
}
