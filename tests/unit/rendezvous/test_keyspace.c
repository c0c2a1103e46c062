/* A generation's key space, as relays reach it: order, repetition, chunks, bounds. */

#include "tests/lib/body.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/keyspace_rig.h"

#include "common/mem.h"
#include "common/tcpstore.h"

#include <string.h>

#define LARGE ((size_t)614400) /* three chunks */

/* ---- order and repetition ---- */

static void requests_are_answered_or_acknowledged(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_SET, "ss", "/k", "v");
    replied_ack(rig, WORKER, 1);
    ask(rig, WORKER, 2, TCPSTORE_GET, "s", "/k");
    replied_text(rig, WORKER, 2, "v");
}

static void a_repeated_request_is_answered_again_and_applied_once(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_ADD, "si", "/n", (int64_t)5);
    replied_i64(rig, WORKER, 1, 5);
    ask(rig, WORKER, 1, TCPSTORE_ADD, "si", "/n", (int64_t)5);
    replied_i64(rig, WORKER, 1, 5);
    ask(rig, WORKER, 2, TCPSTORE_ADD, "si", "/n", (int64_t)0);
    replied_i64(rig, WORKER, 2, 5);
}

static void requests_repeated_in_a_row_are_applied_once(void **state)
{
    struct keyspace_rig *rig = *state;

    for (int round = 0; round < 2; round++) {
        ask(rig, WORKER, 1, TCPSTORE_APPEND, "ss", "/k", "a");
        ask(rig, WORKER, 2, TCPSTORE_APPEND, "ss", "/k", "b");
        ask(rig, WORKER, 3, TCPSTORE_QUEUE_PUSH, "ss", "/q", "x");
        ask(rig, WORKER, 4, TCPSTORE_QUEUE_LEN, "s", "/q");
        replied_ack(rig, WORKER, 1);
        replied_ack(rig, WORKER, 2);
        replied_ack(rig, WORKER, 3);
        replied_i64(rig, WORKER, 4, 1);
    }
    ask(rig, WORKER, 5, TCPSTORE_GET, "s", "/k");
    replied_text(rig, WORKER, 5, "ab");
}

static void a_repeated_read_reads_again(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_GET, "s", "/k");
    replied_text(rig, WORKER, 1, "");
    ask(rig, 4, 1, TCPSTORE_SET, "ss", "/k", "v");
    replied_ack(rig, 4, 1);
    ask(rig, WORKER, 1, TCPSTORE_GET, "s", "/k");
    replied_text(rig, WORKER, 1, "v");
}

static void a_skipped_number_costs_the_connection(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_SET, "ss", "/k", "v");
    replied_ack(rig, WORKER, 1);
    ask(rig, WORKER, 3, TCPSTORE_SET, "ss", "/k", "w");
    replied_close(rig, WORKER, 3);
    ask(rig, WORKER, 2, TCPSTORE_SET, "ss", "/k", "w");
    replied_close(rig, WORKER, 2);
    ask(rig, 4, 1, TCPSTORE_GET, "s", "/k");
    replied_text(rig, 4, 1, "v");
}

static void
from_the_reserve_come_small_values_and_from_its_second_half_none(void **state)
{
    struct keyspace_rig *rig = *state;
    char *large = mem_zalloc(KEYSPACE_SMALL + 1);

    memset(large, 'x', KEYSPACE_SMALL);
    rig->budget.space = SPACE_LOW;
    ask(rig, WORKER, 1, TCPSTORE_SET, "ss", "/k", "v");
    replied_ack(rig, WORKER, 1);
    ask(rig, WORKER, 2, TCPSTORE_SET, "ss", "/l", large);
    replied_full(rig, WORKER, 2);
    rig->budget.space = SPACE_SCARCE;
    ask(rig, 4, 1, TCPSTORE_GET, "s", "/k");
    replied_text(rig, 4, 1, "v");
    ask(rig, 4, 2, TCPSTORE_SET, "ss", "/k", "w");
    replied_full(rig, 4, 2);
    rig->budget.space = SPACE_FINE;
    ask(rig, 5, 1, TCPSTORE_SET, "ss", "/l", large);
    replied_ack(rig, 5, 1);
    mem_free(large);
}

