/* Hosts as people write them. */

#include "tests/lib/cmocka.h"

#include "common/err.h"
#include "common/str.h"

#include <string.h>

static void assert_host(const char *host, const char *expected)
{
    char text[16];

    str_format_host(text, sizeof(text), host);
    assert_string_equal(text, expected);
}

static void ipv6_addresses_stand_in_brackets_before_a_port(void **state)
{
    (void)state;
    assert_host("127.0.0.1", "127.0.0.1");
    assert_host("node0", "node0");
    assert_host("", "");
    assert_host("::", "[::]");
    assert_host("fe80::1%eth0", "[fe80::1%eth0]");
    assert_host("a-name-too-long", "a-name-too-long");
    assert_host("2001:db8::1:2:3", "[2001:db8::1:2:"); /* cut */
}

static void host_that_was_written_is_read_again(void **state)
{
    static const char *const hosts[] = {"127.0.0.1", "node0", "::", "2001:db8::1"};
    char text[64];
    char host[64];
    int port;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
        str_format_host(text, sizeof(text) - 3, hosts[i]);
        (void)strcat(text, ":80");
        assert_int_equal(str_parse_host_port(text, host, sizeof(host), &port), 0);
        assert_string_equal(host, hosts[i]);
        assert_int_equal(port, 80);
    }
}

static void colons_that_are_no_address_are_no_host(void **state)
{
    static const char *const texts[] = {"http://a:29400", "a:b:c", "::1:29400",
                                        "a:1:2"};
    char host[64];
    int port;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        assert_int_equal(str_parse_host_port(texts[i], host, sizeof(host), &port),
                         ERR_INVALID);
    }
    assert_int_equal(str_parse_host_port("fe80::1%eth0", host, sizeof(host), &port), 0);
}

static void variable_is_found_by_its_whole_name(void **state)
{
    char texts[][8] = {"AB=1", "A", "A=", "B=2=3", "B=4"};
    char *const env[] = {texts[0], texts[1], texts[2], texts[3], texts[4], NULL};

    (void)state;
    assert_string_equal(str_find_variable(env, "A"), "");
    assert_string_equal(str_find_variable(env, "B"), "2=3");
    assert_null(str_find_variable(env, "C"));
    assert_null(str_find_variable(&env[5], "A"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ipv6_addresses_stand_in_brackets_before_a_port),
        cmocka_unit_test(host_that_was_written_is_read_again),
        cmocka_unit_test(colons_that_are_no_address_are_no_host),
        cmocka_unit_test(variable_is_found_by_its_whole_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
