/* How a run begins: choice.h says where it goes on. Where each rank holds all of the
 * state, the others get it from rank 0's memory: each byte is read once in the whole
 * job. Where it is sharded, each reads what it holds. Rank 0: prepare metrics.jsonl,
 * ask the service, take it over. */

#include "worker/choice.h"
#include "worker/given.h"
#include "worker/model/llmc_model.h"
#include "worker/restore.h"
#include "worker/scaling.h"
#include "worker/trainer.h"

#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
    own = choice_own_block(t);
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
    own = choice_own_block(t);
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
    const struct own_block own = choice_own_block(t);
    size_t begin = (size_t)piece * INIT_PIECE;

    init_own_block(&own, (uint64_t)t->config->train.seed, (int)t->config->model.layers,
                   begin, MIN(begin + INIT_PIECE, own_size(&own)));
}

/* Where every rank holds all, each verifies what it reads; where each holds a part,
 * rank 0 does it for all: the job ends when it finds damage. */
static int load_weights(struct trainer *t, const char *from, struct errmsg *msg)
{
    const struct own_block own = choice_own_block(t);
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
    const struct own_block own = choice_own_block(t);
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
        rv = rv < 0 ? rv : choice_make(t, &choice, msg);
    }
    rv = rv < 0 ? rv : choice_share(t, &choice, msg);
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
