#include "launcher/store/relay_flow.h"
#include "tests/lib/cmocka.h"

#include "common/err.h"
#include "common/tcpstore.h"
#include "common/wire.h"

#include <inttypes.h>
#include <string.h>

enum { BIG = 600 * 1024, HELD = 4 * 1024 * 1024 };

/* A flow whose worker and service are two buffers: "op seq[+]" and the reply's bytes.
 */
struct rig {
    struct relay_flow *flow;
    struct buf in, sent, replied;
    size_t n_body; /* bytes of STORE bodies */
};

static void on_send(void *arg, const struct msg *m)
{
    struct rig *rig = arg;
    int rv;

    if (m->type == MSG_STORE) {
        rig->n_body += m->u.store.body.size;
        assert_true(m->u.store.body.size <= MSG_MAX_CHUNK);
        rv = buf_printf(&rig->sent, "%u:%" PRIu64 "%s ", m->u.store.op, m->u.store.seq,
                        m->u.store.more ? "+" : "");
    } else {
        assert_int_equal(m->type, MSG_STORE_CLOSE);
        rv = buf_printf(&rig->sent, "close:%" PRIu64 " ", m->u.store_close.seq);
    }
    assert_int_equal(rv, 0);
}

static void on_reply(void *arg, const uint8_t *bytes, size_t size)
{
    struct rig *rig = arg;

    assert_int_equal(buf_append(&rig->replied, bytes, size), 0);
}

static void put_bytes(struct rig *rig, const void *bytes, size_t size)
{
    assert_int_equal(buf_append(&rig->in, bytes, size), 0);
}

static void setup(struct rig *rig)
{
    static const uint8_t hello[] = {0x00, 0xce, 0xf7, 0x85, 0x3c};

    *rig = (struct rig){0};
    buf_init(&rig->in, TCPSTORE_MAX_REQUEST);
    buf_init(&rig->sent, 65536);
    buf_init(&rig->replied, (size_t)2 * RELAY_FLOW_WHOLE);
    rig->flow = relay_flow_new(&(struct relay_flow_config){.generation = 3,
                                                           .client = 1,
                                                           .max_held = HELD,
                                                           .arg = rig,
                                                           .send = on_send,
                                                           .reply = on_reply});
    put_bytes(rig, hello, sizeof(hello));
}

static void teardown(struct rig *rig)
{
    relay_flow_free(rig->flow);
    buf_release(&rig->in);
    buf_release(&rig->sent);
    buf_release(&rig->replied);
}

static void pump(struct rig *rig)
{
    assert_int_equal(relay_flow_input(rig->flow, &rig->in), 0);
}

static void expect_sent(struct rig *rig, const char *text)
{
    size_t n = buf_len(&rig->sent);

    assert_int_equal(n, strlen(text));
    if (n > 0) {
        assert_memory_equal(buf_bytes(&rig->sent), text, n);
    }
    buf_clear(&rig->sent);
}

static void expect_replied(struct rig *rig, const void *bytes, size_t size)
{
    assert_int_equal(buf_len(&rig->replied), size);
    if (size > 0) {
        assert_memory_equal(buf_bytes(&rig->replied), bytes, size);
    }
    buf_clear(&rig->replied);
}

/* SET k = `size` zeros; GET k; WAIT [k]. */
static void put_set(struct rig *rig, size_t size)
{
    static uint8_t zeros[BIG];

    assert_int_equal(wire_put_u8(&rig->in, TCPSTORE_SET), 0);
    assert_int_equal(wire_put_u64(&rig->in, 2), 0);
    put_bytes(rig, "/k", 2);
    assert_int_equal(wire_put_u64(&rig->in, size), 0);
    put_bytes(rig, zeros, size);
}

static void put_get(struct rig *rig)
{
    assert_int_equal(wire_put_u8(&rig->in, TCPSTORE_GET), 0);
    assert_int_equal(wire_put_u64(&rig->in, 2), 0);
    put_bytes(rig, "/k", 2);
}

static void put_wait(struct rig *rig)
{
    assert_int_equal(wire_put_u8(&rig->in, TCPSTORE_WAIT), 0);
    assert_int_equal(wire_put_u64(&rig->in, 1), 0);
    assert_int_equal(wire_put_u64(&rig->in, 2), 0);
    put_bytes(rig, "/k", 2);
}

static void put_op(struct rig *rig, enum tcpstore_op op)
{
    assert_int_equal(wire_put_u8(&rig->in, (uint8_t)op), 0);
}

static int answer(struct rig *rig, uint64_t seq, const char *text, bool more,
                  bool close)
{
    struct msg_store_reply m = {
        .generation = 3,
        .client = 1,
        .seq = seq,
        .more = more,
        .close = close,
        .body = {(const uint8_t *)text, strlen(text)},
    };

    return relay_flow_reply(rig->flow, &m);
}

