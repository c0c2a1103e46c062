#include "tests/lib/relay_rig.h"

#include "tests/lib/body.h"

#include "common/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void on_send(void *arg, const struct msg *m)
{
    struct relay_rig *r = arg;
    struct relay_heard *h = &r->heard[r->n_heard];

    CHECK(r->n_heard < RELAY_MAX_HEARD);
    if (m->type == MSG_STORE) {
        CHECK(m->u.store.generation == RELAY_GENERATION);
        *h = (struct relay_heard){m->u.store.client, m->u.store.seq, m->u.store.op};
        r->n_heard += !m->u.store.more;
    } else {
        CHECK(m->type == MSG_STORE_CLOSE);
        *h = (struct relay_heard){m->u.store_close.client, m->u.store_close.seq,
                                  RELAY_CLOSE};
        r->n_heard++;
    }
}

struct relay_rig *relay_rig_new(const char *addr)
{
    struct relay_rig *r = mem_zalloc(sizeof(*r));
    struct relay_config config = {
        .loop = &r->loop, .addr = addr, .arg = r, .send = on_send};
    struct errmsg msg = {0};

    CHECK(uv_loop_init(&r->loop) == 0);
    CHECK(relay_new(&config, &r->relay, &msg) == 0);
    return r;
}

void relay_rig_serve(struct relay_rig *r, const char *const *nodes, uint32_t n)
{
    struct msg_node table[4] = {0};
    struct errmsg msg = {0};

    CHECK(n <= ARRAY_LEN(table));
    for (uint32_t i = 0; i < n; i++) {
        (void)snprintf(table[i].addr, sizeof(table[i].addr), "%s", nodes[i]);
    }
    CHECK(relay_serve(r->relay, RELAY_GENERATION, table, n, &msg) == 0);
}

struct relay_rig *relay_rig_open(void)
{
    static const char *const here[] = {"127.0.0.1"};
    struct relay_rig *r = relay_rig_new("");

    relay_rig_serve(r, here, 1);
    return r;
}

void relay_rig_close(struct relay_rig *r)
{
    relay_stop(r->relay);
    CHECK(uv_run(&r->loop, UV_RUN_DEFAULT) == 0);
    CHECK(uv_loop_close(&r->loop) == 0);
    mem_free(r);
}

void relay_rig_turn(struct relay_rig *r)
{
    if (!r) {
        return;
    }
    (void)uv_run(&r->loop, UV_RUN_NOWAIT);
    (void)sched_yield();
}

struct sockaddr_in relay_rig_v4(const char *text, int port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port)};

    CHECK(inet_pton(AF_INET, text, &addr.sin_addr) == 1);
    return addr;
}

int relay_rig_connect(const char *from, const char *to, int port)
{
    struct sockaddr_in ours = relay_rig_v4(from, 0);
    struct sockaddr_in theirs = relay_rig_v4(to, port);
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

int relay_rig_enter(const struct relay_rig *r, const char *from, const char *to)
{
    static const uint8_t hello[] = {0x00, 0xce, 0xf7, 0x85, 0x3c};
    int fd = relay_rig_connect(from, to, relay_port(r->relay));

    CHECK(fd >= 0);
    CHECK(send(fd, hello, sizeof(hello), MSG_NOSIGNAL) == sizeof(hello));
    return fd;
}

void relay_rig_ask(struct relay_rig *r, int fd, enum tcpstore_op op,
                   const struct buf *body)
{
    uint8_t byte = (uint8_t)op;

    CHECK(send(fd, &byte, 1, MSG_NOSIGNAL) == 1);
    for (size_t n = 0; body && n < buf_len(body);) {
        ssize_t sent = send(fd, buf_bytes(body) + n, buf_len(body) - n, MSG_NOSIGNAL);

        CHECK(sent > 0 || errno == EAGAIN);
        n += sent > 0 ? (size_t)sent : 0;
        relay_rig_turn(r);
    }
}

static void ask_ping(struct relay_rig *r, int fd, uint32_t nonce)
{
    struct buf body;

    body_make(&body, "u", nonce);
    relay_rig_ask(r, fd, TCPSTORE_PING, &body);
    buf_release(&body);
}

void relay_rig_expect(struct relay_rig *r, int fd, const void *bytes, size_t size)
{
    uint8_t got[16];
    size_t n = 0;
    ssize_t rv = 1;

    CHECK(size <= sizeof(got));
    TURN_UNTIL(r, (rv = recv(fd, got + n, size - n, 0)) == 0 ||
                      (n += rv > 0 ? (size_t)rv : 0) == size);
    CHECK(n == size && memcmp(got, bytes, size) == 0);
}

void relay_rig_expect_pong(struct relay_rig *r, int fd, uint32_t nonce)
{
    ask_ping(r, fd, nonce);
    relay_rig_expect(r, fd, &nonce, sizeof(nonce)); /* little-endian, as this machine */
}

bool relay_rig_has_ended(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, 0);

    CHECK(n <= 0);
    return n == 0 || errno == ECONNRESET;
}

void relay_rig_expect_end(struct relay_rig *r, int fd)
{
    TURN_UNTIL(r, relay_rig_has_ended(fd));
    CHECK(close(fd) == 0);
}
