#ifndef TESTS_LIB_SAVER_RIG_H
#define TESTS_LIB_SAVER_RIG_H

/* A forked rank (tests/lib/ranks.h; its `arg` is a scratch folder) with a saver and all
 * it needs: a layout and its state (of which a shard may be the rank's), a device, rank
 * 0's run directory and metrics, and an agent that answers commits. What fails here
 * ends the rank. */

#include "tests/lib/rank_ends.h"
#include "worker/restore.h"
#include "worker/saver.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

enum { SAVER_RIG_STATES = 3, SAVER_RIG_RUN = 1, SAVER_RIG_KEEP = 2 };

enum saver_answer { SAVER_ACCEPT, SAVER_REFUSE, SAVER_KEEP_WAITING };

/* Rank 0's. */
struct saver_agent {
    int fd;
    enum saver_answer answer;
    atomic_int n_commits; /* asked for */
    sem_t asked;          /* posted for each */
    sem_t release;        /* SAVER_KEEP_WAITING answers then */
    pthread_t thread;
};

struct saver_rig {
    const char *dir; /* of the test; the next two are in it */
    char ckpt[128], run[128];
    struct launch launch;
    struct layout layout;
    struct device *device;
    struct store_client *store; /* for the test's own words */
    struct run_dir run_dir;
    struct metrics *metrics;
    struct saver_agent agent;
    struct control_client *control;
    struct saver *saver;
    struct holder holder;
    struct unit_groups groups;
    struct shard_map map;           /* of the own block */
    struct comm *comm;              /* among the replica's shards; NULL for one */
    struct own_block own;           /* what is saved */
    float *state[SAVER_RIG_STATES]; /* whole: what it should be */
    struct errmsg msg;
};

/* Of the ranks that are forked from now on: they save their state where it lies. */
extern bool saver_rig_in_place;

void saver_rig_open(struct saver_rig *r, const struct rank *self,
                    enum saver_answer answer);

/* With a layout of several shards; self->world_size is a multiple of `n_shards`. */
void saver_rig_open_sharded(struct saver_rig *r, const struct rank *self,
                            enum saver_answer answer, int n_shards);

/* With a model of the test's own; commits are accepted. */
void saver_rig_open_model(struct saver_rig *r, const struct rank *self,
                          const struct model_config *model, int n_shards);
void saver_rig_close(struct saver_rig *r);

/* Gives every element another value, the same for each salt, in whole and own. */
void saver_rig_fill(struct saver_rig *r, unsigned salt);

/* saver_begin with a checkpoint of that step; `save` waits for it as well. */
int saver_rig_begin(struct saver_rig *r, uint64_t step);
int saver_rig_save(struct saver_rig *r, uint64_t step);

bool saver_rig_has(const struct saver_rig *r, uint64_t step, bool tmp);

/* That checkpoint is whole, and has the state in it that the rig has now. */
void saver_rig_check(struct saver_rig *r, uint64_t step);

/* How the ranks at hand hold the state. */
extern struct saver_shape {
    int n_shards, n_replicas;
} saver_rig_shape;

/* Runs `body` on n_shards * n_replicas ranks, which all have to end with 0: in this
 * folder, in one of its own, on all shapes that differ, saving the state where it
 * lies. */
void saver_rig_run_in(const char *dir, const struct saver_shape *how, rank_body body);
void saver_rig_run(int n_shards, int n_replicas, rank_body body);
void saver_rig_run_on_all_shapes(rank_body body);
void saver_rig_run_in_place(int n_shards, int n_replicas, rank_body body);

/* In such a body: saver_rig_open, as the shape has it. */
void saver_rig_open_shaped(struct saver_rig *r, const struct rank *self,
                           enum saver_answer answer);
bool saver_rig_leads(const struct saver_rig *r);

/* A key of the store that says that somebody is somewhere; `meet`: nobody goes on before
 * all are here. */
void saver_rig_say(struct saver_rig *r, const char *key);
void saver_rig_hear(struct saver_rig *r, const char *key);
void saver_rig_meet(struct saver_rig *r, unsigned where);

#endif
