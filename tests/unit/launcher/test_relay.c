/* The relay on real sockets: the test is the workers, and the service that they reach.
 */

#include "launcher/relay.h"
#include "tests/lib/body.h"
#include "tests/lib/child.h"
#include "tests/lib/cmocka.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/tcpstore.h"
#include "common/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

enum {
    BOUND_MS = 60000,
    GENERATION = 3,
    NOBODY = 65534, /* a user that is not us */
    MAX_HEARD = 256,
    VALUE_SIZE = 1 << 20, /* of one SET; … */
    HELD_SETS = 4, /* … so many reach the relay's bound for one connection; … */
    N_SETS = 32,   /* … and so many are more than the sockets hold, too */
    MANY_TURNS = 1000,
};

/* What the service was sent: whole requests, and closes (op CLOSE). */
struct heard {
    uint32_t client;
    uint64_t seq;
    int op;
};

enum { CLOSE = 1000 };

struct rig {
    uv_loop_t loop;
    struct relay *relay;
    struct heard heard[MAX_HEARD];
    unsigned n_heard;
    unsigned n_acked;
};

static void on_send(void *arg, const struct msg *m)
{
    struct rig *r = arg;
    struct heard *h = &r->heard[r->n_heard];

    CHECK(r->n_heard < MAX_HEARD);
    if (m->type == MSG_STORE) {
        CHECK(m->u.store.generation == GENERATION);
        *h = (struct heard){m->u.store.client, m->u.store.seq, m->u.store.op};
        r->n_heard += !m->u.store.more;
    } else {
        CHECK(m->type == MSG_STORE_CLOSE);
        *h = (struct heard){m->u.store_close.client, m->u.store_close.seq, CLOSE};
        r->n_heard++;
    }
}

/* Serves a round of these nodes. */
static struct rig *open_rig(const char *addr, const char *const *nodes, uint32_t n)
{
    struct rig *r = mem_zalloc(sizeof(*r));
    struct relay_config config = {
        .loop = &r->loop, .addr = addr, .arg = r, .send = on_send};
    struct msg_node table[4] = {0};
    struct errmsg msg = {0};

    CHECK(uv_loop_init(&r->loop) == 0 && n <= ARRAY_LEN(table));
    for (uint32_t i = 0; i < n; i++) {
        (void)snprintf(table[i].addr, sizeof(table[i].addr), "%s", nodes[i]);
    }
    CHECK(relay_new(&config, &r->relay, &msg) == 0);
    CHECK(relay_serve(r->relay, GENERATION, table, n, &msg) == 0);
    return r;
}

static void close_rig(struct rig *r)
{
    relay_stop(r->relay);
    CHECK(uv_run(&r->loop, UV_RUN_DEFAULT) == 0);
    CHECK(uv_loop_close(&r->loop) == 0);
    mem_free(r);
}

/* NULL: a worker in a process of its own. */
static void turn(struct rig *r)
{
    if (!r) {
        return;
    }
    (void)uv_run(&r->loop, UV_RUN_NOWAIT);
    (void)sched_yield();
}

#define TURN_UNTIL(r, cond)                      \
    do {                                         \
        uint64_t end_ms = clock_ms() + BOUND_MS; \
        while (!(cond)) {                        \
            CHECK(clock_ms() < end_ms);          \
            turn(r);                             \
        }                                        \
    } while (0)

/* --- a worker's connection --- */

static struct sockaddr_in v4(const char *text, int port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port)};

    CHECK(inet_pton(AF_INET, text, &addr.sin_addr) == 1);
    return addr;
}

