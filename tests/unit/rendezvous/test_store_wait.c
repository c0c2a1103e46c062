/* The store's waits, queues and barriers: one sentence of their semantics a test. */

#include "tests/lib/body.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/store_rig.h"

#include "common/err.h"
#include "common/mem.h"
#include "common/wire.h"

#include <stdio.h>
#include <string.h>

/* ---- WAIT and CHECK ---- */

static void check_tells_whether_all_exist(void **state)
{
    struct store_rig *rig = *state;

    OK(1, TCPSTORE_SET, "ss", "/a", "1");
    OK(1, TCPSTORE_CHECK, "ns", 1, "/a");
    expect_byte(rig, 1, 0);
    OK(1, TCPSTORE_CHECK, "nss", 2, "/a", "/q");
    expect_byte(rig, 1, 1);
    OK(1, TCPSTORE_QUEUE_PUSH, "ss", "/q", "x");
    OK(1, TCPSTORE_CHECK, "nss", 2, "/a", "/q");
    expect_byte(rig, 1, 0);
    OK(1, TCPSTORE_QUEUE_POP, "s", "/q");
    rig->n_replies = 0;
    OK(1, TCPSTORE_CHECK, "ns", 1, "/q");
    expect_byte(rig, 1, 1);
}

static void wait_answers_at_once_when_all_exist(void **state)
{
    struct store_rig *rig = *state;

    OK(1, TCPSTORE_SET, "ss", "/a", "1");
    OK(1, TCPSTORE_QUEUE_PUSH, "ss", "/q", "x");
    OK(2, TCPSTORE_WAIT, "nss", 2, "/a", "/q");
    expect_byte(rig, 2, 0);
}

static void wait_answers_when_the_last_key_comes(void **state)
{
    struct store_rig *rig = *state;

    OK(1, TCPSTORE_SET, "ss", "/b", "1");
    OK(2, TCPSTORE_WAIT, "nsss", 3, "/a", "/b", "/c");
    OK(1, TCPSTORE_SET, "ss", "/c", "1");
    OK(1, TCPSTORE_SET, "ss", "/c", "2");
    expect_nothing(rig);
    OK(1, TCPSTORE_SET, "ss", "/a", "1");
    assert_int_equal(rig->replies[0].seq, 2); /* the WAIT's own number */
    expect_byte(rig, 2, 0);
}

static void every_op_that_makes_a_key_wakes_its_waiters(void **state)
{
    struct store_rig *rig = *state;

    for (uint64_t client = 11; client <= 15; client++) {
        OK(client, TCPSTORE_WAIT, "ns", 1,
           client == 11   ? "/set"
           : client == 12 ? "/add"
           : client == 13 ? "/append"
           : client == 14 ? "/multi"
                          : "/barrier");
    }
    OK(1, TCPSTORE_SET, "ss", "/set", "v");
    expect_byte(rig, 11, 0);
    OK(1, TCPSTORE_ADD, "si", "/add", (int64_t)1);
    expect_i64(rig, 1, 1);
    expect_byte(rig, 12, 0);
    OK(1, TCPSTORE_APPEND, "ss", "/append", "v");
    expect_byte(rig, 13, 0);
    OK(1, TCPSTORE_MULTI_SET, "nssss", 2, "/other", "1", "/multi", "2");
    expect_byte(rig, 14, 0);
    OK(1, TCPSTORE_BARRIER, "si", "/barrier", (int64_t)1);
    expect_byte(rig, 1, 0);
    expect_byte(rig, 15, 0);
}

static void all_waiters_of_a_key_are_woken_in_order(void **state)
{
    struct store_rig *rig = *state;

    for (uint64_t client = 10; client < 20; client++) {
        OK(client, TCPSTORE_WAIT, "ns", 1, "/k");
    }
    OK(1, TCPSTORE_SET, "ss", "/k", "v");
    for (uint64_t client = 10; client < 20; client++) {
        expect_byte(rig, client, 0);
    }
}

static void a_key_listed_twice_is_settled_by_one_set(void **state)
{
    struct store_rig *rig = *state;

    OK(2, TCPSTORE_WAIT, "nsss", 3, "/k", "/l", "/k");
    OK(1, TCPSTORE_SET, "ss", "/k", "v");
    expect_nothing(rig);
    OK(1, TCPSTORE_SET, "ss", "/l", "v");
    expect_byte(rig, 2, 0);
}

