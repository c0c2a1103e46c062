/* Connections and their deadlines, by a clock that the test sets: the library's own is
 * left out, since its functions are here. */

#include "rendezvous/connection.h"
#include "tests/lib/cmocka.h"

#include "common/clock.h"
#include "common/err.h"
#include "common/mem.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX = 4, STEP_MS = 2000 };

static uint64_t now_ms;

uint64_t clock_ms(void)
{
    return now_ms;
}

uint64_t clock_us(void)
{
    return now_ms * 1000;
}

uint64_t clock_wall_ms(void)
{
    return now_ms;
}

struct rig {
    uv_loop_t loop;
    struct closer closer;
    struct connection_pool pool;
    struct connection *opened; /* the last */
    int listener;
    struct sockaddr_in addr;
    int why; /* the end of the last that is gone */
    int n_gone;
    bool is_closed;
};

static void on_opened(void *arg, struct connection *c)
{
    struct rig *r = arg;

    r->opened = c;
}

static int on_input(void *arg, struct connection *c, const uint8_t *data, size_t size)
{
    (void)arg;
    (void)c;
    (void)data;
    return (int)size;
}

static void on_gone(void *arg, struct connection *c, int why)
{
    struct rig *r = arg;

    (void)c;
    r->why = why;
    r->n_gone++;
}

static int set_up(void **state)
{
    struct rig *r = mem_zalloc(sizeof(*r));
    socklen_t size = sizeof(r->addr);

    now_ms = 1000000;
    assert_int_equal(uv_loop_init(&r->loop), 0);
    closer_init(&r->closer);
    pool_init(&r->pool, &(struct pool_config){.loop = &r->loop,
                                              .closer = &r->closer,
                                              .max_connections = MAX,
                                              .max_buffered = 1 << 20,
                                              .on_opened = on_opened,
                                              .on_input = on_input,
                                              .on_gone = on_gone,
                                              .arg = r});
    r->addr = (struct sockaddr_in){.sin_family = AF_INET};
    r->addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(r->listener >= 0);
    assert_int_equal(bind(r->listener, (struct sockaddr *)&r->addr, size), 0);
    assert_int_equal(listen(r->listener, MAX), 0);
    assert_int_equal(getsockname(r->listener, (struct sockaddr *)&r->addr, &size), 0);
    *state = r;
    return 0;
}

static void on_closed(void *arg)
{
    struct rig *r = arg;

    r->is_closed = true;
}

static int tear_down(void **state)
{
    struct rig *r = *state;

    pool_stop(&r->pool, 1000);
    closer_finish(&r->closer, on_closed, r);
    while (!r->is_closed) {
        (void)uv_run(&r->loop, UV_RUN_ONCE);
    }
    pool_release(&r->pool);
    assert_int_equal(uv_loop_close(&r->loop), 0);
    assert_int_equal(close(r->listener), 0);
    mem_free(r);
    return 0;
}

/* Returns the client's end. */
static int come(struct rig *r, int *ret_rv)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int accepted;

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&r->addr, sizeof(r->addr)), 0);
    accepted = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(accepted >= 0);
    r->opened = NULL;
    *ret_rv = connection_accept(&r->pool, accepted, (struct sockaddr *)&r->addr);
    return fd;
}

static struct connection *admit(struct rig *r, int *ret_fd)
{
    int rv;

    *ret_fd = come(r, &rv);
    assert_int_equal(rv, 0);
    assert_non_null(r->opened);
    return r->opened;
}

/* So much time, and then a look at the deadlines. */
static void pass(struct rig *r, uint64_t ms)
{
    uint64_t before;

    now_ms += ms;
    for (before = r->pool.swept_ms; r->pool.swept_ms == before;) {
        assert_int_not_equal(uv_run(&r->loop, UV_RUN_ONCE), 0);
    }
}

static void deadline_ends_a_connection_and_may_be_moved(void **state)
{
    struct rig *r = *state;
    int first, second;
    struct connection *late = admit(r, &first);

    connection_set_deadline(late, now_ms + 3000);
    connection_set_deadline(admit(r, &second), now_ms + 3000);
    pass(r, STEP_MS);
    connection_set_deadline(late, now_ms + 3000);
    pass(r, STEP_MS);
    assert_int_equal(r->n_gone, 1);
    assert_int_equal(r->why, ERR_TIMEOUT);
    pass(r, STEP_MS);
    assert_int_equal(r->n_gone, 2);
    assert_int_equal(close(first) + close(second), 0);
}

