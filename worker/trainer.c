#include "worker/trainer.h"

#include "worker/agreement.h"
#include "worker/device/peak.h"
#include "worker/evaluate.h"
#include "worker/given.h"
#include "worker/replicas.h"
#include "worker/scaling.h"

#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A path of the configuration that does not do. In the midst of the training somebody
 * took it away: then a restart finds out. */
static bool is_path_mistake(int err)
{
    switch (err) {
    case ERR_TOO_LARGE:
    case ERR_STALE:
    case -ENOENT:
    case -ENOTDIR:
    case -EISDIR:
    case -EACCES:
    case -EPERM:
    case -EROFS:
    case -ELOOP:
    case -ENAMETOOLONG:
        return true;
    default:
        return false;
    }
}

int trainer_exit_code(const struct trainer *t, int err)
{
    switch (err) {
    case ERR_INVALID:
    case ERR_UNSUPPORTED:
    case ERR_MISSING:
    case ERR_CORRUPT:
    case ERR_BUSY:
        return EXIT_MISTAKE;
    case ERR_PEER_LOST:
    case ERR_ABORTED:
    case ERR_REFUSED: /* fenced */
        return EXIT_LOST_PEER;
    case ERR_TIMEOUT:
        return EXIT_COMM_TIMEOUT;
    case -EIO:
    case -ENOSPC:
    case -EDQUOT:
    case -EFBIG:
        return EXIT_STORAGE;
    default:
        return !t->has_begun && is_path_mistake(err) ? EXIT_MISTAKE : 1;
    }
}

int trainer_find_tokens(struct trainer *t, uint32_t index, struct gpt2_leaf *leaf,
                        struct errmsg *msg)
{
    size_t bytes = (size_t)t->config->train.micro_batch *
                   (size_t)t->config->train.seq_len * sizeof(int32_t);
    const int32_t *host_tokens;
    const int32_t *host_targets;
    int rv;

    if (t->feed) {
        feed_leaf(t->feed, index, &leaf->tokens, &leaf->targets);
        return 0;
    }
    rv = loader_next(t->loader, &host_tokens, &host_targets, msg);
    if (rv < 0) {
        return rv;
    }
    device_copy(t->device, QUEUE_COMPUTE, t->tokens, host_tokens, bytes);
    device_copy(t->device, QUEUE_COMPUTE, t->targets, host_targets, bytes);
    leaf->tokens = t->tokens;
    leaf->targets = t->targets;
    return 0;
}

/* --- before anything is shared with other ranks --- */

static int open_data(struct trainer *t, struct errmsg *msg)
{
    const struct train_config *c = t->config;
    struct dataset_config config = {
        .paths = &c->data.train,
        .format = c->data.format,
        .what = "data.train",
        .own = {c->run.dir, c->checkpoint.dir},
        .seq_len = c->train.seq_len,
        .vocab = c->model.vocab,
    };
    int rv;

    rv = dataset_open(&config, &t->train_data, msg);
    if (rv == 0 && c->data.val.n > 0) {
        config.paths = &c->data.val;
        config.what = "data.val";
        rv = dataset_open(&config, &t->val_data, msg);
    }
    rv = rv < 0 ? rv : evaluate_check(t, msg);
    return rv < 0 ? rv
                  : sampler_new(c->data.sampler, (uint64_t)c->train.seed,
                                dataset_samples(t->train_data),
                                (uint64_t)c->train.global_batch, &t->sampler, msg);
}

static int make_mesh(struct trainer *t, int node_size, struct errmsg *msg)
{
    struct mesh_wish wish = {
        .strategy = t->strategy->name,
        .zero = t->strategy->zero,
        .replicates = t->strategy->replicates,
        .dp_replicate = atoi(t->config->parallel.dp_replicate), /* auto: 0 */
        .dp_shard = atoi(t->config->parallel.dp_shard),
        .world_size = t->launch->world_size,
        .node_size = node_size,
    };

    return mesh_make(&wish, &t->mesh, msg);
}

static int check_reshard(const struct trainer *t, struct errmsg *msg)
{
    int n = atoi(t->config->parallel.reshard_after_forward); /* true, false: 0 */

    return n > 0 ? mesh_check_reshard(&t->mesh, n, msg) : 0;
}

static bool is_grid_auto(const struct trainer *t)
{
    return t->strategy->replicates &&
           strcmp(t->config->parallel.dp_replicate, "auto") == 0 &&
           strcmp(t->config->parallel.dp_shard, "auto") == 0;
}

/* Nodes are taken to be alike here; open_comms finds out, and what follows from that is
 * checked there. */
