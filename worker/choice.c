#include "worker/choice.h"

#include "worker/config_diff.h"
#include "worker/given.h"
#include "worker/trainer.h"

#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD_MAX = CHECKPOINT_PATH_MAX + 128, CHANGED_MAX = 512 };

/* A checkpoint that turned out to be damaged may have been loaded in part. */
static void on_rejected(void *arg, const char *line)
{
    bool *has_garbage = arg;

    *has_garbage = true;
    (void)fprintf(stderr, "ctrun-worker: %s\n", line);
}

/* Neither .tmp nor directory is there: a newer start has dealt with it, or it was
 * deleted. Any other failure is the storage's: the accepted commit must not be swept
 * away. */
static int finish_last_commit(const char *dir, const struct control *start,
                              struct errmsg *msg)
{
    int rv;

    if (start->hash[0] == '\0') {
        return 0;
    }
    rv = checkpoint_commit(dir, start->step, (int)start->run, msg);
    if (rv != -ENOENT) {
        return rv;
    }
    log_warn("the last commit is not here any more", "step=%" PRIu64 " run=%u",
             start->step, start->run);
    return 0;
}

/* Says in one line which keys differ from the run that wrote the checkpoint. */
static void tell_changed_keys(const struct trainer *t,
                              const struct checkpoint_meta *meta)
{
    char text[CHANGED_MAX];

    if (config_diff(meta->config_json, t->meta.config_json, text, sizeof(text)) > 0) {
        (void)fprintf(stderr, "ctrun-worker: changed since the checkpoint: %s\n", text);
    }
}

static bool is_same_json(const char *a, const char *b)
{
    json_t *left = json_loads(a, 0, NULL);
    json_t *right = json_loads(b, 0, NULL);
    bool same = left && right && json_equal(left, right);

    json_decref(left);
    json_decref(right);
    return same;
}

/* A folder of checkpoints may be another run's. Its name comes from a file: as JSON, it
 * moves no cursor. */
static void name_other_run(const struct trainer *t, const struct checkpoint_meta *meta,
                           char text[CHOICE_RUN_MAX])
{
    json_t *config = json_loads(meta->config_json, 0, NULL);
    const json_t *name = json_object_get(config, "run.name");
    char *quoted = NULL;

    if (json_is_string(name) &&
        strcmp(json_string_value(name), t->config->run.name) != 0) {
        quoted = json_dumps(name, JSON_ENCODE_ANY);
    }
    (void)snprintf(text, CHOICE_RUN_MAX, "%s", quoted ? quoted : ""); /* cut is fine */
    free(quoted);
    json_decref(config);
}

static int check_meta(const struct trainer *t, const struct checkpoint_meta *meta,
                      const char *path, struct errmsg *msg)
{
    uint64_t global_batch = (uint64_t)t->config->train.global_batch;

    if (!is_same_json(meta->model_json, t->meta.model_json)) {
        return errmsg_set(
            msg, ERR_INVALID,
            "%s holds another model: %s there, %s now; set model.* as there, "
            "or start a new run.name",
            path, meta->model_json, t->meta.model_json);
    }
    if (!is_same_json(meta->data_json, t->meta.data_json)) {
        return errmsg_set(
            msg, ERR_INVALID,
            "the files of data.train have changed since %s was written: put "
            "them back, or start a new run.name (model.init_from=%s keeps the "
            "weights)",
            path, path);
    }
    if (meta->position % global_batch != 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "train.global_batch=%" PRIu64 " does not divide the %" PRIu64
                          " samples that %s has consumed",
                          global_batch, meta->position, path);
    }
    if (strcmp(meta->signature, t->meta.signature) != 0) {
        (void)fprintf(
            stderr,
            "ctrun-worker: numerics differ from the checkpoint's (%s there, %s "
            "here): from here on the bits may differ too\n",
            meta->signature, t->meta.signature);
    }
    tell_changed_keys(t, meta);
    return 0;
}

struct own_block choice_own_block(const struct trainer *t)
{
    return (struct own_block){.layout = &t->layout,
                              .map = trainer_own(t),
                              .state = {t->parallel->params,
                                        adamw_exp_avg(t->optimizer),
                                        adamw_exp_avg_sq(t->optimizer)}};
}

/* The optimizer's state as it was made; the weights are initialized anyway. */
static void clear_optimizer(const struct trainer *t)
{
    const struct own_block own = choice_own_block(t);

    for (int i = 1; i < OWN_STATES; i++) {
        memset(own.state[i], 0, own_size(&own) * sizeof(float));
    }
}

static int load_given(const char *path, const struct cut *cuts, size_t n_cuts,
                      struct checkpoint_entry *entry, struct checkpoint_meta *meta,
                      struct errmsg *msg)
{
    int rv = given_is_checkpoint(path, msg);

    rv = rv < 0 ? rv : checkpoint_load_verified(path, cuts, n_cuts, meta, msg);
    (void)snprintf(entry->path, sizeof(entry->path), "%s", path);
    return rv < 0 ? errmsg_wrap(msg, rv, "checkpoint.resume=%s", path) : 0;
}

/* Finds and loads. checkpoint.resume: auto takes the newest; never and a path begin
 * there, but a restart inside the job goes on from what the job itself has written. */
