/* Whole checkpoints: any number of ranks writes, any number reads. With CTRUN_CKPT_OUT
 * set it writes checkpoints into that folder instead of testing, for tests/torch. */

#include "tests/lib/cmocka.h"
#include "tests/lib/tiny_checkpoint.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/manifest.h"

#include "common/fault.h"
#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

struct fixture {
    char dir[256];
    struct tiny tiny;
    struct errmsg msg;
};

static int setup(void **state)
{
    struct fixture *f = mem_zalloc(sizeof(*f));

    tiny_make_dir(f->dir, sizeof(f->dir));
    tiny_init(&f->tiny, 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    tiny_release(&f->tiny);
    tiny_remove_dir(f->dir);
    mem_free(f);
    return 0;
}

static const char *path_of(const struct fixture *f, uint64_t step, int run_generation)
{
    static char path[CHECKPOINT_PATH_MAX];

    checkpoint_path(path, sizeof(path), f->dir, step, run_generation, false);
    return path;
}

static bool exists(const struct fixture *f, const char *name)
{
    char path[CHECKPOINT_PATH_MAX];

    assert_true(str_format(path, sizeof(path), "%s/%s", f->dir, name));
    return access(path, F_OK) == 0;
}

static void touch(const struct fixture *f, const char *name)
{
    char path[CHECKPOINT_PATH_MAX];
    int fd;

    assert_true(str_format(path, sizeof(path), "%s/%s", f->dir, name));
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
}

static void make_dir(const struct fixture *f, const char *name)
{
    char path[CHECKPOINT_PATH_MAX];

    assert_true(str_format(path, sizeof(path), "%s/%s", f->dir, name));
    assert_int_equal(mkdir(path, 0777), 0);
}

/* Either way of loading. */
static int load(const char *path, const struct box *boxes, size_t n, bool verified,
                struct errmsg *msg)
{
    return verified ? checkpoint_load_verified(path, boxes, n, NULL, msg)
                    : checkpoint_load(path, boxes, n, msg);
}

/* Loads what each rank of another world wants and compares it with the state. */
static void assert_loads(struct fixture *f, const char *path, int world, bool verified)
{
    struct box boxes[TINY_TENSORS];
    float data[TINY_TENSORS][64];

    for (int rank = 0; rank < world; rank++) {
        size_t n = tiny_shard(&f->tiny, rank, world, boxes);

        for (size_t i = 0; i < n; i++) {
            memset(data[i], 0xff, sizeof(data[i]));
            boxes[i].data = data[i];
        }
        assert_int_equal(load(path, boxes, n, verified, &f->msg), 0);
        for (size_t i = 0; i < n; i++) {
            size_t row = boxes[i].n_dims == 2 ? boxes[i].shape[1] : 1;
            const float *wanted = f->tiny.whole[i].data + boxes[i].row * row;
            const uint8_t *after = (const uint8_t *)(data[i] + boxes[i].n_rows * row);

            assert_memory_equal(data[i], wanted, boxes[i].n_rows * row * sizeof(float));
            assert_int_equal(*after, 0xff); /* and nothing past the box */
        }
    }
}

static void damage(const char *dir, const char *name)
{
    char path[CHECKPOINT_PATH_MAX];
    int fd;

    assert_true(str_format(path, sizeof(path), "%s/%s", dir, name));
    fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "\xa5\x5a", 2, 40), 2);
    assert_int_equal(close(fd), 0);
}

/* --- round trips --- */

