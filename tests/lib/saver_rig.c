#include "tests/lib/saver_rig.h"

#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"

#include "common/mem.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- the agent --- */

static void decide(struct saver_agent *a, const struct control *asked)
{
    struct control decision = {.type = CONTROL_DECISION,
                               .step = asked->step,
                               .is_commit = true,
                               .accepted = a->answer != SAVER_REFUSE,
                               .text = "a newer generation runs"};
    struct buf packet;

    RANK_CHECK(asked->type == CONTROL_COMMIT && asked->run == SAVER_RIG_RUN);
    RANK_CHECK(strlen(asked->hash) == CHECKPOINT_HASH_HEX - 1);
    atomic_fetch_add(&a->n_commits, 1);
    RANK_CHECK(sem_post(&a->asked) == 0);
    if (a->answer == SAVER_KEEP_WAITING) {
        RANK_CHECK(sem_wait(&a->release) == 0);
    }
    buf_init(&packet, CONTROL_MAX);
    RANK_CHECK(control_encode(&decision, &packet) == 0);
    RANK_CHECK(send(a->fd, buf_bytes(&packet), buf_len(&packet), MSG_NOSIGNAL) ==
               (ssize_t)buf_len(&packet));
    buf_release(&packet);
}

static void *run_agent(void *arg)
{
    uint8_t packet[CONTROL_MAX];
    struct saver_agent *a = arg;
    struct control asked;
    ssize_t n;

    while ((n = recv(a->fd, packet, sizeof(packet), 0)) > 0) {
        RANK_CHECK(control_decode(packet, (size_t)n, &asked) == 0);
        decide(a, &asked);
    }
    return NULL;
}

/* Returns the worker's end of the channel. */
static int agent_start(struct saver_agent *a)
{
    int fds[2];

    RANK_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
    a->fd = fds[0];
    RANK_CHECK(sem_init(&a->asked, 0, 0) == 0 && sem_init(&a->release, 0, 0) == 0);
    RANK_CHECK(pthread_create(&a->thread, NULL, run_agent, a) == 0);
    return fds[1];
}

static void agent_join(struct saver_agent *a)
{
    RANK_CHECK(pthread_join(a->thread, NULL) == 0); /* the channel has ended */
    RANK_CHECK(sem_destroy(&a->asked) == 0 && sem_destroy(&a->release) == 0);
    RANK_CHECK(close(a->fd) == 0);
}

/* --- a rank --- */

void saver_rig_fill(struct saver_rig *r, unsigned salt)
{
    for (size_t k = 0; k < SAVER_RIG_STATES; k++) {
        for (size_t i = 0; i < r->layout.size; i++) {
            r->state[k][i] = (float)((i * 7 + k * 1009 + (size_t)salt * 31) % 65536);
        }
        for (int g = 0; g < r->map.n_ranges; g++) {
            const struct shard_range *range = &r->map.range[g];

            memcpy(r->own.state[k] + range->at, r->state[k] + range->begin,
                   (range->end - range->begin) * sizeof(float));
        }
    }
}

static void open_leader(struct saver_rig *r)
{
    struct run_dir_owner owner = {.cluster = 1, .job = "j"};

    RANK_CHECK(run_dir_open(r->run, &owner, &r->run_dir, &r->msg) == 0);
    RANK_CHECK(run_dir_claim(&r->run_dir, 1, &r->msg) == 0);
    RANK_CHECK(metrics_prepare(r->run, SAVER_RIG_RUN, 0, UINT64_MAX, NULL, &r->msg) ==
               0);
    RANK_CHECK(metrics_take_over(r->run, SAVER_RIG_RUN, &r->metrics, &r->msg) == 0);
}

bool saver_rig_in_place;

static void open_saver(struct saver_rig *r)
{
    struct saver_config config = {.launch = &r->launch,
                                  .layout = &r->layout,
                                  .device = r->device,
                                  .control = r->control,
                                  .run_dir = &r->run_dir,
                                  .dir = r->ckpt,
                                  .retention = {.keep = SAVER_RIG_KEEP},
                                  .timeout_ms = RANK_TIMEOUT_MS,
                                  .metrics = r->metrics,
                                  .holder = r->holder,
                                  .comm = r->comm,
                                  .comm_queue = QUEUE_GATHER,
                                  .in_place = saver_rig_in_place};

    RANK_CHECK(saver_open(&config, &r->saver, &r->msg) == 0);
}

