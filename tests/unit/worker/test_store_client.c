/* The store client against a scripted server (its bytes are those of PyTorch's clients,
 * recorded in the wire's description), and against the store of tests/lib/ranks. */

#include "tests/lib/cmocka.h"
#include "tests/lib/ranks.h"
#include "worker/store_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TIMEOUT_MS = 20000, SHORT_MS = 200, GENEROUS_MS = 1000 };

/* ---- a scripted server ----------------------------------------------------------- */

struct line {
    const char *expect; /* these bytes */
    size_t n_expect;
    const char *reply;
    size_t n_reply;
};

struct script {
    const struct line *line;
    size_t n_lines;
    int listener;
    bool is_right; /* everything arrived as expected */
    sem_t closed;  /* at each CLOSES */
};

#define CLOSES           \
    {                    \
        NULL, 0, NULL, 0 \
    }

#define EXPECT(e, r)                           \
    {                                          \
        (e), sizeof(e) - 1, (r), sizeof(r) - 1 \
    }

static bool expect(int fd, const char *bytes, size_t n)
{
    char got[256];
    size_t have = 0;
    ssize_t rv;

    while (have < n) {
        rv = recv(fd, got + have, n - have, 0);
        if (rv <= 0) {
            return false;
        }
        have += (size_t)rv;
    }
    return memcmp(got, bytes, n) == 0;
}

/* PING's nonce is the client's: it is echoed, well or badly. */
static bool greet(int fd, bool badly)
{
    uint8_t nonce[4];

    if (!expect(fd, "\x00\xce\xf7\x85\x3c\x0d", 6) ||
        recv(fd, nonce, sizeof(nonce), MSG_WAITALL) != (ssize_t)sizeof(nonce)) {
        return false;
    }
    nonce[0] ^= badly;
    return send(fd, nonce, sizeof(nonce), MSG_NOSIGNAL) == (ssize_t)sizeof(nonce);
}

static void *serve_script(void *arg)
{
    struct script *s = arg;
    int fd = accept(s->listener, NULL, NULL);

    s->is_right = fd >= 0 && greet(fd, s->n_lines == 0);
    for (size_t i = 0; i < s->n_lines && s->is_right; i++) {
        const struct line *l = &s->line[i];

        if (!l->expect) {
            close(fd);
            (void)sem_post(&s->closed);
            fd = accept(s->listener, NULL, NULL);
            s->is_right = fd >= 0 && greet(fd, false);
            continue;
        }
        s->is_right =
            expect(fd, l->expect, l->n_expect) &&
            send(fd, l->reply, l->n_reply, MSG_NOSIGNAL) == (ssize_t)l->n_reply;
    }
    close(fd);
    return NULL;
}

static int bound_socket(int *ret_port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &size), 0);
    *ret_port = ntohs(addr.sin_port);
    return fd;
}

static pthread_t start_script(struct script *s, int *ret_port)
{
    pthread_t thread;

    s->listener = bound_socket(ret_port);
    assert_int_equal(listen(s->listener, 1), 0);
    assert_int_equal(pthread_create(&thread, NULL, serve_script, s), 0);
    return thread;
}

static void end_script(struct script *s, pthread_t thread)
{
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(s->listener);
}

#define KEY "\x08\0\0\0\0\0\0\0/ctrun/k"

static void requests_are_those_of_the_modern_protocol(void **state)
{
    static const struct line lines[] = {
        EXPECT("\x01" KEY "\x01\0\0\0\0\0\0\0v", ""),
        EXPECT("\x04" KEY "\xff\xff\xff\xff\xff\xff\xff\xff", "\x05\0\0\0\0\0\0\0"),
        EXPECT("\x06\x01\0\0\0\0\0\0\0" KEY, "\0"),
        EXPECT("\x03" KEY, "\x02\0\0\0\0\0\0\0hi"),
    };
    struct script s = {.line = lines, .n_lines = ARRAY_LEN(lines)};
    struct errmsg msg = {""};
    struct store_client *c;
    char value[8];
    int64_t sum;
    size_t size;
    int port;
    pthread_t thread = start_script(&s, &port);

    (void)state;
    assert_int_equal(store_client_open("127.0.0.1", port, TIMEOUT_MS, &c, &msg), 0);
    assert_int_equal(store_client_set(c, "k", "v", 1, &msg), 0);
    assert_int_equal(store_client_add(c, "k", -1, &sum, &msg), 0);
    assert_int_equal(sum, 5);
    assert_int_equal(store_client_get(c, "k", value, sizeof(value), &size, &msg), 0);
    assert_int_equal(size, 2);
    assert_memory_equal(value, "hi", 2);
    end_script(&s, thread);
    assert_true(s.is_right);

    /* the script is at its end: the server has closed */
    assert_int_equal(store_client_get(c, "k", value, sizeof(value), &size, &msg),
                     ERR_CLOSED);
    assert_int_equal(store_client_add(c, "k", 1, &sum, &msg), ERR_CLOSED);
    assert_non_null(strstr(msg.text, "broke, and there is no new one"));
    store_client_close(c);
}

