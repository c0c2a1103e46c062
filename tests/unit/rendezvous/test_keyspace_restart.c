/* A key space that is saved, whose service is killed and started anew: every request is
 * applied once and answered as if nothing had been. */

#include "rendezvous/record_fields.h"
#include "tests/lib/body.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/keyspace_rig.h"
#include "tests/lib/sim.h"

#include "common/mem.h"
#include "common/tcpstore.h"

#include <stdio.h>
#include <string.h>

static int setup(void **state)
{
    *state = keyspace_rig_new_kept(64 << 20);
    return 0;
}

/* ---- what is kept ---- */

static void values_and_queues_are_back(void **state)
{
    struct keyspace_rig *rig = *state;
    size_t used;

    ask(rig, WORKER, 1, TCPSTORE_SET, "ss", "/k", "v");
    ask(rig, WORKER, 2, TCPSTORE_APPEND, "ss", "/k", "w");
    ask(rig, WORKER, 3, TCPSTORE_SET, "ss", "/gone", "x");
    ask(rig, WORKER, 4, TCPSTORE_DELETE_KEY, "s", "/gone");
    for (uint64_t i = 0; i < 3; i++) {
        ask(rig, WORKER, 5 + i, TCPSTORE_QUEUE_PUSH, "ss", "/k", i ? "more" : "first");
    }
    for (int i = 0; i < 7; i++) {
        take_keyspace_reply(rig);
    }
    used = rig->budget.used;
    keyspace_rig_restart(rig);
    assert_in_range(rig->budget.used, used - 64, used + 64); /* headroom */
    ask(rig, WORKER, 8, TCPSTORE_GET, "s", "/k");
    replied_text(rig, WORKER, 8, "vw");
    ask(rig, WORKER, 9, TCPSTORE_GETNUMKEYS, "");
    replied_i64(rig, WORKER, 9, 1);
    ask(rig, WORKER, 10, TCPSTORE_QUEUE_POP, "s", "/k");
    assert_memory_equal(buf_bytes(&rig->replies[0].body) + 16, "first", 5);
    take_keyspace_reply(rig);
    keyspace_rig_restart(rig);
    ask(rig, WORKER, 11, TCPSTORE_QUEUE_LEN, "s", "/k");
    replied_i64(rig, WORKER, 11, 2);
}

static void what_only_reads_or_waits_saves_nothing(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_GET, "s", "/k");
    ask(rig, WORKER, 2, TCPSTORE_CHECK, "ns", 1, "/k");
    ask(rig, WORKER, 3, TCPSTORE_WAIT, "ns", 1, "/k");
    ask(rig, WORKER, 4, TCPSTORE_PING, "u", 7);
    ask_to_close(rig, WORKER, 0);
    assert_int_equal(rig->shelf.n_saved, 0);
    for (int i = 0; i < 3; i++) {
        take_keyspace_reply(rig);
    }
}

static void a_request_writes_its_key_and_one_record_of_its_client(void **state)
{
    struct keyspace_rig *rig = *state;

    for (uint64_t seq = 1; seq <= 100; seq++) {
        ask(rig, WORKER, seq, TCPSTORE_ADD, "si", "/n", (int64_t)1);
        replied_i64(rig, WORKER, seq, (int64_t)seq);
        assert_int_equal(rig->shelf.n_saved, 2 * seq);
    }
    shelf_commit(&rig->shelf);
    assert_int_equal(rig->shelf.n, 1 + KEYSPACE_KEPT);
    assert_in_range(rig->shelf.bytes_saved, 1, 100 * 64);
}

/* ---- repetition ---- */

