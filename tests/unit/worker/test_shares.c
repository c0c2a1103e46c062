#include "tests/lib/cmocka.h"
#include "worker/shares.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

enum { STATES = 3 };

static const char *const suffixes[STATES] = {"", ".exp_avg", ".exp_avg_sq"};

static const struct model_config models[] = {
    {"gpt2", 1, 1, 1, 1, 1},     /* one element a tensor or little more */
    {"gpt2", 1, 1, 7, 5, 11},    /* odd everywhere */
    {"gpt2", 2, 3, 48, 16, 101}, /* units of more than a chunk */
    {"gpt2", 3, 1, 64, 8, 1024}, /* wte is nearly all */
};
static const int worlds[] = {1, 2, 3, 4, 5, 7, 8, 16, 61, 1000};

/* Full to its last element, while a model's units end in padding. */
static void make_dense(struct layout *ret)
{
    static const struct unit units[] = {
        {.name = "a",
         .tensor =
             {{.name = "x", .shape = {10, 100}, .n_dims = 2, .size = 1000},
              {.name = "y", .shape = {24}, .n_dims = 1, .offset = 1000, .size = 24}},
         .n_tensors = 2,
         .size = 1024},
        {.name = "b",
         .tensor = {{.name = "z", .shape = {1021}, .n_dims = 1, .size = 1021}},
         .n_tensors = 1,
         .offset = 1024,
         .size = 1021},
    };

    *ret = (struct layout){.unit = mem_alloc(sizeof(units)),
                           .n_units = ARRAY_LEN(units),
                           .size = 2045,
                           .n_params = 2045};
    memcpy(ret->unit, units, sizeof(units));
}

typedef void (*layout_check)(const struct layout *l, int world);

static void for_each_world(struct layout *l, layout_check check)
{
    for (size_t w = 0; w < ARRAY_LEN(worlds); w++) {
        check(l, worlds[w]);
    }
    layout_release(l);
}

static void for_each_layout(layout_check check)
{
    struct errmsg msg;
    struct layout l;

    for (size_t m = 0; m < ARRAY_LEN(models); m++) {
        assert_int_equal(layout_gpt2(&models[m], &l, &msg), 0);
        for_each_world(&l, check);
    }
    make_dense(&l);
    for_each_world(&l, check);
}

/* The tensor that box `i` of a share is of; its first element in the flat layout. */
static const struct tensor *tensor_of(const struct layout *l, const struct box *b,
                                      size_t i, size_t *ret_at)
{
    char name[sizeof(b->name)];
    const char *suffix = suffixes[i % STATES];
    size_t len = strlen(b->name) - strlen(suffix);
    const struct unit *unit = NULL;
    const struct tensor *t;

    assert_string_equal(b->name + len, suffix);
    memcpy(name, b->name, len);
    name[len] = '\0';
    t = layout_find(l, name, &unit);
    assert_non_null(t);
    assert_int_equal(b->n_dims, t->n_dims);
    assert_memory_equal(b->shape, t->shape, sizeof(b->shape));
    *ret_at = unit->offset + t->offset;
    return t;
}

static size_t width(const struct tensor *t)
{
    return t->n_dims == 2 ? t->shape[1] : 1;
}

/* Where every rank holds the whole state. */
static void make(const struct layout *l, int rank, int world, struct share *ret)
{
    share_make(l, &(struct holder){.rank = rank, .world_size = world}, ret);
}

/* --- every element once --- */

static void count_share(const struct layout *l, const struct share *s, uint8_t *count)
{
    assert_int_equal(s->n_boxes % STATES, 0);
    for (size_t i = 0; i < s->n_boxes; i++) {
        const struct box *b = &s->box[i];
        size_t at;
        const struct tensor *t = tensor_of(l, b, i, &at);

        assert_true(b->n_rows > 0 && b->row + b->n_rows <= t->shape[0]);
        at += b->row * width(t);
        for (size_t k = 0; k < b->n_rows * width(t); k++) {
            count[(i % STATES) * l->size + at + k]++;
        }
    }
}

/* 1 for each element of a tensor, 0 for padding. */
static uint8_t *expected_count(const struct layout *l)
{
    uint8_t *ret = mem_zalloc(l->size);

    for (int u = 0; u < l->n_units; u++) {
        const struct unit *unit = &l->unit[u];

        for (int i = 0; i < unit->n_tensors; i++) {
            const struct tensor *t = &unit->tensor[i];

            memset(ret + unit->offset + t->offset, 1, t->size);
        }
    }
    return ret;
}

static void count_all(const struct layout *l, int world)
{
    uint8_t *count = mem_zalloc(STATES * l->size);
    uint8_t *expected = expected_count(l);

    for (int rank = 0; rank < world; rank++) {
        struct share s;

        make(l, rank, world, &s);
        count_share(l, &s, count);
        share_release(&s);
    }
    for (size_t k = 0; k < STATES; k++) {
        assert_memory_equal(count + k * l->size, expected, l->size);
    }
    mem_free(expected);
    mem_free(count);
}