/* A connection from one address to another; -1: refused. */
static int try_connect(const char *from, const char *to, int port)
{
    struct sockaddr_in ours = v4(from, 0);
    struct sockaddr_in theirs = v4(to, port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;

    CHECK(fd >= 0);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
    CHECK(bind(fd, (struct sockaddr *)&ours, sizeof(ours)) == 0);
    if (connect(fd, (struct sockaddr *)&theirs, sizeof(theirs)) < 0) {
        CHECK(errno == ECONNREFUSED && close(fd) == 0);
        return -1;
    }
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    return fd;
}

static int enter(const struct rig *r, const char *from, const char *to)
{
    static const uint8_t hello[] = {0x00, 0xce, 0xf7, 0x85, 0x3c};
    int fd = try_connect(from, to, relay_port(r->relay));

    CHECK(fd >= 0);
    CHECK(send(fd, hello, sizeof(hello), MSG_NOSIGNAL) == sizeof(hello));
    return fd;
}

/* Sends it all; what the relay does with it goes on meanwhile. */
static void ask(struct rig *r, int fd, enum tcpstore_op op, const struct buf *body)
{
    uint8_t byte = (uint8_t)op;

    CHECK(send(fd, &byte, 1, MSG_NOSIGNAL) == 1);
    for (size_t n = 0; body && n < buf_len(body);) {
        ssize_t sent = send(fd, buf_bytes(body) + n, buf_len(body) - n, MSG_NOSIGNAL);

        CHECK(sent > 0 || errno == EAGAIN);
        n += sent > 0 ? (size_t)sent : 0;
        turn(r);
    }
}

static void ask_wait(struct rig *r, int fd)
{
    struct buf body;

    body_make(&body, "ns", 1, "k");
    ask(r, fd, TCPSTORE_WAIT, &body);
    buf_release(&body);
}

static void ask_ping(struct rig *r, int fd, uint32_t nonce)
{
    struct buf body;

    body_make(&body, "u", nonce);
    ask(r, fd, TCPSTORE_PING, &body);
    buf_release(&body);
}

static void expect(struct rig *r, int fd, const void *bytes, size_t size)
{
    uint8_t got[16];
    size_t n = 0;
    ssize_t rv = 1;

    CHECK(size <= sizeof(got));
    TURN_UNTIL(r, (rv = recv(fd, got + n, size - n, 0)) == 0 ||
                      (n += rv > 0 ? (size_t)rv : 0) == size);
    CHECK(n == size && memcmp(got, bytes, size) == 0);
}

static void expect_pong(struct rig *r, int fd, uint32_t nonce)
{
    ask_ping(r, fd, nonce);
    expect(r, fd, &nonce, sizeof(nonce)); /* little-endian, as this machine */
}

static bool has_ended(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, 0);

    CHECK(n <= 0);
    return n == 0 || errno == ECONNRESET;
}

static void expect_end(struct rig *r, int fd)
{
    TURN_UNTIL(r, has_ended(fd));
    CHECK(close(fd) == 0);
}

static const char *const here[] = {"127.0.0.1"};

/* --- who may come in --- */

/* A process of another user, from and to this address: it asks for a PING that nobody
 * may answer, and waits for its connection's end. */
static pid_t start_stranger(const struct rig *r, const char *addr)
{
    static const uint8_t ping[] = {TCPSTORE_PING, 7, 0, 0, 0};
    pid_t pid = fork();
    struct pollfd p = {.events = POLLIN};

    CHECK(pid >= 0);
    if (pid > 0) {
        return pid;
    }
    CHECK(setuid(NOBODY) == 0); /* root runs these tests, as the system tests */
    p.fd = enter(r, addr, addr);
    CHECK(send(p.fd, ping, sizeof(ping), MSG_NOSIGNAL) == sizeof(ping));
    CHECK(poll(&p, 1, BOUND_MS) == 1);
    CHECK(has_ended(p.fd));
    _exit(0);
}

static bool has_exited(pid_t pid, int options)
{
    int status;
    pid_t rv = waitpid(pid, &status, options);

    CHECK(rv == pid || rv == 0);
    CHECK(rv == 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    return rv == pid;
}

static void stranger(void)
{
    struct rig *r = open_rig("", here, 1);
    pid_t pid = start_stranger(r, "127.0.0.1");
    int fd;

    TURN_UNTIL(r, has_exited(pid, WNOHANG));
    fd = enter(r, "127.0.0.1", "127.0.0.1");
    expect_pong(r, fd, 9); /* ours are served all the while */
    CHECK(close(fd) == 0);
    close_rig(r);
}

static void another_user_of_this_host_is_turned_away(void **state)
{
    (void)state;
    child_run(stranger);
}

/* Our FIN has come; what closes the socket now leaves it without an owner. */
static void end_sending(int fd)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);
    uint64_t end_ms = clock_ms() + BOUND_MS;

    CHECK(shutdown(fd, SHUT_WR) == 0);
    while (info.tcpi_state != TCP_FIN_WAIT2) {
        CHECK(clock_ms() < end_ms);
        CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0);
        (void)sched_yield();
    }
}

