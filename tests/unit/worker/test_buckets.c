#include "tests/lib/cmocka.h"
#include "worker/device/kernels.h"
#include "worker/parallel/buckets.h"

#define C ((size_t)SUMSQ_CHUNK)

enum { WORLD_MAX = 9 };

/* Unit 0 holds the tied tensor (and more), the last unit is small. */
static struct unit units[] = {
    {.offset = 0, .size = 7 * C},
    {.offset = 7 * C, .size = 3 * C},
    {.offset = 10 * C, .size = 20 * C},
    {.offset = 30 * C, .size = C},
};
static const struct layout layout = {
    .unit = units, .n_units = 4, .size = 31 * C, .n_params = 31 * C};

static const size_t caps[] = {1,      4 * C,  4 * C + 4, 8 * C,
                              12 * C, 40 * C, 124 * C,   SIZE_MAX / 2};
static const size_t tied_sizes[] = {0, 1, C, 3 * C - 5, 5 * C + 17, 7 * C};

static void for_all(void (*check)(const struct bucket_list *l, size_t tied, size_t cap))
{
    struct bucket_list l;

    for (size_t i = 0; i < ARRAY_LEN(caps); i++) {
        for (size_t k = 0; k < ARRAY_LEN(tied_sizes); k++) {
            bucket_list_init(&l, &layout, tied_sizes[k], caps[i]);
            check(&l, tied_sizes[k], caps[i]);
            bucket_list_release(&l);
        }
    }
}

static void check_cover(const struct bucket_list *l, size_t tied, size_t cap)
{
    size_t end = (31 + (tied + C - 1) / C) * C;
    size_t limit = (cap / 4 + C - 1) / C * C;

    assert_int_equal(l->buffer_size, end);
    assert_int_equal(l->buffer_size, bucket_buffer_size(&layout, tied));
    assert_int_equal(l->head, layout.size);
    for (int i = 0; i < l->n; i++) {
        assert_int_equal(l->bucket[i].end, end);
        assert_true(l->bucket[i].begin < end);
        assert_int_equal(l->bucket[i].begin % C, 0);
        assert_true(end - l->bucket[i].begin <= (limit > 0 ? limit : C));
        end = l->bucket[i].begin;
    }
    assert_int_equal(end, 0);
}

static void buckets_cover_the_buffer_from_its_end_within_the_cap(void **state)
{
    (void)state;
    for_all(check_cover);
}

static void check_units(const struct bucket_list *l, size_t tied, size_t cap)
{
    int last = layout.n_units;

    (void)tied;
    (void)cap;
    for (int i = 0; i < l->n; i++) {
        const struct bucket *b = &l->bucket[i];
        const struct unit *u = &units[b->unit];

        assert_int_equal(b->is_head, b->begin >= layout.size);
        if (b->is_head) {
            assert_int_equal(b->unit, layout.n_units - 1);
        } else {
            assert_true(b->begin >= u->offset && b->begin < u->offset + u->size);
        }
        assert_true(b->unit <= last); /* backward completes them in this order */
        last = b->unit;
    }
}

static void bucket_is_complete_with_the_lowest_unit_it_touches(void **state)
{
    (void)state;
    for_all(check_units);
}

static const struct bucket *at(const struct bucket_list *l, size_t begin)
{
    for (int i = 0; i < l->n; i++) {
        if (l->bucket[i].begin == begin) {
            return &l->bucket[i];
        }
    }
    return NULL;
}

static void check_same_shards(const struct bucket *head, const struct bucket *twin,
                              size_t shift)
{
    size_t a[WORLD_MAX + 1], b[WORLD_MAX + 1];

    for (int w = 1; w <= WORLD_MAX; w++) {
        bucket_bounds(head, w, a);
        bucket_bounds(twin, w, b);
        for (int r = 0; r <= w; r++) {
            assert_int_equal(a[r] - shift, b[r]);
        }
    }
}

