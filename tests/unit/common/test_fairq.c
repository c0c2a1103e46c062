/* Frames of many clients that wait: whose turn it is, what is left out, what it costs.
 */

#include "tests/lib/cmocka.h"

#include "common/err.h"
#include "common/fairq.h"

enum {
    GENERATION = 3,
    LARGE = 200 * 1024,
    HEAD = 39, /* a STORE_REPLY without a body */
    CLIENTS = 1000,
    CLIENT_COST = 250,
};

static int try_push(struct fairq *q, uint32_t client, uint64_t seq, bool more,
                    size_t size)
{
    static const uint8_t body[LARGE];
    struct msg m = {.type = MSG_STORE_REPLY,
                    .u.store_reply = {.generation = GENERATION,
                                      .client = client,
                                      .seq = seq,
                                      .more = more,
                                      .body = {body, size}}};

    return fairq_push(q, &m);
}

static void push(struct fairq *q, uint32_t client, uint64_t seq, size_t size)
{
    assert_int_equal(try_push(q, client, seq, false, size), 0);
}

static void push_store(struct fairq *q, uint64_t generation, uint32_t client)
{
    struct msg m = {.type = MSG_STORE,
                    .u.store = {.generation = generation, .client = client}};

    assert_int_equal(fairq_push(q, &m), 0);
}

static void push_close(struct fairq *q, uint64_t generation, uint32_t client)
{
    struct msg m = {.type = MSG_STORE_CLOSE,
                    .u.store_close = {.generation = generation, .client = client}};

    assert_int_equal(fairq_push(q, &m), 0);
}

static struct msg decode(struct bytes frame)
{
    struct msg m;

    assert_int_equal(msg_decode(frame.data, frame.size, &m), frame.size);
    return m;
}

/* Takes the frame whose turn it is. */
static struct msg_store_reply next(struct fairq *q)
{
    struct msg m = decode(fairq_front(q));

    assert_int_equal(m.type, MSG_STORE_REPLY);
    fairq_pop(q, 0);
    return m.u.store_reply;
}

static void expect_next(struct fairq *q, uint32_t client, uint64_t seq, size_t size)
{
    struct msg_store_reply reply = next(q);

    assert_int_equal(reply.client, client);
    assert_int_equal(reply.seq, seq);
    assert_int_equal(reply.body.size, size);
}

static void expect_empty(struct fairq *q)
{
    assert_true(fairq_is_empty(q));
    assert_int_equal(q->size, 0);
    assert_int_equal(q->memory, 0);
    fairq_release(q);
}

/* How many bytes leave before the client's first frame does. */
static size_t bytes_before(struct fairq *q, uint32_t client)
{
    size_t before = q->size;

    while (decode(fairq_front(q)).u.store_reply.client != client) {
        fairq_pop(q, 0);
    }
    return before - q->size;
}

static void one_frame_does_not_wait_for_the_megabytes_of_others(void **state)
{
    struct fairq q;

    (void)state;
    fairq_init(&q, SIZE_MAX, 1);
    for (uint64_t i = 0; i < 100; i++) {
        push(&q, 1, i, LARGE);
        push(&q, 2, i, LARGE);
    }
    push(&q, 3, 0, 8);
    assert_true(bytes_before(&q, 3) <= 2 * (size_t)(FAIRQ_QUANTUM + LARGE + HEAD));
    fairq_release(&q);
}

static void clients_share_by_bytes_not_by_frames(void **state)
{
    enum { SMALL = 1000, MOVED = 8 << 20 };
    size_t got[2] = {0};
    struct fairq q;

    (void)state;
    fairq_init(&q, SIZE_MAX, 1);
    for (uint64_t i = 0; i < 100; i++) {
        push(&q, 0, i, LARGE);
    }
    for (uint64_t i = 0; i < 20000; i++) {
        push(&q, 1, i, SMALL);
    }
    while (got[0] + got[1] < MOVED) {
        struct msg_store_reply reply = next(&q);

        got[reply.client] += HEAD + reply.body.size;
    }
    assert_in_range(got[0], MOVED / 2 - 2 * LARGE, MOVED / 2 + 2 * LARGE);
    fairq_release(&q);
}

