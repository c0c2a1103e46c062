/* A generation's key space, as relays reach it: order, repetition, chunks, bounds.
 * Replies are recorded, their chunks put together. */

#include "rendezvous/keyspace.h"
#include "tests/lib/body.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"
#include "common/tcpstore.h"

#include <string.h>

#define LARGE ((size_t)614400) /* three chunks */

enum { GENERATION = 5, MAX_REPLIES = 32, SESSION = 77, MAX_CLIENTS = 4, WORKER = 3 };

struct reply {
    uint64_t session;
    uint32_t client;
    uint64_t seq;
    bool close;
    unsigned n_chunks;
    struct buf body;
};

struct rig {
    struct keyspace *k;
    size_t n_replies;
    bool in_parts; /* the last one is not whole yet */
    struct reply replies[MAX_REPLIES];
};

static void on_reply(void *arg, uint64_t session, const struct msg_store_reply *m)
{
    struct rig *rig = arg;
    struct reply *r = &rig->replies[rig->n_replies];

    ASSERT(rig->n_replies < MAX_REPLIES && m->generation == GENERATION);
    ASSERT(m->body.size <= MSG_MAX_CHUNK);
    if (!rig->in_parts) {
        *r = (struct reply){session, m->client, m->seq, m->close, 0, {0}};
        buf_init(&r->body, 512 << 20);
    }
    ASSERT(r->seq == m->seq && r->client == m->client);
    ASSERT(buf_append(&r->body, m->body.data, m->body.size) == 0);
    r->n_chunks++;
    rig->in_parts = m->more;
    rig->n_replies += !m->more;
}

static struct rig *rig_new(size_t max_bytes)
{
    struct rig *rig = mem_zalloc(sizeof(*rig));

    rig->k = keyspace_new(&(struct keyspace_config){.generation = GENERATION,
                                                    .max_bytes = max_bytes,
                                                    .max_clients = MAX_CLIENTS,
                                                    .seed = 3,
                                                    .reply = on_reply,
                                                    .reply_arg = rig});
    return rig;
}

static void rig_free(struct rig *rig)
{
    keyspace_free(rig->k);
    for (size_t i = 0; i < rig->n_replies; i++) {
        buf_release(&rig->replies[i].body);
    }
    mem_free(rig);
}

static int setup(void **state)
{
    *state = rig_new(64 << 20);
    return 0;
}

static int teardown(void **state)
{
    struct rig *rig = *state;
    size_t left = rig->n_replies;

    rig_free(rig);
    return left == 0 ? 0 : -1;
}

static void send_chunk(struct rig *rig, uint32_t client, uint64_t seq,
                       enum tcpstore_op op, bool more, struct bytes body)
{
    keyspace_store(rig->k, SESSION,
                   &(struct msg_store){.generation = GENERATION,
                                       .client = client,
                                       .seq = seq,
                                       .op = (uint8_t)op,
                                       .more = more,
                                       .body = body});
}

static void ask(struct rig *rig, uint32_t client, uint64_t seq, enum tcpstore_op op,
                const char *format, ...)
{
    struct buf body;
    va_list args;

    va_start(args, format);
    body_vmake(&body, format, args);
    va_end(args);
    send_chunk(rig, client, seq, op, false, (struct bytes){body.data, buf_len(&body)});
    buf_release(&body);
}

static void close_client(struct rig *rig, uint32_t client, uint64_t seq)
{
    keyspace_close_client(rig->k, SESSION,
                          &(struct msg_store_close){GENERATION, client, seq});
}

static void take_reply(struct rig *rig)
{
    buf_release(&rig->replies[0].body);
    rig->n_replies--;
    memmove(rig->replies, rig->replies + 1, rig->n_replies * sizeof(rig->replies[0]));
}

static void expect(struct rig *rig, uint32_t client, uint64_t seq, const void *bytes,
                   size_t size)
{
    struct reply *r = &rig->replies[0];

    assert_true(rig->n_replies > 0);
    assert_int_equal(r->session, SESSION);
    assert_int_equal(r->client, client);
    assert_int_equal(r->seq, seq);
    assert_false(r->close);
    assert_int_equal(buf_len(&r->body), size);
    if (size > 0) {
        assert_memory_equal(buf_bytes(&r->body), bytes, size);
    }
    take_reply(rig);
}

static void expect_ack(struct rig *rig, uint32_t client, uint64_t seq)
{
    expect(rig, client, seq, NULL, 0);
}

