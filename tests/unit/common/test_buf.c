#include "tests/lib/cmocka.h"

#include "common/buf.h"
#include "common/err.h"

#include <string.h>

static void test_bytes_come_out_in_the_order_they_went_in(void **state)
{
    struct buf b;
    uint8_t next_in = 0;
    uint8_t next_out = 0;

    (void)state;
    buf_init(&b, 1000);
    for (int i = 0; i < 5000; i++) {
        size_t n = (size_t)i % 37;

        for (size_t k = 0; k < n; k++) {
            assert_int_equal(buf_append(&b, &next_in, 1), 0);
            next_in++;
        }
        for (n = (size_t)i % 41; n > 0 && buf_len(&b) > 0; n--) {
            assert_int_equal(*buf_bytes(&b), next_out++);
            buf_consume(&b, 1);
        }
        buf_consume(&b, buf_len(&b) > 900 ? buf_len(&b) : 0);
        next_out = buf_len(&b) == 0 ? next_in : next_out;
    }
    buf_release(&b);
}

static void test_ceiling_is_kept_and_can_be_reached(void **state)
{
    static const uint8_t bytes[1000];
    struct buf b;

    (void)state;
    buf_init(&b, sizeof(bytes));
    assert_int_equal(buf_append(&b, bytes, 600), 0);
    buf_consume(&b, 100);
    assert_int_equal(buf_append(&b, bytes, 501), ERR_TOO_LARGE);
    assert_int_equal(buf_len(&b), 500);
    assert_int_equal(buf_append(&b, bytes, 500), 0);
    assert_int_equal(buf_len(&b), 1000);
    assert_true(b.capacity <= sizeof(bytes));
    buf_release(&b);
}

/* A queue that stays long, as of requests that wait for their turn. */
static void test_a_long_queue_is_seldom_moved(void **state)
{
    enum { LENGTH = 1 << 20, TURNS = 1 << 15, PART = 64 };
    uint8_t part[PART] = {0};
    struct buf b;
    size_t n_moved = 0;
    uint8_t *space;

    (void)state;
    buf_init(&b, SIZE_MAX);
    assert_int_equal(buf_reserve(&b, LENGTH, &space), 0);
    memset(space, 0, LENGTH);
    buf_commit(&b, LENGTH);
    for (int i = 0; i < TURNS; i++) {
        buf_consume(&b, PART);
        assert_int_equal(buf_append(&b, part, PART), 0);
        n_moved += b.start == 0 ? buf_len(&b) : 0;
    }
    assert_true(n_moved <= 4 * (size_t)TURNS * PART);
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_come_out_in_the_order_they_went_in),
        cmocka_unit_test(test_ceiling_is_kept_and_can_be_reached),
        cmocka_unit_test(test_a_long_queue_is_seldom_moved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
