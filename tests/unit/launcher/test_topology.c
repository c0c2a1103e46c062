#include "launcher/topology.h"
#include "tests/lib/cmocka.h"

#include "common/err.h"

static void ranks_are_numbered_through_in_group_rank_order(void **state)
{
    const struct msg_node nodes[] = {{.nproc = 1}, {.nproc = 2}, {.nproc = 3}};
    static const uint32_t firsts[] = {0, 1, 3};
    struct topology t;

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(topology_make(nodes, 3, i, &t), 0);
        assert_int_equal(t.group_rank, i);
        assert_int_equal(t.group_world, 3);
        assert_int_equal(t.first_rank, firsts[i]);
        assert_int_equal(t.nproc, i + 1);
        assert_int_equal(t.world_size, 6);
    }
}

static void impossible_worlds_are_refused_and_leave_the_result_alone(void **state)
{
    const struct msg_node nodes[] = {
        {.nproc = 1 << 19}, {.nproc = 1 << 19}, {.nproc = 1}};
    const struct msg_node empty[] = {{.nproc = 0}};
    const struct msg_node wrapping[] = {{.nproc = UINT32_MAX}, {.nproc = 2}};
    struct topology t = {.nproc = 77};

    (void)state;
    assert_int_equal(topology_make(nodes, 3, 0, &t), ERR_PROTOCOL);
    assert_int_equal(topology_make(nodes, 2, 2, &t), ERR_PROTOCOL);
    assert_int_equal(topology_make(nodes, 0, 0, &t), ERR_PROTOCOL);
    assert_int_equal(topology_make(empty, 1, 0, &t), ERR_PROTOCOL);
    assert_int_equal(topology_make(wrapping, 2, 1, &t), ERR_PROTOCOL);
    assert_int_equal(t.nproc, 77);
    assert_int_equal(topology_make(nodes, 2, 1, &t), 0);
    assert_int_equal(t.world_size, 1 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_numbered_through_in_group_rank_order),
        cmocka_unit_test(impossible_worlds_are_refused_and_leave_the_result_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
