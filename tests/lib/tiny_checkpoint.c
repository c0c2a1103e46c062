#include "tests/lib/tiny_checkpoint.h"

#include "common/mem.h"
#include "common/str.h"

#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tiny_param {
    const char *name;
    int n_dims;
    size_t shape[2];
};

static const struct tiny_param params[] = {
    {"wte.weight", 2, {7, 3}},      {"h.0.ln_1.weight", 1, {5, 0}},
    {"h.0.mlp.weight", 2, {3, 11}}, {"h.10.mlp.weight", 2, {2, 4}},
    {"ln_f.bias", 1, {1, 0}},
};
static const char *const endings[] = {"", ".exp_avg", ".exp_avg_sq"};

_Static_assert(TINY_TENSORS == ARRAY_LEN(params) * ARRAY_LEN(endings), "all of them");

static size_t row_size(const struct box *b)
{
    return b->n_dims == 2 ? b->shape[1] : 1;
}

static void init_box(struct box *b, const struct tiny_param *p, const char *ending,
                     unsigned k)
{
    size_t n;

    *b = (struct box){.n_dims = p->n_dims, .n_rows = p->shape[0]};
    ASSERT(str_format(b->name, sizeof(b->name), "%s%s", p->name, ending));
    memcpy(b->shape, p->shape, sizeof(b->shape));
    n = b->n_rows * row_size(b);
    b->data = mem_array(n, sizeof(float));
    for (size_t i = 0; i < n; i++) {
        b->data[i] = (float)((i * 7 + k) % 1000) / 8;
    }
}

void tiny_init(struct tiny *t, unsigned salt)
{
    for (size_t k = 0; k < TINY_TENSORS; k++) {
        init_box(&t->whole[k], &params[k % ARRAY_LEN(params)],
                 endings[k / ARRAY_LEN(params)], (unsigned)k * 131 + salt * 17);
    }
}

void tiny_release(struct tiny *t)
{
    for (size_t k = 0; k < TINY_TENSORS; k++) {
        mem_free(t->whole[k].data);
    }
}

/* The rows of `b` that begin in elements [begin, end) of the flat block; `at` is b's
 * begin. */
static void cut_rows(struct box *b, size_t at, size_t begin, size_t end)
{
    const size_t size = row_size(b);
    size_t n = 0;

    for (size_t row = 0; row < b->shape[0]; row++) {
        size_t element = at + row * size;

        if (element >= begin && element < end) {
            b->row = n++ == 0 ? row : b->row;
        }
    }
    b->n_rows = n;
    b->data += b->row * size;
}

size_t tiny_shard(const struct tiny *t, int rank, int world, struct box *ret)
{
    size_t total = 0;
    size_t at = 0;
    size_t part;

    for (size_t k = 0; k < TINY_TENSORS; k++) {
        total += t->whole[k].n_rows * row_size(&t->whole[k]);
    }
    part = (total + (size_t)world - 1) / (size_t)world;
    for (size_t k = 0; k < TINY_TENSORS; k++) {
        ret[k] = t->whole[k];
        cut_rows(&ret[k], at, (size_t)rank * part, (size_t)(rank + 1) * part);
        at += t->whole[k].n_rows * row_size(&t->whole[k]);
    }
    return TINY_TENSORS;
}

double tiny_val_loss(uint64_t step)
{
    return (double)(step < 25 ? 25 - step : step - 25) / 8;
}

int tiny_manifest(const char *dir, uint64_t step, int run_generation,
                  const struct checkpoint_file *files, int world, struct errmsg *msg)
{
    char model[] = "{\"family\": \"gpt2\", \"dropout\": 0.1}";
    char config[] = "{\"model.dim\":\"3\",\"run.name\":\"t\\u00efny \\\"q\\\"\"}";
    char data[] = "[{\"path\":\"a.txt\",\"bytes\":17}]";
    const struct checkpoint_meta meta = {.step = step,
                                         .run_generation = run_generation,
                                         .position = step * 32,
                                         .seed = UINT64_MAX,
                                         .world_size = world,
                                         .mesh = {world, 1, "ddp"},
                                         .signature = "micro_batch=4 fp32 avx2",
                                         .has_val_loss = true,
                                         .val_loss = tiny_val_loss(step),
                                         .trained_ms = step * 1000,
                                         .failures = (uint64_t)run_generation - 1,
                                         .scaler = {step > 2, 1000.1F, 1, step - 2, 2},
                                         .model_json = model,
                                         .config_json = config,
                                         .data_json = data};
    char path[CHECKPOINT_PATH_MAX];
    char hash[CHECKPOINT_HASH_HEX];

    checkpoint_path(path, sizeof(path), dir, step, run_generation, true);
    return checkpoint_write_manifest(path, &meta, files, (size_t)world, hash, msg);
}

int tiny_write(const struct tiny *t, const char *dir, uint64_t step, int run_generation,
               int world, struct errmsg *msg)
{
    struct checkpoint_file files[16];
    struct box boxes[TINY_TENSORS];
    char path[CHECKPOINT_PATH_MAX];

    ASSERT(world <= (int)ARRAY_LEN(files));
    checkpoint_path(path, sizeof(path), dir, step, run_generation, true);
    for (int rank = 0; rank < world; rank++) {
        size_t n = tiny_shard(t, rank, world, boxes);
        int rv = checkpoint_write_shard(path, rank, boxes, n, &files[rank], msg);

        if (rv < 0) {
            return rv;
        }
    }
    return tiny_manifest(dir, step, run_generation, files, world, msg);
}

void tiny_commit(const struct tiny *t, const char *dir, uint64_t step,
                 int run_generation, int world)
{
    struct errmsg msg;

    ASSERT(tiny_write(t, dir, step, run_generation, world, &msg) == 0);
    ASSERT(checkpoint_commit(dir, step, run_generation, &msg) == 0);
}

void tiny_make_dir(char *path, size_t size)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here ever calls setenv */
    const char *tmp = getenv("TMPDIR");

    ASSERT(str_format(path, size, "%s/ctrun-test-XXXXXX", tmp ? tmp : "/tmp"));
    ASSERT(mkdtemp(path));
}

void tiny_remove_dir(const char *path)
{
    char *copy = mem_strdup(path);
    char *const paths[] = {copy, NULL};
    FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    const FTSENT *e;

    ASSERT(fts);
    while ((e = fts_read(fts))) { /* NOLINT(concurrency-mt-unsafe): `fts` is our own */
        if (e->fts_info != FTS_D) {
            ASSERT(remove(e->fts_accpath) == 0);
        }
    }
    ASSERT(fts_close(fts) == 0);
    mem_free(copy);
}
