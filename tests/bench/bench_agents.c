/* The time until AGENTS nodes of one job, all on real sockets of this process, are joined
 * and ranked; or, of as many connections to an echo that answers as many messages.
 *
 *   bench-agents PORT|echo AGENTS COUNT
 *
 * PORT: of a ctrun-rendezvous on 127.0.0.1. echo: of a child that sends back what it
 * gets, from one epoll loop. Prints a line of JSON for each of COUNT jobs. Happy path:
 * each agent connects and says hello → WELCOME: it joins → ROUND; the clock stops with
 * the last one's. Nothing is decoded but the heads of frames. The echo's answer to the
 * first message stands for WELCOME, that to the second for ROUND. Failures: an assertion;
 * nobody answers at the port, or not for SILENCE_MS: a line and 1; a usage line and 2. */

#include "tests/bench/bench.h"
#include "tests/lib/echo.h"

#include "common/mem.h"
#include "common/msg.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    COUNT_MAX = 1000,
    EVENTS = 256,
    MESSAGE_MAX = 4096,
    READ_SIZE = 256 * 1024,
    HEAD_SIZE = 5, /* of a frame: u32 length of the rest, u8 type */
    SILENCE_MS = 20000,
};

struct options {
    bool is_echo;
    int64_t port, agents, count;
};

struct agent {
    int fd;
    bool has_joined, is_ranked;
    size_t n_head; /* bytes of the frame's head so far */
    uint8_t head[HEAD_SIZE];
    size_t left; /* bytes of the frame still to come, or of the echo's answer */
};

struct crowd {
    bool is_echo;
    int port;
    struct agent *agent; /* owned; n_agents */
    size_t n_agents, n_ranked;
    uint64_t n_jobs, n_bytes; /* begun; received */
    int epoll_fd;
    uint8_t *scratch; /* owned */
};

_Noreturn static void fail(const char *what, int error)
{
    (void)fprintf(stderr, "bench-agents: %s: %s\n", what, err_text(error));
    _exit(1);
}

static void send_msg(const struct crowd *c, struct agent *a, struct buf *b,
                     const struct msg *m)
{
    ASSERT(msg_encode(m, b) == 0);
    a->left = c->is_echo ? buf_len(b) : 0;
    if (send(a->fd, buf_bytes(b), buf_len(b), MSG_NOSIGNAL) != (ssize_t)buf_len(b)) {
        fail("the connection has ended", -errno);
    }
}

static void say_hello(const struct crowd *c, struct agent *a)
{
    size_t number = (size_t)(a - c->agent);
    struct msg m = {.type = MSG_HELLO};
    struct msg_hello *hello = &m.u.hello;
    struct buf b;

    hello->version = MSG_VERSION;
    (void)snprintf(hello->job, sizeof(hello->job), "bench-%d-%zu", (int)getpid(),
                   (size_t)c->n_jobs);
    (void)snprintf(hello->host, sizeof(hello->host), "node%05zu", number);
    hello->agent_id = c->n_jobs * c->n_agents + number + 1;
    hello->group_rank = -1;
    hello->node_rank = -1;
    hello->min_nodes = (uint32_t)c->n_agents;
    hello->max_nodes = (uint32_t)c->n_agents;
    hello->nproc = 1;
    hello->last_call_ms = 30000;
    buf_init(&b, MESSAGE_MAX);
    ASSERT(buf_append(&b, MSG_MAGIC, MSG_MAGIC_SIZE) == 0);
    send_msg(c, a, &b, &m);
    buf_release(&b);
}

static void join(const struct crowd *c, struct agent *a)
{
    struct msg m = {.type = MSG_JOIN, .u.join = {.port = 40000}};
    size_t number = (size_t)(a - c->agent);
    struct buf b;

    a->has_joined = true;
    (void)snprintf(m.u.join.addr, sizeof(m.u.join.addr), "10.0.%zu.%zu", number / 256,
                   number % 256);
    buf_init(&b, MESSAGE_MAX);
    send_msg(c, a, &b, &m);
    buf_release(&b);
}

/* The echo's answer, or a frame of this type, is there. */
static void on_answer(struct crowd *c, struct agent *a, uint8_t type)
{
    if (!a->has_joined) {
        ASSERT(c->is_echo || type == MSG_WELCOME);
        join(c, a);
    } else if (!a->is_ranked) {
        ASSERT(c->is_echo || type == MSG_ROUND);
        a->is_ranked = true;
        c->n_ranked++;
    }
}

