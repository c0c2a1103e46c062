#ifndef TESTS_LIB_STRATEGY_RIG_H
#define TESTS_LIB_STRATEGY_RIG_H

/* Strategies on real ranks: the layouts of ranks that are tried, a model of four units
 * whose parameters and gradients are known element by element, and a step of it. In the
 * forked rank but for strategy_run_all; failures end the rank. */

#include "tests/lib/rank_ends.h"
#include "worker/device/kernels.h"
#include "worker/parallel/parallel.h"

enum { STRATEGY_UNITS = 4 };

#define STRATEGY_TIED (3 * (size_t)SUMSQ_CHUNK + 1001) /* elements of the head */

struct strategy_topology {
    int n_ranks, node_size;
    const char *strategy;
    int n_shards; /* of hsdp; else all or 1 */
    bool keep;    /* parameters, once gathered */
    int n_blocks, ahead, n_secondary;
    enum dtype params, grads; /* … of a pass, and of a leaf before it is summed */
};

extern const struct layout strategy_layout;
extern const struct strategy_topology strategy_topologies[];
extern const size_t strategy_n_topologies;

/* A rank and its groups' comms. */
struct strategy_ends {
    struct rank_ends all;
    struct comm *gather, *secondary, *shard, *replica;
    const struct parallel_ops *ops;
    const struct strategy_topology *topology;
    struct mesh mesh;
    int rank, world_size;
};

void strategy_ends_open(struct strategy_ends *e, const struct rank *self,
                        const struct strategy_topology *t);
void strategy_ends_close(struct strategy_ends *e);

/* Of m leaves; buckets of `cap` bytes. */
struct parallel_config strategy_config(const struct strategy_ends *e, uint32_t m,
                                       size_t cap, bool exact, bool is_tied);

struct parallel *strategy_start(const struct parallel_config *config);

/* Element i of a leaf's gradient; those of the head lie behind the layout's. */
float strategy_leaf_grad(uint32_t step, uint32_t leaf, size_t i);

/* The own parameters become those of the step. */
void strategy_set_params(struct parallel *p, uint32_t step);

/* A forward pass: checks the parameters of all units. */
void strategy_forward(const struct strategy_ends *e, const struct unit_params *params,
                      uint32_t step);

/* All leaves of a step; the summed gradient, which is the strategy's. */
const float *strategy_step(struct strategy_ends *e, struct parallel *p, uint32_t step,
                           bool is_tied);

/* Waits for the compute queue. */
void strategy_finish(struct strategy_ends *e);

/* Of a strategy_step's gradient: element i of the layout, which lies in `r`. */
float strategy_own_element(const struct parallel *p, const float *grads,
                           const struct shard_range *r, size_t i);

/* The body on all topologies, each `self->arg`. */
void strategy_run_all(rank_body body);

#endif
