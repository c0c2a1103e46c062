/* One bit that one rank has otherwise is found, named and blamed on that rank, in every
 * way to hold the same weights; and nothing is found where nothing is wrong. */

#include "tests/lib/cmocka.h"
#include "tests/lib/rank_ends.h"
#include "worker/device/kernels.h"
#include "worker/replicas.h"

#include "common/mem.h"

#include <string.h>

#define C ((size_t)SUMSQ_CHUNK)

/* ---- the verdict ----------------------------------------------------------------- */

static void the_verdict_names_the_unit_and_who_is_not_as_most(void **state)
{
    static const struct {
        uint64_t hash[6][2]; /* of each rank: two units */
        int world, stride, unit;
        const char *wrong; /* x for each rank that is */
    } cases[] = {
        {{{1, 2}}, 1, 1, -1, "."},
        {{{1, 2}, {1, 2}, {1, 2}}, 3, 1, -1, "..."},
        {{{1, 2}, {1, 3}, {1, 2}}, 3, 1, 1, ".x."},
        {{{9, 2}, {1, 3}, {1, 3}}, 3, 1, 0, "x.."},
        {{{9, 2}, {1, 2}, {1, 3}, {1, 2}}, 4, 1, 0, "x.x."},
        {{{1, 2}, {1, 3}}, 2, 1, 1, "xx"},
        {{{1, 2}, {1, 2}, {1, 3}, {1, 3}}, 4, 1, 1, "xxxx"}, /* half is not most */
        {{{1, 2}, {1, 3}, {1, 4}}, 3, 1, 1, "xxx"},
        {{{1, 1}, {2, 2}, {1, 1}, {2, 2}, {1, 1}, {2, 2}}, 6, 2, -1, "......"},
        {{{1, 1}, {2, 2}, {1, 1}, {2, 7}, {1, 1}, {2, 2}}, 6, 2, 1, "...x.."},
        {{{1, 1}, {2, 2}, {3, 3}, {1, 1}, {2, 2}, {3, 7}}, 6, 3, 1, "..x..x"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        bool is_wrong[6];

        assert_int_equal(replicas_judge(&cases[i].hash[0][0], cases[i].world, 2,
                                        cases[i].stride, is_wrong),
                         cases[i].unit);
        for (int r = 0; r < cases[i].world; r++) {
            assert_int_equal(is_wrong[r], cases[i].wrong[r] == 'x');
        }
    }
}

static void there_is_something_to_compare_where_something_is_there_twice(void **state)
{
    static const struct {
        int dp_replicate, dp_shard;
        bool params, exist;
    } cases[] = {
        {1, 1, false, false}, {2, 1, false, true}, {1, 3, true, false},
        {1, 3, false, true},  {2, 3, true, true},  {2, 3, false, true},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(
            replicas_exist(&(struct mesh){cases[i].dp_replicate, cases[i].dp_shard},
                           &(struct zero){.params = cases[i].params}),
            cases[i].exist);
    }
}

/* ---- ranks ----------------------------------------------------------------------- */

enum { N_UNITS = 3 };

static struct unit units[N_UNITS] = {
    {.name = "embedding", .offset = 0, .size = 5 * C},
    {.name = "h.0", .offset = 5 * C, .size = 4 * C},
    {.name = "head", .offset = 9 * C, .size = 3 * C},
};
static const struct layout layout = {
    .unit = units, .n_units = N_UNITS, .size = 12 * C, .n_params = 12 * C};

struct trial {
    const char *strategy;
    int n_ranks, n_shards; /* of hsdp */
    bool keep;
    int broken;   /* a rank */
    int block;    /* of its: parameters, moments */
    size_t place; /* of the flat block */
    const char *wrong, *text;
};

static const struct trial trials[] = {
    {.strategy = "ddp",
     .n_ranks = 3,
     .broken = 1,
     .place = 6 * C,
     .wrong = ".x.",
     .text = "step 7: the weights or moments of rank 1 differ from all others' (first "
             "in h.0)"},
    {.strategy = "ddp",
     .n_ranks = 3,
     .broken = 0,
     .block = 2,
     .place = 12 * C - 1,
     .wrong = "x..",
     .text = "moments of rank 0 differ from all others' (first in head)"},
    {.strategy = "ddp",
     .n_ranks = 2,
     .broken = 1,
     .place = 0,
     .wrong = "xx",
     .text = "of ranks 0 and 1 differ from one another (first in embedding)"},
    {.strategy = "hsdp",
     .n_ranks = 4,
     .n_shards = 2,
     .broken = 3,
     .place = 8 * C,
     .wrong = ".x.x",
     .text = "of ranks 1 and 3 differ from one another (first in h.0)"},
    {.strategy = "zero1",
     .n_ranks = 3,
     .broken = 2,
     .place = C,
     .wrong = "..x",
     .text = "step 7: the weights of rank 2 differ from all others' (first in "
             "embedding)"},
    {.strategy = "zero2",
     .n_ranks = 2,
     .broken = 0,
     .place = 9 * C,
     .wrong = "xx",
     .text = "the weights of ranks 0 and 1 differ from one another (first in head)"},
    {.strategy = "fsdp",
     .n_ranks = 3,
     .keep = true,
     .broken = 1,
     .place = 6 * C,
     .wrong = ".x.",
     .text = "the weights of rank 1 differ from all others' (first in h.0)"},
};

struct ends {
    struct rank_ends all;
    struct comm *gather, *shard, *replica;
    const struct trial *trial;
    struct mesh mesh;
    struct parallel *parallel;
    float *moments; /* two blocks */
    int rank;
};

static struct comm *open_group(const struct ends *e, const char *name, int id, int rank,
                               int size)
{
    char group[32];
    struct comm_config config = {.group = group,
                                 .rank = rank,
                                 .world_size = size,
                                 .store = e->all.store,
                                 .timeout_ms = RANK_TIMEOUT_MS};
    struct errmsg msg = {""};
    struct comm *ret = NULL;

    (void)snprintf(group, sizeof(group), "%s%d", name, id);
    RANK_CHECK(comm_open("auto", &config, e->all.device, &ret, &msg) == 0);
    return ret;
}

static void open_comms(struct ends *e)
{
    int replica = mesh_replica(&e->mesh, e->rank);
    int shard = mesh_shard(&e->mesh, e->rank);

    if (e->mesh.dp_shard == 1) {
        return;
    }
    e->gather = open_group(e, "gather", replica, shard, e->mesh.dp_shard);
    e->shard = open_group(e, "shard", replica, shard, e->mesh.dp_shard);
    if (e->mesh.dp_replicate > 1) {
        e->replica = open_group(e, "replica", shard, replica, e->mesh.dp_replicate);
    }
}

static struct zero ends_open(struct ends *e, const struct rank *self)
{
    const struct trial *t = self->arg;
    const struct parallel_ops *ops = NULL;
    struct mesh_wish wish = {.strategy = t->strategy,
                             .dp_shard = t->n_shards,
                             .world_size = self->world_size,
                             .node_size = RANKS_MAX};
    struct parallel_config config = {.layout = &layout,
                                     .rank = self->rank,
                                     .world_size = self->world_size,
                                     .n_leaves = 9,
                                     .bucket_cap_bytes = 1 << 20,
                                     .ahead = 1,
                                     .exact = true};
    struct errmsg msg = {""};

    *e = (struct ends){.trial = t, .rank = self->rank};
    rank_ends_open(&e->all, self,
                   &(struct rank_setup){.kind = "auto", .node_size = RANKS_MAX});
    RANK_CHECK(parallel_find(t->strategy, &ops, &msg) == 0);
    wish.zero = ops->zero;
    wish.replicates = ops->replicates;
    RANK_CHECK(mesh_make(&wish, &e->mesh, &msg) == 0);
    open_comms(e);
    config.ops = ops;
    config.device = e->all.device;
    config.comm = e->all.comm;
    config.gather = e->gather;
    config.shard = e->shard;
    config.replica = e->replica;
    config.mesh = e->mesh;
    config.zero = ops->zero;
    config.zero.params = config.zero.params && !t->keep;
    RANK_CHECK(ops->open(&config, &e->parallel, &msg) == 0);
    e->moments = mem_array(2 * e->parallel->own.size, sizeof(float));
    return config.zero;
}

static void ends_close(struct ends *e)
{
    mem_free(e->moments);
    e->parallel->ops->close(e->parallel);
    comm_close(e->replica);
    comm_close(e->shard);
    comm_close(e->gather);
    rank_ends_close(&e->all);
}

static void fill(struct ends *e)
{
    const struct shard_map *own = &e->parallel->own;

    for (int k = 0; k < own->n_ranges; k++) {
        const struct shard_range *r = &own->range[k];

        for (size_t i = r->begin; i < r->end; i++) {
            size_t at = r->at + (i - r->begin);

            e->parallel->params[at] = (float)i;
            e->moments[at] = -(float)i;
            e->moments[own->size + at] = 0.5F * (float)i;
        }
    }
    e->parallel->ops->updated(e->parallel);
}

static void flip(float *x)
{
    uint32_t bits;

    memcpy(&bits, x, sizeof(bits));
    bits ^= 1;
    memcpy(x, &bits, sizeof(bits));
}

/* Of the own block, where the place is in it. */
static void break_own(struct ends *e, float *const *blocks)
{
    const struct shard_map *own = &e->parallel->own;

    for (int k = 0; k < own->n_ranges; k++) {
        const struct shard_range *r = &own->range[k];

        if (e->trial->place >= r->begin && e->trial->place < r->end) {
            flip(blocks[e->trial->block] + r->at + (e->trial->place - r->begin));
        }
    }
}

/* Of what was gathered, and stays for the next pass. */
static void break_gathered(const struct ends *e, bool is_broken)
{
    struct unit_params params = e->parallel->ops->pass(e->parallel, false);

    for (int i = 0; i <= N_UNITS; i++) {
        const struct unit *u = &units[i % N_UNITS];
        size_t place = e->trial->place - u->offset;
        float *data = (float *)(uintptr_t)params.begin(params.arg, i % N_UNITS);

        if (is_broken && i < N_UNITS && place < u->size) {
            flip(data + place);
        }
        params.end(params.arg, i % N_UNITS);
    }
}

static int try_trial(const struct rank *self)
{
    const struct trial *t = self->arg;
    struct ends e;
    struct zero zero = ends_open(&e, self);
    float *blocks[] = {e.parallel->params, e.moments, e.moments + e.parallel->own.size};
    const float *const seen[] = {blocks[0], blocks[1], blocks[2]};
    struct replicas_config config = {.device = e.all.device,
                                     .comm = e.all.comm,
                                     .layout = &layout,
                                     .parallel = e.parallel,
                                     .mesh = e.mesh,
                                     .timeout_ms = RANK_TIMEOUT_MS};
    struct replicas *r = NULL;
    struct errmsg msg = {""};
    int rv;

    RANK_CHECK(replicas_exist(&e.mesh, &zero));
    RANK_CHECK(replicas_new(&config, &r, &msg) == 0);
    for (int n_blocks = 1; n_blocks <= 3; n_blocks++) {
        fill(&e);
        RANK_CHECK(replicas_compare(r, seen, n_blocks, 6, &msg) == 0);
    }
    if (e.mesh.dp_replicate == 1) {
        break_gathered(&e, self->rank == t->broken);
    } else if (self->rank == t->broken) {
        break_own(&e, blocks);
    }
    rv = replicas_compare(r, seen, 3, 7, &msg);
    RANK_CHECK(rv == (t->wrong[self->rank] == 'x' ? ERR_DIVERGED : ERR_PEER_LOST));
    if (!strstr(msg.text, t->text)) {
        (void)fprintf(stderr, "%s\n", msg.text);
    }
    RANK_CHECK(strstr(msg.text, t->text));
    if (t->block > 0) { /* which is looked at where it would be saved */
        RANK_CHECK(replicas_compare(r, seen, 1, 8, &msg) == 0);
    }
    fill(&e);
    RANK_CHECK(replicas_compare(r, seen, 3, 9, &msg) == 0);
    replicas_free(r);
    ends_close(&e);
    return 0;
}

static void a_flipped_bit_is_found_and_blamed_on_its_rank(void **state)
{
    int status[RANKS_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(trials); i++) {
        print_message("%s: %d ranks\n", trials[i].strategy, trials[i].n_ranks);
        assert_true(ranks_run(trials[i].n_ranks, try_trial, &trials[i], status));
        for (int r = 0; r < trials[i].n_ranks; r++) {
            assert_int_equal(status[r], 0);
        }
    }
}

/* ---- many ------------------------------------------------------------------------ */

/* Every rank has something else. */
static int try_many(const struct rank *self)
{
    struct ends e;
    struct replicas *r = NULL;
    struct errmsg msg = {""};
    struct replicas_config config;

    (void)ends_open(&e, self);
    config = (struct replicas_config){.device = e.all.device,
                                      .comm = e.all.comm,
                                      .layout = &layout,
                                      .parallel = e.parallel,
                                      .mesh = e.mesh,
                                      .timeout_ms = RANK_TIMEOUT_MS};
    RANK_CHECK(replicas_new(&config, &r, &msg) == 0);
    e.parallel->params[0] = (float)self->rank;
    RANK_CHECK(replicas_compare(r, (const float *const[]){e.parallel->params}, 1, 1,
                                &msg) == ERR_DIVERGED);
    RANK_CHECK(strstr(msg.text, "the weights of ranks 0, 1, 2, 3, 4, 5, 6 and 2 more "
                                "differ from one another"));
    replicas_free(r);
    ends_close(&e);
    return 0;
}

static void many_wrong_ranks_fit_a_line(void **state)
{
    static const struct trial ddp = {.strategy = "ddp", .n_ranks = 9};
    int status[RANKS_MAX];

    (void)state;
    assert_true(ranks_run(ddp.n_ranks, try_many, &ddp, status));
    for (int r = 0; r < ddp.n_ranks; r++) {
        assert_int_equal(status[r], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_verdict_names_the_unit_and_who_is_not_as_most),
        cmocka_unit_test(there_is_something_to_compare_where_something_is_there_twice),
        cmocka_unit_test(a_flipped_bit_is_found_and_blamed_on_its_rank),
        cmocka_unit_test(many_wrong_ranks_fit_a_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
