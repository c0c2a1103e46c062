/* Where a run goes on: the newest verified checkpoint, a given one, or fresh weights.
 *
 * Rank 0: finish the rename of the last commit that the service knows; sweep the
 * rubbish of other generations; choose the newest that verifies (one line for each that
 * does not), which loads it: each byte is read once in the whole job. It tells the
 * other ranks, and they get the state from its memory; or, where the state is sharded,
 * each reads what it holds. Rank 0: prepare metrics.jsonl,
 * ask the service, take it over. */

#include "worker/config_diff.h"
#include "worker/given.h"
#include "worker/model/llmc_model.h"
#include "worker/restore.h"
#include "worker/scaling.h"
#include "worker/trainer.h"

#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHOICE_MAX = CHECKPOINT_PATH_MAX + 128, CHANGED_MAX = 512, RUN_TEXT_MAX = 128 };

struct choice {
    uint64_t step, position;
    struct checkpoint_scaler scaler;
    char path[CHECKPOINT_PATH_MAX]; /* "": fresh */
    char run[RUN_TEXT_MAX];         /* another run.name's, quoted; rank 0 knows */
    bool is_given;                  /* by checkpoint.resume=PATH; rank 0 knows */
};

/* A checkpoint that turned out to be damaged may have been loaded in part. */
static void on_rejected(void *arg, const char *line)
{
    bool *has_garbage = arg;

    *has_garbage = true;
    (void)fprintf(stderr, "ctrun-worker: %s\n", line);
}