static int open_mesh(struct trainer *t, struct errmsg *msg)
{
    int local = t->launch->local_world_size;
    bool is_guess = is_grid_auto(t) && local < t->launch->world_size;
    int rv = make_mesh(t, t->launch->world_size % local == 0 ? local : 0, msg);

    return rv < 0 || is_guess ? rv : check_reshard(t, msg);
}

static int freeze(struct trainer *t, struct errmsg *msg)
{
    const struct text_list *patterns = &t->config->train.freeze;
    int rv = 0;

    for (int i = 0; i < patterns->n && rv == 0; i++) {
        rv = layout_freeze(&t->layout, patterns->item[i], msg);
    }
    if (rv == 0 && t->layout.n_frozen == t->layout.n_params) {
        rv = errmsg_set(msg, ERR_INVALID,
                        "freezes every tensor: leave something to train");
    }
    return rv < 0 ? errmsg_wrap(msg, rv, "train.freeze") : 0;
}

static int open_model(struct trainer *t, struct errmsg *msg)
{
    struct model_config model = trainer_model_config(t->config).model;
    int rv;

    rv = layout_gpt2(&model, &t->layout, msg);
    rv = rv < 0 ? rv : freeze(t, msg);
    rv = rv < 0 ? rv : parallel_find(t->config->parallel.strategy, &t->strategy, msg);
    if (rv == 0 && (uint32_t)t->launch->world_size > t->n_leaves) {
        t->max_world = t->n_leaves;
        rv = errmsg_set(
            msg, ERR_INVALID,
            "%d ranks, but a step has only train.global_batch / train.micro_batch = %u "
            "micro-batches to share out: use at most %u rank%s, or a smaller micro_batch",
            t->launch->world_size, t->n_leaves, t->n_leaves,
            t->n_leaves == 1 ? "" : "s");
    }
    if (rv == 0) {
        unit_groups_make(&t->groups, &t->layout,
                         (int)t->config->parallel.blocks_per_unit,
                         (size_t)t->config->parallel.min_unit_params);
        t->groups.one_owner = t->strategy->zero.one_owner;
        rv = open_mesh(t, msg);
    }
    return rv;
}

/* Several agents on one machine do not know of each other: their cores are one's all. */
static void warn_crowded(const struct trainer *t)
{
    int given = (int)t->config->device.threads;
    int ranks = t->launch->cpu_ranks;
    int cores = t->device->cores;
    char better[32] = "fewer ranks are";

    if (!trainer_leads(t) || given * ranks <= cores) {
        return;
    }
    if (given > 1) {
        (void)snprintf(better, sizeof(better), "%d is", MAX(1, cores / ranks));
    }
    (void)fprintf(stderr,
                  "ctrun-worker: device.threads=%d for each of %d rank%s is more than "
                  "the %d core%s here: they take turns; %s faster\n",
                  given, ranks, ranks > 1 ? "s" : "", cores, cores > 1 ? "s" : "",
                  better);
}

int trainer_open_device(struct trainer *t, const char *isa, struct errmsg *msg)
{
    struct device_config config = {
        .local_rank = t->launch->cpu_rank, /* of those that share its cores */
        .local_world_size = t->launch->cpu_ranks,
        .threads = (int)t->config->device.threads,
        .isa = isa,
        .trace = t->trace,
    };
    int rv;

    rv = device_open(t->config->device.kind, &config, &t->device, msg);
    if (rv == 0) {
        warn_crowded(t);
    }
    return rv;
}

/* Ranks first, first + stride, … of the world. */
struct ranks {
    int first, stride, n;
};

static int open_group(struct trainer *t, const char *group, const struct ranks *ranks,
                      struct comm **ret, struct errmsg *msg)
{
    const struct launch *launch = t->launch;
    struct comm_config config = {
        .group = group,
        .rank = (launch->rank - ranks->first) / ranks->stride,
        .world_size = ranks->n,
        .node = launch->node,
        .store = t->store,
        .address = launch->node_addr,
        .timeout_ms = t->timeout_ms,
        .waiting = control_client_waiting(t->control, t->n_groups++),
        .first_rank = ranks->first,
        .stride = ranks->stride,
    };

    return comm_open(t->config->comm.kind, &config, t->device, ret, msg);
}

/* Both on auto: each rank has made the mesh of its own node's size. */
static int settle_mesh(struct trainer *t, struct errmsg *msg)
{
    int rv = 0;

    if (is_grid_auto(t) && !t->comm->uniform) {
        rv = make_mesh(t, 0, msg);
        if (rv == 0 && trainer_leads(t)) {
            (void)fprintf(
                stderr,
                "ctrun-worker: parallel.strategy=%s: the nodes have different "
                "numbers of ranks: one copy over all %d (dp_shard=%d)\n",
                t->strategy->name, t->mesh.dp_shard, t->mesh.dp_shard);
        }
    }
    return rv < 0 ? rv : check_reshard(t, msg);
}

