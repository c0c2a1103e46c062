/* The checker of histories (tests/lib/linear.h) itself: it lets pass what can have been,
 * and nothing else. */

#include "tests/lib/cmocka.h"
#include "tests/lib/linear.h"

#include "common/check.h"

#include <string.h>

enum { MANY = 48 };

static uint64_t text(const char *content)
{
    return linear_hash(LINEAR_EMPTY, (const uint8_t *)content, strlen(content));
}

/* Texts of eight letters. */
static void append(struct linear_op *op, const char *more)
{
    op->kind = LINEAR_APPEND;
    memcpy(op->more, more, sizeof(op->more));
}

static void who_reads_an_older_value_after_a_newer_one_was_read_is_found(void **state)
{
    struct linear_op op[] = {
        {.kind = LINEAR_SET, .value = text("one"), .called = 1, .returned = 2},
        {.kind = LINEAR_SET, .value = text("two"), .called = 3, .returned = 8},
        {.kind = LINEAR_GET, .result = text("two"), .called = 4, .returned = 5},
        {.kind = LINEAR_GET, .result = text("one"), .called = 6, .returned = 7},
    };

    (void)state;
    assert_false(linear_check(op, ARRAY_LEN(op), LINEAR_EMPTY));
    op[3].called = 4; /* at the same time */
    op[3].returned = 6;
    assert_true(linear_check(op, ARRAY_LEN(op), LINEAR_EMPTY));
}

static void a_write_that_was_acknowledged_and_lost_is_found(void **state)
{
    struct linear_op op[] = {
        {.kind = LINEAR_SET, .value = text("one"), .called = 1, .returned = 2},
        {.kind = LINEAR_GET, .result = LINEAR_EMPTY, .called = 3, .returned = 4},
    };

    (void)state;
    assert_false(linear_check(op, ARRAY_LEN(op), LINEAR_EMPTY));
    op[0].returned = LINEAR_NEVER; /* it was not */
    assert_true(linear_check(op, ARRAY_LEN(op), LINEAR_EMPTY));
}

static void an_add_that_was_done_twice_is_found(void **state)
{
    struct linear_op op[] = {
        {.kind = LINEAR_ADD, .value = 1, .result = 1, .called = 1, .returned = 2},
        {.kind = LINEAR_ADD, .value = 1, .result = 3, .called = 3, .returned = 4},
        {.kind = LINEAR_ADD, .value = 1, .called = 5, .returned = LINEAR_NEVER},
    };

    (void)state;
    assert_false(linear_check(op, ARRAY_LEN(op), 0));
    op[2].called = 0; /* the third may have come between */
    assert_true(linear_check(op, ARRAY_LEN(op), 0));
}

static void two_that_both_think_to_have_swapped_are_found(void **state)
{
    struct linear_op op[] = {
        {.kind = LINEAR_CAS,
         .expected = LINEAR_EMPTY,
         .value = text("mine"),
         .result = text("mine"),
         .called = 1,
         .returned = 4},
        {.kind = LINEAR_CAS,
         .expected = LINEAR_EMPTY,
         .value = text("ours"),
         .result = text("ours"),
         .called = 2,
         .returned = 3},
    };

    (void)state;
    assert_false(linear_check(op, ARRAY_LEN(op), LINEAR_EMPTY));
    op[0].result = text("ours");
    assert_true(linear_check(op, ARRAY_LEN(op), LINEAR_EMPTY));
}

static void an_append_in_the_middle_of_another_order_is_found(void **state)
{
    struct linear_op op[3] = {{.called = 1, .returned = 5},
                              {.called = 2, .returned = 6}};

    (void)state;
    append(&op[0], "aaaaaaaa");
    append(&op[1], "bbbbbbbb");
    op[2] = (struct linear_op){.kind = LINEAR_GET,
                               .result = text("bbbbbbbbaaaaaaaa"),
                               .called = 7,
                               .returned = 8};
    assert_true(linear_check(op, ARRAY_LEN(op), LINEAR_EMPTY));
    op[0].returned = 2;
    op[1].called = 3;
    assert_false(linear_check(op, ARRAY_LEN(op), LINEAR_EMPTY));
}

/* Where it has been it does not go again: else these are 48! orders. */
static void many_at_once_are_judged_in_no_time(void **state)
{
    struct linear_op op[MANY];

    (void)state;
    for (size_t i = 0; i < MANY; i++) {
        op[i] = (struct linear_op){.kind = i % 2 ? LINEAR_ADD : LINEAR_GET,
                                   .value = 1,
                                   .result = (i + 1) / 2,
                                   .called = i < 24 ? i : 100 + i,
                                   .returned = i < 24 ? 50 + i : 200 + i};
    }
    assert_true(linear_check(op, MANY, 0));
    op[MANY - 1].result++;
    assert_false(linear_check(op, MANY, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_reads_an_older_value_after_a_newer_one_was_read_is_found),
        cmocka_unit_test(a_write_that_was_acknowledged_and_lost_is_found),
        cmocka_unit_test(an_add_that_was_done_twice_is_found),
        cmocka_unit_test(two_that_both_think_to_have_swapped_are_found),
        cmocka_unit_test(an_append_in_the_middle_of_another_order_is_found),
        cmocka_unit_test(many_at_once_are_judged_in_no_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