static void the_last_replies_are_given_again(void **state)
{
    struct keyspace_rig *rig = *state;

    for (uint64_t seq = 1; seq <= 10; seq++) {
        ask(rig, WORKER, seq, TCPSTORE_ADD, "si", "/n", (int64_t)1);
        replied_i64(rig, WORKER, seq, (int64_t)seq);
    }
    keyspace_rig_restart(rig);
    for (uint64_t seq = 7; seq <= 10; seq++) {
        ask(rig, WORKER, seq, TCPSTORE_ADD, "si", "/n", (int64_t)1);
        replied_i64(rig, WORKER, seq, (int64_t)seq);
    }
    ask(rig, WORKER, 11, TCPSTORE_ADD, "si", "/n", (int64_t)0);
    replied_i64(rig, WORKER, 11, 10);
}

static void a_write_before_the_last_reply_is_acknowledged_again(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_QUEUE_PUSH, "ss", "/q", "a");
    ask(rig, WORKER, 2, TCPSTORE_ADD, "si", "/n", (int64_t)1);
    ask(rig, WORKER, 3, TCPSTORE_QUEUE_PUSH, "ss", "/q", "b");
    for (int i = 0; i < 3; i++) {
        take_keyspace_reply(rig);
    }
    keyspace_rig_restart(rig);
    ask(rig, WORKER, 1, TCPSTORE_QUEUE_PUSH, "ss", "/q", "a");
    replied_ack(rig, WORKER, 1);
    ask(rig, WORKER, 2, TCPSTORE_ADD, "si", "/n", (int64_t)1);
    replied_i64(rig, WORKER, 2, 1);
    ask(rig, WORKER, 3, TCPSTORE_QUEUE_PUSH, "ss", "/q", "b");
    replied_ack(rig, WORKER, 3);
    ask(rig, WORKER, 4, TCPSTORE_QUEUE_LEN, "s", "/q");
    replied_i64(rig, WORKER, 4, 2);
}

static void numbers_of_reads_may_be_missing_once(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_ADD, "si", "/n", (int64_t)1);
    replied_i64(rig, WORKER, 1, 1);
    for (uint64_t seq = 2; seq <= 5; seq++) {
        ask(rig, WORKER, seq, TCPSTORE_GET, "s", "/n");
        replied_text(rig, WORKER, seq, "1");
    }
    keyspace_rig_restart(rig);
    ask(rig, WORKER, 6, TCPSTORE_ADD, "si", "/n", (int64_t)1);
    replied_i64(rig, WORKER, 6, 2);
    ask(rig, WORKER, 9, TCPSTORE_ADD, "si", "/n", (int64_t)1);
    replied_close(rig, WORKER, 9);
}

static void a_client_that_only_read_goes_on_at_its_number(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_GET, "s", "/n");
    replied_text(rig, WORKER, 1, "");
    keyspace_rig_restart(rig);
    ask(rig, WORKER, 2, TCPSTORE_GET, "s", "/n");
    replied_text(rig, WORKER, 2, "");
}

static void a_closed_clients_writes_are_not_applied_again(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_APPEND, "ss", "/k", "a");
    replied_ack(rig, WORKER, 1);
    ask_to_close(rig, WORKER, 0);
    keyspace_rig_restart(rig);
    ask(rig, WORKER, 1, TCPSTORE_APPEND, "ss", "/k", "a");
    replied_ack(rig, WORKER, 1);
    ask_to_close(rig, WORKER, 0);
    ask(rig, 1, 1, TCPSTORE_GET, "s", "/k");
    replied_text(rig, 1, 1, "a");
}

static void closed_clients_that_make_room_are_forgotten(void **state)
{
    struct keyspace_rig *rig = *state;

    for (uint32_t client = 1; client <= 10 * MAX_CLIENTS; client++) {
        ask(rig, client, 1, TCPSTORE_APPEND, "ss", "/k", "a");
        replied_ack(rig, client, 1);
        ask_to_close(rig, client, 0);
    }
    shelf_commit(&rig->shelf);
    assert_int_equal(shelf_count(&rig->shelf, RECORD_CLIENT), MAX_CLIENTS);
}