/* Of the neighbours that gather again what they have kept. */
static int open_secondary(struct trainer *t, struct errmsg *msg)
{
    int n = trainer_parallel_config(t).n_secondary;
    struct ranks ranks = {.stride = 1, .n = n};
    char group[32];

    if (n == 0) {
        return 0;
    }
    ranks.first = t->launch->rank / n * n;
    (void)snprintf(group, sizeof(group), "secondary%d", t->launch->rank / n);
    return open_group(t, group, &ranks, &t->secondary, msg);
}

/* One for each group of ranks and queue that works at the same time as others. */
static int open_comms(struct trainer *t, struct errmsg *msg)
{
    const struct mesh *m = &t->mesh;
    struct ranks all = {0, 1, t->launch->world_size};
    struct ranks copy;  /* the ranks that hold a copy of the state together */
    struct ranks alike; /* those that hold the same part of it */
    char group[32];
    int rv;

    if (t->launch->world_size == 1) {
        return 0;
    }
    rv = open_group(t, "dp", &all, &t->comm, msg);
    rv = rv < 0 ? rv : settle_mesh(t, msg);
    if (rv < 0 || m->dp_shard == 1) {
        return rv;
    }
    copy =
        (struct ranks){mesh_replica(m, t->launch->rank) * m->dp_shard, 1, m->dp_shard};
    alike =
        (struct ranks){mesh_shard(m, t->launch->rank), m->dp_shard, m->dp_replicate};
    (void)snprintf(group, sizeof(group), "gather%d", mesh_replica(m, t->launch->rank));
    rv = open_group(t, group, &copy, &t->gather, msg);
    rv = rv < 0 ? rv : open_secondary(t, msg);
    if (m->dp_replicate == 1) {
        t->shard = t->comm;
        return rv;
    }
    (void)snprintf(group, sizeof(group), "shard%d", mesh_replica(m, t->launch->rank));
    rv = rv < 0 ? rv : open_group(t, group, &copy, &t->shard, msg);
    (void)snprintf(group, sizeof(group), "replica%d", mesh_shard(m, t->launch->rank));
    return rv < 0 ? rv : open_group(t, group, &alike, &t->replica, msg);
}

void trainer_abort(struct trainer *t)
{
    struct comm *all[] = {t->comm, t->gather, t->secondary, t->shard, t->replica};

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (all[i]) {
            comm_abort(all[i]);
        }
    }
}

static void close_comms(struct trainer *t)
{
    comm_close(t->replica);
    comm_close(t->shard == t->comm ? NULL : t->shard);
    comm_close(t->secondary);
    comm_close(t->gather);
    comm_close(t->comm);
}

/* --- arenas --- */

static int alloc_arena(struct trainer *t, size_t bytes, void **ret, struct errmsg *msg)
{
    int rv = device_alloc(t->device, bytes, ret);

    return rv < 0 ? errmsg_set(msg, rv, "no memory for %zu MiB of tokens", bytes >> 20)
                  : 0;
}

bool trainer_compares(const struct trainer *t)
{
    struct zero zero = trainer_parallel_config(t).zero;

    return t->config->parallel.check_every > 0 && replicas_exist(&t->mesh, &zero);
}

static int open_replicas(struct trainer *t, struct errmsg *msg)
{
    struct replicas_config config = {
        .device = t->device,
        .comm = t->comm,
        .layout = &t->layout,
        .parallel = t->parallel,
        .mesh = t->mesh,
        .timeout_ms = t->timeout_ms,
    };

    return trainer_compares(t) ? replicas_new(&config, &t->replicas, msg) : 0;
}

