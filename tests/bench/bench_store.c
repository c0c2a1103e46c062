/* Requests a second of a key-value store that speaks TCPStore, with one request in
 * flight on each of CLIENTS connections; or of the least that a server can do, echo.
 *
 *   bench-store PORT|echo CLIENTS MILLISECONDS COUNT
 *
 * The request is a GET whose answer is as long as itself, so that both servers move the
 * same bytes. PORT: of a server on 127.0.0.1. echo: of a child that sends back what it
 * gets, from one epoll loop. Prints a line of JSON for each of COUNT times. Happy path:
 * each client connects (the first puts the key) and gets one answer; then a request
 * from each, and each answer is counted and followed by the next request, after a tenth
 * of the time for warming up. Failures: an assertion; a usage line and 2. */

#include "tests/bench/bench.h"
#include "tests/lib/echo.h"

#include "common/buf.h"
#include "common/mem.h"
#include "common/tcpstore.h"
#include "common/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CLIENTS_MAX = 4096,
    MILLISECONDS_MAX = 600000,
    COUNT_MAX = 1000,
    EVENTS = 64,
    GREETING_MAX = 4096,
    KEY_SIZE = 24,
    VALUE_SIZE = KEY_SIZE + 1, /* GET: u8, u64, key; its answer: u64, value */
    MESSAGE_SIZE = 1 + 8 + KEY_SIZE,
    LATENCY_MAX_US = 100000,
    SILENCE_MS = 10000,
};

struct options {
    bool is_echo;
    int64_t port, clients, ms, count;
};

struct client {
    int fd;
    size_t got; /* bytes of the answer */
    double sent_us;
};

struct load {
    struct client *client; /* owned; n_clients */
    size_t n_clients;
    int epoll_fd;
    uint8_t request[MESSAGE_SIZE];
    uint64_t n_answers;
    uint32_t *n_of_us; /* owned; answers by latency, LATENCY_MAX_US + 1 */
};