/* A store that keeps no key closes, then keeps one. */
static void the_call_after_a_broken_one_opens_a_new_connection(void **state)
{
    static const struct line lines[] = {
        EXPECT("\x01" KEY "\x01\0\0\0\0\0\0\0v", ""),
        CLOSES,
        EXPECT("\x04" KEY "\x01\0\0\0\0\0\0\0", ""),
        CLOSES,
        EXPECT("\x04" KEY "\x02\0\0\0\0\0\0\0", "\x07\0\0\0\0\0\0\0"),
    };
    struct script s = {.line = lines, .n_lines = ARRAY_LEN(lines)};
    struct errmsg msg = {""};
    struct store_client *c;
    int64_t sum = 0;
    int port;
    pthread_t thread;

    (void)state;
    assert_int_equal(sem_init(&s.closed, 0, 0), 0);
    thread = start_script(&s, &port);
    assert_int_equal(store_client_open("127.0.0.1", port, TIMEOUT_MS, &c, &msg), 0);
    assert_int_equal(store_client_set(c, "k", "v", 1, &msg), 0);
    assert_int_equal(sem_wait(&s.closed), 0);
    assert_int_equal(store_client_add(c, "k", 1, &sum, &msg), ERR_CLOSED);
    assert_non_null(strstr(msg.text, "\"k\": the store closed the connection"));
    assert_int_equal(store_client_add(c, "k", 2, &sum, &msg), 0);
    assert_int_equal(sum, 7);
    end_script(&s, thread);
    assert_true(s.is_right);
    store_client_close(c);
}

static void late_wake_up_after_cancelling_counts_as_success(void **state)
{
    static const struct line lines[] = {
        EXPECT("\x06\x01\0\0\0\0\0\0\0" KEY, ""),
        EXPECT("\x0c", "\0\1"), /* the key came just then; the cancellation */
        EXPECT("\x03" KEY, "\0\0\0\0\0\0\0\0"),
    };
    struct script s = {.line = lines, .n_lines = ARRAY_LEN(lines)};
    struct errmsg msg = {""};
    struct store_client *c;
    size_t size = 9;
    int port;
    pthread_t thread = start_script(&s, &port);

    (void)state;
    assert_int_equal(store_client_open("127.0.0.1", port, TIMEOUT_MS, &c, &msg), 0);
    store_client_set_timeout(c, GENEROUS_MS); /* the answer to GET must be in time */
    assert_int_equal(store_client_get(c, "k", NULL, 0, &size, &msg), 0);
    assert_int_equal(size, 0);
    end_script(&s, thread);
    assert_true(s.is_right);
    store_client_close(c);
}

static void wrong_echo_is_not_a_store(void **state)
{
    struct script s = {.line = NULL};
    struct store_client *c = NULL;
    struct errmsg msg = {""};
    int port;
    pthread_t thread = start_script(&s, &port);

    (void)state;
    assert_int_equal(store_client_open("127.0.0.1", port, TIMEOUT_MS, &c, &msg),
                     ERR_PROTOCOL);
    assert_null(c);
    end_script(&s, thread);
}

static void nobody_at_the_port_is_an_error_after_the_time_out(void **state)
{
    struct store_client *c = NULL;
    struct errmsg msg = {""};
    int port, fd = bound_socket(&port); /* bound, but nobody listens */

    (void)state;
    assert_int_equal(store_client_open("127.0.0.1", port, SHORT_MS, &c, &msg),
                     -ECONNREFUSED);
    assert_non_null(strstr(msg.text, "store at 127.0.0.1 port"));
    close(fd);
}

/* ---- a store --------------------------------------------------------------------- */

