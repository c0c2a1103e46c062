/* Where workers find their store. */

#include "launcher/access.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"

static const struct msg_node nodes[] = {
    {.addr = "10.0.0.1", .port = 7001},
    {.addr = "10.0.0.2", .port = 7002},
};

static void store_is_shared_by_other_programs_on_several_nodes_alone(void **state)
{
    static const struct {
        bool is_engine;
        uint32_t max_nodes;
        const char *listen, *master;
        int port;
    } cases[] = {
        {false, 2, "10.0.0.2", "10.0.0.1", 7001},
        {false, 1, "", "127.0.0.1", 9},
        {true, 2, "", "127.0.0.1", 9},
        {true, 1, "", "127.0.0.1", 9},
    };
    struct access a;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        access_make(cases[i].is_engine, cases[i].max_nodes, "", "10.0.0.2", &a);
        assert_string_equal(a.addr, "10.0.0.2"); /* engines, too, are found by it */
        assert_string_equal(access_listen_addr(&a), cases[i].listen);
        assert_string_equal(access_master(&a, nodes, 9).addr, cases[i].master);
        assert_int_equal(access_master(&a, nodes, 9).port, cases[i].port);
    }
}

/* A round of one node in a job of several: where the agent listens, the worker asks. */
static void address_that_is_listened_on_is_the_one_that_workers_are_told(void **state)
{
    struct access a;

    (void)state;
    access_make(false, 4, "", "10.0.0.1", &a);
    assert_string_equal(access_listen_addr(&a), access_master(&a, nodes, 7001).addr);
}

static void local_addr_goes_before_what_was_found(void **state)
{
    struct access a;

    (void)state;
    access_make(false, 2, "10.9.9.9", "10.0.0.1", &a);
    assert_string_equal(a.addr, "10.9.9.9");
    assert_string_equal(access_listen_addr(&a), "10.9.9.9");
}

static void static_world_is_told_the_endpoint_as_it_was_given(void **state)
{
    struct access a;

    (void)state;
    access_make(false, 2, "", "10.0.0.2", &a);
    access_fix(&a, false, "node0", 29500);
    assert_string_equal(access_listen_addr(&a), ""); /* its own workers come by it */
    assert_string_equal(access_master(&a, nodes, 9).addr, "node0");
    assert_int_equal(access_master(&a, nodes, 9).port, 29500);
    access_make(true, 2, "", "10.0.0.2", &a);
    access_fix(&a, true, "node0", 29500);
    assert_string_equal(access_master(&a, nodes, 9).addr, "127.0.0.1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(store_is_shared_by_other_programs_on_several_nodes_alone),
        cmocka_unit_test(address_that_is_listened_on_is_the_one_that_workers_are_told),
        cmocka_unit_test(static_world_is_told_the_endpoint_as_it_was_given),
        cmocka_unit_test(local_addr_goes_before_what_was_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
