/* What all ranks must agree on before they train: the instruction set path (the lowest
 * wins), signature and configuration (rank 0's), the run directory (rank 0's). */

#include "worker/agreement.h"

#include "worker/config_diff.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

enum { RECORD_MAX = 4 * 1024 * 1024, RUN_RECORD_MAX = 128 };

static void fill_meta(struct trainer *t)
{
    const struct train_config *c = t->config;
    char *identity = dataset_identity(t->train_data);

    t->meta.seed = (uint64_t)c->train.seed;
    t->meta.world_size = t->launch->world_size;
    (void)snprintf(t->meta.signature, sizeof(t->meta.signature), "%.100s mb%lld",
                   t->device->signature, (long long)c->train.micro_batch);
    t->meta.model_json = mem_printf(
        "{\"family\": \"%s\", \"layers\": %lld, \"heads\": %lld, \"dim\": %lld, "
        "\"context\": %lld, \"vocab\": %lld}",
        c->model.family, (long long)c->model.layers, (long long)c->model.heads,
        (long long)c->model.dim, (long long)c->model.context,
        (long long)c->model.vocab);
    t->meta.config_json = config_to_json(c);
    t->meta.data_json = identity;
}

/* Lowers *isa to what rank `r` can do. */
static int lower_isa(struct trainer *t, int r, const char **isa, struct errmsg *msg)
{
    char key[32];
    char other[32] = "";
    const char *lower;
    size_t size;
    int rv;

    (void)snprintf(key, sizeof(key), "isa/%d", r);
    rv = store_client_get(t->store, key, other, sizeof(other) - 1, &size, msg);
    if (rv < 0 || strcmp(other, *isa) == 0) {
        return rv;
    }
    lower = device_lower_isa(*isa, other);
    if (!lower) {
        return errmsg_set(msg, ERR_INVALID, "rank %d has an unknown processor \"%s\"",
                          r, other);
    }
    *isa = lower;
    (void)fprintf(stderr, "ctrun-worker: processors differ: all use %s\n", *isa);
    return 0;
}

/* Rank 0: the lowest of all ranks' instruction set paths, for all. */
static int lowest_isa(struct trainer *t, const char **isa, struct errmsg *msg)
{
    int rv = 0;

    for (int r = 1; r < t->launch->world_size && rv == 0; r++) {
        rv = lower_isa(t, r, isa, msg);
    }
    return rv < 0 ? rv : store_client_set(t->store, "isa", *isa, strlen(*isa), msg);
}

static int agree_isa(struct trainer *t, const char **ret, struct errmsg *msg)
{
    char key[32];
    char agreed[32] = "";
    const char *lower;
    size_t size;
    int rv;

    rv = device_best_isa(ret, msg);
    if (rv < 0 || trainer_leads(t)) {
        return rv < 0 ? rv : lowest_isa(t, ret, msg);
    }
    (void)snprintf(key, sizeof(key), "isa/%d", t->launch->rank);
    rv = store_client_set(t->store, key, *ret, strlen(*ret), msg);
    rv = rv < 0 ? rv
                : store_client_get(t->store, "isa", agreed, sizeof(agreed) - 1, &size,
                                   msg);
    lower = rv < 0 ? NULL : device_lower_isa(*ret, agreed);
    if (rv == 0 && !lower) {
        rv = errmsg_set(msg, ERR_INVALID, "rank 0 computes with \"%s\": unknown here",
                        agreed);
    }
    *ret = lower;
    return rv;
}

static int get_text(struct trainer *t, const char *key, char *text, struct errmsg *msg)
{
    size_t size;

    memset(text, 0, RECORD_MAX);
    return store_client_get(t->store, key, text, RECORD_MAX - 1, &size, msg);
}

static int compare_signature(struct trainer *t, const char *leader, struct errmsg *msg)
{
    if (strcmp(leader, t->device->signature) == 0) {
        return 0;
    }
    return errmsg_set(
        msg, ERR_INVALID,
        "rank %d computes with \"%s\", rank 0 with \"%s\": start every node "
        "with the same version of ctrun-worker and of its libraries",
        t->launch->rank, t->device->signature, leader);
}

static int compare_config(struct trainer *t, const char *leader, struct errmsg *msg)
{
    char keys[256];

    if (config_diff(leader, t->meta.config_json, keys, sizeof(keys)) == 0) {
        return 0;
    }
    return errmsg_set(
        msg, ERR_INVALID,
        "rank %d has another configuration than rank 0: %s; give every node "
        "the same",
        t->launch->rank, keys);
}