static void expect_byte(struct rig *rig, uint32_t client, uint64_t seq, uint8_t byte)
{
    expect(rig, client, seq, &byte, 1);
}

static void expect_i64(struct rig *rig, uint32_t client, uint64_t seq, int64_t v)
{
    struct buf b;

    body_make(&b, "i", v);
    expect(rig, client, seq, buf_bytes(&b), buf_len(&b));
    buf_release(&b);
}

static void expect_text(struct rig *rig, uint32_t client, uint64_t seq,
                        const char *text)
{
    struct buf b;

    body_make(&b, "s", text);
    expect(rig, client, seq, buf_bytes(&b), buf_len(&b));
    buf_release(&b);
}

static void expect_close(struct rig *rig, uint32_t client, uint64_t seq)
{
    assert_true(rig->n_replies > 0);
    assert_true(rig->replies[0].close);
    assert_int_equal(rig->replies[0].client, client);
    assert_int_equal(rig->replies[0].seq, seq);
    take_reply(rig);
}

static void expect_nothing(struct rig *rig)
{
    assert_int_equal(rig->n_replies, 0);
}

/* ---- order and repetition ---- */

static void requests_are_answered_or_acknowledged(void **state)
{
    struct rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_SET, "ss", "/k", "v");
    expect_ack(rig, WORKER, 1);
    ask(rig, WORKER, 2, TCPSTORE_GET, "s", "/k");
    expect_text(rig, WORKER, 2, "v");
}

static void a_repeated_request_is_answered_again_and_applied_once(void **state)
{
    struct rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_ADD, "si", "/n", (int64_t)5);
    expect_i64(rig, WORKER, 1, 5);
    ask(rig, WORKER, 1, TCPSTORE_ADD, "si", "/n", (int64_t)5);
    expect_i64(rig, WORKER, 1, 5);
    ask(rig, WORKER, 2, TCPSTORE_ADD, "si", "/n", (int64_t)0);
    expect_i64(rig, WORKER, 2, 5);
}

static void requests_repeated_in_a_row_are_applied_once(void **state)
{
    struct rig *rig = *state;

    for (int round = 0; round < 2; round++) {
        ask(rig, WORKER, 1, TCPSTORE_APPEND, "ss", "/k", "a");
        ask(rig, WORKER, 2, TCPSTORE_APPEND, "ss", "/k", "b");
        ask(rig, WORKER, 3, TCPSTORE_QUEUE_PUSH, "ss", "/q", "x");
        ask(rig, WORKER, 4, TCPSTORE_QUEUE_LEN, "s", "/q");
        expect_ack(rig, WORKER, 1);
        expect_ack(rig, WORKER, 2);
        expect_ack(rig, WORKER, 3);
        expect_i64(rig, WORKER, 4, 1);
    }
    ask(rig, WORKER, 5, TCPSTORE_GET, "s", "/k");
    expect_text(rig, WORKER, 5, "ab");
}

static void a_repeated_read_reads_again(void **state)
{
    struct rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_GET, "s", "/k");
    expect_text(rig, WORKER, 1, "");
    ask(rig, 4, 1, TCPSTORE_SET, "ss", "/k", "v");
    expect_ack(rig, 4, 1);
    ask(rig, WORKER, 1, TCPSTORE_GET, "s", "/k");
    expect_text(rig, WORKER, 1, "v");
}

static void a_skipped_number_costs_the_connection(void **state)
{
    struct rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_SET, "ss", "/k", "v");
    expect_ack(rig, WORKER, 1);
    ask(rig, WORKER, 3, TCPSTORE_SET, "ss", "/k", "w");
    expect_close(rig, WORKER, 3);
    ask(rig, WORKER, 2, TCPSTORE_SET, "ss", "/k", "w");
    expect_close(rig, WORKER, 2);
    ask(rig, 4, 1, TCPSTORE_GET, "s", "/k");
    expect_text(rig, 4, 1, "v");
}

static void another_generation_is_ignored(void **state)
{
    struct rig *rig = *state;

    keyspace_store(rig->k, SESSION,
                   &(struct msg_store){.generation = GENERATION - 1,
                                       .client = WORKER,
                                       .seq = 1,
                                       .op = TCPSTORE_GETNUMKEYS});
    expect_nothing(rig);
}

