/* The server on real sockets, with a state whose disk is as slow as the test wants. */

#include "rendezvous/durable.h"
#include "rendezvous/server.h"
#include "tests/lib/cmocka.h"

#include "common/buf.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/msg.h"
#include "common/tcpstore.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

enum { REPLY_MAX = 4096, FLOOD = 3 << 20, MAX_FD = 256 };

struct rig {
    uv_loop_t loop;
    struct server *server;
    struct durable durable;
    struct durable_user user;
    int port;
    size_t n_saved;     /* since the last commit */
    bool is_on_its_way; /* a transaction */
};

/* ---- the disk ---- */

static int load(void *arg, durable_take take, void *taker, struct errmsg *msg)
{
    (void)arg;
    (void)take;
    (void)taker;
    (void)msg;
    return 0;
}

static void use(void *arg, const struct durable_user *user)
{
    struct rig *r = arg;

    r->user = *user;
}

static void save(void *arg, const struct record *record)
{
    struct rig *r = arg;

    (void)record;
    r->n_saved++;
}

static bool has_saved(void *arg)
{
    const struct rig *r = arg;

    return r->n_saved > 0;
}

/* As if it were the first. */
static uint64_t kept(void *arg)
{
    return has_saved(arg);
}

static bool commit(void *arg)
{
    struct rig *r = arg;

    r->is_on_its_way = r->is_on_its_way || r->n_saved > 0;
    r->n_saved = 0;
    return r->is_on_its_way;
}

/* It takes longer than anybody would wait. */
static void await(void *arg, uint64_t limit_ms)
{
    const struct rig *r = arg;

    assert_true(r->is_on_its_way && limit_ms > 0);
}

static void disk_is_done(struct rig *r)
{
    assert_true(r->is_on_its_way);
    r->is_on_its_way = false;
    r->user.on_committed(r->user.arg);
}

/* ---- the server ---- */

static void turn(struct rig *r)
{
    (void)uv_run(&r->loop, UV_RUN_NOWAIT); /* whether something is left to do */
}

/* Bytes that one of the sockets has given to the kernel, and that are not at their other
 * end; both ends are in this process. */
static bool is_something_on_its_way(void)
{
    bool is_any = false;

    for (int fd = 0; fd < MAX_FD; fd++) {
        int domain = 0;
        socklen_t size = sizeof(domain);
        int n = 0;

        is_any |= getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
                  domain == AF_INET && ioctl(fd, SIOCOUTQ, &n) == 0 && n > 0;
    }
    return is_any;
}

/* All that was said is taken, and what is said to it has come, if it ever does: so many
 * turns suffice to accept, read and answer what is there. */
static void turns(struct rig *r)
{
    for (int quiet = 0; quiet < 20; quiet++) {
        turn(r);
        quiet = is_something_on_its_way() ? 0 : quiet;
    }
}

static struct rig *rig_new(void)
{
    struct rig *r = mem_zalloc(sizeof(*r));
    struct server_config config = {
        .loop = &r->loop, .durable = &r->durable, .lease_ms = 60000};
    struct errmsg msg = {""};

    r->durable = (struct durable){.arg = r,
                                  .cluster = 3,
                                  .boot = 1,
                                  .load = load,
                                  .use = use,
                                  .save = save,
                                  .has_saved = has_saved,
                                  .kept = kept,
                                  .commit = commit,
                                  .await = await};
    assert_int_equal(uv_loop_init(&r->loop), 0);
    assert_int_equal(server_new(&config, &r->server, &msg), 0);
    assert_int_equal(server_listen(r->server, "127.0.0.1", 0, &r->port, &msg), 0);
    turn(r);
    if (r->is_on_its_way) { /* what the start itself has to say */
        disk_is_done(r);
    }
    return r;
}

static void on_stopped(void *arg)
{
    (void)arg;
}

static void rig_free(struct rig *r)
{
    server_stop(r->server, on_stopped, NULL);
    while (uv_run(&r->loop, UV_RUN_NOWAIT) != 0) {
        if (r->is_on_its_way) {
            disk_is_done(r);
        }
    }
    assert_int_equal(uv_loop_close(&r->loop), 0);
    mem_free(r);
}

/* ---- peers ---- */

static int port_connect(int port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

static int peer_connect(const struct rig *r)
{
    return port_connect(r->port);
}

static void peer_send(int fd, const void *data, size_t size)
{
    assert_int_equal(send(fd, data, size, MSG_NOSIGNAL), size);
}

static bool has_heard(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) > 0;
}