static void watch(int epoll_fd, int fd, void *ptr)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = ptr};

    ASSERT(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void send_all(int fd, const void *data, size_t size)
{
    ASSERT(send(fd, data, size, MSG_NOSIGNAL) == (ssize_t)size);
}

/* ---- the load -------------------------------------------------------------------- */

static int connect_to(int port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;

    ASSERT(fd >= 0 && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        (void)fprintf(stderr, "bench-store: nobody answers at port %d: %s\n", port,
                      err_text(-errno));
        _exit(1);
    }
    return fd;
}

static void put_string(struct buf *b, const char *text, size_t size)
{
    ASSERT(wire_put_u64(b, size) == 0 && buf_append(b, text, size) == 0);
}

/* What a client of the store says first; the first one also puts the key. */
static void greet(int fd, bool puts_key, const char *key)
{
    char value[VALUE_SIZE];
    struct buf b;

    memset(value, 'v', sizeof(value));
    buf_init(&b, GREETING_MAX);
    ASSERT(wire_put_u8(&b, TCPSTORE_VALIDATE) == 0 &&
           wire_put_u32(&b, TCPSTORE_MAGIC) == 0);
    if (puts_key) {
        ASSERT(wire_put_u8(&b, TCPSTORE_SET) == 0);
        put_string(&b, key, KEY_SIZE);
        put_string(&b, value, VALUE_SIZE);
    }
    send_all(fd, buf_bytes(&b), buf_len(&b));
    buf_release(&b);
}

static void make_request(struct load *l, const char *key)
{
    struct buf b;

    buf_init(&b, MESSAGE_SIZE);
    ASSERT(wire_put_u8(&b, TCPSTORE_GET) == 0);
    put_string(&b, key, KEY_SIZE);
    ASSERT(buf_len(&b) == MESSAGE_SIZE);
    memcpy(l->request, buf_bytes(&b), MESSAGE_SIZE);
    buf_release(&b);
}

static void ask(struct load *l, struct client *c)
{
    c->got = 0;
    c->sent_us = bench_now_us();
    send_all(c->fd, l->request, MESSAGE_SIZE);
}

/* The answer to a client's first request: it is there, and as long as all others. */
static void check_answer(const struct load *l, int fd, bool is_store)
{
    uint8_t data[MESSAGE_SIZE];
    struct wire_reader r;

    ASSERT(recv(fd, data, MESSAGE_SIZE, MSG_WAITALL) == MESSAGE_SIZE);
    wire_reader_init(&r, data, MESSAGE_SIZE);
    ASSERT(is_store ? wire_get_u64(&r) == VALUE_SIZE
                    : memcmp(data, l->request, MESSAGE_SIZE) == 0);
}

/* The first client has its answer before the others ask: so the key is there. */
static void connect_clients(struct load *l, int port, bool is_store, const char *key)
{
    for (size_t i = 0; i < l->n_clients; i++) {
        struct client *c = &l->client[i];

        c->fd = connect_to(port);
        if (is_store) {
            greet(c->fd, i == 0, key);
        }
        send_all(c->fd, l->request, MESSAGE_SIZE);
        if (i == 0) {
            check_answer(l, c->fd, is_store);
        }
    }
    for (size_t i = 1; i < l->n_clients; i++) {
        check_answer(l, l->client[i].fd, is_store);
    }
}

static void load_open(struct load *l, int port, bool is_store)
{
    static const char key[KEY_SIZE + 1] = "bench/key-of-some-length";

    make_request(l, key);
    l->n_of_us = mem_array(LATENCY_MAX_US + 1, sizeof(*l->n_of_us));
    l->client = mem_array(l->n_clients, sizeof(*l->client));
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    connect_clients(l, port, is_store, key);
    for (size_t i = 0; i < l->n_clients; i++) {
        watch(l->epoll_fd, l->client[i].fd, &l->client[i]);
        ask(l, &l->client[i]);
    }
}

static void load_close(struct load *l)
{
    for (size_t i = 0; i < l->n_clients; i++) {
        (void)close(l->client[i].fd);
    }
    (void)close(l->epoll_fd);
    mem_free(l->client);
    mem_free(l->n_of_us);
}

static void on_readable(struct load *l, struct client *c)
{
    uint8_t data[MESSAGE_SIZE];
    ssize_t n = recv(c->fd, data, sizeof(data) - c->got, 0);
    double us;

    ASSERT(n > 0);
    c->got += (size_t)n;
    if (c->got < MESSAGE_SIZE) {
        return;
    }
    us = bench_now_us() - c->sent_us;
    l->n_of_us[us < LATENCY_MAX_US ? (size_t)us : LATENCY_MAX_US]++;
    l->n_answers++;
    ask(l, c);
}

static void load_run(struct load *l, double duration_us)
{
    double until = bench_now_us() + duration_us;
    struct epoll_event event[EVENTS];

    l->n_answers = 0;
    memset(l->n_of_us, 0, (LATENCY_MAX_US + 1) * sizeof(*l->n_of_us));
    while (bench_now_us() < until) {
        int n = epoll_wait(l->epoll_fd, event, EVENTS, SILENCE_MS);

        ASSERT(n > 0);
        for (int i = 0; i < n; i++) {
            on_readable(l, event[i].data.ptr);
        }
    }
}

/* The latency, in whole µs, that this share of the answers did not pass. */
static size_t latency_us(const struct load *l, double share)
{
    double left = (double)l->n_answers * share;
    size_t us = 0;

    while (us < LATENCY_MAX_US && left > (double)l->n_of_us[us]) {
        left -= (double)l->n_of_us[us];
        us++;
    }
    return us;
}

static void measure(struct load *l, double duration_us)
{
    double began = bench_now_us();
    double took;

    load_run(l, duration_us);
    took = bench_now_us() - began;
    (void)printf("{\"requests_per_s\": %.0f, \"p50_us\": %zu, \"p99_us\": %zu}\n",
                 (double)l->n_answers / took * 1e6, latency_us(l, 0.5),
                 latency_us(l, 0.99));
    (void)fflush(stdout);
}

static bool parse(int argc, char **argv, struct options *ret)
{
    *ret = (struct options){.is_echo = argc > 1 && strcmp(argv[1], "echo") == 0};
    return argc == 5 && (ret->is_echo || bench_number(argv[1], 1, 65535, &ret->port)) &&
           bench_number(argv[2], 1, CLIENTS_MAX, &ret->clients) &&
           bench_number(argv[3], 1, MILLISECONDS_MAX, &ret->ms) &&
           bench_number(argv[4], 1, COUNT_MAX, &ret->count);
}

int main(int argc, char **argv)
{
    struct options options;
    struct load load = {0};
    pid_t echo = 0;
    int port;

    if (!parse(argc, argv, &options)) {
        (void)fprintf(stderr,
                      "usage: bench-store PORT|echo CLIENTS MILLISECONDS COUNT\n");
        return 2;
    }
    port = (int)options.port;
    if (options.is_echo) {
        echo = echo_start(&port);
    }
    load.n_clients = (size_t)options.clients;
    load_open(&load, port, !options.is_echo);
    load_run(&load, (double)options.ms * 1e3 / 10);
    for (int64_t i = 0; i < options.count; i++) {
        measure(&load, (double)options.ms * 1e3);
    }
    load_close(&load);
    if (options.is_echo) {
        echo_stop(echo);
    }
    return 0;
}