static int find_checkpoint(const struct trainer *t, const struct control *start,
                           struct checkpoint_entry *entry, struct checkpoint_meta *meta,
                           struct errmsg *msg)
{
    const char *resume = t->config->checkpoint.resume;
    bool is_auto = strcmp(resume, "auto") == 0;
    bool has_garbage = false;
    struct checkpoint_search search = {
        .dir = t->config->checkpoint.dir,
        .lowest_run_generation = is_auto ? 0 : (int)start->run,
        .on_rejected = on_rejected,
        .arg = &has_garbage,
    };
    const struct own_block own = choice_own_block(t);
    struct cut *cuts;
    int rv = ERR_MISSING;

    own_cuts(&own, OWN_STATES, &cuts, &search.n_cuts);
    search.cuts = cuts;
    if (is_auto || start->hash[0] != '\0') {
        rv = checkpoint_newest(&search, entry, meta, msg);
    }
    if (rv == ERR_MISSING && !is_auto && strcmp(resume, "never") != 0) {
        rv = load_given(resume, cuts, search.n_cuts, entry, meta, msg);
    }
    mem_free(cuts);
    if (rv == ERR_MISSING && has_garbage) {
        clear_optimizer(t);
    }
    return rv;
}

/* What stays in the way harms nobody. */
static int sweep(const char *dir, int run_generation, struct errmsg *msg)
{
    int rv = checkpoint_sweep(dir, run_generation, msg);

    if (rv > 0) {
        log_warn("leftovers in checkpoint.dir were not deleted", "n=%d why=\"%s\"", rv,
                 msg->text);
    }
    return MIN(rv, 0);
}

/* Each start since the checkpoint's own, and that too, ended before it was to: but not
 * the one that was asked to leave, or was done. log/ may have been cleaned up. */
static void take_history(struct trainer *t, const struct checkpoint_meta *meta)
{
    uint64_t starts = MAX(run_dir_starts(&t->run_dir, meta->run_generation), 1);

    t->meta.trained_ms = meta->trained_ms;
    t->meta.failures = meta->failures + starts - (meta->is_end ? 1 : 0);
}

int choice_make(struct trainer *t, struct choice *ret, struct errmsg *msg)
{
    const char *dir = t->config->checkpoint.dir;
    struct checkpoint_entry entry = {0};
    struct checkpoint_meta meta = {0};
    struct control start;
    int rv;

    control_client_start(t->control, &start);
    rv = finish_last_commit(dir, &start, msg);
    rv = rv < 0 ? rv : sweep(dir, t->run_dir.run_generation, msg);
    if (rv < 0) {
        return rv;
    }
    rv = find_checkpoint(t, &start, &entry, &meta, msg);
    if (rv == ERR_MISSING) {
        return 0; /* fresh */
    }
    if (meta.model_json) { /* another model's does not load: its meta says why, better */
        int wrong = check_meta(t, &meta, entry.path, msg);

        rv = wrong < 0 ? wrong : rv;
    }
    if (rv == 0) {
        ret->step = meta.step;
        ret->position = meta.position;
        ret->scaler = meta.scaler;
        memcpy(ret->path, entry.path, sizeof(ret->path));
        name_other_run(t, &meta, ret->run);
        ret->is_given = strcmp(entry.path, t->config->checkpoint.resume) == 0;
        if (!ret->is_given && ret->run[0] == '\0') {
            take_history(t, &meta);
        }
    }
    checkpoint_meta_release(&meta);
    return rv;
}

/* Rank 0 loads a whole checkpoint before it says which: how long that takes is the
 * storage's business, so the wait has no end of its own. It has others: when rank 0
 * dies, its agent tells the service and every agent kills its workers; when the own
 * agent goes, the store's connection ends. (Ranks that have no agent have no fellows.)
 */
static int await_choice(struct trainer *t, char *record, size_t size,
                        struct errmsg *msg)
{
    size_t n;
    int rv;

    do {
        rv = store_client_get(t->store, "resume", record, size, &n, msg);
        if (rv == ERR_TIMEOUT) {
            log_info("rank 0 has not loaded its checkpoint yet: waiting on",
                     "why=\"%s\"", msg->text);
        }
    } while (rv == ERR_TIMEOUT);
    return rv;
}

int choice_share(struct trainer *t, struct choice *choice, struct errmsg *msg)
{
    struct checkpoint_scaler *s = &choice->scaler;
    char record[RECORD_MAX] = "";
    int n_path = 0;
    int has_scaler;
    int rv;

    if (!t->store) {
        return 0;
    }
    if (trainer_leads(t)) {
        (void)snprintf(record, sizeof(record),
                       "%" PRIu64 " %" PRIu64 " %d %a %" PRId32 " %" PRIu64 " %s",
                       choice->step, choice->position, s->is_there, (double)s->scale,
                       s->growth_tracker, s->skipped, choice->path);
        return store_client_set(t->store, "resume", record, strlen(record), msg);
    }
    rv = await_choice(t, record, sizeof(record) - 1, msg);
    if (rv < 0) {
        return rv;
    }
    /* NOLINTNEXTLINE(cert-err34-c): rank 0 wrote it a moment ago */
    if (sscanf(record, "%" SCNu64 " %" SCNu64 " %d %f %" SCNd32 " %" SCNu64 " %n",
               &choice->step, &choice->position, &has_scaler, &s->scale,
               &s->growth_tracker, &s->skipped, &n_path) != 6) {
        return errmsg_set(msg, ERR_PROTOCOL, "rank 0 published no checkpoint");
    }
    s->is_there = has_scaler != 0;
    (void)snprintf(choice->path, sizeof(choice->path), "%s", record + n_path);
    return 0;
}
