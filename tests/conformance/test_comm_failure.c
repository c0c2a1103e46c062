/* What happens to a comm whose peers die, fall silent, never come, or are strangers. */

#include "tests/lib/cmocka.h"
#include "tests/lib/rank_ends.h"
#include "worker/comm/host.h"
#include "worker/comm/tcp.h"

#include "common/clock.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct rank_setup setups[] = {
    {"shm", RANKS_MAX}, {"tcp", RANKS_MAX}, {"auto", RANKS_MAX},
    {"auto", 2},        {"auto", 1},
};

static void expect_well(int n, rank_body body, const void *arg)
{
    int status[RANKS_MAX];

    assert_true(ranks_run(n, body, arg, status));
    for (int r = 0; r < n; r++) {
        assert_int_equal(status[r], 0);
    }
}

/* ---- failures -------------------------------------------------------------------- */

/* Rank 1 is killed while the others wait for it in the middle of an operation. */
static int killed_or_told(const struct rank *self)
{
    static float buf[1000000];
    struct errmsg msg = {""};
    struct rank_ends e;

    rank_ends_open(&e, self, self->arg);
    if (self->rank == 1) {
        comm_all_reduce(e.comm, QUEUE_REDUCE, buf, 1000);
        rank_ends_finish_well(&e);
        RANK_CHECK(kill(getpid(), SIGKILL) == 0);
    }
    comm_all_reduce(e.comm, QUEUE_REDUCE, buf, 1000);
    comm_all_reduce(e.comm, QUEUE_REDUCE, buf, ARRAY_LEN(buf));
    comm_barrier(e.comm, QUEUE_REDUCE); /* skipped or refused: the group is broken */
    RANK_CHECK(rank_ends_finish(&e, &msg) == ERR_PEER_LOST);
    RANK_CHECK(strstr(msg.text, "lost rank 1") && strstr(msg.text, "all_reduce"));
    RANK_CHECK(comm_poll(e.comm, &msg) == ERR_PEER_LOST);
    /* nobody leaves before all have been told by the dead process itself */
    RANK_CHECK(store_client_set(e.store, self->rank == 0 ? "told0" : "told2", "", 0,
                                &msg) == 0);
    RANK_CHECK(store_client_get(e.store, self->rank == 0 ? "told2" : "told0", NULL, 0,
                                &(size_t){0}, &msg) == 0);
    rank_ends_close(&e);
    return 0;
}

static void killed_peer_is_named_by_all_others(void **state)
{
    int status[RANKS_MAX];

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(setups); k++) {
        assert_true(ranks_run(3, killed_or_told, &setups[k], status));
        assert_int_equal(status[0], 0);
        assert_int_equal(status[1], 128 + SIGKILL);
        assert_int_equal(status[2], 0);
    }
}

static void *abort_soon(void *arg)
{
    comm_abort(arg);
    return NULL;
}

/* Rank 0 waits for rank 1, which does not come; a thread aborts; rank 1 hears of it. */
static int aborted(const struct rank *self)
{
    static float buf[100000];
    struct errmsg msg = {""};
    pthread_t thread;
    struct rank_ends e;

    rank_ends_open(&e, self, self->arg);
    if (self->rank == 0) {
        comm_all_reduce(e.comm, QUEUE_REDUCE, buf, ARRAY_LEN(buf));
        RANK_CHECK(pthread_create(&thread, NULL, abort_soon, e.comm) == 0);
        RANK_CHECK(rank_ends_finish(&e, &msg) == ERR_ABORTED);
        RANK_CHECK(pthread_join(thread, NULL) == 0);
        RANK_CHECK(comm_poll(e.comm, &msg) == ERR_ABORTED);
        comm_barrier(e.comm, QUEUE_COMPUTE);
        RANK_CHECK(device_finish(e.device, device_mark(e.device, QUEUE_COMPUTE), 1000,
                                 &msg) == ERR_ABORTED);
        RANK_CHECK(store_client_set(e.store, "aborted", "", 0, &msg) == 0);
    } else {
        RANK_CHECK(store_client_get(e.store, "aborted", NULL, 0, &(size_t){0}, &msg) ==
                   0);
        comm_broadcast(e.comm, QUEUE_REDUCE, buf, sizeof(buf), 0);
        RANK_CHECK(rank_ends_finish(&e, &msg) == ERR_PEER_LOST);
        RANK_CHECK(strstr(msg.text, "lost rank 0"));
    }
    rank_ends_close(&e);
    return 0;
}

static void abort_from_another_thread_ends_a_wait(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(setups); k++) {
        expect_well(2, aborted, &setups[k]);
    }
}

