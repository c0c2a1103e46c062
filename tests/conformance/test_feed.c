/* DP's tokens, by real processes: rank 0 reads, and every rank gets the leaves that a
 * loader of its own would have given it. */

#include "tests/lib/cmocka.h"
#include "tests/lib/rank_ends.h"
#include "tests/lib/scratch.h"
#include "worker/feed.h"
#include "worker/parallel/tree.h"

#include <stdio.h>
#include <string.h>

enum { SEQ_LEN = 4, N_SAMPLES = 60, MICRO = 2, FIRST = 3, STEPS = 3 };

struct shape {
    int n_ranks, node_size;
    uint32_t n_leaves;
};

static const struct shape shapes[] = {
    {2, RANKS_MAX, 2}, {2, RANKS_MAX, 5}, {3, RANKS_MAX, 7}, {4, 2, 6}, {3, 2, 3}};

static struct scratch scratch;
static struct text_list paths;

/* A rank's data and what it is fed. */
struct eater {
    struct rank_ends ends;
    struct dataset *dataset;
    struct sampler *sampler, *expected; /* the loader's thread has the first */
    struct loader *loader;              /* rank 0's */
    struct feed *feed;
    struct loader_config reads;
    struct feed_config config;
};

static struct sampler *new_sampler(const struct eater *e, uint32_t n_leaves)
{
    struct sampler *ret = NULL;

    RANK_CHECK(sampler_new("permute", 5, dataset_samples(e->dataset),
                           (uint64_t)n_leaves * MICRO, &ret, NULL) == 0);
    return ret;
}

static void open_data(struct eater *e, uint32_t n_leaves)
{
    struct dataset_config config = {.paths = &paths,
                                    .format = "u16",
                                    .what = "data.train",
                                    .seq_len = SEQ_LEN,
                                    .vocab = 1000};

    RANK_CHECK(dataset_open(&config, &e->dataset, NULL) == 0);
    e->sampler = new_sampler(e, n_leaves);
    e->expected = new_sampler(e, n_leaves);
    e->reads = (struct loader_config){.dataset = e->dataset,
                                      .sampler = e->sampler,
                                      .first_step = FIRST,
                                      .leaf_end = n_leaves,
                                      .micro_batch = MICRO,
                                      .global_batch = (int64_t)n_leaves * MICRO,
                                      .seq_len = SEQ_LEN,
                                      .n_ahead = 1};
}

static void eater_open(struct eater *e, const struct rank *self, const struct shape *s)
{
    *e = (struct eater){.feed = NULL};
    rank_ends_open(&e->ends, self, &(struct rank_setup){"auto", s->node_size});
    open_data(e, s->n_leaves);
    if (self->rank == 0) {
        RANK_CHECK(loader_open(&e->reads, &e->loader, NULL) == 0);
    }
    e->config = (struct feed_config){.device = e->ends.device,
                                     .comm = e->ends.comm,
                                     .loader = e->loader,
                                     .rank = self->rank,
                                     .world_size = self->world_size,
                                     .n_leaves = s->n_leaves,
                                     .leaf_tokens = (size_t)MICRO * SEQ_LEN};
    RANK_CHECK(feed_new(&e->config, &e->feed, NULL) == 0);
}

static void eater_close(struct eater *e)
{
    feed_free(e->feed);
    loader_close(e->loader);
    sampler_free(e->sampler);
    sampler_free(e->expected);
    dataset_close(e->dataset);
    rank_ends_close(&e->ends);
}

static void check_leaf(const struct eater *e, uint64_t step, uint32_t leaf)
{
    const int32_t *tokens;
    const int32_t *targets;
    uint64_t position = step * (uint64_t)e->reads.global_batch + (uint64_t)leaf * MICRO;

    feed_leaf(e->feed, leaf, &tokens, &targets);
    for (uint64_t row = 0; row < MICRO; row++) {
        uint64_t sample = sampler_at(e->expected, position + row);

        for (uint64_t i = 0; i < SEQ_LEN; i++) {
            RANK_CHECK((uint64_t)tokens[row * SEQ_LEN + i] == sample * SEQ_LEN + i);
            RANK_CHECK((uint64_t)targets[row * SEQ_LEN + i] ==
                       sample * SEQ_LEN + i + 1);
        }
    }
}

static void check_step(struct eater *e, uint64_t step)
{
    uint32_t world = (uint32_t)e->config.world_size, rank = (uint32_t)e->config.rank;
    struct errmsg msg = {""};

    RANK_CHECK(feed_step(e->feed, &msg) == 0);
    RANK_CHECK(device_finish(e->ends.device, device_mark(e->ends.device, QUEUE_COMPUTE),
                             RANK_TIMEOUT_MS, &msg) == 0);
    for (uint32_t leaf = tree_run_begin(e->config.n_leaves, world, rank);
         leaf < tree_run_begin(e->config.n_leaves, world, rank + 1); leaf++) {
        check_leaf(e, step, leaf);
    }
}

static int eat(const struct rank *self)
{
    struct eater e;

    eater_open(&e, self, self->arg);
    for (uint64_t step = FIRST; step < FIRST + STEPS; step++) {
        check_step(&e, step);
    }
    eater_close(&e);
    return 0;
}

static void every_rank_gets_the_leaves_of_its_run(void **state)
{
    int status[RANKS_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        assert_true(ranks_run(shapes[i].n_ranks, eat, &shapes[i], status));
        for (int r = 0; r < shapes[i].n_ranks; r++) {
            assert_int_equal(status[r], 0);
        }
    }
}

/* What the others have, rank 0 has sent. */
static void what_is_sent_is_what_the_others_hold(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct feed_config c = {.world_size = shapes[i].n_ranks,
                                .n_leaves = shapes[i].n_leaves,
                                .leaf_tokens = 10};
        size_t sent = feed_sent(&c), held = 0;

        assert_int_equal(feed_bytes(&c), (size_t)c.n_leaves * 2 * 10 * 4);
        for (c.rank = 1; c.rank < c.world_size; c.rank++) {
            held += feed_bytes(&c);
            assert_int_equal(feed_sent(&c), 0);
        }
        assert_int_equal(sent, held);
    }
}

static int on_setup(void **state)
{
    uint16_t tokens[SEQ_LEN * N_SAMPLES + 1];

    (void)state;
    scratch_open(&scratch);
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
        tokens[i] = (uint16_t)i; /* sample s begins with 4·s */
    }
    (void)snprintf(paths.item[0], CONFIG_TEXT_MAX, "%s",
                   scratch_write(&scratch, "a.bin", tokens, sizeof(tokens)));
    paths.n = 1;
    return 0;
}

static int on_teardown(void **state)
{
    (void)state;
    scratch_close(&scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_gets_the_leaves_of_its_run),
        cmocka_unit_test(what_is_sent_is_what_the_others_hold),
    };

    return cmocka_run_group_tests(tests, on_setup, on_teardown);
}
