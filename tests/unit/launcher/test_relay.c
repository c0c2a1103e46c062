/* What the relay carries between its workers' connections and the service. */

#include "launcher/store/relay_closed.h"
#include "tests/lib/body.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/relay_rig.h"

#include "common/mem.h"
#include "common/wire.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    VALUE_SIZE = 1 << 20, /* of one SET; … */
    HELD_SETS = 4, /* … so many reach the relay's bound for one connection; … */
    N_SETS = 32,   /* … and so many are more than the sockets hold, too */
    MANY_TURNS = 1000,
    HELD_ALL_SETS = 64, /* so many reach the bound for all together; … */
    N_CROWD = 20,       /* … workers that ask for more */
    HALF_REPLY = 1100 * 1024,
};

static void ask_wait(struct relay_rig *r, int fd)
{
    struct buf body;

    body_make(&body, "ns", 1, "k");
    relay_rig_ask(r, fd, TCPSTORE_WAIT, &body);
    buf_release(&body);
}

static void acknowledge(struct relay_rig *r)
{
    const struct relay_heard *h = &r->heard[r->n_acked++];
    const struct msg_store_reply m = {
        .generation = RELAY_GENERATION, .client = h->client, .seq = h->seq};

    CHECK(r->n_acked <= r->n_heard);
    relay_reply(r->relay, &m);
}

/* Writes what the socket takes of it. */
static void push(int fd, struct buf *out)
{
    ssize_t n = send(fd, buf_bytes(out), buf_len(out), MSG_NOSIGNAL);

    CHECK(n >= 0 || errno == EAGAIN);
    buf_consume(out, n > 0 ? (size_t)n : 0);
}

static void put_sets(struct buf *out, unsigned n)
{
    char *value = mem_zalloc(VALUE_SIZE);
    struct buf body;

    body_make(&body, "sb", "k", value, (size_t)VALUE_SIZE);
    buf_init(out, SIZE_MAX);
    for (unsigned i = 0; i < n; i++) {
        CHECK(wire_put_u8(out, TCPSTORE_SET) == 0);
        CHECK(buf_append(out, buf_bytes(&body), buf_len(&body)) == 0);
    }
    buf_release(&body);
    mem_free(value);
}

/* The worker writes on and on: four requests reach the bound; each acknowledgement lets
 * one more through. */
static void flood(void)
{
    struct relay_rig *r = relay_rig_open();
    int fd = relay_rig_enter(r, "127.0.0.1", "127.0.0.1");
    struct buf out;

    put_sets(&out, N_SETS);
    TURN_UNTIL(r, (push(fd, &out), r->n_heard == HELD_SETS));
    for (int i = 0; i < MANY_TURNS; i++) {
        push(fd, &out);
        relay_rig_turn(r);
        CHECK(r->n_heard == HELD_SETS && buf_len(&out) > 0); /* both full */
    }
    while (r->n_acked < N_SETS) {
        unsigned expected = MIN(r->n_acked + HELD_SETS, (unsigned)N_SETS);

        TURN_UNTIL(r, (push(fd, &out), r->n_heard == expected));
        acknowledge(r);
    }
    relay_rig_expect_pong(r, fd, 5);
    buf_release(&out);
    CHECK(close(fd) == 0);
    relay_rig_close(r);
}

static void worker_is_not_read_while_too_much_is_unacknowledged(void **state)
{
    (void)state;
    child_run(flood);
}

static void reply_byte(struct relay_rig *r, const struct relay_heard *h, uint8_t byte)
{
    const struct msg_store_reply m = {.generation = RELAY_GENERATION,
                                      .client = h->client,
                                      .seq = h->seq,
                                      .body = {.data = &byte, .size = 1}};

    relay_reply(r->relay, &m);
}

static void cancelled(void)
{
    static const uint8_t yes = 1;
    static const uint8_t late = 0;
    struct relay_rig *r = relay_rig_open();
    int fd = relay_rig_enter(r, "127.0.0.1", "127.0.0.1");

    ask_wait(r, fd);
    TURN_UNTIL(r, r->n_heard == 1);
    CHECK(r->heard[0].op == TCPSTORE_WAIT);
    relay_rig_ask(r, fd, TCPSTORE_CANCEL_WAIT, NULL);
    relay_rig_expect(r, fd, &yes, 1); /* though the service has said nothing */
    CHECK(r->n_heard == 2 && r->heard[1].op == RELAY_CLOSE);
    CHECK(r->heard[1].seq == r->heard[0].seq);
    reply_byte(r, &r->heard[0], late);
    relay_rig_expect_pong(r, fd, 6); /* and nothing before it */
    ask_wait(r, fd);
    TURN_UNTIL(r, r->n_heard == 3);
    reply_byte(r, &r->heard[2], late); /* one that still waits has it */
    relay_rig_expect(r, fd, &late, 1);
    CHECK(close(fd) == 0);
    relay_rig_close(r);
}