/* Same cuts, so the same owners; the head's comes first. */
static void check_twins(const struct bucket_list *l, size_t tied, size_t cap)
{
    size_t all_tied = 0;

    (void)cap;
    for (int i = 0; i < l->n; i++) {
        const struct bucket *b = &l->bucket[i], *twin;

        all_tied += b->n_tied;
        if (b->is_head) {
            assert_int_equal(b->n_tied, 0);
            twin = at(l, b->begin - l->head);
            assert_non_null(twin);
            assert_int_equal(twin->end, b->end - l->head);
            assert_true(twin > b);
            check_same_shards(b, twin, l->head);
        }
    }
    assert_int_equal(all_tied, tied);
}

static void head_bucket_has_a_twin_with_the_same_shards(void **state)
{
    (void)state;
    for_all(check_twins);
}

static void check_bounds_of(const struct bucket *b, int w)
{
    size_t bounds[WORLD_MAX + 1];

    bucket_bounds(b, w, bounds);
    assert_int_equal(bounds[0], b->begin);
    assert_int_equal(bounds[w], b->end);
    for (int r = 0; r < w; r++) {
        assert_true(bounds[r] <= bounds[r + 1]);
        assert_int_equal(bounds[r] % C, 0);
        assert_true(bounds[r + 1] - bounds[r] <= (b->end - b->begin) / (size_t)w + C);
    }
}

static void check_bounds(const struct bucket_list *l, size_t tied, size_t cap)
{
    (void)tied;
    (void)cap;
    for (int i = 0; i < l->n; i++) {
        for (int w = 1; w <= WORLD_MAX; w++) {
            check_bounds_of(&l->bucket[i], w);
        }
    }
}

static void shards_are_whole_chunks_and_even(void **state)
{
    (void)state;
    for_all(check_bounds);
}

/* Rank r's part of the buckets is shard r of the groups, and the head's that of the
 * elements it is tied to. */
static void check_group_bounds(const struct bucket_list *l,
                               const struct unit_groups *groups, int w)
{
    size_t bounds[WORLD_MAX + 1], shards[WORLD_MAX + 1];

    for (int i = 0; i < l->n; i++) {
        const struct bucket *b = &l->bucket[i];
        size_t shift = b->is_head ? l->head : 0;

        bucket_bounds(b, w, bounds);
        shard_bounds(&layout, groups,
                     b->is_head ? 0 : groups->n - 1 - (i - l->bucket[0].is_head), w,
                     shards);
        for (int r = 0; r <= w; r++) {
            assert_int_equal(bounds[r], MIN(shards[r] + shift, b->end));
        }
    }
}

static void buckets_of_groups_are_cut_as_the_shards_are(void **state)
{
    int first[] = {0, 1, 3, 4};
    const struct unit_groups groups = {.first = first, .n = 3};
    struct bucket_list l;

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(tied_sizes); k++) {
        bucket_list_init_groups(&l, &layout, &groups, tied_sizes[k]);
        check_cover(&l, tied_sizes[k], SIZE_MAX / 2);
        check_units(&l, tied_sizes[k], 0);
        assert_int_equal(l.n, 3 + (tied_sizes[k] > 0));
        for (int w = 1; w <= WORLD_MAX; w++) {
            check_group_bounds(&l, &groups, w);
        }
        bucket_list_release(&l);
    }
}

static void buckets_that_are_given_away_are_all_rank_0s(void **state)
{
    size_t bounds[WORLD_MAX + 1];
    struct bucket_list l;

    (void)state;
    bucket_list_init(&l, &layout, 3 * C - 5, 8 * C);
    bucket_list_give(&l);
    for (int i = 0; i < l.n; i++) {
        for (int w = 1; w <= WORLD_MAX; w++) {
            bucket_bounds(&l.bucket[i], w, bounds);
            for (int r = 0; r <= w; r++) {
                assert_int_equal(bounds[r],
                                 r == 0 ? l.bucket[i].begin : l.bucket[i].end);
            }
        }
    }
    bucket_list_release(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_cover_the_buffer_from_its_end_within_the_cap),
        cmocka_unit_test(bucket_is_complete_with_the_lowest_unit_it_touches),
        cmocka_unit_test(head_bucket_has_a_twin_with_the_same_shards),
        cmocka_unit_test(shards_are_whole_chunks_and_even),
        cmocka_unit_test(buckets_of_groups_are_cut_as_the_shards_are),
        cmocka_unit_test(buckets_that_are_given_away_are_all_rank_0s),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