static void clients_of_two_sessions_are_different(void **state)
{
    struct rig *rig = *state;
    struct msg_store m = {.generation = GENERATION,
                          .client = WORKER,
                          .seq = 1,
                          .op = TCPSTORE_GETNUMKEYS};

    ask(rig, WORKER, 1, TCPSTORE_SET, "ss", "/k", "v");
    expect_ack(rig, WORKER, 1);
    keyspace_store(rig->k, SESSION + 1, &m);
    assert_int_equal(rig->replies[0].session, SESSION + 1);
    assert_int_equal(buf_len(&rig->replies[0].body), 8);
    take_reply(rig);
}

/* ---- waiting ---- */

static void a_parked_wait_that_is_repeated_stays_parked(void **state)
{
    struct rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_WAIT, "ns", 1, "/k");
    ask(rig, WORKER, 1, TCPSTORE_WAIT, "ns", 1, "/k");
    expect_nothing(rig);
    ask(rig, 4, 1, TCPSTORE_SET, "ss", "/k", "v");
    expect_byte(rig, WORKER, 1, 0);
    expect_ack(rig, 4, 1);
    ask(rig, WORKER, 1, TCPSTORE_WAIT, "ns", 1, "/k"); /* its answer was lost */
    expect_byte(rig, WORKER, 1, 0);
}

static void a_repeated_barrier_is_one_arrival(void **state)
{
    struct rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    ask(rig, WORKER, 1, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    expect_nothing(rig);
    ask(rig, 4, 1, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    expect_byte(rig, 4, 1, 0);
    expect_byte(rig, WORKER, 1, 0);
    ask(rig, WORKER, 1, TCPSTORE_BARRIER, "si", "/b", (int64_t)2);
    expect_byte(rig, WORKER, 1, 0);
    ask(rig, 4, 2, TCPSTORE_GET, "s", "/b");
    expect_text(rig, 4, 2, "2");
}

static void a_cancelled_wait_is_not_answered(void **state)
{
    struct rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_WAIT, "ns", 1, "/k");
    close_client(rig, WORKER, 1);
    ask(rig, 4, 1, TCPSTORE_SET, "ss", "/k", "v");
    expect_ack(rig, 4, 1);
    expect_nothing(rig);
    ask(rig, WORKER, 2, TCPSTORE_GET, "s", "/k");
    expect_text(rig, WORKER, 2, "v");
}

static void a_late_cancel_of_an_older_wait_changes_nothing(void **state)
{
    struct rig *rig = *state;

    ask(rig, 4, 1, TCPSTORE_SET, "ss", "/a", "v");
    expect_ack(rig, 4, 1);
    ask(rig, WORKER, 1, TCPSTORE_WAIT, "ns", 1, "/a");
    expect_byte(rig, WORKER, 1, 0);
    ask(rig, WORKER, 2, TCPSTORE_WAIT, "ns", 1, "/k");
    close_client(rig, WORKER, 1);
    ask(rig, 4, 2, TCPSTORE_SET, "ss", "/k", "v");
    expect_byte(rig, WORKER, 2, 0);
    expect_ack(rig, 4, 2);
}

static void who_asks_anew_has_given_up_waiting(void **state)
{
    struct rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_WAIT, "ns", 1, "/k");
    ask(rig, WORKER, 2, TCPSTORE_WAIT, "ns", 1, "/l");
    ask(rig, 4, 1, TCPSTORE_MULTI_SET, "nssss", 2, "/k", "v", "/l", "v");
    expect_byte(rig, WORKER, 2, 0);
    expect_ack(rig, 4, 1);
}

/* ---- ends ---- */

static void a_closed_client_leaves_its_writes_but_no_wait(void **state)
{
    struct rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_SET, "ss", "/a", "v");
    ask(rig, WORKER, 2, TCPSTORE_WAIT, "ns", 1, "/k");
    expect_ack(rig, WORKER, 1);
    close_client(rig, WORKER, 0);
    ask(rig, 4, 1, TCPSTORE_SET, "ss", "/k", "v");
    expect_ack(rig, 4, 1);
    expect_nothing(rig);
    ask(rig, 4, 2, TCPSTORE_GET, "s", "/a");
    expect_text(rig, 4, 2, "v");
}

static void what_a_closed_client_repeats_is_not_applied_twice(void **state)
{
    struct rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_APPEND, "ss", "/k", "a");
    expect_ack(rig, WORKER, 1);
    close_client(rig, WORKER, 0);
    ask(rig, WORKER, 1, TCPSTORE_APPEND, "ss", "/k", "a");
    expect_ack(rig, WORKER, 1);
    close_client(rig, WORKER, 0);
    ask(rig, 4, 1, TCPSTORE_GET, "s", "/k");
    expect_text(rig, 4, 1, "a");
}

