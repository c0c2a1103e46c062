#include "tests/lib/ranks.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/tcpstore.h"
#include "common/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    KEYS_MAX = 4096,
    CLIENTS_MAX = 64,
    LIMIT_MS = 120000,
    KEY_MAX = 512,
    VALUE_MAX = 16384, /* a whole configuration is one value */
};

struct entry {
    char key[KEY_MAX];
    uint8_t value[VALUE_MAX];
    size_t size;
};

struct client {
    int fd; /* -1: free */
    struct buf in;
    char waits_for[KEY_MAX]; /* "": nothing */
};

struct store {
    int listener;
    struct entry *entry;
    int n_entries;
    struct client client[CLIENTS_MAX];
};

void rank_check_failed(const char *file, int line, const char *what)
{
    (void)fprintf(stderr, "%s:%d: rank failed: %s\n", file, line, what);
    (void)fflush(stderr);
    _exit(1);
}

/* ---- the store ------------------------------------------------------------------- */

static struct entry *find(struct store *s, const char *key)
{
    for (int i = 0; i < s->n_entries; i++) {
        if (strcmp(s->entry[i].key, key) == 0) {
            return &s->entry[i];
        }
    }
    return NULL;
}

static void answer(struct client *c, const void *data, size_t size)
{
    if (send(c->fd, data, size, MSG_NOSIGNAL) != (ssize_t)size) {
        (void)shutdown(c->fd, SHUT_RDWR); /* it is gone: the next read tells */
    }
}

static void put(struct store *s, const char *key, const void *value, size_t size)
{
    struct entry *e = find(s, key);

    if (!e) {
        ASSERT(s->n_entries < KEYS_MAX);
        e = &s->entry[s->n_entries++];
        (void)snprintf(e->key, sizeof(e->key), "%s", key);
    }
    ASSERT(size <= sizeof(e->value));
    memcpy(e->value, value, size);
    e->size = size;
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client *c = &s->client[i];

        if (c->fd >= 0 && strcmp(c->waits_for, key) == 0) {
            c->waits_for[0] = '\0';
            answer(c, "", 1);
        }
    }
}

/* At most max − 1 bytes, and a terminator. */
static size_t take_string(struct wire_reader *r, void *to, size_t max)
{
    uint64_t size = wire_get_u64(r);
    const uint8_t *data = size < max ? wire_get_raw(r, (size_t)size) : NULL;

    if (!data) {
        r->bad = true;
        return 0;
    }
    memcpy(to, data, (size_t)size);
    ((char *)to)[size] = '\0';
    return (size_t)size;
}

static void on_get(struct store *s, struct client *c, const char *key)
{
    struct entry *e = find(s, key);
    uint8_t reply[8 + VALUE_MAX] = {0};
    size_t size = e ? e->size : 0;

    memcpy(reply, &size, 8);
    if (e) {
        memcpy(reply + 8, e->value, size);
    }
    answer(c, reply, 8 + size);
}

static void on_add(struct store *s, struct client *c, const char *key, int64_t delta)
{
    struct entry *e = find(s, key);
    int64_t sum = (e ? strtoll((char *)e->value, NULL, 10) : 0) + delta;
    char text[32];

    (void)snprintf(text, sizeof(text), "%lld", (long long)sum);
    put(s, key, text, strlen(text) + 1);
    answer(c, &sum, sizeof(sum));
}

static void on_wait(struct store *s, struct client *c, const char *key)
{
    if (find(s, key)) {
        answer(c, "", 1);
    } else {
        (void)snprintf(c->waits_for, sizeof(c->waits_for), "%s", key);
    }
}

/* One request, if it is there in full. */
static bool serve_request(struct store *s, struct client *c)
{
    char key[KEY_MAX] = "", value[VALUE_MAX] = "";
    struct wire_reader r;
    uint64_t number = 0;
    size_t size = 0;
    uint8_t op;

    wire_reader_init(&r, buf_bytes(&c->in), buf_len(&c->in));
    op = wire_get_u8(&r);
    if (op == TCPSTORE_WAIT) {
        number = wire_get_u64(&r);
        ASSERT(r.bad || number == 1);
    }
    if (op == TCPSTORE_VALIDATE || op == TCPSTORE_PING) {
        number = wire_get_u32(&r);
    } else if (op != TCPSTORE_CANCEL_WAIT) {
        (void)take_string(&r, key, sizeof(key));
    }
    if (op == TCPSTORE_SET) {
        size = take_string(&r, value, sizeof(value));
    } else if (op == TCPSTORE_ADD) {
        number = wire_get_u64(&r);
    }
    if (r.bad) {
        return false;
    }
    buf_consume(&c->in, buf_len(&c->in) - r.left);
    if (op == TCPSTORE_PING) {
        answer(c, &number, 4);
    } else if (op == TCPSTORE_SET) {
        put(s, key, value, size);
    } else if (op == TCPSTORE_GET) {
        on_get(s, c, key);
    } else if (op == TCPSTORE_ADD) {
        on_add(s, c, key, (int64_t)number);
    } else if (op == TCPSTORE_WAIT) {
        on_wait(s, c, key);
    } else if (op == TCPSTORE_CANCEL_WAIT) {
        c->waits_for[0] = '\0';
        answer(c, "\1", 1);
    }
    return true;
}

