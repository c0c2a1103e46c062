/* How long the kernel waits for what an agent's lease is for. */

#include "tests/lib/cmocka.h"

#include "common/lease.h"

static void no_connection_is_given_up_before_its_lease_is_over(void **state)
{
    static const uint32_t leases_ms[] = {0, 1, 3000, 5000, 5001, 60000, 3600000};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(leases_ms); i++) {
        int ms = lease_silence_ms(leases_ms[i], 10000);

        assert_true(ms >= 10000);
        assert_true((uint32_t)ms > leases_ms[i]);
        assert_true((uint32_t)ms == 2 * leases_ms[i] || ms == 10000);
    }
}

/* It is a peer's word, and the kernel's number is an int. */
static void lease_beyond_all_measure_is_a_day(void **state)
{
    (void)state;
    assert_int_equal(lease_silence_ms(UINT32_MAX, 10000), 2 * LEASE_LONGEST_MS);
    assert_true(2LL * LEASE_LONGEST_MS <= INT32_MAX);
}

static void silence_is_never_less_than_a_lease(void **state)
{
    static const uint32_t leases_ms[] = {100, 1001, 3000, 60000, 3600000};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(leases_ms); i++) {
        unsigned n = 0; /* heartbeats, the first at 0, since an answer just before */

        while (!lease_is_silence(n)) {
            n++;
        }
        assert_true(n * lease_heartbeat_ms(leases_ms[i]) >= leases_ms[i]);
        assert_true(n * lease_heartbeat_ms(leases_ms[i]) <= 2 * leases_ms[i]);
    }
    assert_int_equal(lease_heartbeat_ms(1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_connection_is_given_up_before_its_lease_is_over),
        cmocka_unit_test(lease_beyond_all_measure_is_a_day),
        cmocka_unit_test(silence_is_never_less_than_a_lease),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