static void a_key_deleted_again_is_not_noticed(void **state)
{
    struct store_rig *rig = *state;

    OK(2, TCPSTORE_WAIT, "nss", 2, "/a", "/b");
    OK(1, TCPSTORE_SET, "ss", "/a", "v");
    OK(1, TCPSTORE_DELETE_KEY, "s", "/a");
    expect_i64(rig, 1, 1);
    OK(1, TCPSTORE_SET, "ss", "/b", "v");
    expect_byte(rig, 2, 0);
}

static void delete_wakes_nobody(void **state)
{
    struct store_rig *rig = *state;

    OK(2, TCPSTORE_WAIT, "ns", 1, "/k");
    OK(1, TCPSTORE_DELETE_KEY, "s", "/k");
    expect_i64(rig, 1, 0);
    expect_nothing(rig);
}

static void cancel_wait_answers_one_always(void **state)
{
    struct store_rig *rig = *state;

    OK(2, TCPSTORE_CANCEL_WAIT, "");
    expect_byte(rig, 2, 1);
    OK(2, TCPSTORE_WAIT, "ns", 1, "/k");
    OK(2, TCPSTORE_CANCEL_WAIT, "");
    expect_byte(rig, 2, 1);
    OK(1, TCPSTORE_SET, "ss", "/k", "v"); /* no stray 0 */
    expect_nothing(rig);
    OK(2, TCPSTORE_CANCEL_WAIT, "");
    expect_byte(rig, 2, 1);
}

static void a_client_may_wait_again_after_cancelling(void **state)
{
    struct store_rig *rig = *state;

    OK(2, TCPSTORE_WAIT, "nss", 2, "/a", "/b");
    OK(2, TCPSTORE_CANCEL_WAIT, "");
    expect_byte(rig, 2, 1);
    OK(2, TCPSTORE_WAIT, "ns", 1, "/b");
    OK(1, TCPSTORE_SET, "ss", "/a", "v");
    expect_nothing(rig);
    OK(1, TCPSTORE_SET, "ss", "/b", "v");
    expect_byte(rig, 2, 0);
}

static void a_dropped_client_is_not_answered(void **state)
{
    struct store_rig *rig = *state;
    size_t before = rig->budget.used;

    OK(2, TCPSTORE_WAIT, "nss", 2, "/a", "/b");
    OK(3, TCPSTORE_BARRIER, "si", "/bar", (int64_t)2);
    store_drop_client(rig->store, 2);
    store_drop_client(rig->store, 2);
    store_drop_client(rig->store, 4);
    OK(1, TCPSTORE_MULTI_SET, "nssss", 2, "/a", "1", "/b", "2");
    expect_nothing(rig);
    store_drop_client(rig->store, 3);
    OK(1, TCPSTORE_DELETE_KEY, "s", "/a");
    OK(1, TCPSTORE_DELETE_KEY, "s", "/b");
    OK(1, TCPSTORE_DELETE_KEY, "s", "/bar");
    rig->n_replies = 0;
    assert_int_equal(rig->budget.used, before);
}

static void other_requests_are_served_while_one_waits(void **state)
{
    struct store_rig *rig = *state;
    const uint8_t nonce[4] = {4, 3, 2, 1};

    OK(2, TCPSTORE_WAIT, "ns", 1, "/k");
    OK(2, TCPSTORE_PING, "u", (uint32_t)0x01020304);
    expect_bytes(rig, 2, nonce, sizeof(nonce));
    OK(2, TCPSTORE_SET, "ss", "/k", "its own");
    expect_byte(rig, 2, 0);
}