static void wait_to_hear(struct rig *r, int fd)
{
    while (!has_heard(fd)) {
        turn(r);
    }
}

static int agent_enter(const struct rig *r, uint64_t id)
{
    struct msg m = {.type = MSG_HELLO};
    int fd = peer_connect(r);
    struct buf out;

    m.u.hello = (struct msg_hello){.version = MSG_VERSION,
                                   .job = "job",
                                   .agent_id = id,
                                   .host = "host",
                                   .min_nodes = 2,
                                   .max_nodes = 2,
                                   .nproc = 1,
                                   .node_rank = -1,
                                   .group_rank = -1};
    buf_init(&out, SIZE_MAX);
    assert_int_equal(buf_append(&out, MSG_MAGIC, MSG_MAGIC_SIZE), 0);
    assert_int_equal(msg_encode(&m, &out), 0);
    peer_send(fd, buf_bytes(&out), buf_len(&out));
    buf_release(&out);
    return fd;
}

/* Until the disk has something to do. */
static void wait_for_disk(struct rig *r)
{
    while (!r->is_on_its_way) {
        turn(r);
    }
}

static const uint8_t ping[] = {TCPSTORE_PING, 1, 2, 3, 4};

static int client_connect(const struct rig *r)
{
    static const uint8_t validate[] = {TCPSTORE_VALIDATE, 0xce, 0xf7, 0x85, 0x3c};
    int fd = peer_connect(r);

    peer_send(fd, validate, sizeof(validate));
    return fd;
}

/* ---- the cases ---- */

static void nothing_is_heard_before_it_is_on_the_disk(void **unused)
{
    struct rig *r = rig_new();
    int agent = agent_enter(r, 1);

    (void)unused;
    wait_for_disk(r);
    turns(r);
    assert_false(has_heard(agent));
    disk_is_done(r);
    wait_to_hear(r, agent);
    (void)close(agent);
    rig_free(r);
}

static void who_only_reads_waits_for_the_disk_too_and_then_is_answered(void **unused)
{
    struct rig *r = rig_new();
    int client = client_connect(r);
    int agent;

    (void)unused;
    peer_send(client, ping, sizeof(ping));
    wait_to_hear(r, client); /* nothing was saved: at once */
    assert_int_equal(recv(client, (char[8]){0}, 8, 0), 4);
    agent = agent_enter(r, 1);
    wait_for_disk(r);
    peer_send(client, ping, sizeof(ping));
    turns(r);
    assert_false(has_heard(client));
    disk_is_done(r);
    wait_to_hear(r, client);
    wait_to_hear(r, agent);
    (void)close(client);
    (void)close(agent);
    rig_free(r);
}

static void what_comes_while_the_disk_is_busy_is_one_transaction(void **unused)
{
    struct rig *r = rig_new();
    int first = agent_enter(r, 1);
    int second;
    int third;

    (void)unused;
    wait_for_disk(r);
    second = agent_enter(r, 2);
    third = agent_enter(r, 3);
    turns(r);
    disk_is_done(r);
    wait_to_hear(r, first);
    wait_for_disk(r);
    turns(r);
    assert_false(has_heard(second) || has_heard(third));
    disk_is_done(r);
    wait_to_hear(r, second);
    wait_to_hear(r, third);
    assert_false(r->is_on_its_way);
    (void)close(first);
    (void)close(second);
    (void)close(third);
    rig_free(r);
}

/* SET of the key "k", in the store of those that belong to no job. */
static void send_set(int fd)
{
    static const uint8_t set[] = {
        TCPSTORE_SET, 1, 0, 0, 0, 0, 0, 0, 0, 'k', 1, 0, 0, 0, 0, 0, 0, 0, 'v'};

    peer_send(fd, set, sizeof(set));
}

static void what_was_said_before_the_end_of_a_connection_counts(void **unused)
{
    static const uint8_t count[] = {TCPSTORE_GETNUMKEYS};
    struct rig *r = rig_new();
    int agent = agent_enter(r, 1);
    int client;
    int other = client_connect(r);
    uint64_t n = 0;

    (void)unused;
    wait_for_disk(r);
    client = client_connect(r);
    send_set(client);
    assert_int_equal(shutdown(client, SHUT_WR), 0);
    turns(r);
    (void)close(client);
    disk_is_done(r);
    wait_to_hear(r, agent);
    turns(r);
    peer_send(other, count, sizeof(count));
    wait_to_hear(r, other);
    assert_int_equal(recv(other, &n, sizeof(n), 0), sizeof(n));
    assert_int_equal(n, 1);
    (void)close(other);
    (void)close(agent);
    rig_free(r);
}