static void who_wanted_to_store_a_key_has_used_it(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_WAIT, "ns", 1, "/k");
    assert_false(keyspace_is_used(rig->k));
    rig->budget.space = SPACE_SCARCE;
    ask(rig, 4, 1, TCPSTORE_SET, "ss", "/k", "v");
    replied_full(rig, 4, 1);
    replied_full(rig, WORKER, 1);
    assert_true(keyspace_is_used(rig->k));
}

static void who_waits_for_a_key_hears_that_none_comes_any_more(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_SET, "ss", "/there", "v");
    replied_ack(rig, WORKER, 1);
    ask(rig, 4, 1, TCPSTORE_WAIT, "ns", 1, "/k");
    rig->budget.space = SPACE_SCARCE;
    replied_nothing(rig);
    ask(rig, 5, 1, TCPSTORE_WAIT, "ns", 1, "/there");
    replied_byte(rig, 5, 1, 0);
    ask(rig, WORKER, 2, TCPSTORE_SET, "ss", "/k", "v");
    replied_full(rig, WORKER, 2);
    replied_full(rig, 4, 1);
    ask(rig, 5, 2, TCPSTORE_WAIT, "ns", 1, "/k");
    replied_full(rig, 5, 2);
}

/* Its goodbye waits behind its requests, as STORE_CLOSE does. */
static void who_is_forsaken_writes_but_gets_empty_replies(void **state)
{
    struct keyspace_rig *rig = *state;
    struct msg_store_close end = {.generation = GENERATION, .client = WORKER};

    keyspace_forsake(rig->k, SESSION, &end);
    ask(rig, WORKER, 1, TCPSTORE_SET, "ss", "/k", "v");
    replied_ack(rig, WORKER, 1);
    ask(rig, WORKER, 2, TCPSTORE_GET, "s", "/k");
    replied_ack(rig, WORKER, 2);
    ask(rig, WORKER, 3, TCPSTORE_ADD, "si", "/n", (int64_t)5);
    replied_ack(rig, WORKER, 3);
    keyspace_close_client(rig->k, SESSION, &end);
    ask(rig, 4, 1, TCPSTORE_GET, "s", "/k");
    replied_text(rig, 4, 1, "v");
    ask(rig, 4, 2, TCPSTORE_GET, "s", "/n");
    replied_text(rig, 4, 2, "5");
}

static void another_generation_is_ignored(void **state)
{
    struct keyspace_rig *rig = *state;

    keyspace_store(rig->k, SESSION,
                   &(struct msg_store){.generation = GENERATION - 1,
                                       .client = WORKER,
                                       .seq = 1,
                                       .op = TCPSTORE_GETNUMKEYS});
    replied_nothing(rig);
}

static void clients_of_two_sessions_are_different(void **state)
{
    struct keyspace_rig *rig = *state;
    struct msg_store m = {.generation = GENERATION,
                          .client = WORKER,
                          .seq = 1,
                          .op = TCPSTORE_GETNUMKEYS};

    ask(rig, WORKER, 1, TCPSTORE_SET, "ss", "/k", "v");
    replied_ack(rig, WORKER, 1);
    keyspace_store(rig->k, SESSION + 1, &m);
    assert_int_equal(rig->replies[0].session, SESSION + 1);
    assert_int_equal(buf_len(&rig->replies[0].body), 8);
    take_keyspace_reply(rig);
}

/* ---- waiting ---- */

static void a_parked_wait_that_is_repeated_stays_parked(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_WAIT, "ns", 1, "/k");
    ask(rig, WORKER, 1, TCPSTORE_WAIT, "ns", 1, "/k");
    replied_nothing(rig);
    ask(rig, 4, 1, TCPSTORE_SET, "ss", "/k", "v");
    replied_byte(rig, WORKER, 1, 0);
    replied_ack(rig, 4, 1);
    ask(rig, WORKER, 1, TCPSTORE_WAIT, "ns", 1, "/k"); /* its answer was lost */
    replied_byte(rig, WORKER, 1, 0);
}

