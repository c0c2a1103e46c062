/* What a start may touch of a run directory. */

#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"
#include "worker/trainer.h"

#include "common/mem.h"
#include "common/str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    STEPS = 4,
    SIZE = (50 << 20) + 3, /* elements: some pieces of the state, and a bit */
    MAX_PIECE = 64 << 20,  /* bytes */
    TIMEOUT_MS = 20,
    LATE = 3,
};

static struct run_dir must_open(const char *dir, const char *job)
{
    struct run_dir_owner owner = {.cluster = 7, .job = job};
    struct errmsg msg;
    struct run_dir r;

    assert_int_equal(run_dir_open(dir, &owner, &r, &msg), 0);
    return r;
}

/* It began beside a fenced rank 0 of its own job, and so without the lock. */
static void a_start_that_lost_the_lock_to_a_foreign_run_touches_nothing(void **state)
{
    static struct train_config config = {.checkpoint.resume = "/nowhere"};
    static const struct launch launch = {.world_size = 1};
    struct trainer t = {.config = &config, .launch = &launch};
    struct errmsg msg = {""};
    struct run_dir fenced;
    struct run_dir foreign;
    struct scratch scratch;
    bool is_finished;
    struct stat st;
    char dir[128];

    (void)state;
    scratch_open(&scratch);
    (void)scratch_text(&scratch, "run/ckpt/step-00000004-g1.tmp/shard", "of another");
    assert_true(str_format(dir, sizeof(dir), "%s", scratch_path(&scratch, "run")));
    assert_true(str_format(config.checkpoint.dir, sizeof(config.checkpoint.dir),
                           "%s/ckpt", dir));
    assert_int_equal(control_client_open(-1, &t.control, &msg), 0);
    fenced = must_open(dir, "ours");
    t.run_dir = must_open(dir, "ours");
    assert_false(t.run_dir.lock.is_held);
    run_dir_close(&fenced);
    foreign = must_open(dir, "foreign");
    assert_true(foreign.lock.is_held);

    assert_int_equal(trainer_resume(&t, &is_finished, &msg), ERR_BUSY);
    assert_non_null(strstr(msg.text, "job foreign"));
    assert_int_equal(
        stat(scratch_path(&scratch, "run/ckpt/step-00000004-g1.tmp/shard"), &st), 0);

    run_dir_close(&foreign);
    run_dir_close(&t.run_dir);
    control_client_close(t.control);
    scratch_close(&scratch);
}

/* --- a rank that follows --- */

/* A store of one client, who asks for rank 0's choice. */
struct late_store {
    int listener;
    int port;
    int n_late; /* so many waits time out first */
    pthread_t thread;
};

static bool take(int fd, uint8_t *bytes, size_t n)
{
    return recv(fd, bytes, n, MSG_WAITALL) == (ssize_t)n;
}

static bool give(int fd, const void *bytes, size_t n)
{
    return send(fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static void *serve(void *arg)
{
    static const char key[] = "/ctrun/resume";
    static const char record[] = "4 16 /anywhere";
    const uint8_t cancelled = 1;
    const uint8_t is_there = 0;
    const uint64_t size = sizeof(record) - 1; /* little-endian, as this machine */
    const struct late_store *s = arg;
    const size_t get = 1 + 8 + sizeof(key) - 1;
    uint8_t bytes[64];
    int fd = accept(s->listener, NULL, NULL);
    bool ok = fd >= 0 && take(fd, bytes, 10) && give(fd, bytes + 6, 4); /* PING */

    for (int i = 0; i < s->n_late && ok; i++) {
        ok = take(fd, bytes, get + 8) && take(fd, bytes, 1) && give(fd, &cancelled, 1);
    }
    (void)(ok && take(fd, bytes, get + 8) && give(fd, &is_there, 1) &&
           take(fd, bytes, get) && give(fd, &size, sizeof(size)) &&
           give(fd, record, size)); /* or the rank has gone, and says why */
    (void)close(fd);
    return NULL;
}

static void late_store_open(struct late_store *s, int n_late)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(addr);

    s->n_late = n_late;
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&addr, size), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&addr, &size), 0);
    assert_int_equal(listen(s->listener, 1), 0);
    s->port = ntohs(addr.sin_port);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

