/* Two pumps again: who lets whom in by a certificate, and where one shows a certificate
 * and the other a secret. */

#include "tests/lib/cmocka.h"
#include "tests/lib/tls_rig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void certificates_of_one_ca_open_and_name_job_and_node(void **state)
{
    struct tls_rig *r = *state;
    const struct identity *peer;

    tls_rig_give_certificate(r, &r->server, "ca", "ctrun://service", 1);
    tls_rig_give_certificate(r, &r->client, "ca", "ctrun://job/7/agent/node3", 1);
    tls_rig_shake_in_steps(r, 100);
    tls_rig_assert_talk(r);
    peer = tls_pump_peer(r->server.pump);
    assert_int_equal(peer->kind, IDENTITY_CERTIFICATE);
    assert_int_equal(peer->role, IDENTITY_AGENT);
    assert_string_equal(peer->job, "7");
    assert_string_equal(peer->name, "node3");
    assert_int_equal(tls_pump_peer(r->client.pump)->role, IDENTITY_SERVICE);
}

/* It has a right one, and then it has not. */
static void give_expired(struct tls_rig *r, struct tls_rig_end *e, const char *uri)
{
    struct tls_config expired;

    tls_rig_give_certificate(r, e, "ca", uri, 1);
    expired = tls_rig_certificate(r, "ca", uri, 0);
    tls_rig_swap_certificate(e, &expired);
}

static void expired_certificates_are_refused(void **state)
{
    struct tls_rig *r = *state;

    tls_rig_give_certificate(r, &r->server, "ca", "ctrun://service", 1);
    give_expired(r, &r->client, "ctrun://job/7/agent/n");
    tls_rig_shake(r);
    tls_rig_assert_trouble(&r->server,
                           "its certificate is not right: certificate has expired");
    tls_rig_assert_trouble(&r->client, "this side's certificate has expired");
    assert_int_equal(r->server.rv, ERR_REFUSED);
}

static void expired_certificate_of_the_service_is_refused(void **state)
{
    struct tls_rig *r = *state;

    give_expired(r, &r->server, "ctrun://service");
    tls_rig_give_certificate(r, &r->client, "ca", "ctrun://job/7/agent/n", 1);
    tls_rig_shake(r);
    tls_rig_assert_trouble(&r->client, "certificate has expired");
    tls_rig_assert_trouble(&r->server, "this side's certificate has expired");
}

static void certificates_of_another_ca_are_refused(void **state)
{
    struct tls_rig *r = *state;
    struct tls_config foreign;

    tls_rig_give_certificate(r, &r->server, "ca", "ctrun://service", 1);
    tls_rig_give_certificate(r, &r->client, "ca", "ctrun://job/7/agent/n", 1);
    foreign = tls_rig_certificate(r, "other", "ctrun://job/7/agent/n", 1);
    tls_rig_swap_certificate(&r->client, &foreign); /* it knows the service's CA */
    tls_rig_shake(r);
    tls_rig_assert_trouble(&r->server, "its certificate is not right");
    tls_rig_assert_trouble(&r->client,
                           "does not know the CA of this side's certificate");
}

static void service_of_another_ca_is_refused(void **state)
{
    struct tls_rig *r = *state;

    tls_rig_give_certificate(r, &r->server, "other", "ctrun://service", 1);
    tls_rig_give_certificate(r, &r->client, "ca", "ctrun://job/7/agent/n", 1);
    tls_rig_shake(r);
    tls_rig_assert_trouble(&r->client, "its certificate is not right");
    tls_rig_assert_trouble(&r->server, "does not know the CA");
}

static void agents_of_other_jobs_and_operators_do_not_serve(void **state)
{
    static const struct {
        const char *server;
        bool may;
    } cases[] = {
        {"ctrun://job/7/agent/n", true},   {"ctrun://job/*/agent/*", true},
        {"ctrun://job/8/agent/n", false},  {"ctrun://operator/anna", false},
        {"ctrun://job/7/worker/n", false},
    };
    struct tls_rig *r = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        tls_rig_give_certificate(r, &r->server, "ca", cases[i].server, 1);
        tls_rig_give_certificate(r, &r->client, "ca", "ctrun://job/7/agent/m", 1);
        tls_rig_shake(r);
        if (cases[i].may) {
            tls_rig_assert_talk(r);
        } else {
            tls_rig_assert_trouble(&r->client, "may not serve this job");
        }
        (void)tls_rig_teardown(state);
        (void)tls_rig_setup(state);
    }
}