static void a_repeated_barrier_is_one_arrival(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    ask(rig, WORKER, 1, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    replied_nothing(rig);
    ask(rig, 4, 1, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    replied_byte(rig, 4, 1, 0);
    replied_byte(rig, WORKER, 1, 0);
    ask(rig, WORKER, 1, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    replied_byte(rig, WORKER, 1, 0);
    ask(rig, 4, 2, TCPSTORE_GET, "s", "/b");
    replied_text(rig, 4, 2, "2");
}

static void a_cancelled_wait_is_not_answered(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_WAIT, "ns", 1, "/k");
    ask_to_close(rig, WORKER, 1);
    ask(rig, 4, 1, TCPSTORE_SET, "ss", "/k", "v");
    replied_ack(rig, 4, 1);
    replied_nothing(rig);
    ask(rig, WORKER, 2, TCPSTORE_GET, "s", "/k");
    replied_text(rig, WORKER, 2, "v");
}

static void a_late_cancel_of_an_older_wait_changes_nothing(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, 4, 1, TCPSTORE_SET, "ss", "/a", "v");
    replied_ack(rig, 4, 1);
    ask(rig, WORKER, 1, TCPSTORE_WAIT, "ns", 1, "/a");
    replied_byte(rig, WORKER, 1, 0);
    ask(rig, WORKER, 2, TCPSTORE_WAIT, "ns", 1, "/k");
    ask_to_close(rig, WORKER, 1);
    ask(rig, 4, 2, TCPSTORE_SET, "ss", "/k", "v");
    replied_byte(rig, WORKER, 2, 0);
    replied_ack(rig, 4, 2);
}

static void who_asks_anew_has_given_up_waiting(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_WAIT, "ns", 1, "/k");
    ask(rig, WORKER, 2, TCPSTORE_WAIT, "ns", 1, "/l");
    ask(rig, 4, 1, TCPSTORE_MULTI_SET, "nssss", 2, "/k", "v", "/l", "v");
    replied_byte(rig, WORKER, 2, 0);
    replied_ack(rig, 4, 1);
}

/* ---- ends ---- */

static void a_closed_client_leaves_its_writes_but_no_wait(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_SET, "ss", "/a", "v");
    ask(rig, WORKER, 2, TCPSTORE_WAIT, "ns", 1, "/k");
    replied_ack(rig, WORKER, 1);
    ask_to_close(rig, WORKER, 0);
    ask(rig, 4, 1, TCPSTORE_SET, "ss", "/k", "v");
    replied_ack(rig, 4, 1);
    replied_nothing(rig);
    ask(rig, 4, 2, TCPSTORE_GET, "s", "/a");
    replied_text(rig, 4, 2, "v");
}

static void what_a_closed_client_repeats_is_not_applied_twice(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_APPEND, "ss", "/k", "a");
    replied_ack(rig, WORKER, 1);
    ask_to_close(rig, WORKER, 0);
    ask(rig, WORKER, 1, TCPSTORE_APPEND, "ss", "/k", "a");
    replied_ack(rig, WORKER, 1);
    ask_to_close(rig, WORKER, 0);
    ask(rig, 4, 1, TCPSTORE_GET, "s", "/k");
    replied_text(rig, 4, 1, "a");
}