static void ping_is_answered_here(void **state)
{
    static const uint8_t nonce[] = {4, 3, 2, 1};
    struct rig rig;

    (void)state;
    setup(&rig);
    put_op(&rig, TCPSTORE_PING);
    put_bytes(&rig, nonce, sizeof(nonce));
    pump(&rig);
    expect_sent(&rig, "");
    expect_replied(&rig, nonce, sizeof(nonce));
    teardown(&rig);
}

static void ping_behind_a_reply_that_is_due_keeps_the_order(void **state)
{
    static const uint8_t nonce[] = {4, 3, 2, 1};
    struct rig rig;

    (void)state;
    setup(&rig);
    put_get(&rig);
    put_op(&rig, TCPSTORE_PING);
    put_bytes(&rig, nonce, sizeof(nonce));
    pump(&rig);
    expect_sent(&rig, "3:1 13:2 ");
    expect_replied(&rig, "", 0);
    assert_int_equal(answer(&rig, 1, "value", false, false), 0);
    assert_int_equal(answer(&rig, 2, "ping", false, false), 0);
    expect_replied(&rig, "valueping", 9);
    teardown(&rig);
}

static void unacknowledged_requests_are_sent_again_in_order(void **state)
{
    struct rig rig;

    (void)state;
    setup(&rig);
    put_set(&rig, 1);
    put_set(&rig, 2);
    put_get(&rig);
    pump(&rig);
    expect_sent(&rig, "1:1 1:2 3:3 ");
    assert_int_equal(answer(&rig, 1, "", false, false), 0);
    assert_int_equal(relay_flow_resend(rig.flow), 0);
    expect_sent(&rig, "1:2 3:3 ");
    assert_int_equal(answer(&rig, 2, "", false, false), 0);
    assert_int_equal(answer(&rig, 3, "v", false, false), 0);
    assert_true(relay_flow_is_idle(rig.flow));
    assert_int_equal(relay_flow_held(rig.flow), 0);
    assert_int_equal(relay_flow_resend(rig.flow), 0);
    expect_sent(&rig, "");
    teardown(&rig);
}

static void a_reply_in_parts_can_be_asked_again(void **state)
{
    struct rig rig;

    (void)state;
    setup(&rig);
    put_get(&rig);
    pump(&rig);
    assert_int_equal(answer(&rig, 1, "ol", true, false), 0);
    expect_replied(&rig, "", 0); /* not before it is whole */
    expect_sent(&rig, "3:1 ");
    assert_int_equal(relay_flow_resend(rig.flow), 0);
    expect_sent(&rig, "3:1 ");
    assert_int_equal(answer(&rig, 1, "new", true, false), 0);
    assert_int_equal(answer(&rig, 1, "er", false, false), 0);
    expect_replied(&rig, "newer", 5);
    assert_true(relay_flow_is_idle(rig.flow));
    teardown(&rig);
}

static void half_a_large_reply_cannot_be_asked_again(void **state)
{
    static char part[RELAY_FLOW_WHOLE / 2];
    struct rig rig;

    (void)state;
    setup(&rig);
    memset(part, 'x', sizeof(part) - 1);
    put_get(&rig);
    pump(&rig);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(answer(&rig, 1, part, true, false), 0);
    }
    put_set(&rig, 1);
    pump(&rig);
    expect_sent(&rig, "3:1 1:2 ");
    assert_int_equal(relay_flow_resend(rig.flow), ERR_CLOSED);
    expect_sent(&rig, "1:2 "); /* writes are not lost with the connection */
    assert_int_equal(answer(&rig, 2, "", false, false), 0);
    assert_true(relay_flow_is_idle(rig.flow));
    assert_int_equal(relay_flow_held(rig.flow), 0);
    teardown(&rig);
}

static void large_values_are_cut(void **state)
{
    struct rig rig;

    (void)state;
    setup(&rig);
    put_set(&rig, BIG);
    pump(&rig);
    expect_sent(&rig, "1:1+ 1:1+ 1:1 ");
    assert_int_equal(rig.n_body, BIG + 18);
    teardown(&rig);
}

static void cancelled_wait_is_answered_at_once_and_its_wake_up_dropped(void **state)
{
    struct rig rig;

    (void)state;
    setup(&rig);
    put_wait(&rig);
    put_op(&rig, TCPSTORE_CANCEL_WAIT);
    pump(&rig);
    expect_sent(&rig, "6:1 close:1 ");
    expect_replied(&rig, "\1", 1);
    assert_int_equal(answer(&rig, 1, "x", false, false), 0);
    expect_replied(&rig, "", 0);
    assert_true(relay_flow_is_idle(rig.flow));
    teardown(&rig);
}

static void cancel_without_a_wait_is_answered_too(void **state)
{
    struct rig rig;

    (void)state;
    setup(&rig);
    put_wait(&rig);
    pump(&rig);
    assert_int_equal(answer(&rig, 1, "", false, false), 0);
    put_op(&rig, TCPSTORE_CANCEL_WAIT);
    pump(&rig);
    expect_sent(&rig, "6:1 ");
    expect_replied(&rig, "\1", 1);
    teardown(&rig);
}