static void any_number_of_ranks_loads_any_others_checkpoint(void **state)
{
    struct fixture *f = *state;

    for (int written = 1; written <= 9; written++) {
        tiny_commit(&f->tiny, f->dir, (uint64_t)written, 1, written);
        assert_int_equal(
            checkpoint_verify(path_of(f, (uint64_t)written, 1), NULL, &f->msg), 0);
        for (int wanted = 1; wanted <= 9; wanted++) {
            assert_loads(f, path_of(f, (uint64_t)written, 1), wanted, false);
            assert_loads(f, path_of(f, (uint64_t)written, 1), wanted, true);
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
    struct fixture *f = *state;
    char wanted[CHECKPOINT_HASH_HEX];
    char hash[CHECKPOINT_HASH_HEX];
    struct tiny other;

    expected_hash(&f->tiny, wanted);
    for (int world = 1; world <= 5; world++) {
        tiny_commit(&f->tiny, f->dir, (uint64_t)world, world, world);
        assert_int_equal(
            checkpoint_state_hash(path_of(f, (uint64_t)world, world), hash, &f->msg),
            0);
        assert_string_equal(hash, wanted);
    }
    tiny_init(&other, 1);
    tiny_commit(&other, f->dir, 9, 9, 2);
    assert_int_equal(checkpoint_state_hash(path_of(f, 9, 9), hash, &f->msg), 0);
    assert_string_not_equal(hash, wanted);
    tiny_release(&other);
}

static void the_manifest_gives_back_what_was_put_in(void **state)
{
    struct fixture *f = *state;
    struct checkpoint_meta meta;

    tiny_commit(&f->tiny, f->dir, 100, 3, 2);
    assert_int_equal(checkpoint_verify(path_of(f, 100, 3), &meta, &f->msg), 0);
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
    struct fixture *f = *state;
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
    struct fixture *f = *state;
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
    assert_int_equal(checkpoint_verify(path_of(f, 1, 1), NULL, &f->msg), 0);
    box.data = back;
    assert_int_equal(checkpoint_load(path_of(f, 1, 1), &box, 1, &f->msg), 0);
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

static void commit_wide(struct fixture *f, float *data)
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

static void boxes_are_loaded_from_all_the_blocks_they_touch(void **state)
{
    static const size_t rows[][2] = {{0, WIDE_ROWS}, {0, 1}, {36, 38}, {50, 101}};
    struct fixture *f = *state;
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
        assert_int_equal(checkpoint_load_verified(path_of(f, 1, 1), boxes, WIDE_TENSORS,
                                                  NULL, &f->msg),
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

/* What does not fit is told only of a checkpoint that is right: a damaged one is
 * passed over, whatever is in it. */
static void a_load_verifies_before_it_judges_the_boxes(void **state)
{
    struct fixture *f = *state;
    struct checkpoint_meta meta = {0};
    float data[64];
    struct box box = f->tiny.whole[0];

    tiny_commit(&f->tiny, f->dir, 7, 1, 2);
    box.shape[1]++;
    box.data = data;
    assert_int_equal(
        checkpoint_load_verified(path_of(f, 7, 1), &box, 1, &meta, &f->msg),
        ERR_INVALID);
    assert_non_null(strstr(f->msg.text, "'wte.weight'"));
    assert_int_equal(meta.step, 7);
    checkpoint_meta_release(&meta);
    damage(path_of(f, 7, 1), "shard-00002-model-00001-of-00001.safetensors");
    assert_int_equal(checkpoint_load_verified(path_of(f, 7, 1), &box, 1, NULL, &f->msg),
                     ERR_CORRUPT);
}

static void a_missing_tensor_and_another_shape_are_named(void **state)
{
    struct fixture *f = *state;
    float data[64];
    struct box box = {
        .name = "none", .n_dims = 1, .shape = {4, 0}, .n_rows = 4, .data = data};

    tiny_commit(&f->tiny, f->dir, 1, 1, 2);
    assert_int_equal(checkpoint_load(path_of(f, 1, 1), &box, 1, &f->msg), ERR_MISSING);
    assert_non_null(strstr(f->msg.text, "'none'"));
    assert_true(str_format(box.name, sizeof(box.name), "wte.weight"));
    assert_int_equal(checkpoint_load(path_of(f, 1, 1), &box, 1, &f->msg), ERR_INVALID);
    assert_non_null(strstr(f->msg.text, "'wte.weight'"));
    box = f->tiny.whole[0];
    box.shape[1]++;
    box.data = data;
    assert_int_equal(checkpoint_load(path_of(f, 1, 1), &box, 1, &f->msg), ERR_INVALID);
}

static void boxes_that_make_no_sense_are_refused(void **state)
{
    struct fixture *f = *state;
    struct box boxes[2] = {f->tiny.whole[0], f->tiny.whole[0]};
    struct checkpoint_file file;

    assert_int_equal(checkpoint_write_shard(f->dir, 0, boxes, 2, &file, &f->msg),
                     ERR_INVALID);
    assert_non_null(strstr(f->msg.text, "two boxes"));
    boxes[0].n_rows++;
    assert_int_equal(checkpoint_write_shard(f->dir, 0, boxes, 1, &file, &f->msg),
                     ERR_INVALID);
}

/* --- committing and choosing --- */

static void a_commit_may_be_repeated_but_not_invented(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(tiny_write(&f->tiny, f->dir, 7, 2, 2, &f->msg), 0);
    assert_int_equal(checkpoint_commit(f->dir, 7, 2, &f->msg), 0);
    assert_int_equal(checkpoint_commit(f->dir, 7, 2, &f->msg), 0);
    assert_false(exists(f, "step-00000007-g2.tmp"));
    assert_int_equal(checkpoint_commit(f->dir, 8, 2, &f->msg), -ENOENT);
}

static void only_exact_names_are_committed(void **state)
{
    static const char *const wrong[] = {"step-00000001-g1.tmp",    "step-1-g1",
                                        "step-000000001-g1",       "step-00000001-g01",
                                        "step-00000001-g0",        "step-00000001-g",
                                        "step-00000001",           "step-+0000001-g1",
                                        "step-00000001-g1x",       "step--0000001-g1",
                                        "trash-step-00000001-g1.0"};
    struct fixture *f = *state;
    struct checkpoint_entry *entry;
    size_t n;

    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        make_dir(f, wrong[i]);
    }
    touch(f, "step-00000009-g9"); /* no directory */
    make_dir(f, "step-123456789-g1");
    make_dir(f, "step-00000900-g1");
    make_dir(f, "step-00000005-g2");
    assert_int_equal(checkpoint_list(f->dir, &entry, &n, &f->msg), 0);
    assert_int_equal(n, 3);
    assert_int_equal(entry[0].run_generation, 2); /* before any step */
    assert_int_equal(entry[0].step, 5);
    assert_int_equal(entry[1].step, 123456789);
    assert_int_equal(entry[2].step, 900);
    mem_free(entry);
}

static void a_missing_folder_is_an_empty_one(void **state)
{
    struct fixture *f = *state;
    struct checkpoint_entry *entry;
    size_t n = 1;

    assert_int_equal(checkpoint_list("/nonexistent/ckpt", &entry, &n, &f->msg), 0);
    assert_int_equal(n, 0);
    mem_free(entry);
    assert_int_equal(checkpoint_sweep("/nonexistent/ckpt", 0, &f->msg), 0);
    assert_int_equal(checkpoint_prune("/nonexistent/ckpt", 1, &f->msg), 0);
}

struct rejections {
    char line[4][512];
    int n;
};

static void on_rejected(void *arg, const char *line)
{
    struct rejections *r = arg;

    if (r->n < (int)ARRAY_LEN(r->line)) {
        (void)snprintf(r->line[r->n], sizeof(r->line[0]), "%s", line);
    }
    r->n++;
}

static void loading_falls_back_to_the_newest_that_verifies_and_says_so(void **state)
{
    struct fixture *f = *state;
    struct rejections r = {.n = 0};
    float data[64];
    struct box box = f->tiny.whole[0];
    const struct checkpoint_search search = {.dir = f->dir,
                                             .boxes = &box,
                                             .n_boxes = 1,
                                             .on_rejected = on_rejected,
                                             .arg = &r};
    struct checkpoint_entry entry;
    struct checkpoint_meta meta;

    box.data = data;
    tiny_commit(&f->tiny, f->dir, 900, 1, 2);
    tiny_commit(&f->tiny, f->dir, 10, 2, 2);
    tiny_commit(&f->tiny, f->dir, 20, 2, 2);
    tiny_commit(&f->tiny, f->dir, 30, 2, 2);
    damage(path_of(f, 30, 2), "shard-00002-model-00001-of-00001.safetensors");
    damage(path_of(f, 20, 2), "manifest.json");
    assert_int_equal(checkpoint_newest(&search, &entry, &meta, &f->msg), 0);
    assert_int_equal(entry.step, 10);
    assert_int_equal(entry.run_generation, 2);
    assert_int_equal(meta.step, 10);
    checkpoint_meta_release(&meta);
    assert_memory_equal(data, f->tiny.whole[0].data,
                        box.shape[0] * box.shape[1] * sizeof(float));
    assert_int_equal(r.n, 2);
    assert_non_null(strstr(r.line[0], "step-00000030-g2"));
    assert_non_null(strstr(r.line[0], "shard-00002-model-00001-of-00001.safetensors"));
    assert_non_null(strstr(r.line[1], "step-00000020-g2"));
    assert_non_null(strstr(r.line[1], "manifest.json"));
    assert_null(strchr(r.line[0], '\n'));
}

static void without_a_good_checkpoint_there_is_none(void **state)
{
    struct fixture *f = *state;
    struct rejections r = {.n = 0};
    const struct checkpoint_search search = {
        .dir = f->dir, .on_rejected = on_rejected, .arg = &r};
    struct checkpoint_entry entry;
    struct checkpoint_meta meta;

    assert_int_equal(checkpoint_newest(&search, &entry, &meta, &f->msg), ERR_MISSING);
    tiny_commit(&f->tiny, f->dir, 1, 1, 1);
    damage(path_of(f, 1, 1), "manifest.json");
    assert_int_equal(checkpoint_newest(&search, &entry, &meta, &f->msg), ERR_MISSING);
    assert_int_equal(r.n, 1);
}

#ifdef FAULTS

/* It may be good: an older one in its place would make it the next to be pruned. */
static void what_cannot_be_read_now_is_not_rejected(void **state)
{
    static const int errors[] = {-EMFILE, -ENOMEM, -EACCES, -ESTALE, -EIO, -EAGAIN};
    struct fixture *f = *state;
    struct rejections r = {.n = 0};
    float data[64];
    struct box box = f->tiny.whole[0];
    const struct checkpoint_search search = {.dir = f->dir,
                                             .boxes = &box,
                                             .n_boxes = 1,
                                             .on_rejected = on_rejected,
                                             .arg = &r};
    struct checkpoint_entry entry;
    struct checkpoint_meta meta = {0};

    box.data = data;
    tiny_commit(&f->tiny, f->dir, 10, 1, 2);
    tiny_commit(&f->tiny, f->dir, 20, 1, 2);
    for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
        fault_arm("ckpt.read", 2, errors[i]);
        assert_int_equal(checkpoint_newest(&search, &entry, &meta, &f->msg), errors[i]);
        assert_non_null(strstr(f->msg.text, "step-00000020-g1: shard-00002-"));
        fault_disarm_all();
        /* manifest, tables for the plan, files, tables again */
        for (unsigned n = 1; n <= 7; n++) {
            fault_arm("ckpt.open_read", n, errors[i]);
            assert_int_equal(checkpoint_newest(&search, &entry, &meta, &f->msg),
                             errors[i]);
            assert_null(meta.model_json);
            fault_disarm_all();
        }
    }
    damage(path_of(f, 20, 1), "shard-00001-model-00001-of-00001.safetensors");
    fault_arm("ckpt.read", 2, -EIO); /* the other one: it is damaged all the same */
    assert_int_equal(r.n, 0);
    assert_int_equal(checkpoint_newest(&search, &entry, &meta, &f->msg), 0);
    fault_disarm_all();
    assert_int_equal(entry.step, 10);
    assert_int_equal(r.n, 1);
    checkpoint_meta_release(&meta);
}

#endif

/* --- housekeeping --- */

static void pruning_keeps_the_newest_by_generation_then_step(void **state)
{
    struct fixture *f = *state;

    tiny_commit(&f->tiny, f->dir, 900, 1, 1); /* a left-over with a higher number */
    tiny_commit(&f->tiny, f->dir, 10, 2, 1);
    tiny_commit(&f->tiny, f->dir, 20, 2, 1);
    assert_int_equal(checkpoint_prune(f->dir, 0, &f->msg), 0);
    assert_true(exists(f, "step-00000900-g1"));
    assert_int_equal(checkpoint_prune(f->dir, 2, &f->msg), 0);
    assert_false(exists(f, "step-00000900-g1"));
    assert_true(exists(f, "step-00000010-g2"));
    assert_int_equal(checkpoint_prune(f->dir, 1, &f->msg), 0);
    assert_false(exists(f, "step-00000010-g2"));
    assert_true(exists(f, "step-00000020-g2"));
    assert_int_equal(checkpoint_verify(path_of(f, 20, 2), NULL, &f->msg), 0);
}

static void the_sweep_removes_what_crashes_left_and_nothing_else(void **state)
{
    static const char *const gone[] = {"step-00000009-g1.tmp", "step-00000009-g2.tmp",
                                       "trash-step-00000001-g1.0", "step-9-g1.tmp",
                                       "step-00000009-g03.tmp"};
    static const char *const kept[] = {
        "step-1000",         /* of another framework */
        "step-9-g1",         /* nearly ours */
        "step-00000009-g03", /* the same */
        "step-00001000-g3.bak",
        "data.tmp",
        "step-",
        ".tmp",
        "a-step-1.tmp",
    };
    struct fixture *f = *state;

    tiny_commit(&f->tiny, f->dir, 5, 1, 1);
    assert_int_equal(tiny_write(&f->tiny, f->dir, 9, 1, 2, &f->msg), 0);
    assert_int_equal(tiny_write(&f->tiny, f->dir, 9, 2, 2, &f->msg), 0);
    assert_int_equal(tiny_write(&f->tiny, f->dir, 9, 3, 2, &f->msg), 0);
    assert_int_equal(tiny_write(&f->tiny, f->dir, 9, 4, 2, &f->msg), 0);
    make_dir(f, "trash-step-00000001-g1.0");
    touch(f, "trash-step-00000001-g1.0/shard");
    make_dir(f, "step-9-g1.tmp");
    make_dir(f, "step-00000009-g03.tmp");
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        make_dir(f, kept[i]);
    }
    touch(f, "data.tmp/shard");
    touch(f, "notes.txt");
    touch(f, ".lock");
    assert_int_equal(checkpoint_sweep(f->dir, 3, &f->msg), 0);
    for (size_t i = 0; i < ARRAY_LEN(gone); i++) {
        assert_false(exists(f, gone[i]));
    }
    assert_true(exists(f, "step-00000009-g3.tmp"));
    assert_true(exists(f, "step-00000009-g4.tmp")); /* a successor's */
    assert_true(exists(f, "notes.txt"));
    assert_true(exists(f, ".lock"));
    assert_int_equal(checkpoint_sweep(f->dir, 0, &f->msg), 0);
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        assert_true(exists(f, kept[i]));
    }
    assert_true(exists(f, "data.tmp/shard"));
    assert_false(exists(f, "step-00000009-g3.tmp"));
    assert_int_equal(checkpoint_verify(path_of(f, 5, 1), NULL, &f->msg), 0);
    assert_int_equal(checkpoint_sweep(f->dir, 0, &f->msg), 0);
}

static void the_sweep_takes_folders_whole_and_goes_on_where_it_cannot(void **state)
{
    struct fixture *f = *state;
    char path[CHECKPOINT_PATH_MAX];
    char link[CHECKPOINT_PATH_MAX];

    tiny_commit(&f->tiny, f->dir, 5, 1, 1);
    make_dir(f, "trash-z");
    make_dir(f, "trash-z/a");
    make_dir(f, "trash-z/a/b");
    make_dir(f, "trash-z/a/b/c");
    touch(f, "trash-z/a/b/c/d");
    assert_true(str_format(link, sizeof(link), "%s/trash-z/a/link", f->dir));
    assert_int_equal(symlink(path_of(f, 5, 1), link), 0);
    make_dir(f, "step-9-deep.tmp");
    assert_true(str_format(path, sizeof(path), "%s/step-9-deep.tmp", f->dir));
    for (int i = 0; i < 40; i++) {
        size_t len = strlen(path);

        assert_true(str_format(path + len, sizeof(path) - len, "/d"));
        assert_int_equal(mkdir(path, 0777), 0);
    }
    touch(f, "step-z.tmp");
    assert_int_equal(checkpoint_sweep(f->dir, 0, &f->msg), 1);
    assert_non_null(strstr(f->msg.text, "/d: Directory not empty"));
    assert_false(exists(f, "trash-z"));
    assert_false(exists(f, "step-z.tmp"));
    assert_int_equal(checkpoint_verify(path_of(f, 5, 1), NULL, &f->msg), 0);
    assert_int_equal(checkpoint_sweep(f->dir, 0, &f->msg), 1); /* nor the next time */
}

static void discarding_takes_the_own_temporary_alone(void **state)
{
    struct fixture *f = *state;

    tiny_commit(&f->tiny, f->dir, 8, 1, 2);
    assert_int_equal(tiny_write(&f->tiny, f->dir, 9, 1, 2, &f->msg), 0);
    assert_int_equal(tiny_write(&f->tiny, f->dir, 9, 2, 2, &f->msg), 0);
    assert_int_equal(checkpoint_discard(f->dir, 9, 1, &f->msg), 0);
    assert_false(exists(f, "step-00000009-g1.tmp"));
    assert_true(exists(f, "step-00000009-g2.tmp"));
    assert_int_equal(checkpoint_discard(f->dir, 9, 1, &f->msg), 0);
    assert_int_equal(checkpoint_discard(f->dir, 8, 1, &f->msg), 0); /* committed */
    assert_int_equal(checkpoint_verify(path_of(f, 8, 1), NULL, &f->msg), 0);
}

static void a_link_to_elsewhere_is_never_followed(void **state)
{
    struct fixture *f = *state;
    char link[CHECKPOINT_PATH_MAX];

    tiny_commit(&f->tiny, f->dir, 5, 1, 1);
    assert_true(str_format(link, sizeof(link), "%s/step-00000006-g1.tmp", f->dir));
    assert_int_equal(symlink(path_of(f, 5, 1), link), 0);
    assert_int_equal(checkpoint_sweep(f->dir, 0, &f->msg), 0);
    assert_false(exists(f, "step-00000006-g1.tmp"));
    assert_int_equal(checkpoint_verify(path_of(f, 5, 1), NULL, &f->msg), 0);
}

static void a_zombies_commit_after_the_sweep_meets_enoent(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(tiny_write(&f->tiny, f->dir, 9, 1, 2, &f->msg), 0);
    assert_int_equal(checkpoint_sweep(f->dir, 2, &f->msg), 0);
    assert_int_equal(checkpoint_commit(f->dir, 9, 1, &f->msg), -ENOENT);
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

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(any_number_of_ranks_loads_any_others_checkpoint),
        CASE(state_hash_is_the_same_for_every_sharding),
        CASE(the_manifest_gives_back_what_was_put_in),
        CASE(writing_twice_gives_the_same_bytes),
        CASE(large_shards_pass_through_the_staging_buffer),
        CASE(boxes_are_loaded_from_all_the_blocks_they_touch),
        CASE(a_load_verifies_before_it_judges_the_boxes),
        CASE(a_missing_tensor_and_another_shape_are_named),
        CASE(boxes_that_make_no_sense_are_refused),
        CASE(a_commit_may_be_repeated_but_not_invented),
        CASE(only_exact_names_are_committed),
        CASE(a_missing_folder_is_an_empty_one),
        CASE(loading_falls_back_to_the_newest_that_verifies_and_says_so),
        CASE(without_a_good_checkpoint_there_is_none),
#ifdef FAULTS
        CASE(what_cannot_be_read_now_is_not_rejected),
#endif
        CASE(pruning_keeps_the_newest_by_generation_then_step),
        CASE(the_sweep_removes_what_crashes_left_and_nothing_else),
        CASE(the_sweep_takes_folders_whole_and_goes_on_where_it_cannot),
        CASE(discarding_takes_the_own_temporary_alone),
        CASE(a_link_to_elsewhere_is_never_followed),
        CASE(a_zombies_commit_after_the_sweep_meets_enoent),
    };
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here ever calls setenv */
    const char *samples = getenv("CTRUN_CKPT_OUT");

    return samples ? write_samples(samples) : cmocka_run_group_tests(tests, NULL, NULL);
}