/* The kernel says of a socket without an owner that it is root's. */
static void hasty_stranger(void)
{
    struct rig *r = open_rig("", here, 1);
    struct buf body;
    pid_t pid = fork();
    int fd;

    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(setuid(NOBODY) == 0);
        fd = enter(r, "127.0.0.1", "127.0.0.1");
        body_make(&body, "sb", "k", "evil", (size_t)4);
        ask(NULL, fd, TCPSTORE_SET, &body);
        end_sending(fd);
        _exit(0);
    }
    CHECK(has_exited(pid, 0)); /* before the relay looks */
    fd = enter(r, "127.0.0.1", "127.0.0.1");
    expect_pong(r, fd, 9);
    CHECK(r->n_heard == 0 && close(fd) == 0);
    close_rig(r);
}

static void another_user_who_has_gone_already_is_not_heard(void **state)
{
    (void)state;
    child_run(hasty_stranger);
}

/* A host of its own with these addresses, besides loopback's. */
static void make_host(const char *const *addrs, unsigned n)
{
    struct ifreq up = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd;

    CHECK(unshare(CLONE_NEWNET) == 0);
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &up) == 0);
    for (unsigned i = 0; i < n; i++) {
        struct sockaddr_in addr = v4(addrs[i], 0);
        struct ifreq alias = {0};

        (void)snprintf(alias.ifr_name, sizeof(alias.ifr_name), "lo:%u", i);
        memcpy(&alias.ifr_addr, &addr, sizeof(addr));
        CHECK(ioctl(fd, SIOCSIFADDR, &alias) == 0);
    }
    CHECK(close(fd) == 0);
}

static void several_hosts(void)
{
    static const char *const addrs[] = {"10.9.0.1", "10.9.0.2", "10.9.0.3"};
    struct rig *r;
    int fds[3];
    pid_t pid;

    make_host(addrs, 3);
    r = open_rig(addrs[0], addrs, 2);
    fds[0] = enter(r, "10.9.0.2", "10.9.0.1");
    expect_pong(r, fds[0], 1);
    expect_end(r, enter(r, "10.9.0.3", "10.9.0.1"));
    fds[1] = enter(r, "10.9.0.1", "10.9.0.1");
    expect_pong(r, fds[1], 2);
    fds[2] = enter(r, "127.0.0.1", "127.0.0.1"); /* the same port there */
    expect_pong(r, fds[2], 3);
    pid = start_stranger(r, addrs[0]);
    TURN_UNTIL(r, has_exited(pid, WNOHANG));
    expect_pong(r, fds[0], 4); /* as before */
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        CHECK(close(fds[i]) == 0);
    }
    close_rig(r);
}

static void addresses_outside_the_round_are_turned_away(void **state)
{
    (void)state;
    child_run(several_hosts);
}

/* Debian's address for the host's own name. */
static void own_name(void)
{
    struct rig *r = open_rig("127.0.1.1", (const char *const[]){"127.0.1.1"}, 1);
    int a = enter(r, "127.0.1.1", "127.0.1.1");
    int b = enter(r, "127.0.0.1", "127.0.0.1");
    int c = enter(r, "127.0.0.2", "127.0.1.1");

    expect_pong(r, a, 1);
    expect_pong(r, b, 2);
    expect_pong(r, c, 3); /* loopback: the user counts, not the address */
    CHECK(close(a) == 0 && close(b) == 0 && close(c) == 0);
    close_rig(r);
}

static void own_name_on_loopback_is_served_beside_localhost(void **state)
{
    (void)state;
    child_run(own_name);
}

/* --- what is relayed --- */