static void a_dropped_session_loses_its_waits(void **state)
{
    struct keyspace_rig *rig = *state;
    struct msg_store m = {
        .generation = GENERATION, .client = 1, .seq = 1, .op = TCPSTORE_GETNUMKEYS};

    ask(rig, WORKER, 1, TCPSTORE_WAIT, "ns", 1, "/k");
    ask(rig, 4, 1, TCPSTORE_BARRIER, "si", "/b", (int64_t)3);
    ask_to_close(rig, 9, 0); /* never seen */
    keyspace_drop_session(rig->k, SESSION);
    keyspace_store(rig->k, SESSION + 1, &m);
    assert_int_equal(rig->n_replies, 1);
    take_keyspace_reply(rig);
    ask(rig, WORKER, 1, TCPSTORE_SET, "ss", "/k", "v"); /* numbered from 1 again */
    replied_ack(rig, WORKER, 1);
}

static void clients_are_bounded_and_closed_ones_forgotten_first(void **state)
{
    struct keyspace_rig *rig = *state;

    for (uint32_t client = 1; client <= MAX_CLIENTS; client++) {
        ask(rig, client, 1, TCPSTORE_SET, "ss", "/k", "v");
        replied_ack(rig, client, 1);
    }
    ask(rig, 50, 1, TCPSTORE_SET, "ss", "/k", "v");
    replied_close(rig, 50, 1);
    ask_to_close(rig, 2, 0);
    ask(rig, 51, 1, TCPSTORE_SET, "ss", "/k", "v");
    replied_ack(rig, 51, 1);
    ask(rig, 52, 1, TCPSTORE_SET, "ss", "/k", "v");
    replied_close(rig, 52, 1);
}

/* ---- chunks ---- */

static void a_request_in_chunks_is_one_request(void **state)
{
    struct keyspace_rig *rig = *state;
    struct buf body;

    body_make(&body, "ss", "/k", "a value in parts");
    for (size_t i = 0; i < buf_len(&body); i++) {
        replied_nothing(rig);
        ask_chunk(rig, WORKER, 1, TCPSTORE_SET, i + 1 < buf_len(&body),
                  (struct bytes){buf_bytes(&body) + i, 1});
    }
    replied_ack(rig, WORKER, 1);
    ask(rig, WORKER, 2, TCPSTORE_GET, "s", "/k");
    replied_text(rig, WORKER, 2, "a value in parts");
    buf_release(&body);
}

static void chunks_of_a_repeated_request_are_passed_over(void **state)
{
    struct keyspace_rig *rig = *state;
    struct buf body;

    body_make(&body, "ss", "/k", "x");
    for (int round = 0; round < 2; round++) {
        ask_chunk(rig, WORKER, 1, TCPSTORE_APPEND, true,
                  (struct bytes){buf_bytes(&body), 5});
        ask_chunk(rig, WORKER, 1, TCPSTORE_APPEND, false,
                  (struct bytes){buf_bytes(&body) + 5, buf_len(&body) - 5});
        replied_ack(rig, WORKER, 1);
    }
    ask(rig, WORKER, 2, TCPSTORE_GET, "s", "/k");
    replied_text(rig, WORKER, 2, "x");
    buf_release(&body);
}

/* Its reply was not kept: the request is put together and executed again. */
static void a_repeated_read_in_chunks_reads_again(void **state)
{
    struct keyspace_rig *rig = *state;
    struct buf body;

    ask(rig, 4, 1, TCPSTORE_MULTI_SET, "nssss", 2, "/a", "one", "/b", "two");
    replied_ack(rig, 4, 1);
    body_make(&body, "nss", 2, "/a", "/b");
    for (int round = 0; round < 3; round++) {
        ask_chunk(rig, WORKER, 1, TCPSTORE_MULTI_GET, true,
                  (struct bytes){buf_bytes(&body), 11});
        if (round == 1) { /* the agent's connection broke, it begins anew */
            keyspace_reattach(rig->k, SESSION);
            continue;
        }
        ask_chunk(rig, WORKER, 1, TCPSTORE_MULTI_GET, false,
                  (struct bytes){buf_bytes(&body) + 11, buf_len(&body) - 11});
        assert_int_equal(buf_len(&rig->replies[0].body), 2 * (8 + 3));
        take_keyspace_reply(rig);
    }
    buf_release(&body);
}