static void open_state(struct saver_rig *r, int n_shards)
{
    int rank = r->launch.rank;

    unit_groups_each(&r->groups, &r->layout);
    r->holder = (struct holder){.rank = rank,
                                .world_size = r->launch.world_size,
                                .n_shards = n_shards,
                                .groups = &r->groups};
    shard_map_init(&r->map, &r->layout, &r->groups, n_shards, rank % n_shards);
    r->own = (struct own_block){.layout = &r->layout, .map = &r->map};
    for (size_t k = 0; k < SAVER_RIG_STATES; k++) {
        r->state[k] = mem_array(r->layout.size, sizeof(float));
        r->own.state[k] = mem_array(r->map.size, sizeof(float));
    }
    saver_rig_fill(r, 0);
}

static void open_comm(struct saver_rig *r)
{
    char group[32];
    int n = r->holder.n_shards;
    struct comm_config config = {.group = group,
                                 .rank = r->launch.rank % n,
                                 .world_size = n,
                                 .store = r->store,
                                 .timeout_ms = RANK_TIMEOUT_MS};

    (void)snprintf(group, sizeof(group), "shards-%d", r->launch.rank / n);
    if (n > 1) {
        RANK_CHECK(comm_open("tcp", &config, r->device, &r->comm, &r->msg) == 0);
    }
}

static void open_all(struct saver_rig *r, const struct rank *self,
                     enum saver_answer answer, const struct model_config *model,
                     int n_shards)
{
    struct device_config device = {.local_world_size = 1, .threads = 1};
    bool leads = self->rank == 0;

    *r = (struct saver_rig){.dir = self->arg,
                            .launch = {.rank = self->rank,
                                       .world_size = self->world_size,
                                       .master_addr = "127.0.0.1",
                                       .master_port = self->store_port},
                            .agent.answer = answer};
    (void)snprintf(r->ckpt, sizeof(r->ckpt), "%s/ckpt", r->dir);
    (void)snprintf(r->run, sizeof(r->run), "%s/run", r->dir);
    if (leads) {
        open_leader(r);
    }
    RANK_CHECK(layout_gpt2(model, &r->layout, &r->msg) == 0);
    RANK_CHECK(device_open("cpu", &device, &r->device, &r->msg) == 0);
    RANK_CHECK(store_client_open("127.0.0.1", self->store_port, RANK_TIMEOUT_MS,
                                 &r->store, &r->msg) == 0);
    RANK_CHECK(control_client_open(leads ? agent_start(&r->agent) : -1, &r->control,
                                   &r->msg) == 0);
    open_state(r, n_shards);
    open_comm(r);
    open_saver(r);
}

void saver_rig_open(struct saver_rig *r, const struct rank *self,
                    enum saver_answer answer)
{
    static const struct model_config model = {"gpt2", 1, 1, 7, 5, 11};

    open_all(r, self, answer, &model, 1);
}

void saver_rig_open_sharded(struct saver_rig *r, const struct rank *self,
                            enum saver_answer answer, int n_shards)
{
    static const struct model_config model = {"gpt2", 2, 3, 48, 16, 101};

    open_all(r, self, answer, &model, n_shards);
}

void saver_rig_open_model(struct saver_rig *r, const struct rank *self,
                          const struct model_config *model, int n_shards)
{
    open_all(r, self, SAVER_ACCEPT, model, n_shards);
}

void saver_rig_close(struct saver_rig *r)
{
    saver_close(r->saver);
    control_client_close(r->control);
    if (r->launch.rank == 0) {
        agent_join(&r->agent);
    }
    comm_close(r->comm);
    store_client_close(r->store);
    device_close(r->device);
    shard_map_release(&r->map);
    unit_groups_release(&r->groups);
    layout_release(&r->layout);
    metrics_close(r->metrics);
    run_dir_close(&r->run_dir);
    for (size_t k = 0; k < SAVER_RIG_STATES; k++) {
        mem_free(r->state[k]);
        mem_free(r->own.state[k]);
    }
}

int saver_rig_begin(struct saver_rig *r, uint64_t step)
{
    char model[] = "{\"family\": \"gpt2\"}";
    char config[] = "{}";
    char data[] = "[]";
    int n_shards = r->holder.n_shards;
    const struct checkpoint_meta meta = {
        .step = step,
        .run_generation = SAVER_RIG_RUN,
        .position = step * 8,
        .seed = 42,
        .world_size = r->launch.world_size,
        .mesh = {r->launch.world_size / n_shards, n_shards, "rig"},
        .signature = "scalar",
        .model_json = model,
        .config_json = config,
        .data_json = data};
    const float *const state[] = {r->own.state[0], r->own.state[1], r->own.state[2]};
    int rv = saver_begin(r->saver, state, &meta, &r->msg);

    memset(model, 'x', sizeof(model) - 1); /* the texts were copied */
    return rv;
}

int saver_rig_save(struct saver_rig *r, uint64_t step)
{
    RANK_CHECK(saver_rig_begin(r, step) == 0);
    return saver_wait(r->saver, &r->msg);
}

