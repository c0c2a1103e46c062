/* The server on a real socket, with an agent that does not read, or reads slowly; over
 * both streams, plain and TLS. */

#include "rendezvous/server.h"
#include "tests/lib/body.h"
#include "tests/lib/cmocka.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/msg.h"
#include "common/str.h"
#include "common/tcpstore.h"
#include "common/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

enum {
    /* A loaded machine may stop a thread for seconds. */
    LEASE_MS = 4000, /* where it has to end */
    LONG_LEASE_MS = 60000,
    PACE_MS = 10,
    SLOW_SIZE = 64 * 1024, /* … in PACE_MS, at most */
    WAIT_MS = 140000,      /* sanitizers and load are slow */
    VALUE_SIZE = 4 << 20,
    TIMES = 10, /* … the value, in each reply */
    REQUESTS = 15,
    LAST = 1000, /* a client */
};

/* The server in a thread of its own: an agent must not fall silent because the server
 * takes its time for a large reply, or TCP gives the connection up (10 s). */
struct rig {
    uv_loop_t loop;
    uv_async_t stop;
    struct server *server;
    struct tls_context *tls, *agents; /* NULL: plain */
    int port;
    pthread_t thread;
};

struct agent {
    int fd;
    struct buf in;
    struct tls_pump *tls; /* NULL: plain */
    struct buf wire;      /* … sealed */
    bool is_let_in;       /* … the server's magic has come */
    uint64_t generation;
    uint64_t n_replies, n_bytes; /* whole replies to MULTI_GET, and all their bytes */
    uint64_t got[REQUESTS];      /* … of each */
    uint64_t n_pongs;
    bool only_bytes; /* replies are counted, whatever they hold */
    bool is_last;    /* the reply to add_last's request has come */
    bool is_ended;   /* the server has closed the connection */
};

static void on_stopped(void *arg)
{
    (void)arg;
}

static void on_stop(uv_async_t *stop)
{
    struct rig *r = stop->data;

    uv_close((uv_handle_t *)stop, NULL);
    server_stop(r->server, on_stopped, NULL);
}

static void *serve(void *arg)
{
    struct rig *r = arg;

    (void)uv_run(&r->loop, UV_RUN_DEFAULT); /* what is left open fails uv_loop_close */
    return NULL;
}

enum stream { PLAIN, TLS };

static struct tls_context *make_keys(bool is_server)
{
    unsigned char text[] = "0123456789abcdef0123456789abcdef";
    struct secret secret = {.name = "a", .bytes = text, .size = sizeof(text) - 1};
    struct secrets secrets = {.list = &secret, .n = 1};
    struct tls_context *c;
    struct errmsg msg;

    assert_int_equal(tls_context_new(&(struct tls_config){.is_server = is_server,
                                                          .secrets = &secrets,
                                                          .agent_id = 1},
                                     &c, &msg),
                     0);
    return c;
}

static struct rig *rig_new(void **state, uint32_t lease_ms)
{
    struct rig *r = mem_zalloc(sizeof(*r));
    struct server_config config = {.loop = &r->loop, .lease_ms = lease_ms};
    struct errmsg msg;

    if (*(const enum stream *)*state == TLS) {
        r->tls = make_keys(true);
        r->agents = make_keys(false);
        config.tls = r->tls;
    }

    assert_true(signal(SIGPIPE, SIG_IGN) != SIG_ERR); /* as the programs do */
    assert_int_equal(uv_loop_init(&r->loop), 0);
    assert_int_equal(uv_async_init(&r->loop, &r->stop, on_stop), 0);
    r->stop.data = r;
    assert_int_equal(server_new(&config, &r->server, &msg), 0);
    assert_int_equal(server_listen(r->server, "127.0.0.1", 0, &r->port, &msg), 0);
    assert_int_equal(pthread_create(&r->thread, NULL, serve, r), 0);
    return r;
}

static void rig_free(struct rig *r)
{
    assert_int_equal(uv_async_send(&r->stop), 0);
    assert_int_equal(pthread_join(r->thread, NULL), 0);
    assert_int_equal(uv_loop_close(&r->loop), 0);
    tls_context_free(r->tls);
    tls_context_free(r->agents);
    mem_free(r);
}