static void a_request_in_parts_starts_over(void **state)
{
    struct keyspace_rig *rig = *state;
    struct buf body;

    body_make(&body, "ss", "/k", "value");
    ask_chunk(rig, WORKER, 1, TCPSTORE_SET, true, (struct bytes){body.data, 12});
    keyspace_rig_restart(rig);
    ask_chunk(rig, WORKER, 1, TCPSTORE_SET, true, (struct bytes){body.data, 12});
    ask_chunk(rig, WORKER, 1, TCPSTORE_SET, false,
              (struct bytes){body.data + 12, buf_len(&body) - 12});
    replied_ack(rig, WORKER, 1);
    ask(rig, WORKER, 2, TCPSTORE_GET, "s", "/k");
    replied_text(rig, WORKER, 2, "value");
    buf_release(&body);
}

static void a_reply_that_could_not_be_kept_closes_the_client(void **state)
{
    struct keyspace_rig *rig = *state;
    char *value = mem_zalloc(3 << 20);

    memset(value, 'v', (3 << 20) - 1);
    rig->budget.max = 5 << 20;
    ask(rig, WORKER, 1, TCPSTORE_COMPARE_SET, "sss", "/k", "", value);
    take_keyspace_reply(rig);
    keyspace_rig_restart(rig);
    ask(rig, WORKER, 1, TCPSTORE_COMPARE_SET, "sss", "/k", "", value);
    replied_close(rig, WORKER, 1);
    mem_free(value);
}

/* Its limit was lowered while it ran. */
static void what_is_above_a_lower_limit_is_back_and_the_store_is_full(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_SET, "ss", "/k", "v");
    ask(rig, WORKER, 2, TCPSTORE_QUEUE_PUSH, "ss", "/q", "item");
    ask(rig, 1, 1, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    ask(rig, WORKER, 3, TCPSTORE_ADD, "si", "/n", (int64_t)7);
    for (int i = 0; i < 3; i++) {
        take_keyspace_reply(rig);
    }
    rig->budget.max = 1;
    keyspace_rig_restart(rig);
    ask(rig, WORKER, 3, TCPSTORE_ADD, "si", "/n", (int64_t)7);
    replied_i64(rig, WORKER, 3, 7);
    ask(rig, WORKER, 4, TCPSTORE_GET, "s", "/k");
    replied_text(rig, WORKER, 4, "v");
    ask(rig, WORKER, 5, TCPSTORE_QUEUE_LEN, "s", "/q");
    replied_i64(rig, WORKER, 5, 1);
    ask(rig, WORKER, 6, TCPSTORE_SET, "ss", "/more", "v");
    replied_close(rig, WORKER, 6);
    ask(rig, 2, 1, TCPSTORE_DELETE_KEY, "s", "/k");
    replied_i64(rig, 2, 1, 1);
    rig->budget.max = 64 << 20;
    ask(rig, 2, 2, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    replied_byte(rig, 2, 2, 0);
    replied_byte(rig, 1, 1, 0);
}

/* ---- waits ---- */

static void a_wait_is_registered_again(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_WAIT, "ns", 1, "/k");
    replied_nothing(rig);
    keyspace_rig_restart(rig);
    ask(rig, WORKER, 1, TCPSTORE_WAIT, "ns", 1, "/k");
    replied_nothing(rig);
    ask(rig, 1, 1, TCPSTORE_SET, "ss", "/k", "v");
    replied_byte(rig, WORKER, 1, 0);
    replied_ack(rig, 1, 1);
}