/* --- rank 0 chooses --- */

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
                           char text[RUN_TEXT_MAX])
{
    json_t *config = json_loads(meta->config_json, 0, NULL);
    const json_t *name = json_object_get(config, "run.name");
    char *quoted = NULL;

    if (json_is_string(name) &&
        strcmp(json_string_value(name), t->config->run.name) != 0) {
        quoted = json_dumps(name, JSON_ENCODE_ANY);
    }
    (void)snprintf(text, RUN_TEXT_MAX, "%s", quoted ? quoted : ""); /* cut is fine */
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

static struct own_block own_of(const struct trainer *t)
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
    const struct own_block own = own_of(t);

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
    const struct own_block own = own_of(t);
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

static int choose(struct trainer *t, struct choice *ret, struct errmsg *msg)
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

static int share_choice(struct trainer *t, struct choice *choice, struct errmsg *msg)
{
    struct checkpoint_scaler *s = &choice->scaler;
    char record[CHOICE_MAX] = "";
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

/* --- all ranks have the state --- */

enum { BROADCAST_PIECE = 64 << 20 }; /* bytes */

/* Piece by piece: comm.timeout is for one, not for a state of any size. */
static int broadcast_array(struct trainer *t, float *array, struct errmsg *msg)
{
    size_t left = t->layout.size * sizeof(float);
    uint8_t *at = (uint8_t *)array;
    int rv = 0;

    while (left > 0 && rv == 0) {
        size_t n = MIN(left, (size_t)BROADCAST_PIECE);

        comm_broadcast(t->comm, QUEUE_REDUCE, at, n, 0);
        rv = device_finish(t->device, device_mark(t->device, QUEUE_REDUCE),
                           t->timeout_ms, msg);
        at += n;
        left -= n;
    }
    return rv;
}

/* From rank 0's memory: the storage is read once, however many ranks there are. */
static int broadcast_state(struct trainer *t, struct errmsg *msg)
{
    struct own_block own;
    int rv = 0;

    if (!t->comm) {
        return 0;
    }
    own = own_of(t);
    for (size_t i = 0; i < OWN_STATES && rv == 0; i++) {
        rv = broadcast_array(t, own.state[i], msg);
    }
    return rv;
}

/* Rank 0 has its part by now, and has verified the rest: whatever another cannot read
 * is its own storage's fault, and may be there at the next start. */
static int get_state(struct trainer *t, const struct choice *choice, struct errmsg *msg)
{
    struct own_block own;
    int rv;

    if (!trainer_is_sharded(t)) {
        return broadcast_state(t, msg);
    }
    if (trainer_leads(t)) {
        return 0;
    }
    own = own_of(t);
    rv = restore_own_block(choice->path, &own, OWN_STATES, msg);
    return rv < 0 ? errmsg_wrap(msg, -EIO,
                                "this node cannot read what rank 0 has verified")
                  : 0;
}

enum { INIT_PIECE = 1 << 20 };

/* Elements [begin, end) of the own block, by the rank that owns them alone. */
static void init_piece(void *arg, int piece)
{
    const struct trainer *t = arg;
    const struct own_block own = own_of(t);
    size_t begin = (size_t)piece * INIT_PIECE;

    init_own_block(&own, (uint64_t)t->config->train.seed, (int)t->config->model.layers,
                   begin, MIN(begin + INIT_PIECE, own_size(&own)));
}

/* Where every rank holds all, each verifies what it reads; where each holds a part,
 * rank 0 does it for all: the job ends when it finds damage. */
static int load_weights(struct trainer *t, const char *from, struct errmsg *msg)
{
    const struct own_block own = own_of(t);
    struct cut *cuts;
    size_t n;
    int rv = given_is_weights(from, msg);

    if (rv < 0) {
        return rv;
    }
    if (trainer_is_sharded(t) && !trainer_leads(t)) {
        return restore_own_block(from, &own, 1, msg);
    }
    own_cuts(&own, 1, &cuts, &n);
    rv = checkpoint_load_verified(from, cuts, n, NULL, msg);
    mem_free(cuts);
    return rv;
}

/* A file has every element of every tensor, so what is read from one is not made
 * first; the padding is zero from the arena. */
static int init_weights(struct trainer *t, struct errmsg *msg)
{
    struct model_config model = trainer_model_config(t->config).model;
    const char *from = t->config->model.init_from;
    const struct own_block own = own_of(t);
    int rv;

    if (from[0] == '\0') {
        device_spread(t->device, (int)((own_size(&own) + INIT_PIECE - 1) / INIT_PIECE),
                      init_piece, t);
        return 0;
    }
    rv = llmc_model_is(from) > 0
             ? llmc_model_load(from, &model, &t->layout, trainer_own(t),
                               t->parallel->params, msg)
             : load_weights(t, from, msg);
    return rv < 0 ? errmsg_wrap(msg, rv, "model.init_from=%s", from) : 0;
}

/* --- metrics and the saver --- */

/* What an earlier training has left, in a line: why ever its checkpoints are not used
 * (checkpoint.resume=never, all rejected), they age out as new ones come. */
static void tell_what_is_left(const struct trainer *t, const char *kept)
{
    const char *dir = t->config->checkpoint.dir;
    struct checkpoint_entry *entries = NULL;
    struct errmsg msg;
    size_t n = 0;

    if (checkpoint_list(dir, &entries, &n, &msg) == 0 && n > 0) {
        (void)fprintf(
            stderr,
            "ctrun-worker: starting anew beside %zu checkpoints of an earlier "
            "training in %s; checkpoint.keep will delete them%s%s\n",
            n, dir, kept[0] ? "; its metrics are kept in " : "", kept);
    } else if (kept[0]) {
        (void)fprintf(
            stderr,
            "ctrun-worker: starting anew: no checkpoint in %s; the metrics of "
            "before are kept in %s\n",
            dir, kept);
    }
    mem_free(entries);
}

/* The step from which on the metrics of an earlier training count as its own: with
 * checkpoints all, else from where it ought to have had one. */
static uint64_t first_worth(const struct trainer *t)
{
    struct checkpoint_entry *entries = NULL;
    struct errmsg msg;
    size_t n = 0;
    int64_t every = t->config->checkpoint.every.steps;
    bool is_timed = t->config->checkpoint.every.is_auto ||
                    t->config->checkpoint.every.ms > 0; /* may be any step */
    int64_t steps = t->config->train.steps;

    if (checkpoint_list(t->config->checkpoint.dir, &entries, &n, &msg) < 0) {
        n = 0; /* loading has told why */
    }
    mem_free(entries);
    return n > 0 || is_timed ? 1 : (uint64_t)(every > 0 ? MIN(every, steps) : steps);
}

/* A checkpoint that a person named comes without its metrics. */
static void tell_metrics(const struct trainer *t, const struct choice *choice,
                         const struct metrics_found *found)
{
    if (choice->path[0] == '\0') {
        tell_what_is_left(t, found->kept);
    } else if (found->missing[0] && !choice->is_given) {
        (void)fprintf(
            stderr, "ctrun-worker: metrics.jsonl lacks the lines of these steps: %s\n",
            found->missing);
    }
}

static int take_over(struct trainer *t, const struct choice *choice, struct errmsg *msg)
{
    const char *dir = t->run_dir.path;
    int run = t->run_dir.run_generation;
    struct metrics_found found;
    int rv;

    rv = metrics_prepare(dir, run, t->step, first_worth(t), &found, msg);
    if (rv == 0) {
        tell_metrics(t, choice, &found);
    }
    rv = rv < 0 ? rv : control_client_resumed(t->control, (uint32_t)run, t->step, msg);
    return rv < 0 ? rv : metrics_take_over(dir, run, &t->metrics, msg);
}

static int write_config(struct trainer *t, struct errmsg *msg)
{
    char *yaml = config_to_yaml(t->config);
    int rv = run_dir_write(&t->run_dir, "config.yaml", yaml, msg);

    mem_free(yaml);
    return rv;
}

static void format_count(char *text, size_t size, size_t n)
{
    if (n < 1000000) {
        (void)snprintf(text, size, "%.1fk", (double)n / 1e3);
    } else {
        (void)snprintf(text, size, "%.1fM", (double)n / 1e6);
    }
}

/* A folder may have been given with a slash at its end: then the whole is its name. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] != '\0' ? slash + 1 : path;
}

static void tell_start(const struct trainer *t, const struct choice *choice)
{
    const char *s = t->launch->world_size > 1 ? "s" : "";
    char n_params[32];
    char n_trained[32];
    char trained[48] = "";

    format_count(n_params, sizeof(n_params), t->layout.n_params);
    format_count(n_trained, sizeof(n_trained), t->layout.n_params - t->layout.n_frozen);
    if (t->layout.n_frozen > 0) {
        (void)snprintf(trained, sizeof(trained), " (%s trained)", n_trained);
    }
    (void)printf(
        "%s %s parameters%s, %d rank%s x %d thread%s, %u micro-batch%s a step; %s\n",
        t->config->model.family, n_params, trained, t->launch->world_size, s,
        t->device->threads, t->device->threads > 1 ? "s" : "", t->n_leaves,
        t->n_leaves > 1 ? "es" : "", t->run_dir.path);
    if (choice->path[0] != '\0') {
        (void)printf("resumed from %s: step %" PRIu64 " of %lld%s%s\n",
                     base_name(choice->path), choice->step,
                     (long long)t->config->train.steps,
                     choice->run[0] ? "; the checkpoint is of run " : "", choice->run);
    } else if (t->config->model.init_from[0] != '\0') {
        (void)printf("weights from %s\n", base_name(t->config->model.init_from));
    }
    (void)fflush(stdout);
}

/* Every rank for itself, or rank 0 for all. */
static int open_reading(struct trainer *t, struct errmsg *msg)
{
    struct loader_config loader = trainer_loader_config(t);
    struct feed_config feed;
    int rv = 0;

    if (!trainer_is_fed(t) || trainer_leads(t)) {
        rv = loader_open(&loader, &t->loader, msg);
    }
    if (rv == 0 && trainer_is_fed(t)) {
        feed = trainer_feed_config(t, t->launch->rank);
        rv = feed_new(&feed, &t->feed, msg);
    }
    return rv;
}

int trainer_resume(struct trainer *t, bool *ret_finished, struct errmsg *msg)
{
    struct choice choice = {0};
    int rv = 0;

    if (trainer_leads(t)) {
        rv = run_dir_hold(&t->run_dir, msg);
        rv = rv < 0 ? rv : choose(t, &choice, msg);
    }
    rv = rv < 0 ? rv : share_choice(t, &choice, msg);
    if (rv == 0) {
        rv = choice.path[0] != '\0' ? get_state(t, &choice, msg) : init_weights(t, msg);
    }
    if (rv < 0) {
        return rv;
    }
    t->step = choice.step;
    scaling_restore(t, &choice.scaler);
    t->data_step = choice.position / (uint64_t)t->config->train.global_batch;
    *ret_finished = t->step >= (uint64_t)t->config->train.steps;
    if (trainer_leads(t)) {
        tell_start(t, &choice);
        /* again: a fenced holder may have gone, and a foreign run come, meanwhile */
        rv = run_dir_hold(&t->run_dir, msg);
        rv = rv < 0 ? rv : write_config(t, msg);
        rv = rv < 0 ? rv : take_over(t, &choice, msg);
    }
    if (rv < 0 || *ret_finished) {
        return rv;
    }
    rv = open_reading(t, msg);
    return rv < 0 ? rv : trainer_open_saver(t, msg);
}
