/* The summed gradient of ddp, by real processes, against the tree's definition computed
 * here element by element: the same bits for every number of ranks, nodes, leaves and
 * every bucket size. Values have wild magnitudes, so any other order of additions
 * shows. */

#include "tests/lib/cmocka.h"
#include "tests/lib/rank_ends.h"
#include "worker/device/kernels.h"
#include "worker/parallel/parallel.h"

#include "common/mem.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

#define C ((size_t)SUMSQ_CHUNK)

enum { N_UNITS = 4, LEAVES_MAX = 16, N_STEPS = 2 };

static struct unit units[N_UNITS] = {
    {.offset = 0, .size = 5 * C},
    {.offset = 5 * C, .size = 2 * C},
    {.offset = 7 * C, .size = 4 * C},
    {.offset = 11 * C, .size = C},
};
static const struct layout layout = {units, N_UNITS, 12 * C, 12 * C};

#define TIED (3 * C + 1001)

struct topology {
    int n_ranks, node_size;
};

static const struct topology topologies[] = {
    {1, RANKS_MAX},           {2, RANKS_MAX},
    {3, RANKS_MAX},           {4, RANKS_MAX},
    {4, 2} /* two nodes */,   {6, 3},
    {6, 2} /* three nodes */, {3, 2} /* unequal nodes */,
};

static const uint32_t leaf_counts[] = {1, 2, 3, 4, 5, 7, 8, 11};
static const size_t caps[] = {1, 12 * C + 4, 1 << 28};

/* ---- the gradients and their sum ------------------------------------------------- */

static float wild(uint32_t step, uint32_t leaf, size_t i)
{
    uint64_t x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) ^
                 (uint64_t)(leaf + 100 * step + 1) * UINT64_C(0xd1b54a32d192ed03);

    x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 32;
    return ldexpf((float)(x & 0xffffff) - 8388607.5f, (int)(x >> 58) - 32);
}

