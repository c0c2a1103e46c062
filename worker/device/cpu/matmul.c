/* GEMM over a fixed grid of output tiles. Each tile is one single-threaded library
 * call, then the epilogue while the tile is in the cache. K is never cut: that alone
 * would change bits.
 *
 * Bound: on the shapes of GPT-2 124M, with cold operands, a tile runs at 85 to 95 % of
 * the core's multiply-adds in forward and for the gradients of weights, at 73 to 81 %
 * where B is transposed (gradients of inputs, the head) and in c_fc, whose rows lie a
 * multiple of 4 KiB apart. The rest is oneDNN's packing of B.
 *
 * Tried, with what it saves of a step on one Zen 4 core: tiles of 128 to 256 × 192 to
 * 1,536, 1 %, and wide ones leave threads without a tile; rows 16 floats longer, 1 %,
 * in c_fc alone; transposing an operand beforehand, nothing; oneDNN's matmul primitive
 * where B is transposed, 2 %, and nothing with its packed weights, which a step uses
 * once; a kernel of our own that packs B on its way and prefetches the next, 3 %. None
 * of them is worth a second way to multiply.
 */

#include "worker/device/cpu/cpu.h"

#include "common/clock.h"

#include <errno.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdatomic.h>

enum { TILE_ROWS = 256, TILE_COLS = 384 };

int onednn_gemm(const struct matmul *mm, const struct rect *tile)
{
    size_t row = (size_t)tile->row, col = (size_t)tile->col;
    const float *a = mm->a + (mm->trans_a ? row : row * (size_t)mm->lda);
    const float *b = mm->b + (mm->trans_b ? col * (size_t)mm->ldb : col);
    float *c = mm->c + row * (size_t)mm->ldc + col;
    dnnl_status_t status = dnnl_sgemm(mm->trans_a ? 'T' : 'N', mm->trans_b ? 'T' : 'N',
                                      tile->rows, tile->cols, mm->k, mm->alpha, a,
                                      mm->lda, b, mm->ldb, mm->beta, c, mm->ldc);

    ASSERT(status != dnnl_invalid_arguments);
    return status == dnnl_success ? 0 : -ENOMEM;
}

struct job {
    const struct tiles *tiles;
    const struct matmul *mm;
    int n_cols; /* tiles side by side */
    _Atomic int error;
};

static void on_tile(void *arg, int index)
{
    struct job *job = arg;
    const struct matmul *mm = job->mm;
    int row = index / job->n_cols * TILE_ROWS, col = index % job->n_cols * TILE_COLS;
    struct rect tile = {.row = row,
                        .col = col,
                        .rows = MIN(TILE_ROWS, mm->m - row),
                        .cols = MIN(TILE_COLS, mm->n - col)};
    int err = job->tiles->gemm(mm, &tile);

    if (err < 0) {
        atomic_store(&job->error, err);
    } else if (mm->epilogue != EPILOGUE_NONE) {
        job->tiles->epilogue(mm, &tile);
    }
}

static void check(const struct matmul *mm)
{
    bool has_bias = mm->epilogue == EPILOGUE_BIAS || mm->epilogue == EPILOGUE_BIAS_GELU;
    bool has_aux = mm->epilogue == EPILOGUE_BIAS_GELU || mm->epilogue == EPILOGUE_DGELU;

    ASSERT(mm->m > 0 && mm->n > 0 && mm->k > 0);
    ASSERT(mm->a && mm->b && mm->c);
    ASSERT(mm->lda >= (mm->trans_a ? mm->m : mm->k));
    ASSERT(mm->ldb >= (mm->trans_b ? mm->k : mm->n));
    ASSERT(mm->ldc >= mm->n);
    ASSERT(mm->beta == 0.0F || mm->beta == 1.0F);
    ASSERT(!has_bias || mm->bias);
    ASSERT(!has_aux || mm->aux);
}

void cpu_matmul(struct device *d, const struct matmul *mm)
{
    struct cpu *c = cpu_of(d);
    int n_rows = (mm->m + TILE_ROWS - 1) / TILE_ROWS;
    struct job job = {
        .tiles = c->tiles, .mm = mm, .n_cols = (mm->n + TILE_COLS - 1) / TILE_COLS};
    struct errmsg msg = {""};
    uint64_t began_us;
    int err;

    check(mm);
    if (cpu_compute_failed(c)) {
        return;
    }
    began_us = clock_us();
    pool_run(&c->pool, n_rows * job.n_cols, on_tile, &job);
    cpu_queue_worked(&c->queue[QUEUE_COMPUTE], "matmul", began_us);
    err = atomic_load(&job.error);
    if (err < 0) {
        (void)errmsg_set(&msg, err,
                         "matmul %d x %d x %d: no memory for oneDNN's buffers", mm->m,
                         mm->n, mm->k);
        cpu_queue_fail(&c->queue[QUEUE_COMPUTE], err, &msg);
    }
}