static void frames_of_a_client_keep_their_order(void **state)
{
    enum { N = 50 };
    uint64_t seen[CLIENTS] = {0};
    struct fairq q;

    (void)state;
    fairq_init(&q, SIZE_MAX, 1);
    for (uint64_t seq = 0; seq < N; seq++) {
        for (uint32_t client = 0; client < CLIENTS; client++) {
            push(&q, client, seq, (client * 37 + seq * 101) % 3000);
        }
    }
    while (!fairq_is_empty(&q)) {
        struct msg_store_reply reply = next(&q);

        assert_int_equal(reply.seq, seen[reply.client]++);
    }
    for (uint32_t client = 0; client < CLIENTS; client++) {
        assert_int_equal(seen[client], N);
    }
    expect_empty(&q);
}

static void clients_of_two_generations_are_two(void **state)
{
    struct fairq q;

    (void)state;
    fairq_init(&q, SIZE_MAX, 1);
    push_store(&q, 1, 5);
    push_close(&q, 2, 5);
    assert_int_equal(q.clients.count, 2);
    assert_int_equal(decode(fairq_front_of(&q, 2, 5)).type, MSG_STORE_CLOSE);
    fairq_pop_of(&q, 2, 5);
    assert_int_equal(fairq_front_of(&q, 2, 5).size, 0);
    assert_int_equal(fairq_size_of(&q, 2, 5), 0);
    assert_int_equal(decode(fairq_front(&q)).type, MSG_STORE);
    fairq_pop(&q, 0);
    expect_empty(&q);
}

/* As when a request of a few bytes is answered by megabytes. */
static void what_a_frame_costs_beyond_its_bytes_is_of_its_clients_turns(void **state)
{
    struct fairq q;

    (void)state;
    fairq_init(&q, SIZE_MAX, 1);
    for (uint64_t seq = 0; seq < 3; seq++) {
        push(&q, 1, seq, 8);
    }
    for (uint64_t seq = 0; seq < 100; seq++) {
        push(&q, 2, seq, FAIRQ_QUANTUM / 2);
    }
    assert_int_equal(decode(fairq_front(&q)).u.store_reply.client, 1);
    fairq_pop(&q, 8 << 20);
    assert_true(bytes_before(&q, 1) > 100 * (FAIRQ_QUANTUM / 2));
    fairq_release(&q);
}

static void who_is_passed_over_comes_after_the_others(void **state)
{
    struct fairq q;

    (void)state;
    fairq_init(&q, SIZE_MAX, 1);
    push(&q, 1, 0, 8);
    push(&q, 2, 0, 8);
    (void)fairq_front(&q);
    fairq_skip(&q);
    expect_next(&q, 2, 0, 8);
    expect_next(&q, 1, 0, 8);
    expect_empty(&q);
}

static void who_came_last_may_be_next(void **state)
{
    struct fairq q;

    (void)state;
    fairq_init(&q, SIZE_MAX, 1);
    for (uint32_t client = 1; client <= 3; client++) {
        push(&q, client, 0, 8);
    }
    fairq_turn_back(&q);
    expect_next(&q, 3, 0, 8);
    expect_next(&q, 1, 0, 8);
    expect_next(&q, 2, 0, 8);
    expect_empty(&q);
}

