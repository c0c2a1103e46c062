#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"
#include "worker/data/loader.h"

#include "common/fault.h"
#include "common/mem.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SEQ_LEN = 4, N_SAMPLES = 50, MICRO = 2, GLOBAL = 8 };

static struct scratch scratch;
static struct text_list paths;

struct rig {
    struct dataset *dataset;
    struct sampler *sampler;
    struct loader *loader;
};

static int on_setup(void **state)
{
    struct rig *r = mem_zalloc(sizeof(*r));
    uint16_t tokens[SEQ_LEN * N_SAMPLES + 1];
    struct dataset_config config = {.paths = &paths,
                                    .format = "u16",
                                    .what = "data.train",
                                    .seq_len = SEQ_LEN,
                                    .vocab = 1000};

    scratch_open(&scratch);
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
        tokens[i] = (uint16_t)i; /* sample s begins with 4·s */
    }
    (void)snprintf(paths.item[0], CONFIG_TEXT_MAX, "%s",
                   scratch_write(&scratch, "a.bin", tokens, sizeof(tokens)));
    paths.n = 1;
    assert_int_equal(dataset_open(&config, &r->dataset, NULL), 0);
    assert_int_equal(sampler_new("permute", 5, dataset_samples(r->dataset), GLOBAL,
                                 &r->sampler, NULL),
                     0);
    *state = r;
    return 0;
}

static int on_teardown(void **state)
{
    struct rig *r = *state;

    loader_close(r->loader);
    sampler_free(r->sampler);
    dataset_close(r->dataset);
    mem_free(r);
    scratch_close(&scratch);
    return 0;
}

static void open_loader(struct rig *r, uint64_t first_step, uint64_t n_steps,
                        uint32_t leaf_begin, uint32_t leaf_end, uint32_t leaf_stride,
                        int n_ahead)
{
    struct loader_config config = {.dataset = r->dataset,
                                   .sampler = r->sampler,
                                   .first_step = first_step,
                                   .n_steps = n_steps,
                                   .leaf_begin = leaf_begin,
                                   .leaf_end = leaf_end,
                                   .leaf_stride = leaf_stride,
                                   .micro_batch = MICRO,
                                   .global_batch = GLOBAL,
                                   .seq_len = SEQ_LEN,
                                   .n_ahead = n_ahead};
    struct errmsg msg = {0};

    if (loader_open(&config, &r->loader, &msg) != 0) {
        fail_msg("%s", msg.text);
    }
    assert_int_equal(
        loader_bytes(&config), /* tokens and targets of each slot, a sample */
        ((size_t)n_ahead + 1) * 2 * MICRO * SEQ_LEN * 4 +
            (SEQ_LEN + 1) * sizeof(int32_t));
}

/* The next leaf must be leaf `m` of step `step`, by a sampler of the test's own. */
static void assert_leaf(struct rig *r, struct sampler *own, uint64_t step, uint64_t m)
{
    const int32_t *tokens;
    const int32_t *targets;
    struct errmsg msg = {0};

    if (loader_next(r->loader, &tokens, &targets, &msg) != 0) {
        fail_msg("%s", msg.text);
    }
    for (uint64_t row = 0; row < MICRO; row++) {
        uint64_t sample = sampler_at(own, step * GLOBAL + m * MICRO + row);

        for (uint64_t i = 0; i < SEQ_LEN; i++) {
            assert_int_equal(tokens[row * SEQ_LEN + i], sample * SEQ_LEN + i);
            assert_int_equal(targets[row * SEQ_LEN + i], sample * SEQ_LEN + i + 1);
        }
    }
}

static void leaves_come_in_the_order_of_the_plan(void **state)
{
    struct rig *r = *state;
    struct sampler *own = NULL;

    assert_int_equal(sampler_new("permute", 5, N_SAMPLES, GLOBAL, &own, NULL), 0);
    open_loader(r, 3, 20, 1, 3, 0, 3); /* leaves 1 and 2 of steps 3 … 22 */
    for (uint64_t step = 3; step < 23; step++) {
        assert_leaf(r, own, step, 1);
        assert_leaf(r, own, step, 2);
    }
    sampler_free(own);
}