static void service_does_not_come_as_a_client(void **state)
{
    struct tls_rig *r = *state;

    tls_rig_give_certificate(r, &r->server, "ca", "ctrun://service", 1);
    tls_rig_give_certificate(r, &r->client, "ca", "ctrun://service", 1);
    tls_rig_shake(r);
    tls_rig_assert_trouble(&r->server, "certificate ctrun://service may not come here");
    tls_rig_assert_trouble(&r->client, "does not take this side's certificate");
}

/* ---- one of each ---- */

static void secret_does_not_open_to_whoever_shows_a_certificate(void **state)
{
    struct tls_rig *r = *state;

    tls_rig_give_certificate(r, &r->server, "ca", "ctrun://service", 1);
    tls_rig_give_secret(r, &r->client, "a", TLS_RIG_SECRET_A);
    tls_rig_shake(r);
    tls_rig_assert_trouble(
        &r->client, "it shows a certificate, and does not know this side's secret");
    tls_rig_assert_trouble(&r->server, "it does not know the CA");
}

static void certificate_does_not_open_where_a_secret_is_asked_for(void **state)
{
    struct tls_rig *r = *state;

    tls_rig_give_secret(r, &r->server, "a", TLS_RIG_SECRET_A);
    tls_rig_give_certificate(r, &r->client, "ca", "ctrun://job/7/agent/n", 1);
    tls_rig_shake(r);
    tls_rig_assert_trouble(&r->server, "it has no secret of ours");
    tls_rig_assert_trouble(&r->client, "does not take this side's certificate");
}

static void service_with_both_takes_either(void **state)
{
    struct tls_rig *r = *state;
    struct tls_config both = tls_rig_certificate(r, "ca", "ctrun://service", 1);
    struct secrets s = tls_rig_read_secret(r, "a", TLS_RIG_SECRET_A);

    both.is_server = true;
    both.secrets = &s;
    tls_rig_make(&r->server, &both);
    secrets_release(&s);
    tls_rig_give_secret(r, &r->client, "a", TLS_RIG_SECRET_A);
    tls_rig_shake(r);
    tls_rig_assert_talk(r);
    assert_int_equal(tls_pump_peer(r->server.pump)->kind, IDENTITY_PSK);
    tls_rig_close_end(&r->client);
    tls_rig_close_end(&r->server);
    tls_context_free(r->client.context);

    tls_rig_give_certificate(r, &r->client, "ca", "ctrun://operator/anna", 1);
    tls_rig_shake(r);
    tls_rig_assert_talk(r);
    assert_int_equal(tls_pump_peer(r->server.pump)->kind, IDENTITY_CERTIFICATE);
    assert_int_equal(tls_pump_peer(r->server.pump)->role, IDENTITY_OPERATOR);
    tls_rig_close_end(&r->client);
    tls_rig_close_end(&r->server);
    tls_context_free(r->client.context);

    tls_rig_give_secret(r, &r->client, "b", TLS_RIG_SECRET_B);
    tls_rig_shake(r);
    tls_rig_assert_trouble(&r->client, "does not know this side's secret");
    tls_rig_assert_trouble(&r->server, "none of ours");
}

static void files_that_are_not_right_are_named(void **state)
{
    struct tls_rig *r = *state;
    struct tls_config config = tls_rig_certificate(r, "ca", "ctrun://service", 1);
    struct errmsg msg = {""};
    struct tls_context *c;

    assert_int_equal(chmod(r->key, 0644), 0);
    assert_int_equal(tls_context_new(&config, &c, &msg), ERR_INVALID);
    assert_non_null(strstr(msg.text, "others may read or change"));
    assert_int_equal(chmod(r->key, 0600), 0);
    config.cert = r->ca; /* not that key's */
    assert_int_equal(tls_context_new(&config, &c, &msg), ERR_INVALID);
    assert_non_null(strstr(msg.text, "cannot use the key"));
    config.cert = r->key;
    assert_int_equal(tls_context_new(&config, &c, &msg), ERR_INVALID);
    assert_non_null(strstr(msg.text, "cannot read the certificate"));
    config.ca = "/does/not/exist";
    assert_int_equal(tls_context_new(&config, &c, &msg), -ENOENT);
    assert_non_null(strstr(msg.text, "cannot read /does/not/exist"));
}