static void a_reattached_session_sends_a_partial_request_anew(void **state)
{
    struct keyspace_rig *rig = *state;
    struct buf body;

    body_make(&body, "ss", "/k", "v");
    ask_chunk(rig, WORKER, 1, TCPSTORE_SET, true, (struct bytes){buf_bytes(&body), 5});
    keyspace_reattach(rig->k, SESSION);
    ask_chunk(rig, WORKER, 1, TCPSTORE_SET, true, (struct bytes){buf_bytes(&body), 5});
    ask_chunk(rig, WORKER, 1, TCPSTORE_SET, false,
              (struct bytes){buf_bytes(&body) + 5, buf_len(&body) - 5});
    replied_ack(rig, WORKER, 1);
    ask(rig, WORKER, 2, TCPSTORE_GET, "s", "/k");
    replied_text(rig, WORKER, 2, "v");
    buf_release(&body);
}

static void a_large_reply_is_cut_into_chunks(void **state)
{
    struct keyspace_rig *rig = *state;
    char *value = mem_alloc(LARGE);
    struct buf body;

    for (size_t i = 0; i < LARGE; i++) {
        value[i] = (char)i;
    }
    ask(rig, WORKER, 1, TCPSTORE_SET, "sb", "/k", value, LARGE);
    replied_ack(rig, WORKER, 1);
    ask(rig, WORKER, 2, TCPSTORE_COMPARE_SET, "sss", "/k", "other", "new");
    for (int round = 0; round < 2; round++) { /* and again when it is repeated */
        assert_int_equal(rig->replies[0].n_chunks, 3);
        body_make(&body, "b", value, LARGE);
        replied(rig, WORKER, 2, buf_bytes(&body), buf_len(&body));
        buf_release(&body);
        ask(rig, WORKER, 2, TCPSTORE_COMPARE_SET, "sss", "/k", "other", "new");
    }
    take_keyspace_reply(rig);
    mem_free(value);
}

/* ---- bounds ---- */

static void what_breaks_the_protocol_costs_that_client_only(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_SET, "ss", "/n", "x");
    replied_ack(rig, WORKER, 1);
    ask(rig, WORKER, 2, TCPSTORE_ADD, "si", "/n", (int64_t)1);
    replied_close(rig, WORKER, 2);
    ask(rig, 4, 1, TCPSTORE_SET, "s", "/k");
    replied_close(rig, 4, 1);
    ask(rig, 5, 1, TCPSTORE_OP_COUNT, "");
    replied_close(rig, 5, 1);
    ask(rig, 6, 1, TCPSTORE_GET, "s", "/n");
    replied_text(rig, 6, 1, "x");
}

static void a_parked_client_that_breaks_a_rule_stays_dead(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_WAIT, "ns", 1, "/k");
    ask(rig, WORKER, 9, TCPSTORE_GETNUMKEYS, "");
    replied_close(rig, WORKER, 9);
    ask(rig, 4, 1, TCPSTORE_SET, "ss", "/k", "v");
    replied_ack(rig, 4, 1);
    ask(rig, WORKER, 2, TCPSTORE_GETNUMKEYS, "");
    replied_close(rig, WORKER, 2);
}

static void parts_and_kept_replies_count_against_the_cap(void **state)
{
    struct keyspace_rig *rig = keyspace_rig_new(100000);
    uint8_t bytes[60000] = {0};

    (void)state;
    ask_chunk(rig, 1, 1, TCPSTORE_SET, true, (struct bytes){bytes, sizeof(bytes)});
    ask_chunk(rig, 2, 1, TCPSTORE_SET, true, (struct bytes){bytes, sizeof(bytes)});
    replied_close(rig, 2, 1);
    ask_to_close(rig, 1, 0); /* gives its parts back */
    ask(rig, 3, 1, TCPSTORE_SET, "sb", "/k", bytes, sizeof(bytes));
    replied_ack(rig, 3, 1);
    /* the answer, the value itself, is too large to be kept besides */
    ask(rig, 3, 2, TCPSTORE_COMPARE_SET, "sss", "/k", "other", "new");
    assert_int_equal(buf_len(&rig->replies[0].body), 8 + sizeof(bytes));
    take_keyspace_reply(rig);
    ask(rig, 3, 2, TCPSTORE_COMPARE_SET, "sss", "/k", "other", "new");
    replied_close(rig, 3, 2);
    keyspace_rig_free(rig);
}