static void cancelled_wait_is_answered_at_once_and_never_again(void **state)
{
    (void)state;
    child_run(cancelled);
}

static bool old_is_gone(int fd, int port)
{
    return relay_rig_has_ended(fd) &&
           relay_rig_connect("127.0.0.1", "127.0.0.1", port) < 0;
}

static void two_generations(void)
{
    struct relay_rig *old = relay_rig_open();
    struct relay_rig *new = relay_rig_open();
    int port = relay_port(old->relay);
    int a = relay_rig_enter(old, "127.0.0.1", "127.0.0.1");
    int b = relay_rig_enter(new, "127.0.0.1", "127.0.0.1");
    struct msg_store_reply stale = {
        .generation = RELAY_GENERATION - 1, .client = 1, .seq = 1};

    relay_rig_expect_pong(old, a, 1);
    ask_wait(new, b);
    TURN_UNTIL(new, new->n_heard == 1);
    stale.body = (struct bytes){.data = (const uint8_t *)"x", .size = 1};
    relay_reply(new->relay, &stale); /* of the one before: not for this worker */
    ask_wait(old, a);
    TURN_UNTIL(old, old->n_heard == 1);
    relay_rig_close(old);
    CHECK(old_is_gone(a, port));
    relay_rig_ask(new, b, TCPSTORE_CANCEL_WAIT, NULL);
    relay_rig_expect(new, b, "\1", 1);
    relay_rig_expect_pong(new, b, 2); /* the new one's go on */
    CHECK(close(a) == 0 && close(b) == 0);
    relay_rig_close(new);
}

static void connections_of_a_generation_end_with_its_listener(void **state)
{
    (void)state;
    child_run(two_generations);
}

/* The connection to the service is behind. */
static void paused(void)
{
    struct relay_rig *r = relay_rig_open();
    int small = relay_rig_enter(r, "127.0.0.1", "127.0.0.1");
    int large = relay_rig_enter(r, "127.0.0.1", "127.0.0.1");
    struct buf out;

    relay_rig_expect_pong(r, large, 1);
    relay_pause(r->relay, true);
    put_sets(&out, 1);
    for (int i = 0; i < MANY_TURNS; i++) {
        push(large, &out);
        relay_rig_turn(r);
        CHECK(r->n_heard == 0);
    }
    ask_wait(r, small);
    TURN_UNTIL(r, r->n_heard == 1);
    CHECK(r->heard[0].op == TCPSTORE_WAIT);
    relay_pause(r->relay, false);
    TURN_UNTIL(r, (push(large, &out), r->n_heard == 2));
    CHECK(r->heard[1].op == TCPSTORE_SET);
    buf_release(&out);
    CHECK(close(small) == 0 && close(large) == 0);
    relay_rig_close(r);
}

static void
only_workers_that_hold_little_are_read_while_the_relay_is_paused(void **state)
{
    (void)state;
    child_run(paused);
}

/* A pause for a connection that is no more is over with the next. */
static void reconnected(void)
{
    struct relay_rig *r = relay_rig_open();
    int fd = relay_rig_enter(r, "127.0.0.1", "127.0.0.1");
    struct buf out;

    put_sets(&out, 1);
    relay_rig_expect_pong(r, fd, 1);
    relay_pause(r->relay, true);
    relay_resend(r->relay);
    TURN_UNTIL(r, (push(fd, &out), r->n_heard == 1));
    buf_release(&out);
    CHECK(close(fd) == 0);
    relay_rig_close(r);
}

static void pause_ends_with_its_connection(void **state)
{
    (void)state;
    child_run(reconnected);
}

static void wait_and_end(struct relay_rig *r)
{
    int fd = relay_rig_enter(r, "127.0.0.1", "127.0.0.1");
    unsigned n = r->n_heard;

    ask_wait(r, fd);
    TURN_UNTIL(r, r->n_heard == n + 1);
    CHECK(close(fd) == 0);
    TURN_UNTIL(r, r->n_heard == n + 2);
    CHECK(r->heard[n + 1].op == RELAY_CLOSE);
    relay_rig_turn(r); /* its handle is closed, too */
}