static void a_dropped_session_loses_its_waits(void **state)
{
    struct rig *rig = *state;
    struct msg_store m = {
        .generation = GENERATION, .client = 1, .seq = 1, .op = TCPSTORE_GETNUMKEYS};

    ask(rig, WORKER, 1, TCPSTORE_WAIT, "ns", 1, "/k");
    ask(rig, 4, 1, TCPSTORE_BARRIER, "si", "/b", (int64_t)3);
    close_client(rig, 9, 0); /* never seen */
    keyspace_drop_session(rig->k, SESSION);
    keyspace_store(rig->k, SESSION + 1, &m);
    assert_int_equal(rig->n_replies, 1);
    take_reply(rig);
    ask(rig, WORKER, 1, TCPSTORE_SET, "ss", "/k", "v"); /* numbered from 1 again */
    expect_ack(rig, WORKER, 1);
}

static void clients_are_bounded_and_closed_ones_forgotten_first(void **state)
{
    struct rig *rig = *state;

    for (uint32_t client = 1; client <= MAX_CLIENTS; client++) {
        ask(rig, client, 1, TCPSTORE_SET, "ss", "/k", "v");
        expect_ack(rig, client, 1);
    }
    ask(rig, 50, 1, TCPSTORE_SET, "ss", "/k", "v");
    expect_close(rig, 50, 1);
    close_client(rig, 2, 0);
    ask(rig, 51, 1, TCPSTORE_SET, "ss", "/k", "v");
    expect_ack(rig, 51, 1);
    ask(rig, 52, 1, TCPSTORE_SET, "ss", "/k", "v");
    expect_close(rig, 52, 1);
}

/* ---- chunks ---- */

static void a_request_in_chunks_is_one_request(void **state)
{
    struct rig *rig = *state;
    struct buf body;

    body_make(&body, "ss", "/k", "a value in parts");
    for (size_t i = 0; i < buf_len(&body); i++) {
        expect_nothing(rig);
        send_chunk(rig, WORKER, 1, TCPSTORE_SET, i + 1 < buf_len(&body),
                   (struct bytes){buf_bytes(&body) + i, 1});
    }
    expect_ack(rig, WORKER, 1);
    ask(rig, WORKER, 2, TCPSTORE_GET, "s", "/k");
    expect_text(rig, WORKER, 2, "a value in parts");
    buf_release(&body);
}

static void chunks_of_a_repeated_request_are_passed_over(void **state)
{
    struct rig *rig = *state;
    struct buf body;

    body_make(&body, "ss", "/k", "x");
    for (int round = 0; round < 2; round++) {
        send_chunk(rig, WORKER, 1, TCPSTORE_APPEND, true,
                   (struct bytes){buf_bytes(&body), 5});
        send_chunk(rig, WORKER, 1, TCPSTORE_APPEND, false,
                   (struct bytes){buf_bytes(&body) + 5, buf_len(&body) - 5});
        expect_ack(rig, WORKER, 1);
    }
    ask(rig, WORKER, 2, TCPSTORE_GET, "s", "/k");
    expect_text(rig, WORKER, 2, "x");
    buf_release(&body);
}

static void a_reattached_session_sends_a_partial_request_anew(void **state)
{
    struct rig *rig = *state;
    struct buf body;

    body_make(&body, "ss", "/k", "v");
    send_chunk(rig, WORKER, 1, TCPSTORE_SET, true, (struct bytes){buf_bytes(&body), 5});
    keyspace_reattach(rig->k, SESSION);
    send_chunk(rig, WORKER, 1, TCPSTORE_SET, true, (struct bytes){buf_bytes(&body), 5});
    send_chunk(rig, WORKER, 1, TCPSTORE_SET, false,
               (struct bytes){buf_bytes(&body) + 5, buf_len(&body) - 5});
    expect_ack(rig, WORKER, 1);
    ask(rig, WORKER, 2, TCPSTORE_GET, "s", "/k");
    expect_text(rig, WORKER, 2, "v");
    buf_release(&body);
}