/* What waits in parts leaves no room for values, and the other way round. */
static void parts_and_values_share_one_budget(void **state)
{
    struct keyspace_rig *rig = keyspace_rig_new(100000);
    uint8_t bytes[60000] = {0};

    (void)state;
    ask_chunk(rig, 1, 1, TCPSTORE_SET, true, (struct bytes){bytes, sizeof(bytes)});
    ask(rig, 2, 1, TCPSTORE_SET, "sb", "/k", bytes, sizeof(bytes));
    replied_close(rig, 2, 1);
    ask_to_close(rig, 1, 0);
    ask(rig, 3, 1, TCPSTORE_SET, "sb", "/k", bytes, sizeof(bytes));
    replied_ack(rig, 3, 1);
    ask_chunk(rig, 4, 1, TCPSTORE_SET, true, (struct bytes){bytes, sizeof(bytes)});
    replied_close(rig, 4, 1);
    keyspace_rig_free(rig);
}

static void a_request_in_chunks_is_bounded(void **state)
{
    struct keyspace_rig *rig = keyspace_rig_new(1 << 30);
    uint8_t *chunk = mem_zalloc(MSG_MAX_CHUNK);
    size_t n = 0;

    (void)state;
    while (rig->n_replies == 0) {
        assert_true(n++ <= TCPSTORE_MAX_REQUEST / MSG_MAX_CHUNK);
        ask_chunk(rig, 1, 1, TCPSTORE_MULTI_SET, true,
                  (struct bytes){chunk, MSG_MAX_CHUNK});
    }
    replied_close(rig, 1, 1);
    mem_free(chunk);
    keyspace_rig_free(rig);
}

#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, keyspace_rig_setup, keyspace_rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(requests_are_answered_or_acknowledged),
        CASE(a_repeated_request_is_answered_again_and_applied_once),
        CASE(requests_repeated_in_a_row_are_applied_once),
        CASE(a_repeated_read_reads_again),
        CASE(a_skipped_number_costs_the_connection),
        CASE(from_the_reserve_come_small_values_and_from_its_second_half_none),
        CASE(who_wanted_to_store_a_key_has_used_it),
        CASE(who_waits_for_a_key_hears_that_none_comes_any_more),
        CASE(who_is_forsaken_writes_but_gets_empty_replies),
        CASE(another_generation_is_ignored),
        CASE(clients_of_two_sessions_are_different),
        CASE(a_parked_wait_that_is_repeated_stays_parked),
        CASE(a_repeated_barrier_is_one_arrival),
        CASE(a_cancelled_wait_is_not_answered),
        CASE(a_late_cancel_of_an_older_wait_changes_nothing),
        CASE(who_asks_anew_has_given_up_waiting),
        CASE(a_closed_client_leaves_its_writes_but_no_wait),
        CASE(what_a_closed_client_repeats_is_not_applied_twice),
        CASE(a_dropped_session_loses_its_waits),
        CASE(clients_are_bounded_and_closed_ones_forgotten_first),
        CASE(a_request_in_chunks_is_one_request),
        CASE(chunks_of_a_repeated_request_are_passed_over),
        CASE(a_repeated_read_in_chunks_reads_again),
        CASE(a_reattached_session_sends_a_partial_request_anew),
        CASE(a_large_reply_is_cut_into_chunks),
        CASE(what_breaks_the_protocol_costs_that_client_only),
        CASE(a_parked_client_that_breaks_a_rule_stays_dead),
        CASE(parts_and_kept_replies_count_against_the_cap),
        CASE(parts_and_values_share_one_budget),
        CASE(a_request_in_chunks_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