/* SIGSTOP, a machine that was frozen: what has come meanwhile is read first. */
static void sleep_of_our_own_is_held_against_nobody(void **state)
{
    struct rig *r = *state;
    int fd;

    connection_set_deadline(admit(r, &fd), now_ms + 3000);
    pass(r, 60000);
    assert_int_equal(r->n_gone, 0);
    pass(r, STEP_MS);
    assert_int_equal(r->n_gone, 0);
    pass(r, STEP_MS);
    assert_int_equal(r->n_gone, 1);
    assert_int_equal(close(fd), 0);
}

static void oldest_that_has_not_said_who_it_is_makes_room(void **state)
{
    struct rig *r = *state;
    struct connection *c[MAX];
    uint64_t last;
    int fd[2 * MAX];
    int rv;

    for (int i = 0; i < MAX; i++) {
        c[i] = admit(r, &fd[i]);
    }
    connection_know(c[0]);
    connection_know(c[2]);
    assert_int_equal(send(fd[1], "c", 1, MSG_NOSIGNAL), 1); /* begins, no more */
    (void)uv_run(&r->loop, UV_RUN_NOWAIT);
    last = c[3]->id;
    connection_know(admit(r, &fd[4]));
    assert_int_equal(r->n_gone, 1);
    assert_int_equal(r->why, ERR_BUSY);
    assert_non_null(pool_find(&r->pool, last));
    connection_know(admit(r, &fd[5]));
    assert_null(pool_find(&r->pool, last));
    fd[6] = come(r, &rv); /* now all are known */
    assert_int_equal(rv, ERR_BUSY);
    assert_int_equal(r->n_gone, 2);
    for (int i = 0; i <= 6; i++) {
        assert_int_equal(close(fd[i]), 0);
    }
}

static void connection_that_is_known_has_no_deadline(void **state)
{
    struct rig *r = *state;
    int fd, other;
    struct connection *c = admit(r, &fd);

    connection_set_deadline(c, now_ms + 1000);
    connection_set_deadline(admit(r, &other), now_ms + 5000);
    connection_know(c);
    connection_know(c);
    pass(r, STEP_MS);
    assert_int_equal(r->n_gone, 0);
    pass(r, STEP_MS);
    pass(r, STEP_MS);
    assert_int_equal(r->n_gone, 1); /* the other */
    assert_int_equal(close(fd) + close(other), 0);
}

static void hosts_that_vanish_are_noticed(void **state)
{
    struct rig *r = *state;
    int fd, value;
    uv_os_fd_t ours;
    socklen_t size = sizeof(value);
    struct connection *c = admit(r, &fd);

    assert_int_equal(uv_fileno((uv_handle_t *)&c->tcp, &ours), 0);
    assert_int_equal(getsockopt(ours, SOL_SOCKET, SO_KEEPALIVE, &value, &size), 0);
    assert_int_equal(value, 1);
    assert_int_equal(getsockopt(ours, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &size), 0);
    assert_int_equal(value, 120000);
    connection_watch_closely(c, 3000);
    assert_int_equal(getsockopt(ours, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &size), 0);
    assert_int_equal(value, 10000);
    assert_int_equal(getsockopt(ours, IPPROTO_TCP, TCP_KEEPIDLE, &value, &size), 0);
    assert_int_equal(value, 4);
    connection_watch_closely(c, 60000);
    assert_int_equal(getsockopt(ours, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &size), 0);
    assert_int_equal(value, 120000); /* its lease is judged before */
    connection_watch_patiently(c);
    assert_int_equal(getsockopt(ours, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &size), 0);
    assert_int_equal(value, CONNECTION_LINGER_MS);
    assert_int_equal(getsockopt(ours, IPPROTO_TCP, TCP_KEEPIDLE, &value, &size), 0);
    assert_int_equal(value, 60);
    assert_int_equal(close(fd), 0);
}

static void who_may_pause_has_longer_to_read_the_end(void **state)
{
    struct rig *r = *state;
    uint64_t begun_ms = clock_ms();
    int fds[2];
    struct connection *quick = admit(r, &fds[0]);
    struct connection *patient = admit(r, &fds[1]);

    patient->lingers = true;
    connection_drain(quick);
    connection_drain(patient);
    assert_true(quick->deadline_ms < begun_ms + CONNECTION_LINGER_MS / 2);
    assert_true(patient->deadline_ms >= begun_ms + CONNECTION_LINGER_MS);
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(close(fds[1]), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(deadline_ends_a_connection_and_may_be_moved),
        CASE(sleep_of_our_own_is_held_against_nobody),
        CASE(oldest_that_has_not_said_who_it_is_makes_room),
        CASE(connection_that_is_known_has_no_deadline),
        CASE(hosts_that_vanish_are_noticed),
        CASE(who_may_pause_has_longer_to_read_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
