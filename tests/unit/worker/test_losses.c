/* The sum must have the bits of one sum in leaf order on any number of ranks: the
 * values are such that any other order gives another sum. */

#include "tests/lib/cmocka.h"
#include "tests/lib/rank_ends.h"
#include "worker/losses.h"
#include "worker/parallel/tree.h"

#include <string.h>

enum { STEPS = 3 };

static const uint32_t leaf_counts[] = {1, 2, 3, 4, 5, 7, 8, 16, 33};

static double value(int step, uint32_t leaf)
{
    static const double sizes[] = {1e16, 1.0, -1e16, 3.0, 1e-9, 0.1};

    return sizes[leaf % ARRAY_LEN(sizes)] * (1 + step) + leaf;
}

static double sum_in_leaf_order(int step, uint32_t n)
{
    double sum = 0;

    for (uint32_t leaf = 0; leaf < n; leaf++) {
        sum += value(step, leaf);
    }
    return sum;
}

/* In step s exactly rank s asks to leave, and each rank after it is saving. */
static unsigned flags_of(int step, int rank)
{
    return (step == rank ? LOSSES_LEAVE : 0U) | (rank > step ? LOSSES_SAVING : 0U);
}

static unsigned all_flags(int step, int world)
{
    unsigned ret = 0;

    for (int rank = 0; rank < world; rank++) {
        ret |= flags_of(step, rank);
    }
    return ret;
}

static void fill(struct losses *l, uint32_t n, int rank, int world, int team, int step)
{
    struct leaf_run run = leaf_run_of(n, world, team, rank);

    for (uint32_t leaf = run.begin; leaf < run.end; leaf += run.stride) {
        *losses_slot(l, leaf) = value(step, leaf);
    }
}

/* --- one rank --- */

static void one_rank_sums_its_leaves_in_order(void **state)
{
    struct device_config config = {.local_world_size = 1, .threads = 1};
    struct device *device = NULL;
    struct losses *l = NULL;
    struct errmsg msg;

    (void)state;
    assert_int_equal(device_open("cpu", &config, &device, &msg), 0);
    for (size_t i = 0; i < ARRAY_LEN(leaf_counts); i++) {
        uint32_t n = leaf_counts[i];

        assert_int_equal(losses_bytes(n, 1), (n + 2) * sizeof(double));
        assert_int_equal(losses_new(device, NULL, n, 1, &l, &msg), 0);
        for (int step = 0; step < STEPS; step++) {
            unsigned flags = ~0U;
            double sum = -1;

            fill(l, n, 0, 1, 1, step);
            losses_exchange(l, flags_of(step, 0));
            assert_int_equal(losses_finish(l, RANK_TIMEOUT_MS, &sum, &flags, &msg), 0);
            assert_true(sum == sum_in_leaf_order(step, n));
            assert_int_equal(flags, flags_of(step, 0));
        }
        losses_free(l);
    }
    losses_free(NULL);
    device_close(device);
}

/* --- several ranks --- */

static void try_steps(const struct rank *self, struct rank_ends *e, uint32_t n,
                      int team)
{
    struct losses *l = NULL;
    struct errmsg msg;

    RANK_CHECK(losses_new(e->device, e->comm, n, team, &l, &msg) == 0);
    for (int step = 0; step < STEPS; step++) {
        unsigned flags = ~0U;
        double sum = -1;

        fill(l, n, self->rank, self->world_size, team, step);
        losses_note(l, self->rank * 1e15 + step); /* in no sum */
        losses_exchange(l, flags_of(step, self->rank));
        RANK_CHECK(losses_finish(l, RANK_TIMEOUT_MS, &sum, &flags, &msg) == 0);
        RANK_CHECK(sum == sum_in_leaf_order(step, n));
        RANK_CHECK(flags == all_flags(step, self->world_size));
        for (int rank = 0; rank < self->world_size; rank++) {
            RANK_CHECK(losses_noted(l, rank) == rank * 1e15 + step);
        }
    }
    losses_free(l);
}

static void try_teams(const struct rank *self, struct rank_ends *e, uint32_t n)
{
    for (int team = 1; team <= self->world_size; team++) {
        if (self->world_size % team == 0) {
            try_steps(self, e, n, team);
        }
    }
}

static int sum_on_all(const struct rank *self)
{
    struct rank_ends e;

    rank_ends_open(&e, self, self->arg);
    for (size_t i = 0; i < ARRAY_LEN(leaf_counts); i++) {
        try_teams(self, &e, leaf_counts[i]);
    }
    rank_ends_close(&e);
    return 0;
}

static void run(int n, rank_body body, const struct rank_setup *setup)
{
    int status[RANKS_MAX];

    assert_true(ranks_run(n, body, setup, status));
    for (int rank = 0; rank < n; rank++) {
        assert_int_equal(status[rank], 0);
    }
}

static void every_rank_has_the_sum_in_leaf_order_and_all_flags(void **state)
{
    static const struct rank_setup one_node = {"auto", RANKS_MAX};
    static const struct rank_setup nodes_of_two = {"auto", 2};

    (void)state;
    for (int n = 2; n <= 4; n++) {
        run(n, sum_on_all, &one_node);
    }
    run(3, sum_on_all, &nodes_of_two);
}

/* Rank 1 hands in its part only when rank 0 has waited in vain. */
static int one_is_late(const struct rank *self)
{
    struct losses *l = NULL;
    struct errmsg msg = {""};
    struct rank_ends e;
    unsigned flags = 9;
    double sum = -1;
    size_t size;
    char byte;

    rank_ends_open(&e, self, self->arg);
    RANK_CHECK(losses_new(e.device, e.comm, 2, 1, &l, &msg) == 0);
    fill(l, 2, self->rank, 2, 1, 0);
    if (self->rank == 0) {
        losses_exchange(l, 0);
        RANK_CHECK(losses_finish(l, 0, &sum, &flags, &msg) == ERR_TIMEOUT);
        RANK_CHECK(sum == -1 && flags == 9); /* untouched */
        RANK_CHECK(store_client_set(e.store, "late", "x", 1, &msg) == 0);
    } else {
        RANK_CHECK(store_client_get(e.store, "late", &byte, 1, &size, &msg) == 0);
        losses_exchange(l, 0);
    }
    RANK_CHECK(losses_finish(l, RANK_TIMEOUT_MS, &sum, &flags, &msg) == 0);
    RANK_CHECK(sum == sum_in_leaf_order(0, 2) && flags == 0);
    losses_free(l);
    rank_ends_close(&e);
    return 0;
}

static void a_late_rank_is_waited_for_and_no_sum_invented(void **state)
{
    static const struct rank_setup setup = {"auto", RANKS_MAX};

    (void)state;
    run(2, one_is_late, &setup);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_sums_its_leaves_in_order),
        cmocka_unit_test(every_rank_has_the_sum_in_leaf_order_and_all_flags),
        cmocka_unit_test(a_late_rank_is_waited_for_and_no_sum_invented),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
