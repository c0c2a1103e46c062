/* The summation tree is one and the same whoever holds which leaves. Sums are replaced
 * by hashes of the expression, or by its text, so any other order shows. */

#include "tests/lib/cmocka.h"
#include "worker/parallel/tree.h"

#include <stdio.h>
#include <string.h>

enum { LEAVES_MAX = 40, BUFFERS_MAX = 2 * LEAVES_MAX, TEXT_MAX = 256 };

static uint64_t leaf_hash(uint32_t leaf)
{
    return (leaf + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Neither commutative nor associative. */
static uint64_t sum_hash(uint64_t a, uint64_t b)
{
    uint64_t x = a * UINT64_C(0xbf58476d1ce4e5b9) + (b ^ b >> 31) + 1;

    return (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
}

/* The definition, level by level: level j's node k is complete when [k·2^j, (k+1)·2^j)
 * lies inside [0, M); the largest complete nodes from the left are folded right to
 * left. */
static uint64_t complete_node(uint32_t first, uint32_t size)
{
    uint64_t node[LEAVES_MAX] = {0};

    for (uint32_t k = 0; k < size; k++) {
        node[k] = leaf_hash(first + k);
    }
    for (size_t left = size / 2; left > 0; left /= 2) {
        for (size_t k = 0; k < left; k++) {
            node[k] = sum_hash(node[2 * k], node[2 * k + 1]);
        }
    }
    return node[0];
}

static uint64_t oracle(uint32_t m)
{
    uint64_t whole[32], sum;
    uint32_t at = 0;
    int n = 0;

    for (uint32_t size = 1u << 31; size > 0; size >>= 1) {
        if (m & size) {
            whole[n++] = complete_node(at, size);
            at += size;
        }
    }
    sum = whole[n - 1];
    for (int i = n - 2; i >= 0; i--) {
        sum = sum_hash(whole[i], sum);
    }
    return sum;
}

static void carry_out(uint64_t *buf, const struct addition *adds, int n)
{
    for (int i = 0; i < n; i++) {
        buf[adds[i].dst] = sum_hash(buf[adds[i].dst], buf[adds[i].src]);
        buf[adds[i].src] = 0; /* whoever reads it again gets something else */
    }
}

/* One rank's leaves through a counter; appends its blocks and their sums. */
static int run_rank(uint32_t begin, uint32_t end, struct block *blocks, uint64_t *sums)
{
    struct addition adds[TREE_MAX_BLOCKS];
    struct counter c = {.n = 0};
    uint64_t buf[LEAVES_MAX];
    struct block expected[TREE_MAX_BLOCKS];
    int n;

    for (uint32_t leaf = begin; leaf < end; leaf++) {
        buf[leaf - begin] = leaf_hash(leaf);
        n = tree_push(&c, leaf, (int)(leaf - begin), adds);
        carry_out(buf, adds, n);
    }
    assert_int_equal(c.n, tree_blocks(begin, end, expected));
    for (int i = 0; i < c.n; i++) {
        assert_int_equal(c.block[i].first, expected[i].first);
        assert_int_equal(c.block[i].size, expected[i].size);
        blocks[i] = c.block[i];
        sums[i] = buf[c.slot[i]];
    }
    return c.n;
}

/* Ranks, then nodes of s ranks, then the fold. */
static int merge_node(const struct block *in, int n, uint64_t *buf,
                      struct block *blocks, uint64_t *sums)
{
    struct addition adds[TREE_MAX_BLOCKS];
    struct counter c = {.n = 0};
    int n_adds;

    for (int i = 0; i < n; i++) {
        n_adds = tree_push_block(&c, in[i], i, adds);
        carry_out(buf, adds, n_adds);
    }
    for (int i = 0; i < c.n; i++) {
        blocks[i] = c.block[i];
        sums[i] = buf[c.slot[i]];
    }
    return c.n;
}

/* M leaves on W ranks, s of them on a node; s = 1: straight from the ranks. */
static void try_split(uint32_t m, uint32_t w, uint32_t s)
{
    struct block blocks[BUFFERS_MAX * 4], in[BUFFERS_MAX * 4],
        expected[TREE_MAX_BLOCKS];
    uint64_t sums[BUFFERS_MAX * 4] = {0}, buf[BUFFERS_MAX * 4];
    struct addition adds[BUFFERS_MAX * 4];
    int n = 0, n_node, n_in;

    for (uint32_t first = 0; first < w; first += s) {
        n_in = 0;
        for (uint32_t r = first; r < first + s; r++) {
            n_in += run_rank(tree_run_begin(m, w, r), tree_run_begin(m, w, r + 1),
                             in + n_in, buf + n_in);
        }
        n_node = merge_node(in, n_in, buf, blocks + n, sums + n);
        assert_int_equal(n_node,
                         tree_blocks(tree_run_begin(m, w, first),
                                     tree_run_begin(m, w, first + s), expected));
        n += n_node;
    }
    assert_int_equal(tree_fold(blocks, n, adds), n - 1);
    carry_out(sums, adds, n - 1);
    assert_true(sums[0] == oracle(m));
}

static void every_split_over_ranks_gives_the_same_expression(void **state)
{
    (void)state;
    for (uint32_t m = 1; m <= LEAVES_MAX; m++) {
        for (uint32_t w = 1; w <= m; w++) {
            try_split(m, w, 1);
        }
    }
}

static void try_node_sizes(uint32_t m, uint32_t w)
{
    for (uint32_t s = 2; s <= w; s++) {
        if (w % s == 0) {
            try_split(m, w, s);
        }
    }
}

static void merging_inside_nodes_first_gives_the_same_expression(void **state)
{
    (void)state;
    for (uint32_t m = 1; m <= LEAVES_MAX; m++) {
        for (uint32_t w = 1; w <= m; w++) {
            try_node_sizes(m, w);
        }
    }
}

static void expect_text(uint32_t m, const char *expected)
{
    static char buf[LEAVES_MAX][TEXT_MAX], sum[2 * TEXT_MAX + 4];
    struct block blocks[LEAVES_MAX];
    struct addition adds[LEAVES_MAX];
    int n;

    for (uint32_t i = 0; i < m; i++) {
        blocks[i] = (struct block){i, 1};
        (void)snprintf(buf[i], TEXT_MAX, "%u", i);
    }
    n = tree_fold(blocks, (int)m, adds);
    for (int i = 0; i < n; i++) {
        (void)snprintf(sum, sizeof(sum), "(%s+%s)", buf[adds[i].dst], buf[adds[i].src]);
        assert_true(strlen(sum) < TEXT_MAX);
        memcpy(buf[adds[i].dst], sum, strlen(sum) + 1);
    }
    assert_string_equal(buf[0], expected);
}

static void siblings_merge_and_the_rest_folds_right_to_left(void **state)
{
    (void)state;
    expect_text(1, "0");
    expect_text(2, "(0+1)");
    expect_text(3, "((0+1)+2)");
    expect_text(4, "((0+1)+(2+3))");
    expect_text(6, "(((0+1)+(2+3))+(4+5))");
    expect_text(7, "(((0+1)+(2+3))+((4+5)+6))");
    expect_text(11, "((((0+1)+(2+3))+((4+5)+(6+7)))+((8+9)+10))");
}

static void run_is_cut_into_its_largest_dyadic_blocks(void **state)
{
    static const struct block expected[] = {{1, 1}, {2, 2}, {4, 2}, {6, 1}};
    struct block blocks[TREE_MAX_BLOCKS];

    (void)state;
    assert_int_equal(tree_blocks(1, 7, blocks), ARRAY_LEN(expected));
    assert_memory_equal(blocks, expected, sizeof(expected));
    assert_int_equal(tree_blocks(0, 8, blocks), 1);
    assert_int_equal(tree_blocks(5, 5, blocks), 0);
    /* the largest index there is */
    assert_int_equal(tree_blocks(UINT32_MAX - 1, UINT32_MAX, blocks), 1);
    assert_true(tree_blocks(1, UINT32_MAX, blocks) <= TREE_MAX_BLOCKS);
}

static void check_shares(uint32_t m, uint32_t w)
{
    assert_int_equal(tree_run_begin(m, w, 0), 0);
    assert_int_equal(tree_run_begin(m, w, w), m);
    for (uint32_t r = 0; r < w; r++) {
        uint32_t n = tree_run_begin(m, w, r + 1) - tree_run_begin(m, w, r);

        assert_in_range(n, m / w, (m + w - 1) / w);
    }
}

static void ranks_share_the_leaves_without_gap_or_overlap(void **state)
{
    (void)state;
    for (uint32_t m = 1; m <= LEAVES_MAX; m++) {
        for (uint32_t w = 1; w <= m; w++) {
            check_shares(m, w);
        }
    }
    assert_int_equal(tree_run_begin(UINT32_MAX, UINT32_MAX, UINT32_MAX), UINT32_MAX);
}

static int log2_up(uint32_t n)
{
    int bits = 0;

    while ((UINT32_C(1) << bits) < n) {
        bits++;
    }
    return bits;
}

static void check_slots(uint32_t begin, uint32_t end)
{
    struct addition adds[TREE_MAX_BLOCKS];
    struct counter c = {.n = 0};
    int most = 0;

    for (uint32_t leaf = begin; leaf < end; leaf++) {
        most = c.n + 1 > most ? c.n + 1 : most;
        (void)tree_push(&c, leaf, 0, adds);
    }
    assert_int_equal(tree_max_slots(begin, end), most);
    assert_true(most <= 2 * log2_up(end - begin) + 2);
}

static void slots_stay_within_twice_the_logarithm(void **state)
{
    (void)state;
    for (uint32_t begin = 0; begin < 70; begin++) {
        for (uint32_t end = begin + 1; end < 200; end++) {
            check_slots(begin, end);
        }
    }
    assert_int_equal(tree_max_slots(0, 8), 4);
    assert_int_equal(tree_max_slots(0, 1), 1);
}

/* Each leaf has one rank, its team's turns go around, and a run is one of tree_run. */
static void check_teams(uint32_t n_leaves, int world, int team)
{
    uint8_t owners[64] = {0};

    for (int rank = 0; rank < world; rank++) {
        struct leaf_run r = leaf_run_of(n_leaves, world, team, rank);
        uint32_t first =
            tree_run_begin(n_leaves, (uint32_t)(world / team), (uint32_t)(rank / team));
        uint32_t n = 0;

        assert_int_equal(r.begin, first + (uint32_t)(rank % team));
        for (uint32_t leaf = r.begin; leaf < r.end; leaf += r.stride, n++) {
            owners[leaf]++;
        }
        assert_int_equal(n, leaf_run_count(&r));
        assert_int_equal(leaf_run_rounds(n_leaves, world, team, rank),
                         (r.end - first + r.stride - 1) / r.stride);
    }
    for (uint32_t leaf = 0; leaf < n_leaves; leaf++) {
        assert_int_equal(owners[leaf], 1);
    }
}

static void teams_take_the_leaves_of_a_run_in_turns(void **state)
{
    (void)state;
    for (int world = 1; world <= 8; world++) {
        for (int team = 1; team <= world; team++) {
            for (uint32_t n = 1; n < 40 && world % team == 0; n++) {
                check_teams(n, world, team);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_split_over_ranks_gives_the_same_expression),
        cmocka_unit_test(merging_inside_nodes_first_gives_the_same_expression),
        cmocka_unit_test(siblings_merge_and_the_rest_folds_right_to_left),
        cmocka_unit_test(run_is_cut_into_its_largest_dyadic_blocks),
        cmocka_unit_test(ranks_share_the_leaves_without_gap_or_overlap),
        cmocka_unit_test(slots_stay_within_twice_the_logarithm),
        cmocka_unit_test(teams_take_the_leaves_of_a_run_in_turns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
