/* The time in which a rank's shard of a checkpoint becomes durable: the writer that the
 * engine uses, with its hash and its fsync.
 *
 *   bench-checkpoint FOLDER MIB
 *
 * Writes MIB mebibytes of tensors into FOLDER, prints a line of JSON, and takes the
 * file away again. Failures: one line, 1; a usage line, 2. */

#include "tests/bench/bench.h"
#include "worker/checkpoint/checkpoint.h"

#include "common/mem.h"

#include <stdio.h>
#include <unistd.h>

enum { MIB_MAX = 16384, ROWS = 8192, COLUMNS = 768, BOX_MIB = ROWS / 1024 * 3 };

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
static size_t make_boxes(float *data, size_t n_rows, struct box *box)
{
    size_t n = 0;

    for (size_t row = 0; row < n_rows; row += ROWS) {
        size_t rows = MIN((size_t)ROWS, n_rows - row);

        box[n] = (struct box){.shape = {rows, COLUMNS}, .n_dims = 2, .n_rows = rows};
        box[n].data = data + row * COLUMNS;
        (void)snprintf(box[n].name, sizeof(box[n].name), "h.%zu.weight", n);
        n++;
    }
    return n;
}

static int write_shard(const char *folder, const struct box *box, size_t n_boxes,
                       struct errmsg *msg)
{
    struct checkpoint_file file;
    char path[CHECKPOINT_PATH_MAX];
    double began = bench_now_us();
    double took;
    int rv = checkpoint_write_shard(folder, 0, box, n_boxes, &file, msg);

    took = bench_now_us() - began;
    if (rv < 0) {
        return rv;
    }
    if (!str_format(path, sizeof(path), "%s/%s", folder, file.name)) {
        return errmsg_set(msg, ERR_TOO_LARGE, "the path is too long");
    }
    (void)unlink(path);
    (void)printf("{\"bytes\": %llu, \"seconds\": %.6f}\n",
                 (unsigned long long)file.bytes, took / 1e6);
    return 0;
}

int main(int argc, char **argv)
{
    struct errmsg msg = {""};
    struct box *box;
    float *data;
    size_t n_rows;
    int64_t mib;
    int rv;

    if (argc != 3 || !bench_number(argv[2], 1, MIB_MAX, &mib)) {
        (void)fprintf(stderr, "usage: bench-checkpoint FOLDER MIB\n");
        return 2;
    }
    n_rows = ((size_t)mib << 20) / (COLUMNS * sizeof(float));
    data = mem_array(n_rows * COLUMNS, sizeof(float));
    box = mem_array(n_rows / ROWS + 1, sizeof(*box));
    fill(data, n_rows * COLUMNS);
    rv = write_shard(argv[1], box, make_boxes(data, n_rows, box), &msg);
    if (rv < 0) {
        (void)fprintf(stderr, "bench-checkpoint: %s\n", msg.text);
    }
    mem_free(box);
    mem_free(data);
    return rv < 0 ? 1 : 0;
}