static void send_plain(const struct agent *a, struct buf *out)
{
    while (buf_len(out) > 0) {
        ssize_t n = send(a->fd, buf_bytes(out), buf_len(out), MSG_NOSIGNAL);

        assert_true(n > 0); /* or SO_SNDTIMEO has passed */
        buf_consume(out, (size_t)n);
    }
}

static void send_all(struct agent *a, struct buf *out)
{
    if (a->tls) {
        assert_int_equal(tls_pump_write(a->tls, buf_bytes(out), buf_len(out)), 0);
        send_plain(a, &a->wire);
    } else {
        send_plain(a, out);
    }
    buf_release(out);
}

static void say(struct agent *a, const struct msg *m)
{
    struct buf out;

    buf_init(&out, SIZE_MAX);
    assert_true(msg_encode(m, &out) >= 0);
    send_all(a, &out);
}

/* Until it is open, and the magic that answers ours is the next to come. */
static void begin_tls(struct agent *a, struct tls_context *keys)
{
    buf_init(&a->wire, SIZE_MAX);
    a->tls = tls_pump_new(keys, &a->wire);
    assert_int_equal(tls_pump_start(a->tls), 0);
    while (!tls_pump_is_open(a->tls)) {
        static uint8_t cipher[16 * 1024];
        uint8_t plain[16];
        struct bytes from = {cipher, 0};
        ssize_t n;

        send_plain(a, &a->wire);
        n = recv(a->fd, cipher, sizeof(cipher), 0);
        assert_true(n > 0); /* or SO_RCVTIMEO has passed */
        from.size = (size_t)n;
        assert_int_equal(tls_pump_read(a->tls, &from, plain, sizeof(plain)), 0);
    }
    send_plain(a, &a->wire);
}

