/* Where workers find their store. */

#include "launcher/store/access.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"

static const struct msg_node nodes[] = {
    {.addr = "10.0.0.1", .port = 7001},
    {.addr = "10.0.0.2", .port = 7002},
};

static struct access made(const struct access_config *c)
{
    struct access a;

    access_make(c, &a);
    return a;
}

static void
store_is_shared_by_other_programs_where_asked_or_nodes_may_come(void **state)
{
    static const struct {
        enum store_access asked;
        bool is_engine;
        uint32_t max_nodes;
        const char *listen, *master;
        int port, published;
    } cases[] = {
        {STORE_ACCESS_AUTO, false, 2, "10.0.0.2", "10.0.0.1", 7001, 9},
        {STORE_ACCESS_AUTO, false, 1, "", "127.0.0.1", 9, 0},
        {STORE_ACCESS_AUTO, true, 2, "", "127.0.0.1", 9, 0},
        {STORE_ACCESS_AUTO, true, 1, "", "127.0.0.1", 9, 0},
        {STORE_ACCESS_LOCAL, false, 2, "", "127.0.0.1", 9, 0},
        {STORE_ACCESS_LOCAL, false, 1, "", "127.0.0.1", 9, 0},
        {STORE_ACCESS_DIRECT, false, 2, "10.0.0.2", "10.0.0.1", 7001, 9},
        {STORE_ACCESS_DIRECT, false, 1, "10.0.0.2", "10.0.0.1", 7001, 9},
        {STORE_ACCESS_DIRECT, true, 2, "", "127.0.0.1", 9, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct access_config config = {.asked = cases[i].asked,
                                       .is_engine = cases[i].is_engine,
                                       .max_nodes = cases[i].max_nodes,
                                       .local_addr = "",
                                       .own_addr = "10.0.0.2",
                                       .public_addr = ""};
        struct access a = made(&config);

        assert_string_equal(a.addr, "10.0.0.2"); /* engines, too, are found by it */
        assert_string_equal(access_listen_addr(&a), cases[i].listen);
        assert_string_equal(access_master(&a, nodes, 9).addr, cases[i].master);
        assert_int_equal(access_master(&a, nodes, 9).port, cases[i].port);
        assert_int_equal(access_published_port(&a, 9), cases[i].published);
    }
}

/* A secret would be in vain where workers talk past it. */
static void secret_makes_the_store_local_unless_direct_is_asked_for(void **state)
{
    struct access_config config = {.asked = STORE_ACCESS_AUTO,
                                   .has_keys = true,
                                   .max_nodes = 2,
                                   .local_addr = "",
                                   .own_addr = "10.0.0.2",
                                   .public_addr = "",
                                   .fixed_addr = "node0",
                                   .fixed_port = 29500};
    struct access a = made(&config);

    (void)state;
    assert_string_equal(access_master(&a, nodes, 9).addr, "127.0.0.1");
    assert_string_equal(access_listen_addr(&a), "");
    config.asked = STORE_ACCESS_DIRECT;
    a = made(&config);
    assert_string_equal(access_master(&a, nodes, 9).addr, "node0");
    config.fixed_addr = NULL;
    a = made(&config);
    assert_string_equal(access_master(&a, nodes, 9).addr, "10.0.0.1");
}

/* A round of one node in a job of several: where the agent listens, the worker asks. */
static void address_that_is_listened_on_is_the_one_that_workers_are_told(void **state)
{
    struct access_config config = {
        .max_nodes = 4, .local_addr = "", .own_addr = "10.0.0.1", .public_addr = ""};
    struct access a = made(&config);

    (void)state;
    assert_string_equal(access_listen_addr(&a), access_master(&a, nodes, 7001).addr);
}

static void local_addr_goes_before_what_was_found(void **state)
{
    struct access_config config = {.max_nodes = 2,
                                   .local_addr = "10.9.9.9",
                                   .own_addr = "10.0.0.1",
                                   .public_addr = ""};
    struct access a = made(&config);

    (void)state;
    assert_string_equal(a.addr, "10.9.9.9");
    assert_string_equal(access_listen_addr(&a), "10.9.9.9");
}

static void static_world_is_told_the_endpoint_as_it_was_given(void **state)
{
    struct access_config config = {.max_nodes = 2,
                                   .local_addr = "",
                                   .own_addr = "10.0.0.2",
                                   .public_addr = "",
                                   .fixed_addr = "node0",
                                   .fixed_port = 29500};
    struct access a = made(&config);

    (void)state;
    assert_string_equal(access_listen_addr(&a), ""); /* its own workers come by it */
    assert_string_equal(access_master(&a, nodes, 9).addr, "node0");
    assert_int_equal(access_master(&a, nodes, 9).port, 29500);
    config.asked = STORE_ACCESS_LOCAL;
    a = made(&config);
    assert_string_equal(access_master(&a, nodes, 9).addr, "127.0.0.1");
    config.asked = STORE_ACCESS_AUTO;
    config.is_engine = true;
    a = made(&config);
    assert_string_equal(access_master(&a, nodes, 9).addr, "127.0.0.1");
}

/* … unless the host has none other, or several nodes have met on its loopback. */
static void direct_on_one_node_is_an_address_that_others_can_reach(void **state)
{
    static const struct {
        enum store_access asked;
        uint32_t max_nodes;
        const char *local, *own, *public, *expected;
        bool wanted;
    } cases[] = {
        {STORE_ACCESS_DIRECT, 1, "", "127.0.0.1", "10.0.0.7", "10.0.0.7", true},
        {STORE_ACCESS_DIRECT, 1, "", "127.0.1.1", "10.0.0.7", "10.0.0.7", true},
        {STORE_ACCESS_DIRECT, 1, "", "::1", "fd00::7", "fd00::7", true},
        {STORE_ACCESS_DIRECT, 1, "", "127.0.0.1", "", "127.0.0.1", true},
        {STORE_ACCESS_DIRECT, 1, "", "10.0.0.2", "", "10.0.0.2", false},
        {STORE_ACCESS_DIRECT, 1, "127.0.0.1", "127.0.0.1", "", "127.0.0.1", false},
        {STORE_ACCESS_DIRECT, 2, "", "127.0.0.1", "", "127.0.0.1", false},
        {STORE_ACCESS_AUTO, 2, "", "127.0.0.1", "", "127.0.0.1", false},
        {STORE_ACCESS_AUTO, 1, "", "127.0.0.1", "", "127.0.0.1", false},
        {STORE_ACCESS_LOCAL, 1, "", "127.0.0.1", "", "127.0.0.1", false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct access_config config = {.asked = cases[i].asked,
                                       .max_nodes = cases[i].max_nodes,
                                       .local_addr = cases[i].local,
                                       .own_addr = cases[i].own,
                                       .public_addr = cases[i].public};
        struct access a = made(&config);

        assert_int_equal(access_wants_public(&config), cases[i].wanted);
        assert_string_equal(a.addr, cases[i].expected);
    }
}

/* Its port is not published: the others' workers would knock in vain. */
static void node_that_lets_nobody_in_is_seen_by_its_port(void **state)
{
    static const struct msg_node closed = {.addr = "10.0.0.1", .port = 0};
    struct access_config config = {
        .max_nodes = 2, .local_addr = "", .own_addr = "10.0.0.2", .public_addr = ""};
    struct access a = made(&config);

    (void)state;
    assert_int_equal(access_master(&a, &closed, 9).port, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            store_is_shared_by_other_programs_where_asked_or_nodes_may_come),
        cmocka_unit_test(secret_makes_the_store_local_unless_direct_is_asked_for),
        cmocka_unit_test(address_that_is_listened_on_is_the_one_that_workers_are_told),
        cmocka_unit_test(static_world_is_told_the_endpoint_as_it_was_given),
        cmocka_unit_test(local_addr_goes_before_what_was_found),
        cmocka_unit_test(direct_on_one_node_is_an_address_that_others_can_reach),
        cmocka_unit_test(node_that_lets_nobody_in_is_seen_by_its_port),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