bool saver_rig_has(const struct saver_rig *r, uint64_t step, bool tmp)
{
    char path[CHECKPOINT_PATH_MAX];
    struct stat st;

    checkpoint_path(path, sizeof(path), r->ckpt, step, SAVER_RIG_RUN, tmp);
    return stat(path, &st) == 0;
}

void saver_rig_check(struct saver_rig *r, uint64_t step)
{
    char path[CHECKPOINT_PATH_MAX];
    struct checkpoint_meta meta = {0};
    float *loaded[SAVER_RIG_STATES];
    struct own_block there = {.layout = &r->layout};
    struct cut *cuts;
    size_t n;

    checkpoint_path(path, sizeof(path), r->ckpt, step, SAVER_RIG_RUN, false);
    RANK_CHECK(checkpoint_verify(path, &meta, &r->msg) == 0);
    RANK_CHECK(meta.step == step && meta.position == step * 8 && meta.seed == 42);
    RANK_CHECK(meta.world_size == r->launch.world_size);
    RANK_CHECK(meta.mesh.dp_shard == r->holder.n_shards);
    RANK_CHECK(strstr(meta.model_json, "gpt2"));
    checkpoint_meta_release(&meta);
    for (size_t k = 0; k < SAVER_RIG_STATES; k++) {
        loaded[k] = mem_array(r->layout.size, sizeof(float));
        there.state[k] = loaded[k];
    }
    RANK_CHECK(restore_own_block(path, &there, SAVER_RIG_STATES, &r->msg) == 0);
    own_cuts(&there, SAVER_RIG_STATES, &cuts, &n);
    for (size_t i = 0; i < n; i++) {
        size_t k = i % SAVER_RIG_STATES;
        const float *here = r->state[k] + (cuts[i].data - loaded[k]);

        RANK_CHECK(memcmp(cuts[i].data, here, cuts[i].n * sizeof(float)) == 0);
    }
    mem_free(cuts);
    for (size_t k = 0; k < SAVER_RIG_STATES; k++) {
        mem_free(loaded[k]);
    }
}

/* ---- many ranks ---- */

struct saver_shape saver_rig_shape = {1, 1};

void saver_rig_run_in(const char *dir, const struct saver_shape *how, rank_body body)
{
    int n = how->n_shards * how->n_replicas;
    int status[RANKS_MAX];

    saver_rig_shape = *how;
    assert_true(ranks_run(n, body, dir, status));
    for (int rank = 0; rank < n; rank++) {
        assert_int_equal(status[rank], 0);
    }
}

void saver_rig_run(int n_shards, int n_replicas, rank_body body)
{
    struct scratch scratch;

    scratch_open(&scratch);
    saver_rig_run_in(scratch.dir, &(struct saver_shape){n_shards, n_replicas}, body);
    scratch_close(&scratch);
}

void saver_rig_run_on_all_shapes(rank_body body)
{
    static const struct saver_shape shapes[] = {{1, 1}, {1, 2}, {1, 3},
                                                {2, 1}, {3, 1}, {2, 2}};

    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        saver_rig_run(shapes[i].n_shards, shapes[i].n_replicas, body);
    }
}

void saver_rig_run_in_place(int n_shards, int n_replicas, rank_body body)
{
    saver_rig_in_place = true;
    saver_rig_run(n_shards, n_replicas, body);
    saver_rig_in_place = false;
}

void saver_rig_open_shaped(struct saver_rig *r, const struct rank *self,
                           enum saver_answer answer)
{
    if (saver_rig_shape.n_shards > 1) {
        saver_rig_open_sharded(r, self, answer, saver_rig_shape.n_shards);
    } else {
        saver_rig_open(r, self, answer);
    }
}

bool saver_rig_leads(const struct saver_rig *r)
{
    return r->launch.rank == 0;
}

void saver_rig_say(struct saver_rig *r, const char *key)
{
    RANK_CHECK(store_client_set(r->store, key, "x", 1, &r->msg) == 0);
}

void saver_rig_hear(struct saver_rig *r, const char *key)
{
    size_t size;
    char byte;

    RANK_CHECK(store_client_get(r->store, key, &byte, 1, &size, &r->msg) == 0);
}

void saver_rig_meet(struct saver_rig *r, unsigned where)
{
    char key[32];

    (void)snprintf(key, sizeof(key), "here/%u/%d", where, r->launch.rank);
    saver_rig_say(r, key);
    for (int rank = 0; rank < r->launch.world_size; rank++) {
        (void)snprintf(key, sizeof(key), "here/%u/%d", where, rank);
        saver_rig_hear(r, key);
    }
}