/* Takes some bytes; returns how many. */
static size_t take(struct crowd *c, struct agent *a, const uint8_t *data, size_t size)
{
    size_t n;
    uint32_t length;

    if (!c->is_echo && a->n_head < HEAD_SIZE) {
        n = MIN(size, HEAD_SIZE - a->n_head);
        memcpy(a->head + a->n_head, data, n);
        a->n_head += n;
        memcpy(&length, a->head, sizeof(length));
        a->left = a->n_head == HEAD_SIZE ? le32toh(length) - 1 : 0;
    } else {
        n = MIN(size, a->left);
        a->left -= n;
    }
    if (a->left == 0 && (c->is_echo || a->n_head == HEAD_SIZE)) {
        a->n_head = 0;
        on_answer(c, a, a->head[HEAD_SIZE - 1]);
    }
    return n;
}

static void on_readable(struct crowd *c, struct agent *a)
{
    ssize_t n = recv(a->fd, c->scratch, READ_SIZE, 0);

    if (n <= 0) {
        fail("the connection has ended", n < 0 ? -errno : ERR_CLOSED);
    }
    c->n_bytes += (size_t)n;
    for (size_t at = 0; at < (size_t)n;) {
        at += take(c, a, c->scratch + at, (size_t)n - at);
    }
}

static void turn(struct crowd *c, int timeout_ms)
{
    struct epoll_event event[EVENTS];
    int n = epoll_wait(c->epoll_fd, event, EVENTS, timeout_ms);

    if (n == 0 && timeout_ms > 0) {
        fail("not all agents have their rank", ERR_TIMEOUT);
    }
    for (int i = 0; i < n; i++) {
        on_readable(c, event[i].data.ptr);
    }
}

static void open_agent(struct crowd *c, struct agent *a)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)c->port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = a};
    int on = 1;

    *a = (struct agent){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (a->fd < 0 || connect(a->fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        fail("cannot connect", -errno);
    }
    ASSERT(setsockopt(a->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0 &&
           epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, a->fd, &event) == 0);
    say_hello(c, a);
}

/* By a reset: else its port would be in use for a minute. */
static void close_agent(const struct agent *a)
{
    struct linger none = {.l_onoff = 1};

    ASSERT(setsockopt(a->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none)) == 0 &&
           close(a->fd) == 0);
}

static void measure(struct crowd *c)
{
    double began = bench_now_us();
    double took;

    c->n_jobs++;
    c->n_ranked = 0;
    c->n_bytes = 0;
    for (size_t i = 0; i < c->n_agents; i++) {
        open_agent(c, &c->agent[i]);
        turn(c, 0);
    }
    while (c->n_ranked < c->n_agents) {
        turn(c, SILENCE_MS);
    }
    took = bench_now_us() - began;
    (void)printf("{\"seconds\": %.6f, \"bytes\": %llu}\n", took / 1e6,
                 (unsigned long long)c->n_bytes);
    (void)fflush(stdout);
    for (size_t i = 0; i < c->n_agents; i++) {
        close_agent(&c->agent[i]);
    }
}

/* The echo's child gets the same limit. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    ASSERT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    ASSERT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static bool parse(int argc, char **argv, struct options *ret)
{
    *ret = (struct options){.is_echo = argc > 1 && strcmp(argv[1], "echo") == 0};
    return argc == 4 && (ret->is_echo || bench_number(argv[1], 1, 65535, &ret->port)) &&
           bench_number(argv[2], 1, MSG_MAX_NODES, &ret->agents) &&
           bench_number(argv[3], 1, COUNT_MAX, &ret->count);
}

int main(int argc, char **argv)
{
    struct options options;
    struct crowd crowd = {0};
    pid_t echo = 0;

    if (!parse(argc, argv, &options)) {
        (void)fprintf(stderr, "usage: bench-agents PORT|echo AGENTS COUNT\n");
        return 2;
    }
    raise_descriptor_limit();
    crowd.port = (int)options.port;
    if (options.is_echo) {
        echo = echo_start(&crowd.port);
    }
    crowd.is_echo = options.is_echo;
    crowd.n_agents = (size_t)options.agents;
    crowd.agent = mem_array(crowd.n_agents, sizeof(*crowd.agent));
    crowd.scratch = mem_alloc(READ_SIZE);
    crowd.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    ASSERT(crowd.epoll_fd >= 0);
    for (int64_t i = 0; i < options.count; i++) {
        measure(&crowd);
    }
    (void)close(crowd.epoll_fd);
    mem_free(crowd.agent);
    mem_free(crowd.scratch);
    if (options.is_echo) {
        echo_stop(echo);
    }
    return 0;
}