/* The run has had all its steps. */
static void follow(struct trainer *t, int n_late)
{
    static const struct train_config config = {
        .train = {.steps = STEPS, .global_batch = 4, .micro_batch = 1}};
    static const struct launch launch = {.world_size = 2, .rank = 1};
    struct errmsg msg = {""};
    struct late_store store;
    bool is_finished = false;

    t->config = &config;
    t->launch = &launch;
    t->n_leaves = 4;
    late_store_open(&store, n_late);
    assert_int_equal(store_client_open("127.0.0.1", store.port, 60000, &t->store, &msg),
                     0);
    store_client_set_timeout(t->store, n_late > 0 ? TIMEOUT_MS : 60000);
    assert_int_equal(trainer_resume(t, &is_finished, &msg), 0);
    assert_true(is_finished);
    assert_int_equal(t->step, STEPS);
    store_client_close(t->store);
    assert_int_equal(pthread_join(store.thread, NULL), 0);
    assert_int_equal(close(store.listener), 0);
}

static void rank_0_may_load_for_longer_than_the_time_out(void **state)
{
    struct trainer t = {0};

    (void)state;
    follow(&t, LATE);
}

/* A device and a group that note what is broadcast and how much is awaited at once. */
struct noted {
    struct device device;
    struct comm comm;
    const uint8_t *next; /* where an array goes on */
    size_t total;
    size_t pending; /* not awaited yet */
};

static void note_broadcast(struct comm *c, enum queue q, void *buf, size_t bytes,
                           int root)
{
    struct noted *n = CONTAINER_OF(c, struct noted, comm);

    assert_int_equal(q, QUEUE_REDUCE);
    assert_int_equal(root, 0);
    assert_true(n->total % ((size_t)SIZE * sizeof(float)) == 0 || buf == n->next);
    n->next = (uint8_t *)buf + bytes;
    n->total += bytes;
    n->pending += bytes;
}

static struct ticket note_mark(struct device *d, enum queue q)
{
    (void)d;
    return (struct ticket){q, 1};
}

static int note_finish(struct device *d, struct ticket t, int timeout_ms,
                       struct errmsg *msg)
{
    struct noted *n = CONTAINER_OF(d, struct noted, device);

    (void)timeout_ms;
    (void)msg;
    assert_int_equal(t.queue, QUEUE_REDUCE);
    assert_true(n->pending <= MAX_PIECE);
    n->pending = 0;
    return 0;
}

static int zero_alloc(struct device *d, size_t bytes, void **ret)
{
    (void)d;
    *ret = calloc(bytes, 1);
    return *ret ? 0 : -ENOMEM;
}

static void just_free(struct device *d, void *ptr, size_t bytes)
{
    (void)d;
    (void)bytes;
    free(ptr);
}

static void a_large_state_is_awaited_piece_by_piece(void **state)
{
    static const struct device_ops device_ops = {.alloc = zero_alloc,
                                                 .free = just_free,
                                                 .mark = note_mark,
                                                 .finish = note_finish};
    static const struct comm_ops comm_ops = {.broadcast = note_broadcast};
    struct noted n = {.device = {.ops = &device_ops},
                      .comm = {.ops = &comm_ops, .rank = 1, .world_size = 2}};
    struct trainer t = {.device = &n.device, .comm = &n.comm, .layout = {.size = SIZE}};
    struct adamw_config adamw = {.layout = &t.layout, .device = &n.device};
    struct errmsg msg = {""};

    (void)state;
    t.params = mem_array(SIZE, sizeof(float));
    assert_int_equal(adamw_new(&adamw, &t.optimizer, &msg), 0);
    follow(&t, 0);
    assert_int_equal(n.total, 3 * sizeof(float) * SIZE);
    assert_int_equal(n.pending, 0);
    adamw_free(t.optimizer);
    mem_free(t.params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_that_lost_the_lock_to_a_foreign_run_touches_nothing),
        cmocka_unit_test(rank_0_may_load_for_longer_than_the_time_out),
        cmocka_unit_test(a_large_state_is_awaited_piece_by_piece),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