static int open_arenas(struct trainer *t, struct errmsg *msg)
{
    struct gpt2_config model = trainer_model_config(t->config);
    struct parallel_config parallel = trainer_parallel_config(t);
    struct adamw_config adamw;
    size_t leaf_bytes = (size_t)model.batch * (size_t)model.seq_len * sizeof(int32_t);
    void *tokens = NULL;
    void *targets = NULL;
    uint32_t n_val = evaluate_batches(t);
    int rv;

    rv = alloc_arena(t, leaf_bytes, &tokens, msg);
    t->tokens = tokens;
    rv = rv < 0 ? rv : alloc_arena(t, leaf_bytes, &targets, msg);
    t->targets = targets;
    rv = rv < 0 ? rv : gpt2_new(&model, &t->layout, t->device, &t->model, msg);
    rv = rv < 0 ? rv : t->strategy->open(&parallel, &t->parallel, msg);
    if (rv == 0) {
        adamw = trainer_adamw_config(t);
        rv = adamw_new(&adamw, &t->optimizer, msg);
    }
    rv = rv < 0 ? rv
                : losses_new(t->device, t->comm, t->n_leaves, trainer_team(t),
                             &t->losses, msg);
    rv = rv < 0 ? rv : open_replicas(t, msg);
    return rv < 0 || n_val == 0 ? rv
                                : losses_new(t->device, t->comm, n_val, trainer_team(t),
                                             &t->val_losses, msg);
}

/* What needs no other rank, no device, no data and writes nothing. */
static int open_local(struct trainer *t, struct errmsg *msg)
{
    const struct train_config *c = t->config;
    int rv;

    t->timeout_ms = (int)(c->comm.timeout * 1000);
    t->n_leaves = (uint32_t)(c->train.global_batch / c->train.micro_batch);
    scaling_open(t);
    rv = open_model(t, msg);
    return rv < 0 ? rv : given_check(t, msg);
}

int trainer_open_dry(struct trainer *t, struct errmsg *msg)
{
    int rv = open_local(t, msg);

    if (rv == 0 && t->config->data.train.n > 0) {
        rv = open_data(t, msg);
    }
    rv = rv < 0 ? rv : check_reshard(t, msg); /* a plan takes the guess of open_mesh */
    rv = rv < 0 ? rv : trainer_open_device(t, NULL, msg);
    /* what the library of the products makes and loads for it is a part of the plan */
    return rv < 0 ? rv : peak_measure(t->device, &t->gemm_flop_s, msg);
}

int trainer_open(struct trainer *t, struct errmsg *msg)
{
    int rv;

    rv = open_local(t, msg);
    rv = rv < 0 ? rv : open_data(t, msg);
    rv = rv < 0 ? rv : agreement_open(t, msg);
    rv = rv < 0 ? rv : open_comms(t, msg);
    /* before the arenas: the memory it takes comes on top of nothing */
    rv = rv < 0 ? rv : peak_measure(t->device, &t->gemm_flop_s, msg);
    return rv < 0 ? rv : open_arenas(t, msg);
}

int trainer_open_saver(struct trainer *t, struct errmsg *msg)
{
    struct saver_config config = {
        .launch = t->launch,
        .layout = &t->layout,
        .device = t->device,
        .control = t->control,
        .run_dir = &t->run_dir,
        .dir = t->config->checkpoint.dir,
        .retention = {.keep = (size_t)t->config->checkpoint.keep,
                      .keep_every = (uint64_t)t->config->checkpoint.keep_every,
                      .keep_best = (size_t)t->config->checkpoint.keep_best},
        .timeout_ms = t->timeout_ms,
        .metrics = t->metrics,
        .holder = trainer_holder(t, t->launch->rank),
        .comm = t->gather,
        .comm_queue = QUEUE_GATHER,
        .in_place = !t->config->checkpoint.snapshot,
    };

    t->meta.run_generation = t->run_dir.run_generation;
    t->meta.mesh.dp_shard = t->mesh.dp_shard;
    t->meta.mesh.dp_replicate = t->mesh.dp_replicate;
    memcpy(t->meta.mesh.strategy, t->config->parallel.strategy,
           sizeof(t->meta.mesh.strategy));
    return saver_open(&config, &t->saver, msg);
}

void trainer_close(struct trainer *t)
{
    size_t leaf_bytes = (size_t)t->config->train.micro_batch *
                        (size_t)t->config->train.seq_len * sizeof(int32_t);

    saver_close(t->saver);
    metrics_close(t->metrics);
    feed_free(t->feed);
    loader_close(t->loader);
    losses_free(t->val_losses);
    losses_free(t->losses);
    replicas_free(t->replicas);
    adamw_free(t->optimizer);
    if (t->parallel) {
        t->strategy->close(t->parallel);
    }
    gpt2_free(t->model);
    close_comms(t);
    store_client_close(t->store);
    if (t->device) {
        device_free(t->device, t->targets, leaf_bytes);
        device_free(t->device, t->tokens, leaf_bytes);
    }
    device_close(t->device);
    unit_groups_release(&t->groups);
    layout_release(&t->layout);
    sampler_free(t->sampler);
    dataset_close(t->val_data);
    dataset_close(t->train_data);
    run_dir_close(&t->run_dir);
    checkpoint_meta_release(&t->meta);
}