static void connect_agent(struct agent *a, const struct rig *r)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)r->port)};
    struct timeval bound = {.tv_sec = WAIT_MS / 1000};
    int small = 256 * 1024; /* so that the server notices slow reading soon */
    struct buf magic;

    *a = (struct agent){.fd = socket(AF_INET, SOCK_STREAM, 0)};
    buf_init(&a->in, SIZE_MAX);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(a->fd >= 0);
    assert_int_equal(setsockopt(a->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)),
                     0);
    assert_int_equal(setsockopt(a->fd, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof(bound)),
                     0);
    assert_int_equal(setsockopt(a->fd, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound)),
                     0);
    assert_int_equal(connect(a->fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    if (r->agents) {
        begin_tls(a, r->agents);
    }
    buf_init(&magic, MSG_MAGIC_SIZE);
    assert_int_equal(buf_append(&magic, MSG_MAGIC, MSG_MAGIC_SIZE), 0);
    send_all(a, &magic);
}

static void agent_release(struct agent *a)
{
    (void)close(a->fd);
    tls_pump_free(a->tls);
    buf_release(&a->wire);
    buf_release(&a->in);
}

static void take_reply(struct agent *a, const struct msg_store_reply *reply)
{
    assert_false(reply->close);
    a->is_last = a->is_last || reply->client == LAST;
    if (reply->client == 1 || reply->client == LAST) {
        return; /* to the SET */
    }
    assert_in_range(reply->client, 2, 1 + REQUESTS);
    a->n_bytes += reply->body.size;
    a->got[reply->client - 2] += reply->body.size;
    if (!reply->more && !a->only_bytes) {
        assert_int_equal(a->got[reply->client - 2], TIMES * (8 + VALUE_SIZE));
    }
    a->n_replies += !reply->more;
}

static void take_msg(struct agent *a, const struct msg *m)
{
    if (m->type == MSG_ROUND) {
        a->generation = m->u.round.generation;
    } else if (m->type == MSG_STORE_REPLY) {
        take_reply(a, &m->u.store_reply);
    } else if (m->type == MSG_PONG) {
        a->n_pongs++;
    } else {
        assert_int_equal(m->type, MSG_WELCOME);
    }
}

static void take_sealed(struct agent *a, const uint8_t *data, size_t size)
{
    static uint8_t plain[512 * 1024];
    struct bytes from = {data, size};
    int n = tls_pump_read(a->tls, &from, plain, sizeof(plain));

    assert_true(n >= 0 && from.size == 0);
    assert_int_equal(buf_append(&a->in, plain, (size_t)n), 0);
    if (!a->is_let_in && buf_len(&a->in) >= MSG_MAGIC_SIZE) {
        assert_memory_equal(buf_bytes(&a->in), MSG_MAGIC, MSG_MAGIC_SIZE);
        buf_consume(&a->in, MSG_MAGIC_SIZE);
        a->is_let_in = true;
    }
}

/* Reads at most `size` bytes, if there are any. */
static void listen_to(struct agent *a, size_t size)
{
    static uint8_t bytes[256 * 1024];
    ssize_t n = recv(a->fd, bytes, MIN(size, sizeof(bytes)), MSG_DONTWAIT);
    struct msg m;
    int used = 1;

    a->is_ended = n == 0 || (n < 0 && errno != EAGAIN);
    if (a->tls && n > 0) {
        take_sealed(a, bytes, (size_t)n);
    } else {
        assert_int_equal(buf_append(&a->in, bytes, (size_t)MAX(n, 0)), 0);
    }
    while (used > 0) {
        used = msg_decode(buf_bytes(&a->in), buf_len(&a->in), &m);
        assert_true(used >= 0);
        if (used > 0) {
            take_msg(a, &m);
            buf_consume(&a->in, (size_t)used);
        }
    }
}

/* Until there is something to read, or its end. */
static void wait_for(const struct agent *a, int ms)
{
    struct pollfd end = {a->fd, POLLIN, 0};

    assert_true(poll(&end, 1, ms) >= 0);
}

static void enter(struct agent *a, const struct rig *r, const char *job)
{
    struct msg hello = {.type = MSG_HELLO,
                        .u.hello = {.version = MSG_VERSION,
                                    .host = "a",
                                    .agent_id = 1,
                                    .min_nodes = 1,
                                    .max_nodes = 1,
                                    .nproc = 1,
                                    .node_rank = -1,
                                    .group_rank = -1}};
    struct msg join = {.type = MSG_JOIN, .u.join = {.addr = "127.0.0.1", .port = 9}};
    uint64_t end_ms = clock_ms() + WAIT_MS;
    bool fits = str_format(hello.u.hello.job, sizeof(hello.u.hello.job), "%s", job);

    assert_true(fits);
    connect_agent(a, r);
    say(a, &hello);
    say(a, &join);
    while (a->generation == 0 && !a->is_ended && clock_ms() < end_ms) {
        wait_for(a, PACE_MS);
        listen_to(a, 4096);
    }
    assert_int_equal(a->generation, 1);
}

static void add_request(const struct agent *a, uint32_t client, uint64_t seq,
                        enum tcpstore_op op, const struct buf *body, struct buf *out)
{
    struct msg m = {.type = MSG_STORE,
                    .u.store = {.generation = a->generation,
                                .client = client,
                                .seq = seq,
                                .op = (uint8_t)op}};

    for (size_t at = 0; at < buf_len(body); at += m.u.store.body.size) {
        m.u.store.body.data = buf_bytes(body) + at;
        m.u.store.body.size = MIN(buf_len(body) - at, (size_t)MSG_MAX_CHUNK);
        m.u.store.more = at + m.u.store.body.size < buf_len(body);
        assert_true(msg_encode(&m, out) >= 0);
    }
}

static void add_store(const struct agent *a, uint32_t client, enum tcpstore_op op,
                      const struct buf *body, struct buf *out)
{
    add_request(a, client, 1, op, body, out);
}

static void set_value(struct agent *a)
{
    char *value = mem_zalloc(VALUE_SIZE);
    struct buf body;
    struct buf out;

    buf_init(&out, SIZE_MAX);
    body_make(&body, "sb", "k", value, (size_t)VALUE_SIZE);
    add_store(a, 1, TCPSTORE_SET, &body, &out);
    send_all(a, &out);
    buf_release(&body);
    mem_free(value);
}

/* Replies of 40 MB. */
static void make_large_request(struct buf *ret)
{
    body_make(ret, "nssssssssss", TIMES, "k", "k", "k", "k", "k", "k", "k", "k", "k",
              "k");
}

/* The requests come at once, each of another client: the server reads them together,
 * but answers two, which is more than an agent may leave unread, before it takes the
 * next. The heartbeat behind them does not wait. */
static void ask_much(struct agent *a)
{
    struct msg beat = {.type = MSG_HEARTBEAT};
    struct buf body;
    struct buf out;

    set_value(a);
    buf_init(&out, SIZE_MAX);
    make_large_request(&body);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        add_store(a, 2 + i, TCPSTORE_MULTI_GET, &body, &out);
    }
    assert_true(msg_encode(&beat, &out) >= 0);
    send_all(a, &out);
    buf_release(&body);
}

