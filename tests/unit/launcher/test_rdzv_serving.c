/* Who serves the rendezvous, and where. */

#include "launcher/rdzv/rdzv_serving.h"
#include "tests/lib/cmocka.h"

enum reach { ELSEWHERE, OURS, OURS_LOOPBACK };

static void
the_node_that_has_the_address_serves_unless_is_host_says_otherwise(void **state)
{
    static const struct {
        const char *host;
        enum reach reach;
        uint32_t max_nodes;
        enum rdzv_place by_address, always;
    } cases[] = {
        {"10.0.0.1", OURS, 2, RDZV_OWN_ADDRESS, RDZV_OWN_ADDRESS},
        {"node0", OURS, 2, RDZV_OWN_ADDRESS, RDZV_OWN_ADDRESS},
        {"node0", ELSEWHERE, 2, RDZV_NOWHERE, RDZV_EVERYWHERE},
        /* Debian's 127.0.1.1 */
        {"node0", OURS_LOOPBACK, 2, RDZV_EVERYWHERE, RDZV_EVERYWHERE},
        {"node0", OURS_LOOPBACK, 1, RDZV_OWN_ADDRESS, RDZV_OWN_ADDRESS},
        /* meant for this host, unless it is told to serve others */
        {"localhost", OURS_LOOPBACK, 2, RDZV_OWN_ADDRESS, RDZV_EVERYWHERE},
        {"127.0.0.1", OURS_LOOPBACK, 2, RDZV_OWN_ADDRESS, RDZV_EVERYWHERE},
        {"::1", OURS_LOOPBACK, 2, RDZV_OWN_ADDRESS, RDZV_EVERYWHERE},
        {"::1", OURS_LOOPBACK, 1, RDZV_OWN_ADDRESS, RDZV_OWN_ADDRESS},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rdzv_endpoint endpoint = {
            .host = cases[i].host,
            .is_ours = cases[i].reach != ELSEWHERE,
            .is_loopback = cases[i].reach == OURS_LOOPBACK,
            .max_nodes = cases[i].max_nodes,
        };

        assert_int_equal(rdzv_serving_place(RDZV_SERVE_OWN_ADDRESS, &endpoint),
                         cases[i].by_address);
        assert_int_equal(rdzv_serving_place(RDZV_SERVE_ALWAYS, &endpoint),
                         cases[i].always);
        assert_int_equal(rdzv_serving_place(RDZV_SERVE_NEVER, &endpoint), RDZV_NOWHERE);
    }
}

static void nobody_serves_in_the_place_of_a_service_that_remembers(void **state)
{
    struct rdzv_endpoint endpoint = {
        .host = "localhost", .is_ours = true, .is_loopback = true};

    (void)state;
    for (endpoint.max_nodes = 1; endpoint.max_nodes <= 2; endpoint.max_nodes++) {
        endpoint.is_kept_elsewhere = false;
        assert_int_not_equal(rdzv_serving_place(RDZV_SERVE_OWN_ADDRESS, &endpoint),
                             RDZV_NOWHERE);
        endpoint.is_kept_elsewhere = true;
        assert_int_equal(rdzv_serving_place(RDZV_SERVE_OWN_ADDRESS, &endpoint),
                         RDZV_NOWHERE);
        assert_int_equal(rdzv_serving_place(RDZV_SERVE_ALWAYS, &endpoint),
                         RDZV_NOWHERE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            the_node_that_has_the_address_serves_unless_is_host_says_otherwise),
        cmocka_unit_test(nobody_serves_in_the_place_of_a_service_that_remembers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
