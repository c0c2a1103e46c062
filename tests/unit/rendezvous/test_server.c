/* The server on a real socket, with an agent that does not read, or reads slowly. */

#include "rendezvous/server.h"
#include "tests/lib/body.h"
#include "tests/lib/cmocka.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/msg.h"
#include "common/tcpstore.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

enum {
    LEASE_MS = 2000, /* a loaded machine may keep the test waiting for so long */
    SLOW_MS = 2 * LEASE_MS,
    SLOW_SIZE = 64 * 1024, /* … in 10 ms */
    WAIT_MS = 140000,      /* sanitizers and load are slow */
    VALUE_SIZE = 4 << 20,
    TIMES = 10, /* … the value, in each reply */
    REQUESTS = 15,
};

struct rig {
    uv_loop_t loop;
    struct server *server;
    int fd; /* the agent's end */
    struct buf in;
    uint64_t generation;
    uint64_t n_replies, n_bytes; /* whole replies to MULTI_GET, and their bytes */
    uint64_t n_pongs;
    bool is_ended; /* the server has closed the connection */
};

static void on_stopped(void *arg)
{
    (void)arg;
}

static void connect_agent(struct rig *r, int port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port)};
    int small = 256 * 1024; /* so that the server notices slow reading soon */

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    r->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(r->fd >= 0);
    assert_int_equal(setsockopt(r->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)),
                     0);
    assert_int_equal(connect(r->fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(send(r->fd, MSG_MAGIC, MSG_MAGIC_SIZE, 0), MSG_MAGIC_SIZE);
}

static struct rig *rig_new(void)
{
    struct rig *r = mem_zalloc(sizeof(*r));
    struct server_config config = {.loop = &r->loop, .lease_ms = LEASE_MS};
    struct errmsg msg;
    int port;

    assert_int_equal(uv_loop_init(&r->loop), 0);
    assert_int_equal(server_new(&config, &r->server, &msg), 0);
    assert_int_equal(server_listen(r->server, "127.0.0.1", 0, &port, &msg), 0);
    buf_init(&r->in, SIZE_MAX);
    connect_agent(r, port);
    return r;
}

static void rig_free(struct rig *r)
{
    (void)close(r->fd);
    server_stop(r->server, on_stopped, NULL);
    assert_int_equal(uv_run(&r->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&r->loop), 0);
    buf_release(&r->in);
    mem_free(r);
}

/* What the server does with it goes on meanwhile. */
static void send_all(struct rig *r, struct buf *out)
{
    while (buf_len(out) > 0) {
        ssize_t n =
            send(r->fd, buf_bytes(out), buf_len(out), MSG_DONTWAIT | MSG_NOSIGNAL);

        assert_true(n > 0 || errno == EAGAIN);
        buf_consume(out, n > 0 ? (size_t)n : 0);
        (void)uv_run(&r->loop, UV_RUN_NOWAIT);
    }
    buf_release(out);
}

static void say(struct rig *r, const struct msg *m)
{
    struct buf out;

    buf_init(&out, SIZE_MAX);
    assert_true(msg_encode(m, &out) >= 0);
    send_all(r, &out);
}

static void take_reply(struct rig *r, const struct msg_store_reply *reply)
{
    assert_false(reply->close);
    if (reply->client == 1) {
        return; /* to the SET */
    }
    assert_int_equal(reply->client, 2 + r->n_replies); /* in order */
    r->n_bytes += reply->body.size;
    if (!reply->more) {
        assert_int_equal(r->n_bytes, TIMES * (8 + VALUE_SIZE));
        r->n_bytes = 0;
        r->n_replies++;
    }
}

static void take_msg(struct rig *r, const struct msg *m)
{
    if (m->type == MSG_ROUND) {
        r->generation = m->u.round.generation;
    } else if (m->type == MSG_STORE_REPLY) {
        take_reply(r, &m->u.store_reply);
    } else if (m->type == MSG_PONG) {
        r->n_pongs++;
    } else {
        assert_int_equal(m->type, MSG_WELCOME);
    }
}

/* Reads at most `size` bytes, if there are any. */
static void listen_to(struct rig *r, size_t size)
{
    static uint8_t bytes[256 * 1024];
    ssize_t n = recv(r->fd, bytes, MIN(size, sizeof(bytes)), MSG_DONTWAIT);
    struct msg m;
    int used = 1;

    r->is_ended = n == 0 || (n < 0 && errno != EAGAIN);
    assert_int_equal(buf_append(&r->in, bytes, (size_t)MAX(n, 0)), 0);
    while (used > 0) {
        used = msg_decode(buf_bytes(&r->in), buf_len(&r->in), &m);
        assert_true(used >= 0);
        if (used > 0) {
            take_msg(r, &m);
            buf_consume(&r->in, (size_t)used);
        }
    }
}

static void enter(struct rig *r)
{
    struct msg hello = {.type = MSG_HELLO,
                        .u.hello = {.version = MSG_VERSION,
                                    .job = "j",
                                    .host = "a",
                                    .agent_id = 1,
                                    .min_nodes = 1,
                                    .max_nodes = 1,
                                    .nproc = 1,
                                    .node_rank = -1,
                                    .group_rank = -1}};
    struct msg join = {.type = MSG_JOIN, .u.join = {.addr = "127.0.0.1", .port = 9}};
    uint64_t end_ms = clock_ms() + WAIT_MS;

    say(r, &hello);
    say(r, &join);
    while (r->generation == 0 && !r->is_ended && clock_ms() < end_ms) {
        (void)uv_run(&r->loop, UV_RUN_NOWAIT);
        listen_to(r, 4096);
    }
    assert_int_equal(r->generation, 1);
}

static void add_store(const struct rig *r, uint32_t client, enum tcpstore_op op,
                      const struct buf *body, struct buf *out)
{
    struct msg m = {.type = MSG_STORE,
                    .u.store = {.generation = r->generation,
                                .client = client,
                                .seq = 1,
                                .op = (uint8_t)op}};

    for (size_t at = 0; at < buf_len(body); at += m.u.store.body.size) {
        m.u.store.body.data = buf_bytes(body) + at;
        m.u.store.body.size = MIN(buf_len(body) - at, (size_t)MSG_MAX_CHUNK);
        m.u.store.more = at + m.u.store.body.size < buf_len(body);
        assert_true(msg_encode(&m, out) >= 0);
    }
}

/* The requests come at once: the server reads them together. */
static void ask_much(struct rig *r)
{
    char *value = mem_zalloc(VALUE_SIZE);
    struct msg beat = {.type = MSG_HEARTBEAT};
    struct buf body;
    struct buf out;

    buf_init(&out, SIZE_MAX);
    body_make(&body, "sb", "k", value, (size_t)VALUE_SIZE);
    add_store(r, 1, TCPSTORE_SET, &body, &out);
    send_all(r, &out);
    buf_release(&body);
    mem_free(value);
    body_make(&body, "nssssssssss", TIMES, "k", "k", "k", "k", "k", "k", "k", "k", "k",
              "k");
    for (uint32_t i = 0; i < REQUESTS; i++) {
        add_store(r, 2 + i, TCPSTORE_MULTI_GET, &body, &out);
    }
    assert_true(msg_encode(&beat, &out) >= 0);
    send_all(r, &out);
    buf_release(&body);
}

/* 600 MB of replies, more than any connection may hold. */
static void agent_that_reads_slowly_stays_and_gets_all_replies_in_order(void **state)
{
    struct rig *r = rig_new();
    uint64_t slow_ms;
    uint64_t end_ms = clock_ms() + WAIT_MS;
    uint64_t read_ms = 0;

    (void)state;
    enter(r);
    ask_much(r);
    slow_ms = clock_ms() + SLOW_MS;
    while (clock_ms() < slow_ms && !r->is_ended) { /* no heartbeats */
        (void)uv_run(&r->loop, UV_RUN_NOWAIT);
        if (clock_ms() >= read_ms) {
            listen_to(r, SLOW_SIZE);
            read_ms = clock_ms() + 10;
        }
    }
    assert_true(r->n_replies < REQUESTS);
    while (r->n_pongs == 0 && !r->is_ended && clock_ms() < end_ms) {
        (void)uv_run(&r->loop, UV_RUN_NOWAIT);
        listen_to(r, SIZE_MAX);
    }
    assert_false(r->is_ended);
    assert_int_equal(r->n_replies, REQUESTS);
    assert_int_equal(r->n_pongs, 1); /* asked last */
    rig_free(r);
}

/* The server's end of a connection is one of them. */
static unsigned count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;

    assert_non_null(dir);
    while (readdir(dir)) { /* NOLINT(concurrency-mt-unsafe): a stream of our own */
        n++;
    }
    assert_int_equal(closedir(dir), 0);
    return n;
}

static void agent_that_does_not_read_at_all_loses_its_lease(void **state)
{
    struct rig *r = rig_new();
    uint64_t end_ms = clock_ms() + WAIT_MS;
    unsigned n_fds;

    (void)state;
    enter(r);
    n_fds = count_descriptors();
    ask_much(r);
    while (count_descriptors() == n_fds &&
           clock_ms() < end_ms) { /* until it is closed */
        (void)uv_run(&r->loop, UV_RUN_NOWAIT);
    }
    while (!r->is_ended && clock_ms() < end_ms) {
        (void)uv_run(&r->loop, UV_RUN_NOWAIT);
        listen_to(r, SIZE_MAX);
    }
    assert_true(r->is_ended);
    assert_true(r->n_replies < REQUESTS);
    rig_free(r);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(agent_that_reads_slowly_stays_and_gets_all_replies_in_order),
        cmocka_unit_test(agent_that_does_not_read_at_all_loses_its_lease),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