static void a_second_wait_at_a_time_is_refused(void **state)
{
    struct store_rig *rig = *state;

    OK(2, TCPSTORE_WAIT, "ns", 1, "/k");
    FAILS(ERR_PROTOCOL, 2, TCPSTORE_WAIT, "ns", 1, "/l");
    FAILS(ERR_PROTOCOL, 2, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    expect_keys(rig, 0);
    OK(1, TCPSTORE_SET, "ss", "/k", "v");
    expect_byte(rig, 2, 0);
}

/* ---- queues ---- */

static void a_queue_gives_its_length_before_each_pop(void **state)
{
    struct store_rig *rig = *state;
    struct buf b;

    OK(1, TCPSTORE_QUEUE_PUSH, "ss", "/q", "first");
    OK(1, TCPSTORE_QUEUE_PUSH, "ss", "/q", "second");
    expect_nothing(rig);
    OK(1, TCPSTORE_QUEUE_POP, "s", "/q");
    body_make(&b, "is", (int64_t)2, "first");
    expect_bytes(rig, 1, buf_bytes(&b), buf_len(&b));
    buf_release(&b);
    OK(1, TCPSTORE_QUEUE_LEN, "s", "/q");
    expect_i64(rig, 1, 1);
    OK(1, TCPSTORE_QUEUE_POP, "s", "/q");
    body_make(&b, "is", (int64_t)1, "second");
    expect_bytes(rig, 1, buf_bytes(&b), buf_len(&b));
    buf_release(&b);
    OK(1, TCPSTORE_QUEUE_POP, "s", "/q");
    expect_i64(rig, 1, 0);
    OK(1, TCPSTORE_QUEUE_LEN, "s", "/q");
    expect_i64(rig, 1, 0);
}

static void a_push_wakes_one_waiter_the_oldest(void **state)
{
    struct store_rig *rig = *state;

    OK(2, TCPSTORE_WAIT, "ns", 1, "/q");
    OK(3, TCPSTORE_WAIT, "ns", 1, "/q");
    OK(1, TCPSTORE_QUEUE_PUSH, "ss", "/q", "x");
    expect_byte(rig, 2, 0);
    expect_nothing(rig);
    OK(1, TCPSTORE_QUEUE_PUSH, "ss", "/q", "y");
    expect_byte(rig, 3, 0);
    OK(1, TCPSTORE_QUEUE_LEN, "s", "/q"); /* both stay until somebody pops */
    expect_i64(rig, 1, 2);
}

static void a_push_skips_waiters_that_are_gone(void **state)
{
    struct store_rig *rig = *state;

    OK(2, TCPSTORE_WAIT, "ns", 1, "/q");
    OK(3, TCPSTORE_WAIT, "ns", 1, "/q");
    OK(4, TCPSTORE_WAIT, "ns", 1, "/q");
    OK(2, TCPSTORE_CANCEL_WAIT, "");
    expect_byte(rig, 2, 1);
    store_drop_client(rig->store, 3);
    OK(1, TCPSTORE_QUEUE_PUSH, "ss", "/q", "x");
    expect_byte(rig, 4, 0);
}

static void a_woken_client_gets_no_stray_answer_later(void **state)
{
    struct store_rig *rig = *state;

    OK(2, TCPSTORE_WAIT, "ns", 1, "/q");
    OK(1, TCPSTORE_QUEUE_PUSH, "ss", "/q", "x");
    expect_byte(rig, 2, 0);
    OK(2, TCPSTORE_WAIT, "ns", 1, "/other");
    OK(1, TCPSTORE_QUEUE_PUSH, "ss", "/q", "y");
    expect_nothing(rig);
}

static void two_pushes_to_one_queue_do_not_settle_two(void **state)
{
    struct store_rig *rig = *state;

    OK(2, TCPSTORE_WAIT, "nss", 2, "/qa", "/qb");
    OK(1, TCPSTORE_QUEUE_PUSH, "ss", "/qa", "x");
    OK(1, TCPSTORE_QUEUE_PUSH, "ss", "/qa", "y");
    expect_nothing(rig);
    OK(1, TCPSTORE_QUEUE_PUSH, "ss", "/qb", "z");
    expect_byte(rig, 2, 0);
}

static void a_push_settles_a_queue_listed_twice(void **state)
{
    struct store_rig *rig = *state;

    OK(2, TCPSTORE_WAIT, "nss", 2, "/q", "/q");
    OK(3, TCPSTORE_WAIT, "ns", 1, "/q");
    OK(1, TCPSTORE_QUEUE_PUSH, "ss", "/q", "x");
    expect_byte(rig, 2, 0);
    expect_nothing(rig);
}

/* ---- BARRIER ---- */

static void a_barrier_lets_all_go_when_the_last_arrives(void **state)
{
    struct store_rig *rig = *state;

    OK(1, TCPSTORE_BARRIER, "si", "/b", (int64_t)3);
    OK(2, TCPSTORE_BARRIER, "si", "/b", (int64_t)3);
    expect_nothing(rig);
    OK(3, TCPSTORE_BARRIER, "si", "/b", (int64_t)3);
    expect_byte(rig, 3, 0);
    expect_byte(rig, 1, 0);
    expect_byte(rig, 2, 0);
    expect_stored(rig, "/b", "3");
    OK(4, TCPSTORE_BARRIER, "si", "/b", (int64_t)3); /* single-use: later ones pass */
    expect_byte(rig, 4, 0);
}

static void a_barrier_of_nobody_passes(void **state)
{
    struct store_rig *rig = *state;

    OK(1, TCPSTORE_BARRIER, "si", "/b", (int64_t)0);
    expect_byte(rig, 1, 0);
    OK(1, TCPSTORE_BARRIER, "si", "/c", (int64_t)-5);
    expect_byte(rig, 1, 0);
}

static void a_partial_arrival_makes_the_key_but_wakes_nobody(void **state)
{
    struct store_rig *rig = *state;

    OK(5, TCPSTORE_WAIT, "ns", 1, "/b");
    OK(1, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    expect_nothing(rig);
    OK(6, TCPSTORE_WAIT, "ns", 1, "/b");
    expect_byte(rig, 6, 0);
    OK(2, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    expect_byte(rig, 2, 0);
    expect_byte(rig, 5, 0);
    expect_byte(rig, 1, 0);
}

static void a_set_of_the_key_releases_those_at_the_barrier(void **state)
{
    struct store_rig *rig = *state;

    OK(1, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    OK(2, TCPSTORE_SET, "ss", "/b", "v");
    expect_byte(rig, 1, 0);
}

static void a_vanished_arriver_stays_counted(void **state)
{
    struct store_rig *rig = *state;

    OK(1, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    OK(1, TCPSTORE_CANCEL_WAIT, "");
    expect_byte(rig, 1, 1);
    OK(2, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    expect_byte(rig, 2, 0);
    expect_nothing(rig);
}

static void a_push_does_not_release_those_at_a_barrier(void **state)
{
    struct store_rig *rig = *state;

    OK(1, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    OK(2, TCPSTORE_QUEUE_PUSH, "ss", "/b", "x");
    expect_nothing(rig);
    OK(2, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    expect_byte(rig, 2, 0);
    expect_byte(rig, 1, 0);
}

#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, store_rig_setup, store_rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(check_tells_whether_all_exist),
        CASE(wait_answers_at_once_when_all_exist),
        CASE(wait_answers_when_the_last_key_comes),
        CASE(every_op_that_makes_a_key_wakes_its_waiters),
        CASE(all_waiters_of_a_key_are_woken_in_order),
        CASE(a_key_listed_twice_is_settled_by_one_set),
        CASE(a_key_deleted_again_is_not_noticed),
        CASE(delete_wakes_nobody),
        CASE(cancel_wait_answers_one_always),
        CASE(a_client_may_wait_again_after_cancelling),
        CASE(a_dropped_client_is_not_answered),
        CASE(other_requests_are_served_while_one_waits),
        CASE(a_second_wait_at_a_time_is_refused),
        CASE(a_queue_gives_its_length_before_each_pop),
        CASE(a_push_wakes_one_waiter_the_oldest),
        CASE(a_push_skips_waiters_that_are_gone),
        CASE(a_woken_client_gets_no_stray_answer_later),
        CASE(two_pushes_to_one_queue_do_not_settle_two),
        CASE(a_push_settles_a_queue_listed_twice),
        CASE(a_barrier_lets_all_go_when_the_last_arrives),
        CASE(a_barrier_of_nobody_passes),
        CASE(a_partial_arrival_makes_the_key_but_wakes_nobody),
        CASE(a_set_of_the_key_releases_those_at_the_barrier),
        CASE(a_vanished_arriver_stays_counted),
        CASE(a_push_does_not_release_those_at_a_barrier),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