static int compare_data(struct trainer *t, const char *leader, struct errmsg *msg)
{
    if (strcmp(leader, t->meta.data_json) == 0) {
        return 0;
    }
    return errmsg_set(
        msg, ERR_INVALID,
        "rank %d finds other files at data.train than rank 0 (names, sizes or "
        "beginnings differ): give every node the same data",
        t->launch->rank);
}

/* Nodes with other libraries or another configuration would silently compute something
 * else: every rank compares its own with rank 0's. */
static int compare_with_leader(struct trainer *t, struct errmsg *msg)
{
    const char *signature = t->device->signature;
    char *leader;
    int rv;

    if (trainer_leads(t)) {
        rv = store_client_set(t->store, "signature", signature, strlen(signature), msg);
        rv = rv < 0 ? rv
                    : store_client_set(t->store, "config", t->meta.config_json,
                                       strlen(t->meta.config_json), msg);
        return rv < 0 ? rv
                      : store_client_set(t->store, "data", t->meta.data_json,
                                         strlen(t->meta.data_json), msg);
    }
    leader = mem_alloc(RECORD_MAX);
    rv = get_text(t, "signature", leader, msg);
    rv = rv < 0 ? rv : compare_signature(t, leader, msg);
    rv = rv < 0 ? rv : get_text(t, "config", leader, msg);
    rv = rv < 0 ? rv : compare_config(t, leader, msg);
    rv = rv < 0 ? rv : get_text(t, "data", leader, msg);
    rv = rv < 0 ? rv : compare_data(t, leader, msg);
    mem_free(leader);
    return rv;
}

/* Above every run generation that has left a checkpoint, also where log/ was cleaned
 * up. */
static int lowest_generation(const struct trainer *t, uint64_t *ret, struct errmsg *msg)
{
    struct checkpoint_entry *entries = NULL;
    size_t n = 0;
    int rv;

    rv = checkpoint_list(t->config->checkpoint.dir, &entries, &n, msg);
    *ret = t->launch->generation;
    if (rv == 0 && n > 0) { /* the first is the newest */
        *ret = MAX(*ret, (uint64_t)entries[0].run_generation + 1);
    }
    mem_free(entries);
    return rv;
}

/* Rank 0 opens the run directory and publishes its run generation; the others join. */
static int open_run_dir(struct trainer *t, uint64_t cluster, struct errmsg *msg)
{
    struct run_dir_owner owner = {.cluster = cluster,
                                  .job = t->launch->run_id,
                                  .lock_wait_ms = RUN_DIR_LOCK_WAIT_MS,
                                  .checkpoint_dir = t->config->checkpoint.dir};
    uint64_t at_least = 0;
    char record[RUN_RECORD_MAX] = "";
    char token[RUN_DIR_TOKEN_MAX] = "";
    size_t size = 0;
    int run = 0;
    int rv;

    if (trainer_leads(t)) {
        rv = run_dir_open(t->config->run.dir, &owner, &t->run_dir, msg);
        rv = rv < 0 ? rv : lowest_generation(t, &at_least, msg); /* none comes now */
        rv = rv < 0 ? rv : run_dir_claim(&t->run_dir, at_least, msg);
        if (rv < 0 || !t->store) {
            return rv;
        }
        (void)snprintf(record, sizeof(record), "%d %s", t->run_dir.run_generation,
                       t->run_dir.token);
        return store_client_set(t->store, "run", record, strlen(record), msg);
    }
    rv = store_client_get(t->store, "run", record, sizeof(record) - 1, &size, msg);
    if (rv < 0) {
        return rv;
    }
    if (sscanf(record, "%d %39s", &run, token) != 2) { /* NOLINT(cert-err34-c): ours */
        return errmsg_set(msg, ERR_PROTOCOL, "rank 0 published no run generation");
    }
    return run_dir_join(t->config->run.dir, run, token, &t->run_dir, msg);
}

int agreement_open(struct trainer *t, struct errmsg *msg)
{
    const struct launch *launch = t->launch;
    const char *isa = NULL;
    struct control start;
    int rv = 0;

    if (launch->world_size > 1) {
        rv = store_client_open(launch->master_addr, launch->master_port, t->timeout_ms,
                               &t->store, msg);
        rv = rv < 0 ? rv : agree_isa(t, &isa, msg);
    }
    rv = rv < 0 ? rv : trainer_open_device(t, isa, msg);
    if (rv < 0) {
        return rv;
    }
    fill_meta(t);
    rv = t->store ? compare_with_leader(t, msg) : 0;
    control_client_start(t->control, &start);
    rv = rv < 0 ? rv : open_run_dir(t, start.cluster, msg);
    if (rv == 0) {
        control_client_hello(t->control, t->run_dir.log, t->n_leaves);
    }
    return rv;
}
