/* The time in which a rank's shard of a checkpoint becomes durable, and in which it is
 * back in memory: the writer and the loader that the engine uses, with hash, fsync and
 * verification.
 *
 *   bench-checkpoint FOLDER MIB
 *
 * Commits MIB mebibytes of tensors into FOLDER, loads them, and takes them away again.
 * Prints a line of JSON for each: "copy" (one memcpy of as much, on one thread),
 * "write", "load". Failures: one line, 1; a usage line, 2. */

#include "tests/bench/bench.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/device/cpu/arena.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

enum { MIB_MAX = 16384, ROWS = 8192, COLUMNS = 768, STEP = 1, RUN = 1 };

struct bench {
    const char *folder;
    size_t bytes;
    float *data; /* what the engine's memory is: huge pages, touched before */
    float *back;
    struct box *box;
    size_t n_boxes;
};

/* Bytes that no disk can make smaller. */
static void fill(float *data, size_t n)
{
    uint32_t *word = (uint32_t *)(void *)data;
    uint32_t x = 1;

    for (size_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        word[i] = x;
    }
}

/* Boxes of 24 MiB, the last one smaller. */
static void point_boxes(struct bench *b, float *data)
{
    size_t n_rows = b->bytes / (COLUMNS * sizeof(float));

    b->n_boxes = 0;
    for (size_t row = 0; row < n_rows; row += ROWS) {
        struct box *box = &b->box[b->n_boxes];
        size_t rows = MIN((size_t)ROWS, n_rows - row);

        *box = (struct box){.shape = {rows, COLUMNS}, .n_dims = 2, .n_rows = rows};
        box->data = data + row * COLUMNS;
        (void)snprintf(box->name, sizeof(box->name), "h.%zu.weight", b->n_boxes++);
    }
}

static void print(const struct bench *b, const char *what, double began_us)
{
    (void)printf("{\"what\": \"%s\", \"bytes\": %zu, \"seconds\": %.6f}\n", what,
                 b->bytes, (bench_now_us() - began_us) / 1e6);
}

/* With the manifest and the commit, as the engine does it. */
static int write_all(struct bench *b, struct errmsg *msg)
{
    char text[] = "{}";
    const struct checkpoint_meta meta = {.step = STEP,
                                         .run_generation = RUN,
                                         .world_size = 1,
                                         .mesh = {1, 1, "ddp"},
                                         .signature = "bench",
                                         .model_json = text,
                                         .config_json = text,
                                         .data_json = text};
    struct checkpoint_file file;
    char hash[CHECKPOINT_HASH_HEX];
    char tmp[CHECKPOINT_PATH_MAX];
    int rv;

    checkpoint_path(tmp, sizeof(tmp), b->folder, STEP, RUN, true);
    point_boxes(b, b->data);
    rv = checkpoint_write_shard(tmp, 0, b->box, b->n_boxes, &file, msg);
    rv = rv < 0 ? rv : checkpoint_write_manifest(tmp, &meta, &file, 1, hash, msg);
    return rv < 0 ? rv : checkpoint_commit(b->folder, STEP, RUN, msg);
}

static int load_all(struct bench *b, struct errmsg *msg)
{
    struct cut *cuts = mem_array(b->n_boxes, sizeof(*cuts));
    char path[CHECKPOINT_PATH_MAX];
    int rv;

    checkpoint_path(path, sizeof(path), b->folder, STEP, RUN, false);
    point_boxes(b, b->back);
    for (size_t i = 0; i < b->n_boxes; i++) {
        cuts[i] = cut_of_box(&b->box[i]);
    }
    rv = checkpoint_load_verified(path, cuts, b->n_boxes, NULL, msg);
    mem_free(cuts);
    return rv;
}

/* The name is then not a committed one, so the sweep takes it. */
static int remove_all(const struct bench *b, struct errmsg *msg)
{
    char path[CHECKPOINT_PATH_MAX];
    char tmp[CHECKPOINT_PATH_MAX];

    checkpoint_path(path, sizeof(path), b->folder, STEP, RUN, false);
    checkpoint_path(tmp, sizeof(tmp), b->folder, STEP, RUN, true);
    if (rename(path, tmp) < 0) {
        return errmsg_set(msg, ERR_MISSING, "%s is gone", path);
    }
    return checkpoint_discard(b->folder, STEP, RUN, msg);
}

static int measure(struct bench *b, struct errmsg *msg)
{
    double began = bench_now_us();
    int rv;

    memcpy(b->back, b->data, b->bytes);
    print(b, "copy", began);
    memset(b->back, 0, b->bytes);

    began = bench_now_us();
    rv = write_all(b, msg);
    if (rv < 0) {
        return rv;
    }
    print(b, "write", began);

    began = bench_now_us();
    rv = load_all(b, msg);
    if (rv < 0) {
        return rv;
    }
    print(b, "load", began);
    if (memcmp(b->back, b->data, b->bytes) != 0) {
        return errmsg_set(msg, ERR_CORRUPT, "what came back is something else");
    }
    return remove_all(b, msg);
}

static int run(const char *folder, size_t mib, struct errmsg *msg)
{
    size_t n_rows = (mib << 20) / (COLUMNS * sizeof(float));
    struct bench b = {.folder = folder, .bytes = n_rows * COLUMNS * sizeof(float)};
    void *data = NULL;
    void *back = NULL;
    int rv = arena_map(b.bytes, &data);

    if (rv == 0) {
        rv = arena_map(b.bytes, &back);
    }
    if (rv < 0) {
        return errmsg_set(msg, rv, "no memory for twice %zu MiB", mib);
    }
    b.data = data;
    b.back = back;
    b.box = mem_array(n_rows / ROWS + 1, sizeof(*b.box));
    fill(b.data, n_rows * COLUMNS);
    rv = measure(&b, msg);
    mem_free(b.box);
    arena_unmap(data, b.bytes);
    arena_unmap(back, b.bytes);
    return rv;
}

int main(int argc, char **argv)
{
    struct errmsg msg = {""};
    int64_t mib;
    int rv;

    if (argc != 3 || !bench_number(argv[2], 1, MIB_MAX, &mib)) {
        (void)fprintf(stderr, "usage: bench-checkpoint FOLDER MIB\n");
        return 2;
    }
    rv = run(argv[1], (size_t)mib, &msg);
    if (rv < 0) {
        (void)fprintf(stderr, "bench-checkpoint: %s\n", msg.text);
    }
    return rv < 0 ? 1 : 0;
}