/* A request without a reply of its own. */
static void add_last(const struct agent *a, struct buf *out)
{
    struct buf body;

    body_make(&body, "ss", "l", "v");
    add_store(a, LAST, TCPSTORE_SET, &body, out);
    buf_release(&body);
}

/* 600 MB of replies, more than any connection may hold. Slowly: for as long as an agent
 * keeps its lease that does nothing at all. */
static void agent_that_reads_slowly_stays_and_gets_all_replies(void **state)
{
    struct rig *r = rig_new(state, LEASE_MS);
    struct agent slow;
    struct agent silent;
    uint64_t end_ms = clock_ms() + WAIT_MS;

    enter(&slow, r, "slow");
    ask_much(&slow); /* and no heartbeats */
    enter(&silent, r, "silent");
    while (!silent.is_ended && !slow.is_ended && clock_ms() < end_ms) {
        listen_to(&slow, SLOW_SIZE);
        wait_for(&silent, PACE_MS);
        listen_to(&silent, SIZE_MAX);
    }
    assert_true(silent.is_ended);
    assert_true(slow.n_replies < REQUESTS);
    assert_int_equal(slow.n_pongs, 1); /* asked last */
    while (slow.n_replies < REQUESTS && !slow.is_ended && clock_ms() < end_ms) {
        wait_for(&slow, PACE_MS);
        listen_to(&slow, SIZE_MAX);
    }
    assert_false(slow.is_ended);
    assert_int_equal(slow.n_replies, REQUESTS);
    agent_release(&slow);
    agent_release(&silent);
    rig_free(r);
}

/* A frame of which a byte comes now and then is no message yet. */
static void begin_frame(const struct agent *a)
{
    static const uint8_t begin[] = {0, 0, 4, 0, MSG_STORE}; /* 256 KiB */

    assert_int_equal(send(a->fd, begin, sizeof(begin), MSG_NOSIGNAL), sizeof(begin));
}

/* Sends a byte: the machine of a server that has closed the connection answers it with
 * a reset. */
static bool is_open(const struct agent *a)
{
    ssize_t n = send(a->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);

    return n > 0 || errno == EAGAIN;
}

static void agent_that_does_not_read_at_all_loses_its_lease(void **state)
{
    struct rig *r = rig_new(state, LEASE_MS);
    struct agent agent;
    uint64_t end_ms = clock_ms() + WAIT_MS;

    enter(&agent, r, "j");
    ask_much(&agent);
    begin_frame(&agent);
    while (is_open(&agent) && clock_ms() < end_ms) {
        (void)poll(NULL, 0, PACE_MS);
    }
    while (!agent.is_ended && clock_ms() < end_ms) {
        wait_for(&agent, PACE_MS);
        listen_to(&agent, SIZE_MAX);
    }
    assert_true(agent.is_ended);
    assert_true(agent.n_replies < REQUESTS);
    agent_release(&agent);
    rig_free(r);
}