/* Rank 1 lives but does not take part. */
static int timed_out(const struct rank *self)
{
    struct errmsg msg = {""};
    struct rank_ends e;
    float x = 1;

    rank_ends_open(&e, self, self->arg);
    if (self->rank == 0) {
        /* opening had all the time it wanted; only this operation has not */
        CONTAINER_OF(e.comm, struct host_comm, base)->timeout_ms = 300;
        comm_all_reduce(e.comm, QUEUE_REDUCE, &x, 1);
        RANK_CHECK(rank_ends_finish(&e, &msg) == ERR_TIMEOUT);
        RANK_CHECK(strstr(msg.text, "rank 1 did not answer within 300 ms"));
        RANK_CHECK(strstr(msg.text, "all_reduce of group test"));
        RANK_CHECK(store_client_set(e.store, "late", "", 0, &msg) == 0);
    } else {
        RANK_CHECK(store_client_get(e.store, "late", NULL, 0, &(size_t){0}, &msg) == 0);
    }
    rank_ends_close(&e);
    return 0;
}

static void silent_peer_is_a_time_out_that_names_rank_and_operation(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(setups); k++) {
        expect_well(2, timed_out, &setups[k]);
    }
}

/* Rank 1 comes when the others have said that they wait for it. */
static int waits(const struct rank *self)
{
    static float buf[100000];
    static _Atomic uint32_t waiting;
    struct errmsg msg = {""};
    struct host_comm *c;
    struct rank_ends e;

    rank_ends_open(&e, self, self->arg);
    c = CONTAINER_OF(e.comm, struct host_comm, base);
    c->waiting = &waiting;
    c->first_rank = 10; /* as if the group were ranks 10, 13 and 16 */
    c->stride = 3;
    if (self->rank == 1) {
        RANK_CHECK(store_client_get(e.store, "seen0", NULL, 0, &(size_t){0}, &msg) ==
                   0);
        RANK_CHECK(store_client_get(e.store, "seen2", NULL, 0, &(size_t){0}, &msg) ==
                   0);
    }
    comm_all_reduce(e.comm, QUEUE_REDUCE, buf, ARRAY_LEN(buf));
    if (self->rank != 1) {
        while (atomic_load(&waiting) != 1 + 13) { /* for each other first, maybe */
        }
        RANK_CHECK(store_client_set(e.store, self->rank == 0 ? "seen0" : "seen2", "", 0,
                                    &msg) == 0);
    }
    rank_ends_finish_well(&e);
    RANK_CHECK(atomic_load(&waiting) == 0);
    rank_ends_close(&e);
    return 0;
}

static void who_waits_says_for_whom(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(setups); k++) {
        expect_well(3, waits, &setups[k]);
    }
}

/* ---- opening --------------------------------------------------------------------- */

static int open_alone(const struct rank *self)
{
    struct store_client *store;
    struct errmsg msg = {""};
    struct comm *c;
    struct comm_config config = {.group = "alone",
                                 .rank = self->rank,
                                 .world_size = 2,
                                 .node = self->rank,
                                 .timeout_ms = RANK_TIMEOUT_MS};

    RANK_CHECK(store_client_open("127.0.0.1", self->store_port, RANK_TIMEOUT_MS, &store,
                                 &msg) == 0);
    store_client_set_timeout(store, 1000); /* it is there that the rank is awaited */
    config.store = store;
    RANK_CHECK(comm_open("auto", &config, NULL, &c, &msg) == ERR_TIMEOUT);
    RANK_CHECK(strstr(msg.text, "waits for rank 1"));
    RANK_CHECK(comm_open("carrier-pigeon", &config, NULL, &c, &msg) == ERR_UNSUPPORTED);
    RANK_CHECK(comm_open("nccl", &config, NULL, &c, &msg) == ERR_UNSUPPORTED);
    store_client_close(store);
    return 0;
}

static void rank_that_never_opens_is_named(void **state)
{
    (void)state;
    expect_well(1, open_alone, NULL);
}

static int open_across(const struct rank *self)
{
    struct store_client *store;
    struct errmsg msg = {""};
    struct comm *c;
    struct comm_config config = {.group = "across",
                                 .rank = self->rank,
                                 .world_size = self->world_size,
                                 .node = self->rank,
                                 .timeout_ms = RANK_TIMEOUT_MS};

    RANK_CHECK(store_client_open("127.0.0.1", self->store_port, RANK_TIMEOUT_MS, &store,
                                 &msg) == 0);
    config.store = store;
    RANK_CHECK(comm_open("shm", &config, NULL, &c, &msg) == ERR_UNSUPPORTED);
    RANK_CHECK(strstr(msg.text, "use auto or tcp"));
    store_client_close(store);
    return 0;
}

static void shm_across_agents_is_refused(void **state)
{
    (void)state;
    expect_well(2, open_across, NULL);
}

/* ---- the listener ---------------------------------------------------------------- */

enum { HELLO_SIZE = 96 }; /* drawn in worker/comm/tcp.h */

struct listening {
    struct tcp_peer peer[2];
    struct tcp_mesh mesh;
    int rv;
    struct errmsg msg;
};