static void every_element_of_every_tensor_is_saved_exactly_once(void **state)
{
    (void)state;
    for_each_layout(count_all);
}

/* --- whose --- */

static void check_owner(const struct layout *l, int world)
{
    size_t part = l->size / (size_t)world;

    for (int rank = 0; rank < world; rank++) {
        size_t begin = part * (size_t)rank;
        size_t end = rank == world - 1 ? l->size : begin + part;
        struct share s;

        make(l, rank, world, &s);
        for (size_t i = 0; i < s.n_boxes; i++) {
            size_t at;
            const struct tensor *t = tensor_of(l, &s.box[i], i, &at);
            size_t first = at + s.box[i].row * width(t);
            size_t last = first + (s.box[i].n_rows - 1) * width(t);

            assert_true(first >= begin && last < end);
        }
        share_release(&s);
    }
}

static void a_row_is_of_the_rank_that_owns_its_first_element(void **state)
{
    (void)state;
    for_each_layout(check_owner);
}

static void check_span(const struct layout *l, int world)
{
    for (int rank = 0; rank < world; rank++) {
        size_t low = l->size;
        size_t high = 0;
        struct share s;

        make(l, rank, world, &s);
        for (size_t i = 0; i < s.n_boxes; i++) {
            size_t at;
            const struct tensor *t = tensor_of(l, &s.box[i], i, &at);

            low = MIN(low, at + s.box[i].row * width(t));
            high = MAX(high, at + (s.box[i].row + s.box[i].n_rows) * width(t));
        }
        assert_int_equal(s.spans.n_ranges, 1);
        assert_int_equal(s.spans.range[0].begin, low < high ? low : 0);
        assert_int_equal(s.spans.range[0].end, high);
        assert_int_equal(s.spans.size, low < high ? high - low : 0);
        share_release(&s);
    }
}

static void the_span_is_exactly_that_of_the_rows(void **state)
{
    (void)state;
    for_each_layout(check_span);
}

static void a_rank_without_a_rows_begin_has_nothing(void **state)
{
    static const struct model_config wide = {"gpt2", 1, 1, 4096, 1, 1};
    struct errmsg msg;
    struct layout l;
    struct share s;
    size_t total = 0;
    bool some_have_nothing = false;

    (void)state;
    assert_int_equal(layout_gpt2(&wide, &l, &msg), 0);
    for (int rank = 0; rank < 16 * 4096; rank += 4096) { /* parts far below a row */
        make(&l, rank, 16 * 4096, &s);
        some_have_nothing = some_have_nothing || s.n_boxes == 0;
        assert_int_equal(s.n_boxes == 0, s.spans.size == 0);
        total += s.n_boxes;
        share_release(&s);
    }
    assert_true(some_have_nothing && total > 0);
    layout_release(&l);
}

/* --- bound --- */

static void fill(float *values, size_t n, size_t k)
{
    for (size_t i = 0; i < n; i++) {
        values[i] = (float)((i * STATES + k) % 1000003);
    }
}

/* Each box starts at its own element of a buffer of the span alone. */
static void check_bound(const struct layout *l, struct share *s,
                        float *const whole[STATES])
{
    float *state[STATES];

    for (size_t k = 0; k < STATES; k++) {
        state[k] = whole[k] + s->spans.range[0].begin;
    }
    share_bind(s, state);
    for (size_t i = 0; i < s->n_boxes; i++) {
        size_t at;
        const struct tensor *t = tensor_of(l, &s->box[i], i, &at);

        at += s->box[i].row * width(t);
        assert_int_equal(s->flat[i], at);
        assert_ptr_equal(s->box[i].data, whole[i % STATES] + at);
        assert_true(s->box[i].data[0] == (float)((at * STATES + i % STATES) % 1000003));
    }
}

static void bind_all(const struct layout *l, int world)
{
    float *whole[STATES];

    for (size_t k = 0; k < STATES; k++) {
        whole[k] = mem_array(l->size, sizeof(float));
        fill(whole[k], l->size, k);
    }
    for (int rank = 0; rank < world; rank++) {
        struct share s;

        make(l, rank, world, &s);
        check_bound(l, &s, whole);
        share_release(&s);
    }
    for (size_t k = 0; k < STATES; k++) {
        mem_free(whole[k]);
    }
}

static void boxes_are_bound_to_their_place_in_each_state(void **state)
{
    (void)state;
    for_each_layout(bind_all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_of_every_tensor_is_saved_exactly_once),
        cmocka_unit_test(a_row_is_of_the_rank_that_owns_its_first_element),
        cmocka_unit_test(the_span_is_exactly_that_of_the_rows),
        cmocka_unit_test(a_rank_without_a_rows_begin_has_nothing),
        cmocka_unit_test(boxes_are_bound_to_their_place_in_each_state),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
