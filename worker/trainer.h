#ifndef WORKER_TRAINER_H
#define WORKER_TRAINER_H

/* Everything one rank needs to train, in the order it comes to life:
 *
 *   trainer_open    data, device, store, agreement, run directory, comm, arenas
 *   trainer_resume  the newest verified checkpoint, or fresh weights; metrics.jsonl
 *   train           the loop (train.c)
 *   trainer_close
 *
 * One thread (the main one) drives it; beside it run the device's queues and pool, the
 * loader's, the saver's and the control channel's thread. */

#include "worker/checkpoint/checkpoint.h"
#include "worker/comm/comm.h"
#include "worker/config.h"
#include "worker/control_client.h"
#include "worker/data/loader.h"
#include "worker/device/kernels.h"
#include "worker/feed.h"
#include "worker/launch.h"
#include "worker/losses.h"
#include "worker/model/gpt2.h"
#include "worker/optim/adamw.h"
#include "worker/optim/grad_scaler.h"
#include "worker/parallel/parallel.h"
#include "worker/report/metrics.h"
#include "worker/run_dir.h"
#include "worker/saver.h"
#include "worker/store_client.h"

struct trainer {
    const struct train_config *config; /* borrowed, as the next two */
    const struct launch *launch;
    struct control_client *control;
    const char *profile; /* where to; NULL: nowhere */
    struct trace *trace; /* NULL without */

    struct dataset *train_data, *val_data; /* val_data may be NULL */
    struct sampler *sampler;
    struct loader *loader; /* NULL where rank 0 reads for all */
    struct feed *feed;     /* then: how the tokens come from there */

    struct device *device;
    double gemm_flop_s;                    /* its measured peak */
    struct store_client *store;            /* NULL for one rank */
    struct comm *comm;                     /* of all ranks; NULL for one */
    struct comm *gather, *shard, *replica; /* as in parallel.h; may be `comm` */
    struct comm *secondary;
    int n_groups; /* opened so far */
    struct run_dir run_dir;

    struct layout layout;
    uint32_t n_leaves;  /* M */
    uint32_t max_world; /* the error at hand: so many ranks would do; 0: none */
    struct gpt2 *model;
    const struct parallel_ops *strategy;
    struct mesh mesh;
    struct parallel *parallel;
    struct adamw *optimizer;
    struct grad_scaler scaler; /* of the loss; the same on every rank */
    struct unit_groups groups; /* that are cut into shards */
    int32_t *tokens, *targets; /* one leaf, device memory */
    struct losses *losses;     /* of a step */
    struct losses *val_losses;
    struct replicas *replicas; /* NULL: none to compare */
    struct metrics *metrics;   /* rank 0 */
    struct saver *saver;

    struct checkpoint_meta meta; /* what every checkpoint of this run says */
    uint64_t step;               /* done */
    uint64_t data_step;          /* position / global_batch */
    int timeout_ms;
    bool has_begun; /* the first step: from here on an error is a failure, no refusal */
};

/* The exit code of an error: of a peer, of storage, of the configuration; before the
 * first step a path that does not do is the user's to mend, too. Anything else (ENOMEM,
 * EMFILE, ESTALE, …) may be gone at the next try: 1, which is restarted. */
int trainer_exit_code(const struct trainer *t, int err);

/* Data, checks and device: what needs no other rank and writes nothing (--dry-run).
 * Where data.train names nothing, train_data, val_data and sampler stay NULL. */
int trainer_open_dry(struct trainer *t, struct errmsg *msg) MUST_CHECK;
int trainer_open(struct trainer *t, struct errmsg *msg) MUST_CHECK;

/* *ret_finished: the run has done its steps already. */
int trainer_resume(struct trainer *t, bool *ret_finished,
                   struct errmsg *msg) MUST_CHECK;
void trainer_close(struct trainer *t);

/* When it is known whether there is something to train. */
int trainer_open_saver(struct trainer *t, struct errmsg *msg) MUST_CHECK;

/* `isa` NULL: the best that this processor has. */
int trainer_open_device(struct trainer *t, const char *isa,
                        struct errmsg *msg) MUST_CHECK;

/* The configurations of the parts, which the memory plan needs too. */
struct gpt2_config trainer_model_config(const struct train_config *config);
struct parallel_config trainer_parallel_config(const struct trainer *t);
struct adamw_config trainer_adamw_config(const struct trainer *t);
struct loader_config trainer_loader_config(const struct trainer *t);
struct feed_config trainer_feed_config(const struct trainer *t, int rank);

/* Tokens and targets of the rank's next leaf, of index `index`: its own to read, or sent
 * by rank 0. */
int trainer_find_tokens(struct trainer *t, uint32_t index, struct gpt2_leaf *leaf,
                        struct errmsg *msg) MUST_CHECK;

/* Ranks hold the same, and compare it (replicas.h). */
bool trainer_compares(const struct trainer *t);

/* How many ranks share a run of leaves (parallel.h). */
int trainer_team(const struct trainer *t);

/* The rank holds a part of the state alone. */
static inline bool trainer_is_sharded(const struct trainer *t)
{
    return t->mesh.dp_shard > 1;
}

/* Rank 0 reads for all, who hold nothing of the state. */
static inline bool trainer_is_fed(const struct trainer *t)
{
    return t->strategy->zero.one_owner && t->launch->world_size > 1;
}

/* The own block of the state; NULL: the flat block. */
static inline const struct shard_map *trainer_own(const struct trainer *t)
{
    return trainer_is_sharded(t) ? &t->parallel->own : NULL;
}

/* What rank `rank` holds of the state. */
static inline struct holder trainer_holder(const struct trainer *t, int rank)
{
    return (struct holder){.rank = rank,
                           .world_size = t->launch->world_size,
                           .n_shards = t->mesh.dp_shard,
                           .groups = &t->groups};
}

/* Lets the queues end: something has failed. */
void trainer_abort(struct trainer *t);

/* What this rank does from now on; static text. See control_client.h. */
static inline void trainer_phase(const struct trainer *t, const char *phase)
{
    control_client_phase(t->control, phase);
}

/* True on the rank that speaks. */
static inline bool trainer_leads(const struct trainer *t)
{
    return t->launch->rank == 0;
}

#endif