static void as_many_move_as_fit_and_one_at_least(void **state)
{
    const size_t frame = HEAD + LARGE;
    struct fairq q;
    struct buf to;

    (void)state;
    fairq_init(&q, SIZE_MAX, 1);
    buf_init(&to, 3 * frame);
    for (uint64_t seq = 0; seq < 4; seq++) {
        push(&q, 1, seq, LARGE);
    }
    assert_int_equal(fairq_move(&q, &to, 1), 0);
    assert_int_equal(buf_len(&to), frame);
    assert_int_equal(fairq_move(&q, &to, 3 * frame - 1), 0);
    assert_int_equal(buf_len(&to), 3 * frame);
    assert_int_equal(fairq_move(&q, &to, frame), ERR_TOO_LARGE);
    expect_next(&q, 1, 3, LARGE);
    assert_int_equal(fairq_move(&q, &to, frame), 0); /* there is none */
    assert_int_equal(buf_len(&to), 3 * frame);
    buf_release(&to);
    expect_empty(&q);
}

static void replies_to_a_client_that_is_gone_become_acknowledgements(void **state)
{
    struct fairq q;

    (void)state;
    fairq_init(&q, SIZE_MAX, 1);
    push(&q, 2, 1, LARGE);
    assert_int_equal(try_push(&q, 1, 1, true, LARGE), 0);
    assert_int_equal(try_push(&q, 1, 1, false, LARGE), 0);
    push(&q, 1, 2, 8);
    assert_int_equal(fairq_drop_replies(&q, GENERATION, 1), HEAD + 2 * LARGE + 8);
    assert_int_equal(fairq_drop_replies(&q, GENERATION, 1), 0);
    assert_int_equal(fairq_drop_replies(&q, GENERATION, 7), 0);
    assert_int_equal(q.size, 3 * HEAD + LARGE);
    expect_next(&q, 2, 1, LARGE);
    expect_next(&q, 1, 1, 0);
    expect_next(&q, 1, 2, 0);
    expect_empty(&q);
}

/* Whatever others have waiting: the queue is as full as it may be. */
static void replies_are_dropped_from_a_full_queue(void **state)
{
    struct fairq q;

    (void)state;
    fairq_init(&q, 2 * (HEAD + LARGE), 1);
    push(&q, 1, 1, LARGE);
    assert_int_equal(try_push(&q, 2, 1, true, LARGE), 0);
    assert_int_equal(try_push(&q, 3, 1, false, 0), ERR_TOO_LARGE);
    assert_int_equal(q.clients.count, 2);
    assert_int_equal(try_push(&q, 2, 1, false, 0), ERR_TOO_LARGE);
    assert_int_equal(q.size, q.max);
    assert_int_equal(fairq_drop_replies(&q, GENERATION, 2), HEAD + LARGE);
    assert_int_equal(fairq_drop_replies(&q, GENERATION, 1), LARGE);
    expect_next(&q, 1, 1, 0);
    expect_empty(&q);
}

static void memory_is_told_and_given_back(void **state)
{
    struct fairq q;

    (void)state;
    fairq_init(&q, SIZE_MAX, 1);
    for (uint32_t client = 0; client < CLIENTS; client++) {
        for (uint64_t seq = 0; seq <= client % 7; seq++) {
            push(&q, client, seq, 50 * (client % 100));
            assert_in_range(q.memory, q.size,
                            2 * q.size + (client + 1) * (size_t)CLIENT_COST);
        }
    }
    push(&q, 1, 9, LARGE);
    while (!fairq_is_empty(&q)) {
        (void)next(&q);
    }
    expect_empty(&q);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_frame_does_not_wait_for_the_megabytes_of_others),
        cmocka_unit_test(clients_share_by_bytes_not_by_frames),
        cmocka_unit_test(frames_of_a_client_keep_their_order),
        cmocka_unit_test(clients_of_two_generations_are_two),
        cmocka_unit_test(what_a_frame_costs_beyond_its_bytes_is_of_its_clients_turns),
        cmocka_unit_test(who_is_passed_over_comes_after_the_others),
        cmocka_unit_test(who_came_last_may_be_next),
        cmocka_unit_test(as_many_move_as_fit_and_one_at_least),
        cmocka_unit_test(replies_to_a_client_that_is_gone_become_acknowledgements),
        cmocka_unit_test(replies_are_dropped_from_a_full_queue),
        cmocka_unit_test(memory_is_told_and_given_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