static void a_large_reply_is_cut_into_chunks(void **state)
{
    struct rig *rig = *state;
    char *value = mem_alloc(LARGE);
    struct buf body;

    for (size_t i = 0; i < LARGE; i++) {
        value[i] = (char)i;
    }
    ask(rig, WORKER, 1, TCPSTORE_SET, "sb", "/k", value, LARGE);
    expect_ack(rig, WORKER, 1);
    ask(rig, WORKER, 2, TCPSTORE_COMPARE_SET, "sss", "/k", "other", "new");
    for (int round = 0; round < 2; round++) { /* and again when it is repeated */
        assert_int_equal(rig->replies[0].n_chunks, 3);
        body_make(&body, "b", value, LARGE);
        expect(rig, WORKER, 2, buf_bytes(&body), buf_len(&body));
        buf_release(&body);
        ask(rig, WORKER, 2, TCPSTORE_COMPARE_SET, "sss", "/k", "other", "new");
    }
    take_reply(rig);
    mem_free(value);
}

/* ---- bounds ---- */

static void what_breaks_the_protocol_costs_that_client_only(void **state)
{
    struct rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_SET, "ss", "/n", "x");
    expect_ack(rig, WORKER, 1);
    ask(rig, WORKER, 2, TCPSTORE_ADD, "si", "/n", (int64_t)1);
    expect_close(rig, WORKER, 2);
    ask(rig, 4, 1, TCPSTORE_SET, "s", "/k");
    expect_close(rig, 4, 1);
    ask(rig, 5, 1, TCPSTORE_OP_COUNT, "");
    expect_close(rig, 5, 1);
    ask(rig, 6, 1, TCPSTORE_GET, "s", "/n");
    expect_text(rig, 6, 1, "x");
}

static void a_parked_client_that_breaks_a_rule_stays_dead(void **state)
{
    struct rig *rig = *state;

    ask(rig, WORKER, 1, TCPSTORE_WAIT, "ns", 1, "/k");
    ask(rig, WORKER, 9, TCPSTORE_GETNUMKEYS, "");
    expect_close(rig, WORKER, 9);
    ask(rig, 4, 1, TCPSTORE_SET, "ss", "/k", "v");
    expect_ack(rig, 4, 1);
    ask(rig, WORKER, 2, TCPSTORE_GETNUMKEYS, "");
    expect_close(rig, WORKER, 2);
}

static void parts_and_kept_replies_count_against_the_cap(void **state)
{
    struct rig *rig = rig_new(100000);
    uint8_t bytes[60000] = {0};

    (void)state;
    send_chunk(rig, 1, 1, TCPSTORE_SET, true, (struct bytes){bytes, sizeof(bytes)});
    send_chunk(rig, 2, 1, TCPSTORE_SET, true, (struct bytes){bytes, sizeof(bytes)});
    expect_close(rig, 2, 1);
    close_client(rig, 1, 0); /* gives its parts back */
    ask(rig, 3, 1, TCPSTORE_SET, "sb", "/k", bytes, sizeof(bytes));
    expect_ack(rig, 3, 1);
    /* the answer, the value itself, is too large to be kept besides */
    ask(rig, 3, 2, TCPSTORE_COMPARE_SET, "sss", "/k", "other", "new");
    assert_int_equal(buf_len(&rig->replies[0].body), 8 + sizeof(bytes));
    take_reply(rig);
    ask(rig, 3, 2, TCPSTORE_COMPARE_SET, "sss", "/k", "other", "new");
    expect_close(rig, 3, 2);
    rig_free(rig);
}

static void a_request_in_chunks_is_bounded(void **state)
{
    struct rig *rig = rig_new(1 << 30);
    uint8_t *chunk = mem_zalloc(MSG_MAX_CHUNK);
    size_t n = 0;

    (void)state;
    while (rig->n_replies == 0) {
        assert_true(n++ <= TCPSTORE_MAX_REQUEST / MSG_MAX_CHUNK);
        send_chunk(rig, 1, 1, TCPSTORE_MULTI_SET, true,
                   (struct bytes){chunk, MSG_MAX_CHUNK});
    }
    expect_close(rig, 1, 1);
    mem_free(chunk);
    rig_free(rig);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(requests_are_answered_or_acknowledged),
        CASE(a_repeated_request_is_answered_again_and_applied_once),
        CASE(requests_repeated_in_a_row_are_applied_once),
        CASE(a_repeated_read_reads_again),
        CASE(a_skipped_number_costs_the_connection),
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
        CASE(a_reattached_session_sends_a_partial_request_anew),
        CASE(a_large_reply_is_cut_into_chunks),
        CASE(what_breaks_the_protocol_costs_that_client_only),
        CASE(a_parked_client_that_breaks_a_rule_stays_dead),
        CASE(parts_and_kept_replies_count_against_the_cap),
        CASE(a_request_in_chunks_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