/* The service may not have heard of it. */
static void ended(void)
{
    struct relay_rig *r = relay_rig_open();

    wait_and_end(r);
    relay_resend(r->relay);
    CHECK(r->n_heard == 3 && r->heard[2].op == RELAY_CLOSE && r->heard[2].client == 1);
    relay_rig_close(r);
}

static void the_end_of_a_connection_is_told_again(void **state)
{
    (void)state;
    child_run(ended);
}

static void ask_get(struct relay_rig *r, int fd)
{
    struct buf body;

    body_make(&body, "s", "k");
    relay_rig_ask(r, fd, TCPSTORE_GET, &body);
    buf_release(&body);
}

/* More than can be remembered. */
static void knocked(void)
{
    struct relay_rig *r = relay_rig_open();
    int fd;

    wait_and_end(r);
    for (unsigned i = 0; i <= RELAY_CLOSED_MAX; i++) {
        fd = relay_rig_enter(r, "127.0.0.1", "127.0.0.1");
        relay_rig_expect_pong(r, fd, 1);
        CHECK(close(fd) == 0);
    }
    fd = relay_rig_enter(r, "127.0.0.1", "127.0.0.1");
    relay_rig_expect_pong(r, fd, 1); /* the others' ends have been read */
    relay_resend(r->relay);
    CHECK(r->n_heard == 3 && r->heard[2].op == RELAY_CLOSE && r->heard[2].client == 1);
    CHECK(close(fd) == 0);
    relay_rig_close(r);
}

static void who_asks_nothing_of_the_service_pushes_nobody_out(void **state)
{
    (void)state;
    child_run(knocked);
}

/* So much that the relay passes it on before its end. */
static void reply_half(struct relay_rig *r, const struct relay_heard *h)
{
    static const uint8_t bytes[HALF_REPLY];
    const struct msg_store_reply m = {.generation = RELAY_GENERATION,
                                      .client = h->client,
                                      .seq = h->seq,
                                      .more = 1,
                                      .body = {.data = bytes, .size = sizeof(bytes)}};

    relay_reply(r->relay, &m);
}

static int get_half(struct relay_rig *r)
{
    int fd = relay_rig_enter(r, "127.0.0.1", "127.0.0.1");
    unsigned n = r->n_heard;

    ask_get(r, fd);
    TURN_UNTIL(r, r->n_heard == n + 1);
    reply_half(r, &r->heard[n]);
    return fd;
}

/* Sends again: how many messages that are. */
static unsigned resend(struct relay_rig *r)
{
    unsigned n = r->n_heard;

    relay_resend(r->relay);
    for (unsigned i = n; i < r->n_heard; i++) {
        CHECK(r->heard[i].op == RELAY_CLOSE);
    }
    relay_rig_turn(r); /* handles are closed, too */
    return r->n_heard - n;
}

/* Neither a worker that is there nor one that has gone is asked for again; when the
 * relay ends it counts nothing as held any more, or aborts. */
static void half_answered(void)
{
    struct relay_rig *r = relay_rig_open();
    int gone = get_half(r);
    int there = get_half(r);

    CHECK(close(gone) == 0);
    TURN_UNTIL(r, r->n_heard == 3 && r->heard[2].op == RELAY_CLOSE);
    relay_rig_turn(r);     /* its handle is closed, too */
    CHECK(resend(r) == 2); /* both have ended, … */
    CHECK(resend(r) == 2); /* … and are among those that have */
    CHECK(close(there) == 0);
    relay_rig_close(r);
}

static void what_was_half_answered_is_not_held_after_a_reconnect(void **state)
{
    (void)state;
    child_run(half_answered);
}

/* Each has reached its own bound, but for those that came when all had reached theirs.
 */
static void crowd_in(struct relay_rig *r, int fds[N_CROWD], struct buf out[N_CROWD])
{
    for (unsigned i = 0; i < N_CROWD; i++) {
        fds[i] = relay_rig_enter(r, "127.0.0.1", "127.0.0.1");
        put_sets(&out[i], HELD_SETS);
    }
    for (int n = 0; n < MANY_TURNS || r->n_heard < HELD_ALL_SETS; n++) {
        for (unsigned i = 0; i < N_CROWD; i++) {
            push(fds[i], &out[i]);
        }
        relay_rig_turn(r);
    }
    CHECK(r->n_heard < HELD_ALL_SETS + HELD_SETS);
}