/* Elements of the head lie behind the layout's. */
static float node_sum(uint32_t step, uint32_t first, uint32_t size, size_t i)
{
    float value[LEAVES_MAX] = {0};

    for (uint32_t k = 0; k < size; k++) {
        value[k] = wild(step, first + k, i);
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

    return is_tied && i < TIED ? sum + tree_sum(step, m, layout.size + i) : sum;
}

/* ---- a rank ---------------------------------------------------------------------- */

static void ends_open(struct rank_ends *e, const struct rank *self, int node_size)
{
    rank_ends_open(e, self,
                   &(struct rank_setup){.kind = self->world_size > 1 ? "auto" : NULL,
                                        .node_size = node_size});
}

static void fill(float *to, size_t n, uint32_t step, uint32_t leaf, size_t first)
{
    for (size_t i = 0; i < n; i++) {
        to[i] = wild(step, leaf, first + i);
    }
}

/* A leaf's backward. Everything is NaN until its unit is complete, so that whatever is
 * added or sent too early shows. */
static void backward(struct parallel *p, uint32_t step, uint32_t leaf, bool is_tied)
{
    float *head = NULL, *grads = p->ops->leaf(p, leaf, &head);

    RANK_CHECK((head != NULL) == is_tied);
    for (size_t i = 0; i < layout.size; i++) {
        grads[i] = NAN;
    }
    if (is_tied) {
        fill(head, TIED, step, leaf, layout.size);
    }
    for (int u = N_UNITS - 1; u >= 0; u--) {
        fill(grads + units[u].offset, units[u].size, step, leaf, units[u].offset);
        p->ops->on_unit(p, u);
    }
}

static const float *step_of(struct parallel *p, struct rank_ends *e, uint32_t step,
                            bool is_tied)
{
    struct errmsg msg = {""};
    const float *grads;
    int rv;

    for (uint32_t leaf = p->leaf_begin; leaf < p->leaf_end; leaf++) {
        backward(p, step, leaf, is_tied);
    }
    grads = p->ops->finish(p);
    rv = device_finish(e->device, device_mark(e->device, QUEUE_COMPUTE),
                       RANK_TIMEOUT_MS, &msg);
    if (rv < 0) {
        (void)fprintf(stderr, "%s\n", msg.text);
    }
    RANK_CHECK(rv == 0);
    return grads;
}

static struct parallel *strategy_open(const struct parallel_config *config)
{
    const struct parallel_ops *ops;
    struct errmsg msg = {""};
    struct parallel *p;

    RANK_CHECK(parallel_find("ddp", &ops, &msg) == 0);
    RANK_CHECK(ops->open(config, &p, &msg) == 0);
    return p;
}

static void try_exact(struct rank_ends *e, const struct rank *self, uint32_t m,
                      size_t cap, bool is_tied)
{
    struct parallel_config config = {.layout = &layout,
                                     .device = e->device,
                                     .comm = e->comm,
                                     .rank = self->rank,
                                     .world_size = self->world_size,
                                     .n_leaves = m,
                                     .bucket_cap_bytes = cap,
                                     .exact = true,
                                     .tied_size = is_tied ? TIED : 0};
    struct parallel *p = strategy_open(&config);

    for (uint32_t step = 0; step < N_STEPS; step++) {
        const float *grads = step_of(p, e, step, is_tied);

        for (size_t i = 0; i < layout.size; i++) {
            float expected = expected_sum(step, m, i, is_tied);

            RANK_CHECK(bits(expected) == bits(grads[i]));
        }
    }
    p->ops->close(p);
}

static int exact_sums(const struct rank *self)
{
    const struct topology *t = self->arg;
    struct rank_ends e;

    ends_open(&e, self, t->node_size);
    for (size_t i = 0; i < ARRAY_LEN(leaf_counts) * ARRAY_LEN(caps); i++) {
        uint32_t m = leaf_counts[i / ARRAY_LEN(caps)];

        if (m >= (uint32_t)self->world_size) {
            try_exact(&e, self, m, caps[i % ARRAY_LEN(caps)], i % 2 == 0);
        }
    }
    rank_ends_close(&e);
    return 0;
}

static void exact_sum_has_the_same_bits_on_every_layout_of_ranks(void **state)
{
    int status[RANKS_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(topologies); i++) {
        print_message("%d ranks, nodes of %d\n", topologies[i].n_ranks,
                      topologies[i].node_size);
        assert_true(
            ranks_run(topologies[i].n_ranks, exact_sums, &topologies[i], status));
        for (int r = 0; r < topologies[i].n_ranks; r++) {
            assert_int_equal(status[r], 0);
        }
    }
}

/* ---- fast ------------------------------------------------------------------------ */

struct shared {
    struct topology topology;
    float grads[RANKS_MAX][12 * C];
};

static void check_near(const float *grads, uint32_t m)
{
    double sum, size, x;

    for (size_t i = 0; i < layout.size; i++) {
        sum = size = 0;
        for (uint32_t leaf = 0; leaf < m; leaf++) {
            x = wild(0, leaf, i);
            sum += x;
            size += fabs(x);
            x = i < TIED ? wild(0, leaf, layout.size + i) : 0;
            sum += x;
            size += fabs(x);
        }
        RANK_CHECK(fabs(grads[i] - sum) <= size * 1e-6);
    }
}

static int fast_sums(const struct rank *self)
{
    const struct shared *s = self->arg;
    struct parallel_config config = {.layout = &layout,
                                     .rank = self->rank,
                                     .world_size = self->world_size,
                                     .n_leaves = 11,
                                     .bucket_cap_bytes = 12 * C,
                                     .tied_size = TIED};
    struct parallel *p;
    struct rank_ends e;
    float *mine = (float *)(uintptr_t)s->grads[self->rank]; /* shared with the parent */

    ends_open(&e, self, s->topology.node_size);
    config.device = e.device;
    config.comm = e.comm;
    p = strategy_open(&config);
    memcpy(mine, step_of(p, &e, 0, true), layout.size * sizeof(float));
    check_near(mine, config.n_leaves);
    p->ops->close(p);
    rank_ends_close(&e);
    return 0;
}

static void fast_sum_is_near_and_equal_on_all_ranks(void **state)
{
    struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status[RANKS_MAX];

    (void)state;
    assert_true(s != MAP_FAILED);
    for (size_t i = 0; i < ARRAY_LEN(topologies); i++) {
        s->topology = topologies[i];
        assert_true(ranks_run(s->topology.n_ranks, fast_sums, s, status));
        for (int r = 0; r < s->topology.n_ranks; r++) {
            assert_int_equal(status[r], 0);
            assert_memory_equal(s->grads[r], s->grads[0], sizeof(s->grads[0]));
        }
    }
    munmap(s, sizeof(*s));
}

/* ---- memory ---------------------------------------------------------------------- */

static size_t allocated;
static int (*real_alloc)(struct device *d, size_t bytes, void **ret);

static int count_alloc(struct device *d, size_t bytes, void **ret)
{
    allocated += bytes;
    return real_alloc(d, bytes, ret);
}

static void try_bytes(struct rank_ends *e, const struct rank *self, bool exact,
                      uint32_t m)
{
    struct parallel_config config = {.layout = &layout,
                                     .device = e->device,
                                     .comm = e->comm,
                                     .rank = self->rank,
                                     .world_size = self->world_size,
                                     .n_leaves = m,
                                     .bucket_cap_bytes = 12 * C,
                                     .exact = exact,
                                     .tied_size = TIED};
    struct parallel *p;

    allocated = 0;
    p = strategy_open(&config);
    RANK_CHECK(allocated == p->ops->bytes(&config));
    RANK_CHECK(allocated > 0);
    (void)step_of(p, e, 0, true);
    RANK_CHECK(allocated == p->ops->bytes(&config)); /* a step allocates nothing */
    p->ops->close(p);
}

static int bytes_are_counted(const struct rank *self)
{
    const struct topology *t = self->arg;
    struct device_ops counting;
    struct rank_ends e;

    ends_open(&e, self, t->node_size);
    counting = *e.device->ops;
    real_alloc = counting.alloc;
    counting.alloc = count_alloc;
    e.device->ops = &counting;
    for (uint32_t m = (uint32_t)self->world_size; m < 9; m++) {
        try_bytes(&e, self, true, m);
        try_bytes(&e, self, false, m);
    }
    rank_ends_close(&e);
    return 0;
}

static void memory_plan_is_what_is_allocated(void **state)
{
    int status[RANKS_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(topologies); i++) {
        assert_true(ranks_run(topologies[i].n_ranks, bytes_are_counted, &topologies[i],
                              status));
        for (int r = 0; r < topologies[i].n_ranks; r++) {
            assert_int_equal(status[r], 0);
        }
    }
}

/* ---- refusals -------------------------------------------------------------------- */

static void unknown_and_missing_strategies_are_named(void **state)
{
    const struct parallel_ops *ops = NULL;
    struct errmsg msg;

    (void)state;
    assert_int_equal(parallel_find("fsdp", &ops, &msg), ERR_UNSUPPORTED);
    assert_string_equal(msg.text, "parallel.strategy=fsdp is not there yet; use ddp");
    assert_int_equal(parallel_find("ddq", &ops, &msg), ERR_UNSUPPORTED);
    assert_string_equal(msg.text, "parallel.strategy=ddq is unknown; use ddp");
    assert_null(ops);
}

static void more_ranks_than_micro_batches_are_refused(void **state)
{
    static struct comm comm = {.node_size = 4, .uniform = true};
    struct parallel_config config = {.layout = &layout,
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
    assert_int_equal(ops->open(&config, &p, &msg), ERR_INVALID);
    assert_non_null(strstr(msg.text, "start at most 3 ranks"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_sum_has_the_same_bits_on_every_layout_of_ranks),
        cmocka_unit_test(fast_sum_is_near_and_equal_on_all_ranks),
        cmocka_unit_test(memory_plan_is_what_is_allocated),
        cmocka_unit_test(unknown_and_missing_strategies_are_named),
        cmocka_unit_test(more_ranks_than_micro_batches_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
