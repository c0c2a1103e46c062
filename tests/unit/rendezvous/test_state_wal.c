/* Write-ahead logs made by hand: what a crash leaves of them is no damage, what a disk
 * turns by itself is. */

#include "rendezvous/state_wal.h"
#include "tests/lib/cmocka.h"

#include "common/err.h"

#include <string.h>

enum {
    HEADER = 32,
    FRAME_HEADER = 24,
    PAGE = 4096,
    FRAME = FRAME_HEADER + PAGE,
    FRAMES = 48,
    FRAMES_OF_ONE = 4, /* each transaction's */
    SPLIT = 41,        /* its salts begin a sector of 512 bytes */
};

struct log {
    uint8_t bytes[HEADER + FRAMES * FRAME];
    uint32_t sums[2];
};

static void put(uint8_t *at, uint32_t v)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(v >> (24 - 8 * i));
    }
}

static uint32_t get(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void sum_up(struct log *l, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i += 8) {
        l->sums[0] += get(data + i) + l->sums[1];
        l->sums[1] += get(data + i + 4) + l->sums[0];
    }
}

static uint8_t *frame(struct log *l, size_t i)
{
    return l->bytes + HEADER + i * FRAME;
}

/* Transactions of so many frames each, up to the end; salts and pages from `seed`. */
static void fill(struct log *l, uint32_t seed)
{
    uint8_t *h = l->bytes;

    *l = (struct log){.sums = {0, 0}};
    put(h, 0x377f0683); /* checksums of big-endian words */
    put(h + 4, 3007000);
    put(h + 8, PAGE);
    put(h + 16, seed);
    put(h + 20, seed * 2654435761U);
    sum_up(l, h, 24);
    put(h + 24, l->sums[0]);
    put(h + 28, l->sums[1]);
    for (size_t i = 0; i < FRAMES; i++) {
        uint8_t *f = frame(l, i);

        put(f, (uint32_t)i % 7 + 1);
        put(f + 4, i % FRAMES_OF_ONE == FRAMES_OF_ONE - 1 ? 7 : 0);
        memcpy(f + 8, h + 16, 8);
        memset(f + FRAME_HEADER, (int)(seed + i), PAGE);
        sum_up(l, f, 8);
        sum_up(l, f + FRAME_HEADER, PAGE);
        put(f + 16, l->sums[0]);
        put(f + 20, l->sums[1]);
    }
}

static int read_log(void *arg, uint64_t offset, void *data, size_t size)
{
    const struct log *l = arg;

    assert_true(offset + size <= sizeof(l->bytes));
    memcpy(data, l->bytes + offset, size);
    return 0;
}

static int check(struct log *l, size_t n_frames)
{
    return state_wal_check(&(struct state_wal){HEADER + n_frames * FRAME, l, read_log});
}

static void whole_log_is_whole(void **unused)
{
    static struct log l;

    (void)unused;
    fill(&l, 1);
    assert_int_equal(check(&l, FRAMES), 0);
    assert_int_equal(check(&l, FRAMES - 1), 0); /* cut in its last transaction */
}

/* Be it in its salts, by which a frame of this log is known. */
static void any_bit_of_the_last_frame_of_a_transaction_is_noticed(void **unused)
{
    static struct log l;
    size_t last_but_one = FRAMES - FRAMES_OF_ONE - 1;

    (void)unused;
    for (size_t bit = 0; bit < 8 * (FRAME_HEADER + 2); bit++) {
        fill(&l, 1);
        frame(&l, last_but_one)[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(check(&l, FRAMES), ERR_CORRUPT);
    }
}

static void any_part_of_the_last_transaction_may_be_an_older_log(void **unused)
{
    static struct log l;
    static struct log older;
    size_t from = (FRAMES - FRAMES_OF_ONE) * FRAME + HEADER;

    (void)unused;
    fill(&older, 1);
    for (size_t at = from - from % 512; at < sizeof(l.bytes); at += 512) {
        size_t begin = MAX(at, from);

        fill(&l, 2);
        memcpy(l.bytes + begin, older.bytes + begin,
               MIN(at + 512, sizeof(l.bytes)) - begin);
        assert_int_equal(check(&l, FRAMES), 0);
    }
}

/* The sector before has the end of an older transaction, where this one has none. */
static void frame_whose_head_is_in_two_sectors_may_be_half_an_older_log(void **unused)
{
    static struct log l;

    (void)unused;
    fill(&l, 1);
    assert_int_equal((HEADER + SPLIT * FRAME + 8) % 512, 0);
    assert_true(SPLIT % FRAMES_OF_ONE == 1); /* the second of the last transaction */
    put(frame(&l, SPLIT) + 4, 7);
    assert_int_equal(check(&l, SPLIT + FRAMES_OF_ONE - 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_log_is_whole),
        cmocka_unit_test(any_bit_of_the_last_frame_of_a_transaction_is_noticed),
        cmocka_unit_test(any_part_of_the_last_transaction_may_be_an_older_log),
        cmocka_unit_test(frame_whose_head_is_in_two_sectors_may_be_half_an_older_log),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
