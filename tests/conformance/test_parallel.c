/* Every strategy, by real processes: the summed gradient against the tree's definition
 * computed here element by element, the same bits for every number of ranks, nodes,
 * shards, leaves and every bucket size (values have wild magnitudes, so any other order
 * of additions shows); the parameters that a pass sees; the norm's sums. */

#include "tests/lib/cmocka.h"
#include "tests/lib/strategy_rig.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

#define C ((size_t)SUMSQ_CHUNK)

enum { LEAVES_MAX = 16, N_STEPS = 2 };

static const uint32_t leaf_counts[] = {1, 2, 3, 4, 5, 7, 8, 11};
static const size_t caps[] = {1, 12 * C + 4, 1 << 28};

/* ---- exact ----------------------------------------------------------------------- */

/* Elements of the head lie behind the layout's. */
static float node_sum(uint32_t step, uint32_t first, uint32_t size, size_t i)
{
    float value[LEAVES_MAX] = {0};

    for (uint32_t k = 0; k < size; k++) {
        value[k] = strategy_leaf_grad(step, first + k, i);
    }
    for (size_t left = size / 2; left > 0; left /= 2) {
        for (size_t k = 0; k < left; k++) {
            value[k] = value[2 * k] + value[2 * k + 1];
        }
    }
    return value[0];
}

static float tree_sum(uint32_t step, uint32_t m, size_t i)
{
    float whole[8], sum;
    uint32_t at = 0;
    int n = 0;

    for (uint32_t size = LEAVES_MAX; size > 0; size /= 2) {
        if (m & size) {
            whole[n++] = node_sum(step, at, size, i);
            at += size;
        }
    }
    sum = whole[n - 1];
    for (int k = n - 2; k >= 0; k--) {
        sum = whole[k] + sum;
    }
    return sum;
}

static uint32_t bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

static float expected_sum(uint32_t step, uint32_t m, size_t i, bool is_tied)
{
    float sum = tree_sum(step, m, i);

    return is_tied && i < STRATEGY_TIED
               ? sum + tree_sum(step, m, strategy_layout.size + i)
               : sum;
}

static void check_sum(const struct parallel *p, const float *grads, uint32_t step,
                      uint32_t m, bool is_tied)
{
    for (int k = 0; k < p->own.n_ranges; k++) {
        const struct shard_range *r = &p->own.range[k];

        for (size_t i = r->begin; i < r->end; i++) {
            RANK_CHECK(bits(expected_sum(step, m, i, is_tied)) ==
                       bits(strategy_own_element(p, grads, r, i)));
        }
    }
}

static double expected_chunk(uint32_t step, size_t i)
{
    return 100.0 * step + (double)i;
}

static void check_chunks(struct strategy_ends *e, struct parallel *p, uint32_t step)
{
    double chunks[12];

    for (size_t i = 0; i < ARRAY_LEN(chunks); i++) {
        chunks[i] = -1;
    }
    for (int k = 0; k < p->own.n_ranges; k++) {
        for (size_t i = p->own.range[k].begin / C; i < p->own.range[k].end / C; i++) {
            chunks[i] = expected_chunk(step, i);
        }
    }
    p->ops->chunks(p, chunks);
    strategy_finish(e);
    for (size_t i = 0; i < ARRAY_LEN(chunks); i++) {
        RANK_CHECK(chunks[i] == expected_chunk(step, i));
    }
}

/* Between steps, as an evaluation that has batches for some ranks alone. */
static void try_forward(struct strategy_ends *e, struct parallel *p, uint32_t step)
{
    struct unit_params params;

    if (e->rank % 2 == 1) {
        parallel_idle(p, false);
        return;
    }
    params = p->ops->pass(p, false);
    strategy_forward(e, &params, step);
}

static void try_exact(struct strategy_ends *e, uint32_t m, size_t cap, bool is_tied)
{
    struct parallel_config config = strategy_config(e, m, cap, true, is_tied);
    struct parallel *p = strategy_start(&config);

    for (uint32_t step = 0; step < N_STEPS; step++) {
        const float *grads = strategy_step(e, p, step, is_tied);

        check_sum(p, grads, step, m, is_tied);
        check_chunks(e, p, step);
        if (step + 1 == N_STEPS) { /* what is gathered anew is whole when it closes */
            strategy_set_params(p, step);
        }
        try_forward(e, p, step);
    }
    p->ops->close(p);
}

