/* Frames that wait: how many go at once, and what is left out. */

#include "rendezvous/frames.h"
#include "tests/lib/cmocka.h"

#include "common/err.h"
#include "common/msg.h"

enum { GENERATION = 3, SIZE = 100 * 1024, FRAME = SIZE + 31, CLIENTS = 1000 };

static void add(struct buf *frames, uint64_t generation, uint32_t client, bool more,
                size_t size)
{
    static const uint8_t body[SIZE];
    struct msg m = {.type = MSG_STORE_REPLY,
                    .u.store_reply = {.generation = generation,
                                      .client = client,
                                      .seq = 7,
                                      .more = more,
                                      .body = {body, size}}};

    assert_int_equal(msg_encode(&m, frames), 0);
}

/* Takes the first frame off, which is a reply with a body of that size. */
static void took(struct buf *frames, uint32_t client, size_t size)
{
    struct msg m;
    int n = msg_decode(buf_bytes(frames), buf_len(frames), &m);

    assert_true(n > 0);
    assert_int_equal(m.u.store_reply.client, client);
    assert_int_equal(m.u.store_reply.seq, 7);
    assert_int_equal(m.u.store_reply.body.size, size);
    buf_consume(frames, (size_t)n);
}

static void as_many_move_as_fit_and_one_at_least(void **state)
{
    struct buf from;
    struct buf to;

    (void)state;
    buf_init(&from, SIZE_MAX);
    buf_init(&to, 3 * (size_t)FRAME);
    for (uint32_t i = 0; i < 4; i++) {
        add(&from, GENERATION, i, false, SIZE);
    }
    assert_int_equal(frames_move(&from, &to, 1), 0);
    assert_int_equal(buf_len(&to), FRAME);
    assert_int_equal(frames_move(&from, &to, 3 * FRAME - 1), 0);
    assert_int_equal(buf_len(&to), 3 * FRAME);
    assert_int_equal(frames_move(&from, &to, FRAME), ERR_TOO_LARGE);
    for (uint32_t i = 0; i < 3; i++) {
        took(&to, i, SIZE);
    }
    took(&from, 3, SIZE);
    assert_int_equal(buf_len(&from) + buf_len(&to), 0);
    buf_release(&from);
    buf_release(&to);
}

static size_t drop(struct buf *frames, struct frames_gone *gone, uint32_t client)
{
    assert_true(frames_gone_add(gone, GENERATION, client));
    return frames_drop_replies(frames, gone);
}

static void large_replies_to_one_client_become_acknowledgements(void **state)
{
    struct frames_gone gone = {0};
    struct buf frames;

    (void)state;
    buf_init(&frames, SIZE_MAX);
    add(&frames, GENERATION, 8, false,
        SIZE); /* gone already: a front that is consumed */
    add(&frames, GENERATION, 1, true, SIZE);
    add(&frames, GENERATION, 2, false, SIZE);
    add(&frames, GENERATION, 1, false, SIZE);
    add(&frames, GENERATION, 1, false, 8);
    add(&frames, GENERATION + 1, 1, false, SIZE);
    took(&frames, 8, SIZE);
    assert_int_equal(drop(&frames, &gone, 1), FRAME + SIZE);
    took(&frames, 2, SIZE);
    took(&frames, 1, 0);
    took(&frames, 1, 8);
    took(&frames, 1, SIZE);
    assert_int_equal(buf_len(&frames), 0);
    assert_int_equal(drop(&frames, &gone, 1), 0);
    frames_gone_release(&gone);
    buf_release(&frames);
}

static void fill(struct buf *frames, uint32_t n, size_t size)
{
    buf_init(frames, SIZE_MAX);
    for (uint32_t i = 0; i < n; i++) {
        add(frames, GENERATION, i, false, size);
    }
}

static void clients_without_replies_move_nothing(void **state)
{
    struct frames_gone gone = {0};
    struct buf frames;

    (void)state;
    fill(&frames, CLIENTS, SIZE / 20);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        assert_int_equal(drop(&frames, &gone, CLIENTS + i), 0);
        assert_int_equal(gone.n, 0);
    }
    assert_int_equal(gone.n_moved, 0);
    frames_gone_release(&gone);
    buf_release(&frames);
}

/* One goes in each turn, those in front first: all others move up, or wait. */
static void what_is_moved_grows_with_the_frames_alone(void **state)
{
    struct frames_gone gone = {0};
    struct buf frames;
    size_t before;
    size_t saved = 0;

    (void)state;
    fill(&frames, CLIENTS, SIZE / 20);
    before = buf_len(&frames);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        saved += drop(&frames, &gone, i);
    }
    assert_true(gone.n_moved < 10 * before);
    assert_int_equal(saved, (size_t)CLIENTS * (SIZE / 20));
    for (uint32_t i = 0; i < CLIENTS; i++) {
        took(&frames, i, 0);
    }
    frames_gone_release(&gone);
    buf_release(&frames);
}

/* However little it saves. */
static void full_list_is_worked_off(void **state)
{
    struct frames_gone gone = {0};
    struct buf frames;

    (void)state;
    fill(&frames, 20, SIZE);
    assert_int_equal(drop(&frames, &gone, 0), 0);
    for (uint32_t i = 1; i < FRAMES_MAX_GONE - 1; i++) {
        assert_int_equal(drop(&frames, &gone, CLIENTS + i), 0);
    }
    assert_false(frames_gone_add(&gone, GENERATION, CLIENTS));
    assert_int_equal(frames_drop_replies(&frames, &gone), SIZE);
    assert_int_equal(gone.n, 0);
    frames_gone_release(&gone);
    buf_release(&frames);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_move_as_fit_and_one_at_least),
        cmocka_unit_test(large_replies_to_one_client_become_acknowledgements),
        cmocka_unit_test(clients_without_replies_move_nothing),
        cmocka_unit_test(what_is_moved_grows_with_the_frames_alone),
        cmocka_unit_test(full_list_is_worked_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