static void new_request_gives_up_a_parked_wait(void **state)
{
    struct rig rig;

    (void)state;
    setup(&rig);
    put_wait(&rig);
    put_get(&rig);
    pump(&rig);
    buf_clear(&rig.sent);
    assert_int_equal(answer(&rig, 1, "w", false, false), 0);
    assert_int_equal(answer(&rig, 2, "value", false, false), 0);
    expect_replied(&rig, "value", 5);
    teardown(&rig);
}

static void full_flow_takes_no_more_until_it_is_acknowledged(void **state)
{
    struct rig rig;
    uint64_t n = 0;

    (void)state;
    setup(&rig);
    for (int i = 0; i < 10; i++) {
        put_set(&rig, BIG);
    }
    pump(&rig);
    assert_true(relay_flow_is_full(rig.flow));
    assert_true(relay_flow_held(rig.flow) < HELD + BIG + 1024);
    while (buf_len(&rig.in) > 0) {
        assert_int_equal(answer(&rig, ++n, "", false, false), 0);
        pump(&rig);
    }
    assert_true(n < 10 && n > 0);
    teardown(&rig);
}

static void few_replies_are_on_their_way_at_once(void **state)
{
    struct rig rig;

    (void)state;
    setup(&rig);
    for (int i = 0; i < RELAY_FLOW_MAX_DUE + 2; i++) {
        put_get(&rig);
    }
    pump(&rig);
    expect_sent(&rig, "3:1 3:2 3:3 3:4 ");
    assert_true(relay_flow_is_full(rig.flow));
    assert_int_equal(answer(&rig, 1, "half", true, false), 0);
    pump(&rig);
    expect_sent(&rig, ""); /* the rest of that reply is still to come */
    assert_int_equal(answer(&rig, 1, "", false, false), 0);
    pump(&rig);
    expect_sent(&rig, "3:5 ");
    relay_flow_end(rig.flow);
    expect_sent(&rig, "close:0 ");
    teardown(&rig);
}

static void end_withdraws_waits_but_not_writes(void **state)
{
    struct rig rig;

    (void)state;
    setup(&rig);
    put_set(&rig, 1);
    put_wait(&rig);
    pump(&rig);
    expect_sent(&rig, "1:1 6:2 ");
    relay_flow_end(rig.flow);
    expect_sent(&rig, "close:0 ");
    assert_false(relay_flow_is_idle(rig.flow));
    assert_int_equal(relay_flow_resend(rig.flow), 0);
    expect_sent(&rig, "1:1 ");
    assert_int_equal(answer(&rig, 1, "", false, false), 0);
    assert_true(relay_flow_is_idle(rig.flow));
    teardown(&rig);
}

static void broken_requests_cost_the_connection(void **state)
{
    struct rig rig;

    (void)state;
    setup(&rig);
    put_op(&rig, (enum tcpstore_op)200);
    assert_int_equal(relay_flow_input(rig.flow, &rig.in), ERR_PROTOCOL);
    teardown(&rig);
    setup(&rig);
    put_get(&rig);
    pump(&rig);
    assert_int_equal(answer(&rig, 1, "", false, true), ERR_CLOSED);
    teardown(&rig);
}

static void connection_that_the_service_closes_holds_nothing(void **state)
{
    struct rig rig;

    (void)state;
    setup(&rig);
    put_set(&rig, BIG);
    put_set(&rig, BIG);
    put_get(&rig);
    pump(&rig);
    assert_true(relay_flow_held(rig.flow) > BIG);
    assert_int_equal(answer(&rig, 1, "", false, true), ERR_CLOSED);
    assert_true(relay_flow_is_idle(rig.flow));
    assert_int_equal(relay_flow_held(rig.flow), 0);
    buf_clear(&rig.sent);
    relay_flow_end(rig.flow);
    assert_int_equal(relay_flow_resend(rig.flow), 0);
    expect_sent(&rig, "close:0 ");
    teardown(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ping_is_answered_here),
        cmocka_unit_test(ping_behind_a_reply_that_is_due_keeps_the_order),
        cmocka_unit_test(unacknowledged_requests_are_sent_again_in_order),
        cmocka_unit_test(a_reply_in_parts_can_be_asked_again),
        cmocka_unit_test(half_a_large_reply_cannot_be_asked_again),
        cmocka_unit_test(large_values_are_cut),
        cmocka_unit_test(cancelled_wait_is_answered_at_once_and_its_wake_up_dropped),
        cmocka_unit_test(cancel_without_a_wait_is_answered_too),
        cmocka_unit_test(new_request_gives_up_a_parked_wait),
        cmocka_unit_test(full_flow_takes_no_more_until_it_is_acknowledged),
        cmocka_unit_test(few_replies_are_on_their_way_at_once),
        cmocka_unit_test(end_withdraws_waits_but_not_writes),
        cmocka_unit_test(broken_requests_cost_the_connection),
        cmocka_unit_test(connection_that_the_service_closes_holds_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