static void *listen_for_one(void *arg)
{
    struct listening *l = arg;

    l->rv = tcp_mesh_connect(&l->mesh, clock_ms() + RANK_TIMEOUT_MS, &l->msg);
    return NULL;
}

static int call(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* Sends `size` bytes and expects to be hung up on without a word. */
static void expect_turned_away(uint16_t port, const void *data, size_t size)
{
    struct pollfd p = {call(port), POLLIN, 0};
    char byte_read;

    assert_int_equal(send(p.fd, data, size, MSG_NOSIGNAL), size);
    assert_int_equal(poll(&p, 1, RANK_TIMEOUT_MS), 1);
    assert_true(recv(p.fd, &byte_read, 1, 0) <= 0);
    close(p.fd);
}

static void strangers_at_the_listener_are_turned_away(void **state)
{
    char http[HELLO_SIZE] = "GET / HTTP/1.1", forged[HELLO_SIZE] = "ctcomm01test";
    struct listening l = {.mesh = {.group = "test", .rank = 0, .world_size = 2}};
    struct tcp_peer peers[2] = {{.is_wanted = true}, {.fd = -1}};
    struct tcp_mesh member = {
        .group = "test", .rank = 1, .world_size = 2, .listener = -1};
    struct errmsg msg = {""};
    int silent[40];
    uint16_t port;
    pthread_t thread;

    (void)state;
    forged[HELLO_SIZE - 8] = 1; /* from rank 1 to rank 0; only the token is wrong */
    memcpy(l.mesh.token, "0123456789abcdef", sizeof(l.mesh.token));
    l.mesh.peer = l.peer;
    l.peer[1].is_wanted = true;
    assert_int_equal(tcp_listen("127.0.0.1", &l.mesh.listener, &port, &msg), 0);
    assert_int_equal(pthread_create(&thread, NULL, listen_for_one, &l), 0);
    expect_turned_away(port, http, sizeof(http));
    expect_turned_away(port, forged, sizeof(forged));
    for (size_t i = 0; i < ARRAY_LEN(silent); i++) {
        silent[i] = call(port); /* more than it holds */
    }
    member.peer = peers;
    peers[0].port = port;
    strcpy(peers[0].address, "127.0.0.1"); /* NOLINT(clang-analyzer-security*): fits */
    memcpy(peers[0].token, l.mesh.token, sizeof(l.mesh.token));
    assert_int_equal(tcp_mesh_connect(&member, clock_ms() + RANK_TIMEOUT_MS, &msg), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(l.rv, 0);
    assert_int_equal(send(peers[0].fd, "x", 1, 0), 1);
    assert_int_equal(recv(l.peer[1].fd, http, 1, 0), 1);
    for (size_t i = 0; i < ARRAY_LEN(silent); i++) {
        close(silent[i]);
    }
    close(peers[0].fd);
    close(l.peer[1].fd);
    close(l.mesh.listener);
}

static void dead_listener_is_a_lost_peer(void **state)
{
    struct tcp_peer peers[2] = {{.is_wanted = true, .address = "127.0.0.1"},
                                {.fd = -1}};
    struct tcp_mesh m = {.group = "test", .rank = 1, .world_size = 2, .listener = -1};
    struct errmsg msg = {""};
    int listener;

    (void)state;
    m.peer = peers;
    assert_int_equal(tcp_listen("127.0.0.1", &listener, &peers[0].port, &msg), 0);
    close(listener);
    assert_int_equal(tcp_mesh_connect(&m, clock_ms() + RANK_TIMEOUT_MS, &msg),
                     ERR_PEER_LOST);
    assert_non_null(strstr(msg.text, "rank 0 at 127.0.0.1"));
}

static int entries(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;

    if (!dir) {
        return 0;
    }
    while (readdir(dir)) { /* NOLINT(concurrency-mt-unsafe): one thread */
        n++;
    }
    closedir(dir);
    return n;
}

static void nothing_is_left_in_dev_shm(void **state)
{
    int before = entries("/dev/shm"), status[RANKS_MAX];

    (void)state;
    assert_true(ranks_run(3, killed_or_told, &setups[0], status));
    assert_int_equal(entries("/dev/shm"), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_peer_is_named_by_all_others),
        cmocka_unit_test(abort_from_another_thread_ends_a_wait),
        cmocka_unit_test(silent_peer_is_a_time_out_that_names_rank_and_operation),
        cmocka_unit_test(who_waits_says_for_whom),
        cmocka_unit_test(rank_that_never_opens_is_named),
        cmocka_unit_test(shm_across_agents_is_refused),
        cmocka_unit_test(strangers_at_the_listener_are_turned_away),
        cmocka_unit_test(dead_listener_is_a_lost_peer),
        cmocka_unit_test(nothing_is_left_in_dev_shm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