/* Of the requests before its goodbye those that are being answered, and no more. */
static void replies_to_a_store_client_that_is_gone_are_not_sent(void **state)
{
    struct msg gone = {.type = MSG_STORE_CLOSE};
    struct rig *r = rig_new(state, LONG_LEASE_MS);
    struct agent agent;
    uint64_t end_ms = clock_ms() + WAIT_MS;
    struct buf out;

    enter(&agent, r, "j");
    ask_much(&agent);
    agent.only_bytes = true;
    buf_init(&out, SIZE_MAX);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        gone.u.store_close.generation = agent.generation;
        gone.u.store_close.client = 2 + i;
        assert_true(msg_encode(&gone, &out) >= 0);
    }
    send_all(&agent, &out);
    add_last(&agent, &out);
    send_all(&agent, &out);
    while (!agent.is_last && !agent.is_ended && clock_ms() < end_ms) {
        wait_for(&agent, PACE_MS);
        listen_to(&agent, SIZE_MAX);
    }
    assert_true(agent.is_last);
    assert_int_equal(agent.n_replies, REQUESTS); /* they are acknowledged, though */
    assert_true(agent.n_bytes < 3 * (uint64_t)TIMES * VALUE_SIZE);
    agent_release(&agent);
    rig_free(r);
}

/* Three clients ask for 200 MB each, without reading; then another for a few bytes. */
static void client_that_asks_little_waits_for_a_turn_of_the_others_only(void **state)
{
    enum { GREEDY = 3 };
    struct rig *r = rig_new(state, LONG_LEASE_MS);
    struct agent agent;
    uint64_t end_ms = clock_ms() + WAIT_MS;
    struct buf body;
    struct buf out;

    enter(&agent, r, "j");
    set_value(&agent);
    agent.only_bytes = true;
    buf_init(&out, SIZE_MAX);
    make_large_request(&body);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        add_request(&agent, 2 + i % GREEDY, 1 + i / GREEDY, TCPSTORE_MULTI_GET, &body,
                    &out);
    }
    buf_release(&body);
    add_last(&agent, &out);
    send_all(&agent, &out);
    while (!agent.is_last && !agent.is_ended && clock_ms() < end_ms) {
        wait_for(&agent, PACE_MS);
        listen_to(&agent, SIZE_MAX);
    }
    assert_true(agent.is_last);
    assert_true(agent.n_bytes < 2 * (uint64_t)GREEDY * TIMES * VALUE_SIZE);
    agent_release(&agent);
    rig_free(r);
}

/* All in front of it have a turn of 40 MB to come. */
static void client_that_comes_last_does_not_wait_for_all_others(void **state)
{
    struct rig *r = rig_new(state, LONG_LEASE_MS);
    struct agent agent;
    uint64_t end_ms = clock_ms() + WAIT_MS;
    struct buf out;

    enter(&agent, r, "j");
    agent.only_bytes = true;
    ask_much(&agent);
    buf_init(&out, SIZE_MAX);
    add_last(&agent, &out);
    send_all(&agent, &out);
    while (!agent.is_last && !agent.is_ended && clock_ms() < end_ms) {
        wait_for(&agent, PACE_MS);
        listen_to(&agent, SIZE_MAX);
    }
    assert_true(agent.is_last);
    assert_true(agent.n_bytes < REQUESTS / 2 * (uint64_t)TIMES * VALUE_SIZE);
    agent_release(&agent);
    rig_free(r);
}

#define CASE(f, stream) cmocka_unit_test_prestate(f, &(stream))

int main(void)
{
    static enum stream plain = PLAIN;
    static enum stream tls = TLS;
    static const struct CMUnitTest tests[] = {
        CASE(agent_that_reads_slowly_stays_and_gets_all_replies, plain),
        CASE(agent_that_does_not_read_at_all_loses_its_lease, plain),
        CASE(client_that_comes_last_does_not_wait_for_all_others, plain),
        CASE(replies_to_a_store_client_that_is_gone_are_not_sent, plain),
        CASE(client_that_asks_little_waits_for_a_turn_of_the_others_only, plain),
        CASE(agent_that_reads_slowly_stays_and_gets_all_replies, tls),
        CASE(replies_to_a_store_client_that_is_gone_are_not_sent, tls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