static void client_drop(struct client *c)
{
    close(c->fd);
    buf_release(&c->in);
    *c = (struct client){.fd = -1};
}

static void on_readable(struct store *s, struct client *c)
{
    uint8_t data[4096];
    ssize_t n = recv(c->fd, data, sizeof(data), 0);

    if (n <= 0 || buf_append(&c->in, data, (size_t)n) < 0) {
        client_drop(c);
        return;
    }
    while (buf_len(&c->in) > 0 && serve_request(s, c)) {
    }
}

static void on_connection(struct store *s)
{
    int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);

    for (int i = 0; i < CLIENTS_MAX && fd >= 0; i++) {
        if (s->client[i].fd < 0) {
            s->client[i].fd = fd;
            buf_init(&s->client[i].in, 1 << 16);
            return;
        }
    }
    ASSERT(fd < 0);
}

static int store_listen(struct store *s)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(addr);

    s->entry = mem_array(KEYS_MAX, sizeof(*s->entry));
    for (int i = 0; i < CLIENTS_MAX; i++) {
        s->client[i].fd = -1;
    }
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(s->listener >= 0 &&
           bind(s->listener, (struct sockaddr *)&addr, sizeof(addr)) == 0 &&
           listen(s->listener, 64) == 0 &&
           getsockname(s->listener, (struct sockaddr *)&addr, &size) == 0);
    return ntohs(addr.sin_port);
}

static void store_turn(struct store *s)
{
    struct pollfd fds[1 + CLIENTS_MAX];

    fds[0] = (struct pollfd){s->listener, POLLIN, 0};
    for (int i = 0; i < CLIENTS_MAX; i++) {
        fds[1 + i] = (struct pollfd){s->client[i].fd, POLLIN, 0};
    }
    if (poll(fds, 1 + CLIENTS_MAX, 5) <= 0) {
        return;
    }
    for (int i = 0; i < CLIENTS_MAX; i++) {
        if (fds[1 + i].revents) {
            on_readable(s, &s->client[i]);
        }
    }
    if (fds[0].revents) {
        on_connection(s);
    }
}

static void store_close(struct store *s)
{
    for (int i = 0; i < CLIENTS_MAX; i++) {
        if (s->client[i].fd >= 0) {
            client_drop(&s->client[i]);
        }
    }
    close(s->listener);
    mem_free(s->entry);
}

/* ---- the ranks ------------------------------------------------------------------- */

static pid_t start(struct store *s, const struct rank *self, rank_body body)
{
    pid_t pid;

    (void)fflush(NULL);
    pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        int rv;

        store_close(s);
        rv = body(self);
        exit(rv); /* NOLINT(concurrency-mt-unsafe): the rank's threads have ended */
    }
    return pid;
}

/* The number that ended now. */
static int reap(int n, pid_t pids[RANKS_MAX], int status[RANKS_MAX])
{
    int ended = 0, st;

    for (int i = 0; i < n; i++) {
        if (pids[i] > 0 && waitpid(pids[i], &st, WNOHANG) == pids[i]) {
            status[i] = WIFSIGNALED(st) ? 128 + WTERMSIG(st) : WEXITSTATUS(st);
            pids[i] = 0;
            ended++;
        }
    }
    return ended;
}

static void kill_all(int n, const pid_t pids[RANKS_MAX])
{
    for (int i = 0; i < n; i++) {
        if (pids[i] > 0) {
            (void)kill(pids[i], SIGKILL); /* not reaped yet, so it is still ours */
        }
    }
}

bool ranks_run(int n, rank_body body, const void *arg, int status[RANKS_MAX])
{
    uint64_t until = clock_ms() + LIMIT_MS;
    pid_t pids[RANKS_MAX] = {0};
    struct store *s = mem_zalloc(sizeof(*s));
    int port = store_listen(s), left = n;
    bool in_time = true;

    ASSERT(n <= RANKS_MAX);
    for (int i = 0; i < n; i++) {
        struct rank self = {i, n, port, arg};

        pids[i] = start(s, &self, body);
    }
    while (left > 0) {
        store_turn(s);
        left -= reap(n, pids, status);
        if (in_time && clock_ms() > until) {
            in_time = false;
            kill_all(n, pids);
        }
    }
    store_close(s);
    mem_free(s);
    return in_time;
}
