#include "tests/lib/cmocka.h"
#include "worker/device/kernels.h"
#include "worker/parallel/shards.h"

static const struct model_config model = {
    .family = "gpt2", .layers = 3, .heads = 2, .dim = 48, .context = 32, .vocab = 301};

struct rig {
    struct layout layout;
    struct unit_groups groups;
};

static void open_rig(struct rig *r)
{
    struct errmsg msg;

    assert_int_equal(layout_gpt2(&model, &r->layout, &msg), 0);
    unit_groups_each(&r->groups, &r->layout);
}

static void close_rig(struct rig *r)
{
    unit_groups_release(&r->groups);
    layout_release(&r->layout);
}

static void one_shard_is_the_flat_block(void **state)
{
    struct shard_map m;
    struct rig r;

    (void)state;
    open_rig(&r);
    shard_map_init(&m, &r.layout, &r.groups, 1, 0);
    assert_int_equal(m.size, r.layout.size);
    for (int i = 0; i < m.n_ranges; i++) {
        assert_int_equal(m.range[i].at, m.range[i].begin);
    }
    shard_map_release(&m);
    close_rig(&r);
}

/* Every element has one holder, and a group's shards lie in order. */
static void shards_cover_each_group_once_in_whole_chunks(void **state)
{
    (void)state;
    for (int n = 1; n <= 70; n++) { /* more shards than chunks, too */
        struct rig r;
        size_t next[8] = {0};
        size_t total = 0;

        open_rig(&r);
        for (int s = 0; s < n; s++) {
            struct shard_map m;
            size_t at = 0;

            shard_map_init(&m, &r.layout, &r.groups, n, s);
            for (int g = 0; g < m.n_ranges; g++) {
                const struct unit *u = &r.layout.unit[g];

                next[g] = s == 0 ? u->offset : next[g];
                assert_int_equal(m.range[g].begin, next[g]);
                assert_int_equal(m.range[g].begin % SUMSQ_CHUNK, 0);
                assert_int_equal(m.range[g].at, at);
                next[g] = m.range[g].end;
                at += m.range[g].end - m.range[g].begin;
            }
            assert_int_equal(m.size, at);
            total += at;
            shard_map_release(&m);
        }
        assert_int_equal(total, r.layout.size);
        close_rig(&r);
    }
}

static void groups_of_several_units_are_cut_as_one(void **state)
{
    struct shard_map m;
    size_t bounds[3];
    int first[] = {0, 2, 5};
    struct rig r;

    (void)state;
    open_rig(&r);
    struct unit_groups groups = {.first = first, .n = 2};
    shard_bounds(&r.layout, &groups, 0, 2, bounds);
    assert_int_equal(bounds[0], 0);
    assert_int_equal(bounds[2], r.layout.unit[2].offset);
    shard_map_init(&m, &r.layout, &groups, 2, 1);
    assert_int_equal(m.n_ranges, 2);
    assert_int_equal(m.range[0].begin, bounds[1]);
    assert_int_equal(m.range[1].end, r.layout.size);
    shard_map_release(&m);
    close_rig(&r);
}

static void assert_groups(const struct rig *r, int n_blocks, size_t min_params,
                          const int *first, int n)
{
    struct unit_groups g;

    unit_groups_make(&g, &r->layout, n_blocks, min_params);
    assert_int_equal(g.n, n);
    for (int i = 0; i <= n; i++) {
        assert_int_equal(g.first[i], first[i]);
    }
    unit_groups_release(&g);
}

/* Units: embedding, three blocks, the last norm. */
static void units_are_grouped_by_number_and_by_size(void **state)
{
    static const int each[] = {0, 1, 2, 3, 4, 5};
    static const int pairs[] = {0, 1, 3, 5};
    static const int threes[] = {0, 1, 4, 5};
    static const int rest_of_size[] = {0, 1, 2, 3, 5};
    static const int two_of_size[] = {0, 1, 3, 5};
    static const int all[] = {0, 1, 5};
    struct rig r;
    size_t block;

    (void)state;
    open_rig(&r);
    block = r.layout.unit[1].size;
    assert_groups(&r, 0, 0, each, 5);
    assert_groups(&r, 1, 0, each, 5);
    assert_groups(&r, 2, 0, pairs, 3);
    assert_groups(&r, 3, 0, threes, 3);
    assert_groups(&r, 1, SUMSQ_CHUNK + 1, rest_of_size, 4); /* the norm is too small */
    assert_groups(&r, 1, block + 1, two_of_size, 3);
    assert_groups(&r, 1, SIZE_MAX / 8, all, 2);
    close_rig(&r);
}

/* DP: rank 0 is the model, the others are its hands. */
static void one_owner_holds_the_flat_block_and_the_others_nothing(void **state)
{
    struct shard_map m;
    struct rig r;

    (void)state;
    open_rig(&r);
    r.groups.one_owner = true;
    for (int s = 0; s < 5; s++) {
        shard_map_init(&m, &r.layout, &r.groups, 5, s);
        assert_int_equal(m.size, s == 0 ? r.layout.size : 0);
        for (int i = 0; i < m.n_ranges; i++) {
            const struct unit *u = &r.layout.unit[i];

            assert_int_equal(m.range[i].begin, u->offset + (s == 0 ? 0 : u->size));
            assert_int_equal(m.range[i].end, u->offset + u->size);
        }
        shard_map_release(&m);
    }
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_shard_is_the_flat_block),
        cmocka_unit_test(shards_cover_each_group_once_in_whole_chunks),
        cmocka_unit_test(groups_of_several_units_are_cut_as_one),
        cmocka_unit_test(units_are_grouped_by_number_and_by_size),
        cmocka_unit_test(one_owner_holds_the_flat_block_and_the_others_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