/* ---- one's own ---- */

static void assert_own_refused(const struct tls_config *config, const char *words)
{
    struct errmsg msg = {""};
    struct tls_context *c;

    assert_int_equal(tls_context_new(config, &c, &msg), ERR_INVALID);
    if (!strstr(msg.text, words) || !strstr(msg.text, config->cert)) {
        fail_msg("'%s', '%s' are not in: %s", words, config->cert, msg.text);
    }
}

static void own_certificate_that_has_expired_is_refused_with_its_date(void **state)
{
    struct tls_rig *r = *state;
    struct tls_config config = tls_rig_certificate(r, "ca", "ctrun://service", 0);

    config.is_server = true;
    assert_own_refused(&config, " has expired on 2");
    config.is_server = false;
    assert_own_refused(&config,
                       "away, and make new ones the same way (ctrun keygen --ca ");
    assert_own_refused(&config, config.key);
}

static void own_certificate_of_another_ca_is_refused(void **state)
{
    struct tls_rig *r = *state;
    struct tls_config config = tls_rig_certificate(r, "ca", "ctrun://service", 1);
    char ca[sizeof(r->ca)];

    (void)snprintf(ca, sizeof(ca), "%s", r->ca);
    config = tls_rig_certificate(r, "other", "ctrun://service", 1);
    config.ca = ca;
    assert_own_refused(&config, "nobody who knows the CA ");
}

static void own_certificate_of_another_role_is_refused(void **state)
{
    static const struct {
        const char *uri;
        unsigned roles;
        const char *words; /* NULL: it may */
    } cases[] = {
        {"ctrun://service", 1U << IDENTITY_SERVICE, NULL},
        {"ctrun://job/7/agent/n", 1U << IDENTITY_SERVICE,
         "its URI must be ctrun://service"},
        {"ctrun://job/7/agent/n", 1U << IDENTITY_AGENT, NULL},
        {"ctrun://operator/anna", 1U << IDENTITY_AGENT,
         "is the certificate ctrun://operator/anna: its URI must be ctrun://job/"},
        {"ctrun://operator/anna", 1U << IDENTITY_AGENT | 1U << IDENTITY_OPERATOR, NULL},
        {"ctrun://service", 1U << IDENTITY_AGENT | 1U << IDENTITY_OPERATOR,
         "or ctrun://operator/NAME"},
    };
    struct tls_rig *r = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tls_config config = tls_rig_certificate(r, "ca", cases[i].uri, 1);

        config.roles = cases[i].roles;
        if (cases[i].words) {
            assert_own_refused(&config, cases[i].words);
        } else {
            tls_rig_make(&r->client, &config);
            tls_context_free(r->client.context);
            r->client.context = NULL;
        }
    }
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, tls_rig_setup, tls_rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(certificates_of_one_ca_open_and_name_job_and_node),
        CASE(expired_certificates_are_refused),
        CASE(expired_certificate_of_the_service_is_refused),
        CASE(certificates_of_another_ca_are_refused),
        CASE(service_of_another_ca_is_refused),
        CASE(agents_of_other_jobs_and_operators_do_not_serve),
        CASE(service_does_not_come_as_a_client),
        CASE(secret_does_not_open_to_whoever_shows_a_certificate),
        CASE(certificate_does_not_open_where_a_secret_is_asked_for),
        CASE(service_with_both_takes_either),
        CASE(files_that_are_not_right_are_named),
        CASE(own_certificate_that_has_expired_is_refused_with_its_date),
        CASE(own_certificate_of_another_ca_is_refused),
        CASE(own_certificate_of_another_role_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
