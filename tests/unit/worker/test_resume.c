/* What a start may touch of a run directory. */

#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"
#include "worker/restore.h"
#include "worker/trainer.h"

#include "common/mem.h"
#include "common/str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
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
    int n_late;       /* so many waits time out first */
    const char *path; /* that rank 0 has chosen */
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
    const uint8_t cancelled = 1;
    const uint8_t is_there = 0;
    const struct late_store *s = arg;
    char record[512];
    const int length =
        snprintf(record, sizeof(record), "4 16 1 0x1.f40666p+9 3 1 %s", s->path);
    const uint64_t size = (uint64_t)length; /* little-endian, as this machine */
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

static void late_store_open(struct late_store *s, int n_late, const char *path)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(addr);

    s->n_late = n_late;
    s->path = path;
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&addr, size), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&addr, &size), 0);
    assert_int_equal(listen(s->listener, 1), 0);
    s->port = ntohs(addr.sin_port);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

/* The run has had all its steps. */
static void follow(struct trainer *t, int n_late, const char *path)
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
    late_store_open(&store, n_late, path);
    assert_int_equal(store_client_open("127.0.0.1", store.port, 60000, &t->store, &msg),
                     0);
    store_client_set_timeout(t->store, n_late > 0 ? TIMEOUT_MS : 60000);
    assert_int_equal(trainer_resume(t, &is_finished, &msg), 0);
    assert_true(is_finished);
    assert_int_equal(t->step, STEPS);
    assert_true(t->scaler.scale == 1000.05F && t->meta.scaler.is_there);
    assert_int_equal(t->scaler.growth_tracker, 3);
    assert_int_equal(t->scaler.skipped, 1);
    store_client_close(t->store);
    assert_int_equal(pthread_join(store.thread, NULL), 0);
    assert_int_equal(close(store.listener), 0);
}

static void rank_0_may_load_for_longer_than_the_time_out(void **state)
{
    struct trainer t = {0};

    (void)state;
    follow(&t, LATE, "/anywhere");
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
    struct parallel parallel = {.own = {.size = SIZE}};
    struct trainer t = {.device = &n.device,
                        .comm = &n.comm,
                        .layout = {.size = SIZE},
                        .parallel = &parallel};
    struct adamw_config adamw = {.layout = &t.layout, .device = &n.device};
    struct errmsg msg = {""};

    (void)state;
    parallel.params = mem_array(SIZE, sizeof(float));
    assert_int_equal(adamw_new(&adamw, &t.optimizer, &msg), 0);
    follow(&t, 0, "/anywhere");
    assert_int_equal(n.total, 3 * sizeof(float) * SIZE);
    assert_int_equal(n.pending, 0);
    adamw_free(t.optimizer);
    mem_free(parallel.params);
}

/* --- a rank that holds a part --- */

enum { PARTS = 2, STATES = 3 };

static void no_broadcast(struct comm *c, enum queue q, void *buf, size_t bytes,
                         int root)
{
    (void)c, (void)q, (void)buf, (void)bytes, (void)root;
    fail_msg("nobody has the whole state");
}

static float value_of(size_t k, size_t element)
{
    return (float)(element * STATES + k + 1);
}

/* A checkpoint of one rank that holds everything. */
static void write_whole(const struct layout *l, const char *dir)
{
    struct checkpoint_meta meta = {.run_generation = 1,
                                   .world_size = 1,
                                   .mesh = {1, 1, "ddp"},
                                   .model_json = mem_strdup("{}"),
                                   .config_json = mem_strdup("{}"),
                                   .data_json = mem_strdup("[]")};
    char hash[CHECKPOINT_HASH_HEX];
    struct checkpoint_file file;
    float *state[STATES];
    struct share share;
    struct errmsg msg;

    share_make(l, &(struct holder){.world_size = 1}, &share);
    assert_int_equal(share.spans.range[0].begin, 0);
    for (size_t k = 0; k < STATES; k++) {
        state[k] = mem_array(l->size, sizeof(float));
        for (size_t i = 0; i < l->size; i++) {
            state[k][i] = value_of(k, i);
        }
    }
    share_bind(&share, state);
    assert_int_equal(
        checkpoint_write_shard(dir, 0, share.box, share.n_boxes, &file, &msg), 0);
    assert_int_equal(checkpoint_write_manifest(dir, &meta, &file, 1, hash, &msg), 0);
    share_release(&share);
    checkpoint_meta_release(&meta);
    for (size_t k = 0; k < STATES; k++) {
        mem_free(state[k]);
    }
}

/* Padding may be anything. */
static void assert_tensors(const struct own_block *own)
{
    struct cut *cuts;
    size_t n;

    own_cuts(own, STATES, &cuts, &n);
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) {
        size_t k = i % STATES;
        size_t at = (size_t)(cuts[i].data - own->state[k]);
        int g = 0;

        while (at >= own->map->range[g].at +
                         (own->map->range[g].end - own->map->range[g].begin)) {
            g++;
        }
        at += own->map->range[g].begin - own->map->range[g].at;
        for (size_t e = 0; e < cuts[i].n; e++) {
            assert_true(cuts[i].data[e] == value_of(k, at + e));
        }
    }
    mem_free(cuts);
}

static void a_rank_that_holds_a_part_reads_that_from_the_storage(void **state)
{
    static const struct model_config model = {"gpt2", 2, 3, 48, 16, 101};
    static const struct device_ops device_ops = {.alloc = zero_alloc,
                                                 .free = just_free};
    static const struct comm_ops comm_ops = {.broadcast = no_broadcast};
    struct device device = {.ops = &device_ops};
    struct comm comm = {.ops = &comm_ops, .rank = 1, .world_size = 2};
    struct parallel parallel = {.n_units = 4};
    struct trainer t = {.device = &device,
                        .comm = &comm,
                        .mesh = {.dp_replicate = 1, .dp_shard = PARTS},
                        .parallel = &parallel};
    struct adamw_config adamw = {.layout = &t.layout, .device = &device};
    struct errmsg msg = {""};
    struct unit_groups groups;
    struct shard_map *own = &parallel.own;
    struct scratch scratch;

    (void)state;
    scratch_open(&scratch);
    assert_int_equal(layout_gpt2(&model, &t.layout, &msg), 0);
    unit_groups_each(&groups, &t.layout);
    shard_map_init(own, &t.layout, &groups, PARTS, 1);
    adamw.own = own;
    parallel.params = mem_array(own->size, sizeof(float));
    assert_int_equal(adamw_new(&adamw, &t.optimizer, &msg), 0);
    write_whole(&t.layout, scratch_path(&scratch, "step"));
    follow(&t, 0, scratch_path(&scratch, "step"));
    assert_tensors(
        &(struct own_block){.layout = &t.layout,
                            .map = own,
                            .state = {parallel.params, adamw_exp_avg(t.optimizer),
                                      adamw_exp_avg_sq(t.optimizer)}});
    adamw_free(t.optimizer);
    mem_free(parallel.params);
    shard_map_release(own);
    unit_groups_release(&groups);
    layout_release(&t.layout);
    scratch_close(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_that_lost_the_lock_to_a_foreign_run_touches_nothing),
        cmocka_unit_test(rank_0_may_load_for_longer_than_the_time_out),
        cmocka_unit_test(a_large_state_is_awaited_piece_by_piece),
        cmocka_unit_test(a_rank_that_holds_a_part_reads_that_from_the_storage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