static int exact_sums(const struct rank *self)
{
    struct strategy_ends e;

    strategy_ends_open(&e, self, self->arg);
    for (size_t i = 0; i < ARRAY_LEN(leaf_counts) * ARRAY_LEN(caps); i++) {
        size_t k = i / ARRAY_LEN(caps);
        uint32_t m = leaf_counts[k];
        /* shards are cut by groups: the cap matters little there */
        bool is_tried =
            e.mesh.dp_shard == 1 || i % ARRAY_LEN(caps) == k % ARRAY_LEN(caps);

        if (m >= (uint32_t)self->world_size && is_tried) {
            try_exact(&e, m, caps[i % ARRAY_LEN(caps)], i % 2 == 0);
        }
    }
    strategy_ends_close(&e);
    return 0;
}

static void sums_and_parameters_are_the_same_bits_on_every_layout_of_ranks(void **state)
{
    (void)state;
    strategy_run_all(exact_sums);
}

/* ---- fast ------------------------------------------------------------------------ */

struct shared {
    struct strategy_topology topology;
    float grads[RANKS_MAX][12 * C];
};

static void check_near(const float *grads, uint32_t m, size_t begin, size_t end)
{
    double sum, size, x;

    for (size_t i = begin; i < end; i++) {
        sum = size = 0;
        for (uint32_t leaf = 0; leaf < m; leaf++) {
            x = strategy_leaf_grad(0, leaf, i);
            sum += x;
            size += fabs(x);
            x = i < STRATEGY_TIED
                    ? strategy_leaf_grad(0, leaf, strategy_layout.size + i)
                    : 0;
            sum += x;
            size += fabs(x);
        }
        RANK_CHECK(fabs(grads[i] - sum) <= size * 1e-6);
    }
}

/* Each rank writes its own part into every place that it is the owner of. */
static int fast_sums(const struct rank *self)
{
    const struct shared *s = self->arg;
    struct parallel_config config;
    const float *grads;
    struct parallel *p;
    struct strategy_ends e;
    float *mine = (float *)(uintptr_t)s->grads[self->rank]; /* shared with the parent */

    strategy_ends_open(&e, self, &s->topology);
    config = strategy_config(&e, 11, 12 * C, false, true);
    p = strategy_start(&config);
    grads = strategy_step(&e, p, 0, true);
    for (int k = 0; k < p->own.n_ranges; k++) {
        const struct shard_range *r = &p->own.range[k];

        for (size_t i = r->begin; i < r->end; i++) {
            mine[i] = strategy_own_element(p, grads, r, i);
        }
        check_near(mine, config.n_leaves, r->begin, r->end);
    }
    p->ops->close(p);
    strategy_ends_close(&e);
    return 0;
}

static void check_fast(struct shared *s, const struct strategy_topology *t)
{
    int status[RANKS_MAX];

    s->topology = *t;
    assert_true(ranks_run(t->n_ranks, fast_sums, s, status));
    for (int r = 0; r < t->n_ranks; r++) {
        assert_int_equal(status[r], 0);
        if (strcmp(t->strategy, "ddp") == 0) {
            assert_memory_equal(s->grads[r], s->grads[0], sizeof(s->grads[0]));
        }
    }
}

static void fast_sum_is_near_and_equal_on_all_ranks(void **state)
{
    struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(s != MAP_FAILED);
    for (size_t i = 0; i < strategy_n_topologies; i++) {
        check_fast(s, &strategy_topologies[i]);
    }
    munmap(s, sizeof(*s));
}

/* ---- refusals -------------------------------------------------------------------- */

static void unknown_strategies_are_named(void **state)
{
    const struct parallel_ops *ops = NULL;
    struct errmsg msg;

    (void)state;
    assert_int_equal(parallel_find("ddq", &ops, &msg), ERR_UNSUPPORTED);
    assert_string_equal(msg.text, "parallel.strategy=ddq is unknown; use ddp");
    assert_null(ops);
}

static void more_ranks_than_micro_batches_are_refused(void **state)
{
    static struct comm comm = {.node_size = 4, .uniform = true};
    struct parallel_config config = {.layout = &strategy_layout,
                                     .comm = &comm,
                                     .world_size = 4,
                                     .n_leaves = 3,
                                     .bucket_cap_bytes = 1 << 20,
                                     .exact = true};
    const struct parallel_ops *ops;
    struct errmsg msg = {""};
    struct parallel *p;

    (void)state;
    assert_int_equal(parallel_find("ddp", &ops, &msg), 0);
    config.ops = ops;
    assert_int_equal(ops->open(&config, &p, &msg), ERR_INVALID);
    assert_non_null(strstr(msg.text, "start at most 3 ranks"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            sums_and_parameters_are_the_same_bits_on_every_layout_of_ranks),
        cmocka_unit_test(fast_sum_is_near_and_equal_on_all_ranks),
        cmocka_unit_test(unknown_strategies_are_named),
        cmocka_unit_test(more_ranks_than_micro_batches_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
