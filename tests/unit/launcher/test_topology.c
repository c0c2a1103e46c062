#include "launcher/topology.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"
#include "common/err.h"

static void a_rounds_ranks_are_taken_over(void **state)
{
    const struct msg_round m = {.group_rank = 1,
                                .group_world = 3,
                                .first_rank = 1,
                                .world_size = 6,
                                .role_first_rank = 0,
                                .role_world_size = 5};
    struct topology t;

    (void)state;
    assert_int_equal(topology_make(&m, 2, &t), 0);
    assert_int_equal(t.group_rank, 1);
    assert_int_equal(t.group_world, 3);
    assert_int_equal(t.first_rank, 1);
    assert_int_equal(t.nproc, 2);
    assert_int_equal(t.world_size, 6);
    assert_int_equal(t.role_first_rank, 0);
    assert_int_equal(t.role_world_size, 5);
}

static void the_largest_worlds_fit(void **state)
{
    const struct msg_round full = {.group_rank = 1,
                                   .group_world = 2,
                                   .first_rank = 1 << 19,
                                   .world_size = MSG_MAX_WORLD,
                                   .role_first_rank = 1 << 19,
                                   .role_world_size = MSG_MAX_WORLD};
    const struct msg_round alone = {
        .group_world = 1, .world_size = 1, .role_world_size = 1};
    const struct msg_round last = {.group_rank = MSG_MAX_NODES - 1,
                                   .group_world = MSG_MAX_NODES,
                                   .first_rank = MSG_MAX_NODES - 1,
                                   .world_size = MSG_MAX_NODES,
                                   .role_world_size = 1};
    struct topology t;

    (void)state;
    assert_int_equal(topology_make(&full, 1 << 19, &t), 0);
    assert_int_equal(topology_make(&alone, 1, &t), 0);
    assert_int_equal(topology_make(&last, 1, &t), 0);
}

static void impossible_worlds_are_refused_and_leave_the_result_alone(void **state)
{
    static const struct msg_round cases[] = {
        /* for a node of 2 ranks: group rank, nodes, first rank, ranks */
        {.group_rank = 0, .group_world = 0, .first_rank = 0, .world_size = 2},
        {.group_rank = 2, .group_world = 2, .first_rank = 4, .world_size = 6},
        {.group_rank = 0, .group_world = 1, .first_rank = 0, .world_size = 1},
        {.group_rank = 0, .group_world = 1, .first_rank = 0, .world_size = 0},
        {.group_rank = 1, .group_world = 2, .first_rank = 0, .world_size = 4},
        {.group_rank = 0, .group_world = 2, .first_rank = 1, .world_size = 4},
        {.group_rank = 1, .group_world = 2, .first_rank = 3, .world_size = 4},
        {.group_rank = 2, .group_world = 3, .first_rank = 1, .world_size = 4},
        {.group_rank = 0, .group_world = 3, .first_rank = 0, .world_size = 3},
        {.group_rank = 1, .group_world = 2, .first_rank = UINT32_MAX, .world_size = 4},
        {.group_rank = 1, .group_world = 2, .first_rank = 9, .world_size = UINT32_MAX},
        {.group_world = MSG_MAX_NODES + 1, .world_size = MSG_MAX_WORLD},
        {.group_world = 2, .world_size = MSG_MAX_WORLD + 1},
    };
    struct topology t = {.nproc = 77};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct msg_round m = cases[i];

        m.role_world_size = 2;
        assert_int_equal(topology_make(&m, 2, &t), ERR_PROTOCOL);
    }
    assert_int_equal(topology_make(&(struct msg_round){.group_world = 1}, 0, &t),
                     ERR_PROTOCOL);
    assert_int_equal(t.nproc, 77);
}

/* Node 1 of 3, with 2 of 6 ranks: 1 before it, 3 behind. */
static void impossible_places_in_a_role_are_refused(void **state)
{
    static const struct {
        uint32_t first, size;
        int expected;
    } cases[] = {
        {0, 2, 0},
        {1, 6, 0},
        {0, 5, 0},
        {1, 3, 0},
        {0, 1, ERR_PROTOCOL},          /* not even this node's */
        {1, 2, ERR_PROTOCOL},          /* … from there on */
        {2, 6, ERR_PROTOCOL},          /* more before it than there are */
        {0, 6, ERR_PROTOCOL},          /* … and behind it */
        {0, 0, ERR_PROTOCOL},          /* unset */
        {UINT32_MAX, 6, ERR_PROTOCOL}, /* sums that 32 bits do not hold */
        {0, UINT32_MAX, ERR_PROTOCOL},
    };
    struct msg_round m = {
        .group_rank = 1, .group_world = 3, .first_rank = 1, .world_size = 6};
    struct topology t;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        m.role_first_rank = cases[i].first;
        m.role_world_size = cases[i].size;
        assert_int_equal(topology_make(&m, 2, &t), cases[i].expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rounds_ranks_are_taken_over),
        cmocka_unit_test(the_largest_worlds_fit),
        cmocka_unit_test(impossible_worlds_are_refused_and_leave_the_result_alone),
        cmocka_unit_test(impossible_places_in_a_role_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