/* Counted once, and not dependent on who comes back first. */
static void an_arrival_at_a_barrier_counts_once(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    replied_nothing(rig);
    keyspace_rig_restart(rig);
    ask(rig, 1, 1, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    replied_byte(rig, 1, 1, 0);
    replied_byte(rig, WORKER, 1, 0); /* nobody is there to hear it */
    ask(rig, 1, 2, TCPSTORE_DELETE_KEY, "s", "/b");
    replied_i64(rig, 1, 2, 1);
    keyspace_rig_restart(rig);
    ask(rig, WORKER, 1, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    replied_byte(rig, WORKER, 1, 0);
}

static void an_arrival_said_again_still_waits(void **state)
{
    struct keyspace_rig *rig = *state;

    for (int i = 0; i < 3; i++) {
        ask(rig, WORKER, 1, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
        replied_nothing(rig);
        keyspace_rig_restart(rig);
    }
    ask(rig, 1, 1, TCPSTORE_GET, "s", "/b");
    replied_text(rig, 1, 1, "1");
}

static void a_barrier_that_was_given_up_does_not_wait_again(void **state)
{
    struct keyspace_rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    ask(rig, WORKER, 2, TCPSTORE_SET, "ss", "/k", "v");
    replied_ack(rig, WORKER, 2);
    keyspace_rig_restart(rig);
    ask(rig, 1, 1, TCPSTORE_ADD, "si", "/b", (int64_t)1);
    replied_i64(rig, 1, 1, 2); /* and no other reply */
    ask(rig, WORKER, 1, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    replied_close(rig, WORKER, 1);
}

/* ---- everything at once ---- */

static const char *some_key(struct sim *dice)
{
    static const char *const keys[] = {"/a", "/b", "/n", "/q"};

    return keys[sim_random(dice, 4)];
}

static void make_request(struct sim *dice, enum tcpstore_op *op, struct buf *body)
{
    static const enum tcpstore_op ops[] = {
        TCPSTORE_SET,        TCPSTORE_GET,       TCPSTORE_ADD,
        TCPSTORE_APPEND,     TCPSTORE_CHECK,     TCPSTORE_COMPARE_SET,
        TCPSTORE_DELETE_KEY, TCPSTORE_QUEUE_POP, TCPSTORE_QUEUE_PUSH,
        TCPSTORE_GETNUMKEYS, TCPSTORE_QUEUE_LEN, TCPSTORE_MULTI_SET};
    char value[8];

    (void)snprintf(value, sizeof(value), "%u", (unsigned)sim_random(dice, 100));
    *op = ops[sim_random(dice, sizeof(ops) / sizeof(ops[0]))];
    if (*op == TCPSTORE_ADD) { /* of a key that is always a number */
        body_make(body, "si", "/count", (int64_t)1);
    } else if (*op == TCPSTORE_COMPARE_SET) {
        body_make(body, "sss", some_key(dice), "", value);
    } else if (*op == TCPSTORE_MULTI_SET) {
        body_make(body, "nssss", 2, some_key(dice), value, "/m", value);
    } else if (*op == TCPSTORE_CHECK) {
        body_make(body, "ns", 1, some_key(dice));
    } else if (*op == TCPSTORE_GETNUMKEYS) {
        body_make(body, "");
    } else if (*op == TCPSTORE_SET || *op == TCPSTORE_APPEND ||
               *op == TCPSTORE_QUEUE_PUSH) {
        body_make(body, "ss", some_key(dice), value);
    } else {
        body_make(body, "s", some_key(dice));
    }
}

static void expect_same_reply(struct keyspace_rig *rig, struct keyspace_rig *model)
{
    const struct buf *is = &rig->replies[0].body;
    const struct buf *should = &model->replies[0].body;

    assert_int_equal(rig->n_replies, 1);
    assert_int_equal(model->n_replies, 1);
    assert_false(rig->replies[0].close);
    assert_int_equal(buf_len(is), buf_len(should));
    if (buf_len(is) > 0) {
        assert_memory_equal(buf_bytes(is), buf_bytes(should), buf_len(is));
    }
    take_keyspace_reply(model);
}

/* Beside a key space whose service lives: killed at any moment, before a request or
 * after it, when the reply is lost and it is asked again. */
static void restarts_change_no_reply(void **state)
{
    struct keyspace_rig *rig = *state;
    struct keyspace_rig *model = keyspace_rig_new(64 << 20);
    uint64_t seq[MAX_CLIENTS] = {0};
    struct sim dice;

    sim_init(&dice, 1);
    for (int i = 0; i < 3000; i++) {
        uint32_t client = (uint32_t)sim_random(&dice, MAX_CLIENTS);
        struct bytes bytes;
        enum tcpstore_op op;
        struct buf body;

        make_request(&dice, &op, &body);
        bytes = record_bytes(&body);
        seq[client]++;
        ask_chunk(model, client, seq[client], op, false, bytes);
        ask_chunk(rig, client, seq[client], op, false, bytes);
        expect_same_reply(rig, model);
        if (sim_chance(&dice, 20)) {
            ask_chunk(model, client, seq[client], op, false, bytes);
            keyspace_rig_restart(rig);
            take_keyspace_reply(rig);
            ask_chunk(rig, client, seq[client], op, false, bytes);
            expect_same_reply(rig, model);
        }
        take_keyspace_reply(rig);
        buf_release(&body);
    }
    keyspace_rig_free(model);
}

/* ---- what no service has written ---- */

static void records_that_nobody_wrote_are_refused(void **state)
{
    static const uint8_t client_key[13] = {0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 3, 0};
    static const struct {
        enum record_kind kind;
        size_t key_size;
        struct record_client client;
    } cases[] = {
        {RECORD_JOB, 13, {.seq = 1, .op = TCPSTORE_ADD}},
        {RECORD_QUEUE, 7, {.seq = 1, .op = TCPSTORE_ADD}}, /* no number */
        {RECORD_CLIENT, 12, {.seq = 1, .op = TCPSTORE_ADD}},
        {RECORD_CLIENT, 13, {.seq = 0, .op = TCPSTORE_ADD}},
        {RECORD_CLIENT, 13, {.seq = 1, .op = 200}},
        {RECORD_CLIENT, 13, {.seq = 1, .op = TCPSTORE_ADD, .state = 9}},
        {RECORD_CLIENT, 13, {.seq = 1, .op = TCPSTORE_SET}}, /* has no reply */
        {RECORD_CLIENT, 13, {.seq = 1, .op = TCPSTORE_ADD, .state = CLIENT_WAITING}},
        {RECORD_CLIENT,
         13,
         {.seq = 1, .op = TCPSTORE_BARRIER, .state = CLIENT_WAITING}},
    };
    struct keyspace_rig *rig = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct record r = {.kind = cases[i].kind,
                           .key = {client_key, cases[i].key_size}};
        struct buf value;

        buf_init(&value, 1024);
        assert_int_equal(record_put_client(&cases[i].client, &value), 0);
        r.value = record_bytes(&value);
        keyspace_rig_restart(rig);
        assert_int_equal(keyspace_restore(rig->k, &r), ERR_CORRUPT);
        buf_release(&value);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, keyspace_rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(values_and_queues_are_back),
        CASE(what_only_reads_or_waits_saves_nothing),
        CASE(a_request_writes_its_key_and_one_record_of_its_client),
        CASE(the_last_replies_are_given_again),
        CASE(a_write_before_the_last_reply_is_acknowledged_again),
        CASE(numbers_of_reads_may_be_missing_once),
        CASE(a_client_that_only_read_goes_on_at_its_number),
        CASE(a_closed_clients_writes_are_not_applied_again),
        CASE(closed_clients_that_make_room_are_forgotten),
        CASE(a_request_in_parts_starts_over),
        CASE(a_reply_that_could_not_be_kept_closes_the_client),
        CASE(what_is_above_a_lower_limit_is_back_and_the_store_is_full),
        CASE(a_wait_is_registered_again),
        CASE(an_arrival_at_a_barrier_counts_once),
        CASE(an_arrival_said_again_still_waits),
        CASE(a_barrier_that_was_given_up_does_not_wait_again),
        CASE(restarts_change_no_reply),
        CASE(records_that_nobody_wrote_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