static void every_second_leaf_comes_where_ranks_take_turns(void **state)
{
    struct rig *r = *state;
    struct sampler *own = NULL;

    assert_int_equal(sampler_new("permute", 5, N_SAMPLES, GLOBAL, &own, NULL), 0);
    open_loader(r, 3, 9, 1, 4, 2, 3); /* leaves 1 and 3 */
    for (uint64_t step = 3; step < 12; step++) {
        assert_leaf(r, own, step, 1);
        assert_leaf(r, own, step, 3);
    }
    sampler_free(own);
}

static void one_leaf_ahead_is_enough(void **state)
{
    struct rig *r = *state;
    struct sampler *own = NULL;

    assert_int_equal(sampler_new("permute", 5, N_SAMPLES, GLOBAL, &own, NULL), 0);
    open_loader(r, 0, 0, 0, 4, 0, 1);
    for (uint64_t i = 0; i < 100; i++) {
        assert_leaf(r, own, i / 4, i % 4);
    }
    sampler_free(own);
}

static void a_leaf_stays_until_the_next_is_asked_for(void **state)
{
    struct rig *r = *state;
    const int32_t *tokens;
    const int32_t *targets;
    int32_t copy[MICRO * SEQ_LEN];

    open_loader(r, 0, 0, 0, 4, 0, 1);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(loader_next(r->loader, &tokens, &targets, NULL), 0);
        memcpy(copy, tokens, sizeof(copy));
        (void)sched_yield(); /* the thread may go on, but not over this slot */
        assert_memory_equal(copy, tokens, sizeof(copy));
    }
}

static void an_endless_loader_closes_at_any_time(void **state)
{
    struct rig *r = *state;
    const int32_t *tokens;
    const int32_t *targets;

    for (int i = 0; i < 20; i++) {
        open_loader(r, 0, 0, 0, 4, 0, 2);
        for (int j = 0; j < i; j++) {
            assert_int_equal(loader_next(r->loader, &tokens, &targets, NULL), 0);
        }
        loader_close(r->loader);
        r->loader = NULL;
    }
}

static void the_threads_error_is_met_where_it_belongs(void **state)
{
    struct rig *r = *state;
    const int32_t *tokens;
    const int32_t *targets;
    struct errmsg msg = {0};
    int rv = 0;

    open_loader(r, 0, 0, 0, 4, 0, 1);
    assert_int_equal(loader_next(r->loader, &tokens, &targets, NULL), 0);
    assert_int_equal(truncate(scratch_path(&scratch, "a.bin"), 10), 0);
    for (int i = 0; i < 4 && rv == 0; i++) { /* what was read before is still good */
        rv = loader_next(r->loader, &tokens, &targets, &msg);
    }
    assert_int_equal(rv, ERR_CORRUPT);
    assert_non_null(
        strstr(msg.text, "a.bin: had 402 bytes at the start and has 10 now"));
    assert_int_equal(loader_next(r->loader, &tokens, &targets, &msg), ERR_CORRUPT);
}

#ifdef FAULTS

static void where_there_is_no_thread_the_limits_are_named(void **state)
{
    struct rig *r = *state;
    struct loader_config config = {.dataset = r->dataset,
                                   .sampler = r->sampler,
                                   .leaf_end = 4,
                                   .micro_batch = MICRO,
                                   .global_batch = GLOBAL,
                                   .seq_len = SEQ_LEN,
                                   .n_ahead = 1};
    struct errmsg msg = {0};

    fault_arm("data.thread", 1, -EAGAIN);
    assert_int_equal(loader_open(&config, &r->loader, &msg), -EAGAIN);
    assert_non_null(strstr(msg.text, "reading data ahead: no thread: "));
    assert_non_null(strstr(msg.text, "ulimit -d"));
    assert_null(r->loader);
    fault_disarm_all();
}

#endif

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, on_setup, on_teardown)
    const struct CMUnitTest tests[] = {
        CASE(leaves_come_in_the_order_of_the_plan),
        CASE(every_second_leaf_comes_where_ranks_take_turns),
        CASE(one_leaf_ahead_is_enough),
        CASE(a_leaf_stays_until_the_next_is_asked_for),
        CASE(an_endless_loader_closes_at_any_time),
        CASE(the_threads_error_is_met_where_it_belongs),
#ifdef FAULTS
        CASE(where_there_is_no_thread_the_limits_are_named),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