static void acknowledge(struct rig *r)
{
    const struct heard *h = &r->heard[r->n_acked++];
    const struct msg_store_reply m = {
        .generation = GENERATION, .client = h->client, .seq = h->seq};

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

static void put_sets(struct buf *out)
{
    char *value = mem_zalloc(VALUE_SIZE);
    struct buf body;

    body_make(&body, "sb", "k", value, (size_t)VALUE_SIZE);
    buf_init(out, SIZE_MAX);
    for (int i = 0; i < N_SETS; i++) {
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
    struct rig *r = open_rig("", here, 1);
    int fd = enter(r, "127.0.0.1", "127.0.0.1");
    struct buf out;

    put_sets(&out);
    TURN_UNTIL(r, (push(fd, &out), r->n_heard == HELD_SETS));
    for (int i = 0; i < MANY_TURNS; i++) {
        push(fd, &out);
        turn(r);
        CHECK(r->n_heard == HELD_SETS && buf_len(&out) > 0); /* both full */
    }
    while (r->n_acked < N_SETS) {
        unsigned expected = MIN(r->n_acked + HELD_SETS, (unsigned)N_SETS);

        TURN_UNTIL(r, (push(fd, &out), r->n_heard == expected));
        acknowledge(r);
    }
    expect_pong(r, fd, 5);
    buf_release(&out);
    CHECK(close(fd) == 0);
    close_rig(r);
}

static void worker_is_not_read_while_too_much_is_unacknowledged(void **state)
{
    (void)state;
    child_run(flood);
}

static void reply_byte(struct rig *r, const struct heard *h, uint8_t byte)
{
    const struct msg_store_reply m = {.generation = GENERATION,
                                      .client = h->client,
                                      .seq = h->seq,
                                      .body = {.data = &byte, .size = 1}};

    relay_reply(r->relay, &m);
}

static void cancelled(void)
{
    static const uint8_t yes = 1;
    static const uint8_t late = 0;
    struct rig *r = open_rig("", here, 1);
    int fd = enter(r, "127.0.0.1", "127.0.0.1");

    ask_wait(r, fd);
    TURN_UNTIL(r, r->n_heard == 1);
    CHECK(r->heard[0].op == TCPSTORE_WAIT);
    ask(r, fd, TCPSTORE_CANCEL_WAIT, NULL);
    expect(r, fd, &yes, 1); /* though the service has said nothing */
    CHECK(r->n_heard == 2 && r->heard[1].op == CLOSE);
    CHECK(r->heard[1].seq == r->heard[0].seq);
    reply_byte(r, &r->heard[0], late);
    expect_pong(r, fd, 6); /* and nothing before it */
    ask_wait(r, fd);
    TURN_UNTIL(r, r->n_heard == 3);
    reply_byte(r, &r->heard[2], late); /* one that still waits has it */
    expect(r, fd, &late, 1);
    CHECK(close(fd) == 0);
    close_rig(r);
}

static void cancelled_wait_is_answered_at_once_and_never_again(void **state)
{
    (void)state;
    child_run(cancelled);
}

static bool old_is_gone(int fd, int port)
{
    return has_ended(fd) && try_connect("127.0.0.1", "127.0.0.1", port) < 0;
}

static void two_generations(void)
{
    struct rig *old = open_rig("", here, 1);
    struct rig *new = open_rig("", here, 1);
    int port = relay_port(old->relay);
    int a = enter(old, "127.0.0.1", "127.0.0.1");
    int b = enter(new, "127.0.0.1", "127.0.0.1");
    struct msg_store_reply stale = {
        .generation = GENERATION - 1, .client = 1, .seq = 1};

    expect_pong(old, a, 1);
    ask_wait(new, b);
    TURN_UNTIL(new, new->n_heard == 1);
    stale.body = (struct bytes){.data = (const uint8_t *)"x", .size = 1};
    relay_reply(new->relay, &stale); /* of the one before: not for this worker */
    ask_wait(old, a);
    TURN_UNTIL(old, old->n_heard == 1);
    close_rig(old);
    CHECK(old_is_gone(a, port));
    ask(new, b, TCPSTORE_CANCEL_WAIT, NULL);
    expect(new, b, "\1", 1);
    expect_pong(new, b, 2); /* the new one's go on */
    CHECK(close(a) == 0 && close(b) == 0);
    close_rig(new);
}

static void connections_of_a_generation_end_with_its_listener(void **state)
{
    (void)state;
    child_run(two_generations);
}

/* The connection to the service is behind. */
static void paused(void)
{
    struct rig *r = open_rig("", here, 1);
    int fd = enter(r, "127.0.0.1", "127.0.0.1");

    expect_pong(r, fd, 1);
    relay_pause(r->relay, true);
    ask_wait(r, fd);
    for (int i = 0; i < MANY_TURNS; i++) {
        turn(r);
        CHECK(r->n_heard == 0);
    }
    relay_pause(r->relay, false);
    TURN_UNTIL(r, r->n_heard == 1);
    CHECK(close(fd) == 0);
    close_rig(r);
}

static void workers_are_not_read_while_the_relay_is_paused(void **state)
{
    (void)state;
    child_run(paused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_user_of_this_host_is_turned_away),
        cmocka_unit_test(another_user_who_has_gone_already_is_not_heard),
        cmocka_unit_test(addresses_outside_the_round_are_turned_away),
        cmocka_unit_test(own_name_on_loopback_is_served_beside_localhost),
        cmocka_unit_test(worker_is_not_read_while_too_much_is_unacknowledged),
        cmocka_unit_test(cancelled_wait_is_answered_at_once_and_never_again),
        cmocka_unit_test(connections_of_a_generation_end_with_its_listener),
        cmocka_unit_test(workers_are_not_read_while_the_relay_is_paused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
