/* The byte ring: what is written comes out, through the caches or past them, whatever
 * the sizes and the alignment of both sides. */

#include "tests/lib/cmocka.h"
#include "worker/comm/spsc.h"

#include "common/check.h"

#include <string.h>

enum { SIZE = 4096, ROUNDS = 500 };

static _Alignas(RING_ALIGN) uint8_t place[SIZE];

static uint8_t byte(uint64_t position)
{
    return (uint8_t)(position * 31 + position / 251);
}

/* Reads all that is there, as one piece's bytes from `position` on. */
static size_t read_all(struct ring *r, bool is_first, uint64_t position)
{
    size_t done = 0, n;

    for (;;) {
        const uint8_t *at = ring_peek(r, is_first && done == 0, &n);

        if (n == 0) {
            return done;
        }
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(at[i], byte(position + done + i));
        }
        ring_consume(r, is_first && done == 0, n);
        done += n;
    }
}

static void bytes_come_out_as_they_went_in(void **state)
{
    static struct ring_control control;
    static uint8_t data[SIZE + RING_ALIGN];
    struct ring r = {&control, place, SIZE};
    uint64_t position = 0;

    (void)state;
    for (size_t i = 0; i < ROUNDS; i++) {
        size_t size = 1 + i * 37 % SIZE, n;
        uint8_t *from = data + i % RING_ALIGN;

        for (size_t k = 0; k < size; k++) {
            from[k] = byte(position + k);
        }
        n = ring_write(&r, from, size, i % 3 == 0, i % 2 == 0);
        assert_in_range(n, size - MIN(size, RING_ALIGN - 1), size);
        assert_int_equal(read_all(&r, i % 3 == 0, position), n);
        position += n;
    }
}

static void nothing_is_overwritten_in_a_full_ring(void **state)
{
    static struct ring_control control;
    static const uint8_t data[2 * SIZE] = {1};
    struct ring r = {&control, place, SIZE};

    (void)state;
    for (int streams = 0; streams < 2; streams++) {
        assert_int_equal(ring_write(&r, data, sizeof(data), true, streams), SIZE);
        assert_int_equal(ring_write(&r, data, 1, false, streams), 0);
        ring_consume(&r, true, SIZE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_out_as_they_went_in),
        cmocka_unit_test(nothing_is_overwritten_in_a_full_ring),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