/* Who sends much while the disk is busy is read no further than a little. */
static void flood_while_the_disk_is_busy_waits_in_its_socket(void **unused)
{
    struct rig *r = rig_new();
    int agent = agent_enter(r, 1);
    int client = client_connect(r);
    uint8_t *flood = mem_alloc(FLOOD);
    size_t sent = 0;
    size_t answered = 0;
    size_t whole = FLOOD / sizeof(ping) * sizeof(ping);

    (void)unused;
    for (size_t i = 0; i < whole; i++) {
        flood[i] = ping[i % sizeof(ping)];
    }
    wait_for_disk(r);
    for (int i = 0; i < 50; i++) { /* until nobody takes more */
        ssize_t n = send(client, flood + sent, whole - sent, MSG_DONTWAIT);

        sent += n > 0 ? (size_t)n : 0;
        turn(r);
    }
    assert_false(has_heard(client));
    disk_is_done(r);
    while (answered < whole / sizeof(ping) * 4) {
        char replies[REPLY_MAX];
        ssize_t n = recv(client, replies, sizeof(replies), MSG_DONTWAIT);

        answered += n > 0 ? (size_t)n : 0;
        n = sent < whole ? send(client, flood + sent, whole - sent, MSG_DONTWAIT) : 0;
        sent += n > 0 ? (size_t)n : 0;
        turn(r);
    }
    mem_free(flood);
    (void)close(client);
    (void)close(agent);
    rig_free(r);
}

static int ask(int port, const char *path)
{
    char text[128];
    int fd;
    int n = snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n",
                     path);

    fd = port_connect(port);
    peer_send(fd, text, (size_t)n);
    return fd;
}

static void views_show_nothing_before_it_is_on_the_disk(void **unused)
{
    const struct server_http http = {.addr = "127.0.0.1"};
    struct rig *r = rig_new();
    struct errmsg msg = {""};
    char text[REPLY_MAX];
    int port;
    int agent;
    int jobs;
    int health;
    ssize_t n;

    (void)unused;
    assert_int_equal(server_listen_http(r->server, &http, &port, &msg), 0);
    jobs = ask(port, "/api/v1/jobs");
    wait_to_hear(r, jobs); /* nothing was saved: at once */
    (void)close(jobs);
    agent = agent_enter(r, 1);
    wait_for_disk(r);
    jobs = ask(port, "/api/v1/jobs");
    health = ask(port, "/healthz");
    wait_to_hear(r, health); /* it lives, whatever the disk does */
    turns(r);
    assert_false(has_heard(jobs));
    disk_is_done(r);
    wait_to_hear(r, jobs);
    n = recv(jobs, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    assert_non_null(strstr(text, "\"id\":\"job\""));
    (void)close(jobs);
    (void)close(health);
    (void)close(agent);
    rig_free(r);
}

static void server_that_stops_waits_for_the_disk(void **unused)
{
    struct rig *r = rig_new();
    int agent = agent_enter(r, 1);

    (void)unused;
    wait_for_disk(r);
    server_stop(r->server, on_stopped, NULL);
    turns(r);
    assert_false(has_heard(agent));
    disk_is_done(r);
    while (uv_run(&r->loop, UV_RUN_NOWAIT) != 0) {
        if (r->is_on_its_way) {
            disk_is_done(r);
        }
    }
    assert_true(has_heard(agent));
    assert_int_equal(uv_loop_close(&r->loop), 0);
    (void)close(agent);
    mem_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_heard_before_it_is_on_the_disk),
        cmocka_unit_test(who_only_reads_waits_for_the_disk_too_and_then_is_answered),
        cmocka_unit_test(what_comes_while_the_disk_is_busy_is_one_transaction),
        cmocka_unit_test(what_was_said_before_the_end_of_a_connection_counts),
        cmocka_unit_test(flood_while_the_disk_is_busy_waits_in_its_socket),
        cmocka_unit_test(views_show_nothing_before_it_is_on_the_disk),
        cmocka_unit_test(server_that_stops_waits_for_the_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
