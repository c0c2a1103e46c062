#include "tests/lib/cmocka.h"

#include "common/err.h"
#include "common/identity.h"

#include <string.h>

static int parse(const char *uri, struct identity *ret)
{
    return identity_parse_uri((const uint8_t *)uri, strlen(uri), ret);
}

static int parse_psk(const char *text, char *ret_key_id, uint64_t *ret_agent)
{
    return identity_parse_psk((const uint8_t *)text, strlen(text), ret_key_id,
                              ret_agent);
}

static void psk_identity_is_read_as_it_was_written(void **state)
{
    char text[IDENTITY_PSK_SIZE];
    char key_id[IDENTITY_KEY_ID_SIZE];
    uint64_t agent;

    (void)state;
    identity_format_psk("0123456789abcdef", 0xfedcba9876543210U, text);
    assert_string_equal(text, "1:0123456789abcdef:fedcba9876543210");
    assert_int_equal(parse_psk(text, key_id, &agent), 0);
    assert_string_equal(key_id, "0123456789abcdef");
    assert_true(agent == 0xfedcba9876543210U);
}

static void other_psk_identities_are_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "1:0123456789abcdef:fedcba987654321",
        "1:0123456789abcdef:fedcba98765432100",
        "2:0123456789abcdef:fedcba9876543210",
        "1:0123456789ABCDEF:fedcba9876543210",
        "1:0123456789abcdeg:fedcba9876543210",
        "1-0123456789abcdef:fedcba9876543210",
        "1:0123456789abcdef-fedcba9876543210",
        "1:0123456789abcdef:fedcba987654321 ",
    };
    char key_id[IDENTITY_KEY_ID_SIZE] = "as it was";
    uint64_t agent = 7;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        assert_int_equal(parse_psk(texts[i], key_id, &agent), ERR_INVALID);
    }
    assert_string_equal(key_id, "as it was");
    assert_true(agent == 7);
}

static void names_of_certificates_say_role_job_and_holder(void **state)
{
    static const struct {
        const char *uri;
        enum identity_role role;
        const char *job, *name;
    } cases[] = {
        {"ctrun://service", IDENTITY_SERVICE, "", ""},
        {"ctrun://operator/anna", IDENTITY_OPERATOR, "", "anna"},
        {"ctrun://operator/*", IDENTITY_OPERATOR, "", ""},
        {"ctrun://job/7/agent/node3", IDENTITY_AGENT, "7", "node3"},
        {"ctrun://job/*/agent/*", IDENTITY_AGENT, "", ""},
        {"ctrun://job/a%20b/worker/0", IDENTITY_WORKER, "a b", "0"},
        {"ctrun://job/**/agent/%2a", IDENTITY_AGENT, "**", "*"},
    };
    struct identity who = {.kind = IDENTITY_CERTIFICATE};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(parse(cases[i].uri, &who), 0);
        assert_int_equal(who.role, cases[i].role);
        assert_string_equal(who.job, cases[i].job);
        assert_string_equal(who.name, cases[i].name);
    }
}

static void other_names_of_certificates_are_refused(void **state)
{
    static const char *const uris[] = {
        "",
        "ctrun://",
        "ctrun://services",
        "ctrun://service/",
        "https://service",
        "CTRUN://service",
        "ctrun://operator",
        "ctrun://operator/",
        "ctrun://operator/a/b",
        "ctrun://job/7",
        "ctrun://job//agent/3",
        "ctrun://job/7/agent/",
        "ctrun://job/7/agent",
        "ctrun://job/7/agent/3/4",
        "ctrun://job/7/boss/3",
        "ctrun://job/7 8/agent/3",
        "ctrun://job/7%/agent/3",
        "ctrun://job/7%4/agent/3",
        "ctrun://job/7/agent/%00",
        "ctrun://job/7/agent/%zz",
        "ctrun://job/7/agent/3%2",
    };
    struct identity who = {.job = "as it was"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(uris); i++) {
        assert_int_equal(parse(uris[i], &who), ERR_INVALID);
        assert_string_equal(who.job, "as it was");
    }
}

static void longest_names_fit_and_longer_ones_are_refused(void **state)
{
    char uri[IDENTITY_URI_MAX] = "ctrun://job/";
    size_t n = strlen(uri);
    struct identity who = {.kind = IDENTITY_CERTIFICATE};

    (void)state;
    memset(uri + n, 'j', MSG_ID_MAX - 1);
    memcpy(uri + n + MSG_ID_MAX - 1, "/agent/n", sizeof("/agent/n"));
    assert_int_equal(parse(uri, &who), 0);
    assert_int_equal(strlen(who.job), MSG_ID_MAX - 1);
    memcpy(uri + n + MSG_ID_MAX - 1, "j/agent/n", sizeof("j/agent/n"));
    assert_int_equal(parse(uri, &who), ERR_INVALID);
}

static void what_is_written_is_read_as_the_same(void **state)
{
    struct identity who = {.kind = IDENTITY_CERTIFICATE,
                           .role = IDENTITY_AGENT,
                           .job = "job, with \"all\" 100 % of \xc3\xbc*",
                           .name = ""};
    struct identity again = who;
    char uri[IDENTITY_URI_MAX];

    (void)state;
    assert_true(identity_format_uri(&who, uri, sizeof(uri)));
    again.job[0] = '\0';
    assert_int_equal(parse(uri, &again), 0);
    assert_true(identity_is_same(&who, &again));
    assert_false(identity_format_uri(&who, uri, 20));
    again.name[0] = 'x';
    assert_false(identity_is_same(&who, &again));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(psk_identity_is_read_as_it_was_written),
        cmocka_unit_test(other_psk_identities_are_refused),
        cmocka_unit_test(names_of_certificates_say_role_job_and_holder),
        cmocka_unit_test(other_names_of_certificates_are_refused),
        cmocka_unit_test(longest_names_fit_and_longer_ones_are_refused),
        cmocka_unit_test(what_is_written_is_read_as_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