static int meet_through_keys(const struct rank *self)
{
    struct errmsg msg = {""};
    struct store_client *s;
    char value[32] = "", mine[32], key[32];
    size_t size;
    int64_t n;

    RANK_CHECK(store_client_open("localhost", self->store_port, TIMEOUT_MS, &s, &msg) ==
               0);
    (void)snprintf(key, sizeof(key), "key%d", self->rank);
    (void)snprintf(mine, sizeof(mine), "value%d", self->rank);
    RANK_CHECK(store_client_set(s, key, mine, strlen(mine) + 1, &msg) == 0);
    for (int r = 0; r < self->world_size; r++) {
        (void)snprintf(key, sizeof(key), "key%d", r);
        (void)snprintf(mine, sizeof(mine), "value%d", r);
        RANK_CHECK(store_client_get(s, key, value, sizeof(value), &size, &msg) == 0);
        RANK_CHECK(size == strlen(mine) + 1 && strcmp(value, mine) == 0);
    }
    RANK_CHECK(store_client_add(s, "count", 1, &n, &msg) == 0);
    RANK_CHECK(n >= 1 && n <= self->world_size);
    store_client_close(s);
    return 0;
}

static void ranks_find_each_others_keys(void **state)
{
    int status[RANKS_MAX];

    (void)state;
    assert_true(ranks_run(4, meet_through_keys, NULL, status));
    for (int r = 0; r < 4; r++) {
        assert_int_equal(status[r], 0);
    }
}

static int survive_misfortune(const struct rank *self)
{
    struct errmsg msg = {""};
    struct store_client *s;
    char value[4];
    size_t size;

    RANK_CHECK(store_client_open("127.0.0.1", self->store_port, TIMEOUT_MS, &s, &msg) ==
               0);
    store_client_set_timeout(s, SHORT_MS);
    RANK_CHECK(store_client_get(s, "never", value, sizeof(value), &size, &msg) ==
               ERR_TIMEOUT);
    store_client_set_timeout(s, TIMEOUT_MS);
    RANK_CHECK(strstr(msg.text, "\"never\" did not appear within 200 ms"));
    RANK_CHECK(store_client_set(s, "long", "12345", 5, &msg) == 0);
    RANK_CHECK(store_client_get(s, "long", value, sizeof(value), &size, &msg) ==
               ERR_TOO_LARGE);
    RANK_CHECK(store_client_set(s, "short", "1234", 4, &msg) == 0);
    RANK_CHECK(store_client_get(s, "short", value, sizeof(value), &size, &msg) == 0);
    RANK_CHECK(size == 4 && memcmp(value, "1234", 4) == 0);
    store_client_close(s);
    return 0;
}

static void connection_stays_usable_after_time_out_and_large_value(void **state)
{
    int status[RANKS_MAX];

    (void)state;
    assert_true(ranks_run(1, survive_misfortune, NULL, status));
    assert_int_equal(status[0], 0);
}

static void *abort_client(void *arg)
{
    store_client_abort(arg);
    return NULL;
}

static int wait_and_be_aborted(const struct rank *self)
{
    struct errmsg msg = {""};
    struct store_client *s;
    pthread_t thread;
    size_t size;

    RANK_CHECK(store_client_open("127.0.0.1", self->store_port, TIMEOUT_MS, &s, &msg) ==
               0);
    RANK_CHECK(pthread_create(&thread, NULL, abort_client, s) == 0);
    RANK_CHECK(store_client_get(s, "never", NULL, 0, &size, &msg) == ERR_ABORTED);
    RANK_CHECK(pthread_join(thread, NULL) == 0);
    store_client_close(s);
    return 0;
}

static void abort_from_another_thread_ends_a_wait(void **state)
{
    int status[RANKS_MAX];

    (void)state;
    assert_true(ranks_run(1, wait_and_be_aborted, NULL, status));
    assert_int_equal(status[0], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_those_of_the_modern_protocol),
        cmocka_unit_test(the_call_after_a_broken_one_opens_a_new_connection),
        cmocka_unit_test(late_wake_up_after_cancelling_counts_as_success),
        cmocka_unit_test(wrong_echo_is_not_a_store),
        cmocka_unit_test(nobody_at_the_port_is_an_error_after_the_time_out),
        cmocka_unit_test(ranks_find_each_others_keys),
        cmocka_unit_test(connection_stays_usable_after_time_out_and_large_value),
        cmocka_unit_test(abort_from_another_thread_ends_a_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