static void crowded(void)
{
    struct relay_rig *r = relay_rig_open();
    struct buf out[N_CROWD];
    int fds[N_CROWD];
    unsigned n;
    int fd;

    crowd_in(r, fds, out);
    n = r->n_heard;
    fd = relay_rig_enter(r, "127.0.0.1", "127.0.0.1");
    ask_wait(r, fd);
    TURN_UNTIL(r, r->n_heard == n + 1);
    CHECK(r->heard[n].op == TCPSTORE_WAIT);
    while (r->n_acked < N_CROWD * HELD_SETS + 1) { /* nobody is forgotten */
        for (unsigned i = 0; i < N_CROWD; i++) {
            push(fds[i], &out[i]);
        }
        relay_rig_turn(r);
        if (r->n_acked < r->n_heard) {
            acknowledge(r);
        }
    }
    for (unsigned i = 0; i < N_CROWD; i++) {
        buf_release(&out[i]);
        CHECK(close(fds[i]) == 0);
    }
    CHECK(close(fd) == 0);
    relay_rig_close(r);
}

static void worker_that_holds_little_is_read_when_all_hold_too_much(void **state)
{
    (void)state;
    child_run(crowded);
}

/* A worker that has come to another port; *ret_taken: where it was accepted. */
static int connect_elsewhere(int *ret_taken)
{
    struct sockaddr_in addr = relay_rig_v4("127.0.0.1", 0);
    socklen_t size = sizeof(addr);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd;

    CHECK(bind(listener, (struct sockaddr *)&addr, size) == 0);
    CHECK(listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&addr, &size) == 0);
    fd = relay_rig_connect("127.0.0.1", "127.0.0.1", ntohs(addr.sin_port));
    *ret_taken = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    CHECK(fd >= 0 && *ret_taken >= 0 && close(listener) == 0);
    return fd;
}

static void adopted(void)
{
    static const uint8_t hello[] = {0x00, 0xce, 0xf7, 0x85, 0x3c};
    struct relay_rig *r = relay_rig_open();
    int taken;
    int fd = connect_elsewhere(&taken);

    relay_adopt(r->relay, taken, hello, 3);
    relay_rig_turn(r);
    CHECK(send(fd, hello + 3, 2, MSG_NOSIGNAL) == 2);
    relay_rig_expect_pong(r, fd, 1);
    ask_wait(r, fd);
    TURN_UNTIL(r, r->n_heard == 1);
    CHECK(r->heard[0].op == TCPSTORE_WAIT);
    relay_rig_close(r);
    CHECK(relay_rig_has_ended(fd) && close(fd) == 0);
}

static void adopted_too_early(void)
{
    struct relay_rig *r = relay_rig_new("");
    int taken;
    int fd = connect_elsewhere(&taken);

    relay_adopt(r->relay, taken, (const uint8_t *)"", 1);
    CHECK(relay_rig_has_ended(fd) && close(fd) == 0);
    relay_rig_close(r);
}

static void worker_that_came_elsewhere_is_served_like_any_other(void **state)
{
    (void)state;
    child_run(adopted);
}

static void worker_that_came_elsewhere_before_the_round_has_to_try_again(void **state)
{
    (void)state;
    child_run(adopted_too_early);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worker_is_not_read_while_too_much_is_unacknowledged),
        cmocka_unit_test(cancelled_wait_is_answered_at_once_and_never_again),
        cmocka_unit_test(worker_that_came_elsewhere_is_served_like_any_other),
        cmocka_unit_test(worker_that_came_elsewhere_before_the_round_has_to_try_again),
        cmocka_unit_test(connections_of_a_generation_end_with_its_listener),
        cmocka_unit_test(
            only_workers_that_hold_little_are_read_while_the_relay_is_paused),
        cmocka_unit_test(pause_ends_with_its_connection),
        cmocka_unit_test(the_end_of_a_connection_is_told_again),
        cmocka_unit_test(who_asks_nothing_of_the_service_pushes_nobody_out),
        cmocka_unit_test(what_was_half_answered_is_not_held_after_a_reconnect),
        cmocka_unit_test(worker_that_holds_little_is_read_when_all_hold_too_much),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
