/* Two pumps, and their wires between them: who lets whom in, and in which words not. */

#include "tests/lib/cmocka.h"
#include "tests/lib/scratch.h"

#include "common/mem.h"
#include "common/tls.h"
#include "common/tls_ca.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET_A "aaaaaaaabbbbbbbbccccccccdddddddd"
#define SECRET_B "0123456789abcdef0123456789abcdef"

enum { WIRE_MAX = 1 << 22, PLAIN = 1 << 20, AGENT = 0x77 };

struct end {
    struct tls_context *context;
    struct tls_pump *pump;
    struct buf wire; /* to the other one */
    struct buf got;  /* plain */
    int rv;
};

struct rig {
    struct scratch scratch;
    struct end client, server;
    char ca[512], cert[512], key[512];
};

static int setup(void **state)
{
    static struct rig rig;

    rig = (struct rig){.client = {.rv = 0}};
    scratch_open(&rig.scratch);
    *state = &rig;
    return 0;
}

static void close_end(struct end *e)
{
    tls_pump_free(e->pump);
    e->pump = NULL;
    buf_release(&e->wire);
    buf_release(&e->got);
}

static int teardown(void **state)
{
    struct rig *r = *state;

    close_end(&r->client);
    close_end(&r->server);
    tls_context_free(r->client.context);
    tls_context_free(r->server.context);
    scratch_close(&r->scratch);
    return 0;
}

/* ---- what the ends have to show ---- */

static struct secrets read_secret(struct rig *r, const char *name, const char *text)
{
    const char *path = scratch_text(&r->scratch, name, text);
    struct errmsg msg = {""};
    struct secrets s;

    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(secrets_read(path, &s, &msg), 0);
    return s;
}

static void make(struct end *e, const struct tls_config *config)
{
    struct errmsg msg = {""};

    if (tls_context_new(config, &e->context, &msg) < 0) {
        fail_msg("%s", msg.text);
    }
}

static void give_secret(struct rig *r, struct end *e, const char *name,
                        const char *text)
{
    struct secrets s = read_secret(r, name, text);

    make(e, &(struct tls_config){.is_server = e == &r->server,
                                 .secrets = &s,
                                 .agent_id = AGENT,
                                 .job = "7"});
    secrets_release(&s);
}

/* A certificate of the CA in `folder`, which is made where it is not there. */
static struct tls_config certificate(struct rig *r, const char *folder, const char *uri,
                                     int days)
{
    struct identity who = {.kind = IDENTITY_CERTIFICATE};
    struct errmsg msg = {""};
    char dir[256];
    char name[16];
    static int n;

    assert_int_equal(identity_parse_uri((const uint8_t *)uri, strlen(uri), &who), 0);
    (void)snprintf(dir, sizeof(dir), "%s", scratch_path(&r->scratch, folder));
    (void)snprintf(r->ca, sizeof(r->ca), "%s/ca.pem", dir);
    if (access(r->ca, F_OK) < 0) {
        assert_int_equal(tls_ca_make(dir, 1, &msg), 0);
    }
    (void)snprintf(name, sizeof(name), "c%d", n++);
    if (tls_ca_issue(dir, name, &who, days, &msg) < 0) {
        fail_msg("%s", msg.text);
    }
    (void)snprintf(r->cert, sizeof(r->cert), "%s/%s.pem", dir, name);
    (void)snprintf(r->key, sizeof(r->key), "%s/%s.key", dir, name);
    return (struct tls_config){
        .ca = r->ca, .cert = r->cert, .key = r->key, .agent_id = AGENT, .job = "7"};
}

static void give_certificate(struct rig *r, struct end *e, const char *folder,
                             const char *uri, int days)
{
    struct tls_config config = certificate(r, folder, uri, days);

    config.is_server = e == &r->server;
    make(e, &config);
}

/* ---- the wires ---- */

static void open_end(struct end *e)
{
    buf_init(&e->wire, WIRE_MAX);
    buf_init(&e->got, WIRE_MAX);
    e->pump = tls_pump_new(e->context, &e->wire);
}

static void feed(struct end *e, const uint8_t *data, size_t size)
{
    static uint8_t plain[PLAIN];
    struct bytes from = {data, size};
    int n = 1;

    while (n > 0) {
        n = tls_pump_read(e->pump, &from, plain, sizeof(plain));
        assert_true(n <= 0 || buf_append(&e->got, plain, (size_t)n) == 0);
    }
    assert_true(n < 0 || from.size == 0);
    e->rv = n;
}

/* Moves what one has for the other, `step` bytes at a time; false: there was nothing. */
static bool move(struct end *from, struct end *to, size_t step)
{
    bool any = buf_len(&from->wire) > 0;

    while (buf_len(&from->wire) > 0 && to->rv == 0) {
        size_t n = MIN(step, buf_len(&from->wire));

        feed(to, buf_bytes(&from->wire), n);
        buf_consume(&from->wire, n);
    }
    buf_clear(&from->wire);
    return any;
}

static void run_in_steps(struct rig *r, size_t step)
{
    bool any = true;

    while (any) {
        any = move(&r->client, &r->server, step);
        any = move(&r->server, &r->client, step) || any;
    }
}

static void shake_in_steps(struct rig *r, size_t step)
{
    open_end(&r->client);
    open_end(&r->server);
    assert_int_equal(tls_pump_start(r->client.pump), 0);
    run_in_steps(r, step);
}

static void shake(struct rig *r)
{
    shake_in_steps(r, SIZE_MAX);
}

static void assert_open(const struct rig *r)
{
    if (!tls_pump_is_open(r->client.pump) || !tls_pump_is_open(r->server.pump)) {
        fail_msg("client: %s; server: %s", tls_pump_trouble(r->client.pump),
                 tls_pump_trouble(r->server.pump));
    }
}

static void assert_trouble(const struct end *e, const char *words)
{
    assert_true(e->rv < 0);
    assert_false(tls_pump_is_open(e->pump));
    if (!strstr(tls_pump_trouble(e->pump), words)) {
        fail_msg("'%s' is not in: %s", words, tls_pump_trouble(e->pump));
    }
}

static void say(struct end *e, const char *text)
{
    assert_int_equal(tls_pump_write(e->pump, text, strlen(text)), 0);
}

static void assert_got(struct end *e, const char *text)
{
    assert_int_equal(buf_len(&e->got), strlen(text));
    assert_memory_equal(buf_bytes(&e->got), text, strlen(text));
    buf_clear(&e->got);
}

static void assert_talk(struct rig *r)
{
    assert_open(r);
    say(&r->client, "how are you");
    say(&r->server, "fine");
    run_in_steps(r, SIZE_MAX);
    assert_got(&r->server, "how are you");
    assert_got(&r->client, "fine");
}

/* ---- secrets ---- */

static void same_secret_opens_and_names_agent_and_owner(void **state)
{
    struct rig *r = *state;
    const struct identity *peer;

    give_secret(r, &r->client, "my-copy", SECRET_A "\n");
    give_secret(r, &r->server, "team-a", SECRET_A);
    shake(r);
    assert_talk(r);
    peer = tls_pump_peer(r->server.pump);
    assert_int_equal(peer->kind, IDENTITY_PSK);
    assert_int_equal(peer->role, IDENTITY_AGENT);
    assert_true(peer->agent_id == AGENT);
    assert_string_equal(peer->owner, "secret team-a");
    assert_int_equal(tls_pump_peer(r->client.pump)->role, IDENTITY_SERVICE);
}

static void bytes_may_come_one_by_one(void **state)
{
    struct rig *r = *state;

    give_secret(r, &r->client, "a", SECRET_A);
    give_secret(r, &r->server, "a", SECRET_A);
    shake_in_steps(r, 1);
    assert_open(r);
    say(&r->client, "slowly");
    run_in_steps(r, 1);
    assert_got(&r->server, "slowly");
}

static void much_passes_whole_and_in_order(void **state)
{
    struct rig *r = *state;
    char *text = mem_alloc(PLAIN + 100001);

    give_secret(r, &r->client, "a", SECRET_A);
    give_secret(r, &r->server, "a", SECRET_A);
    shake(r);
    for (size_t i = 0; i < PLAIN + 100000; i++) {
        text[i] = (char)('a' + i * i % 23);
    }
    text[PLAIN + 100000] = '\0';
    say(&r->server, text);
    run_in_steps(r, 30011);
    assert_got(&r->client, text);
    mem_free(text);
}

static void another_secret_is_refused_by_both_in_words(void **state)
{
    struct rig *r = *state;

    give_secret(r, &r->client, "a", SECRET_A);
    give_secret(r, &r->server, "a", SECRET_B);
    shake(r);
    assert_trouble(&r->server, "a secret that is none of ours, key id");
    assert_trouble(&r->client, "does not know this side's secret");
    assert_int_equal(r->server.rv, ERR_REFUSED);
    assert_int_equal(r->client.rv, ERR_REFUSED);
}

static void operators_secret_is_known_by_its_name(void **state)
{
    struct rig *r = *state;

    give_secret(r, &r->client, "secret", SECRET_A);
    give_secret(r, &r->server, "operator-anna", SECRET_A);
    shake(r);
    assert_open(r);
    assert_int_equal(tls_pump_peer(r->server.pump)->role, IDENTITY_OPERATOR);
}

static void previous_secret_still_opens_and_has_the_same_owner(void **state)
{
    struct rig *r = *state;
    struct secrets old = read_secret(r, "team.previous", SECRET_A);
    struct secrets both;

    secrets_release(&old);
    both = read_secret(r, "team", SECRET_B);
    make(&r->server, &(struct tls_config){.is_server = true, .secrets = &both});
    secrets_release(&both);
    give_secret(r, &r->client, "a", SECRET_A);
    shake(r);
    assert_talk(r);
    assert_string_equal(tls_pump_peer(r->server.pump)->owner, "secret team");
}

static void reload_keeps_connections_and_takes_the_new_secret_only(void **state)
{
    struct rig *r = *state;
    struct secrets fresh;
    struct errmsg msg = {""};

    give_secret(r, &r->client, "a", SECRET_A);
    give_secret(r, &r->server, "a", SECRET_A);
    shake(r);
    fresh = read_secret(r, "b", SECRET_B);
    assert_int_equal(
        tls_context_reload(r->server.context,
                           &(struct tls_config){.is_server = true, .secrets = &fresh},
                           &msg),
        0);
    assert_talk(r);
    close_end(&r->client);
    close_end(&r->server);
    shake(r);
    assert_trouble(&r->server, "none of ours");
    close_end(&r->client);
    close_end(&r->server);
    r->client.rv = r->server.rv = 0;
    assert_int_equal(tls_context_reload(r->client.context,
                                        &(struct tls_config){.secrets = &fresh}, &msg),
                     0);
    secrets_release(&fresh);
    shake(r);
    assert_talk(r);
}

static void one_secret_under_two_names_is_a_mistake(void **state)
{
    struct rig *r = *state;
    struct secrets a = read_secret(r, "d/a", SECRET_A);
    struct errmsg msg = {""};
    struct secrets both;
    struct tls_context *c;

    secrets_release(&a);
    a = read_secret(r, "d/b", SECRET_A);
    secrets_release(&a);
    assert_int_equal(chmod(scratch_path(&r->scratch, "d"), 0700), 0);
    assert_int_equal(secrets_read(scratch_path(&r->scratch, "d"), &both, &msg), 0);
    assert_int_equal(
        tls_context_new(&(struct tls_config){.is_server = true, .secrets = &both}, &c,
                        &msg),
        ERR_INVALID);
    assert_non_null(strstr(msg.text, "are the same"));
    secrets_release(&both);
}

static void who_has_no_secrets_says_so_by_an_alert(void **state)
{
    struct rig *r = *state;
    struct bytes alert = tls_no_secret_alert();

    give_secret(r, &r->client, "a", SECRET_A);
    open_end(&r->client);
    assert_int_equal(tls_pump_start(r->client.pump), 0);
    assert_true(buf_bytes(&r->client.wire)[0] == TLS_FIRST_BYTE);
    feed(&r->client, alert.data, alert.size);
    assert_trouble(&r->client, "it has no secret, and this side has one");
}

static void garbage_and_endless_greetings_are_refused(void **state)
{
    struct rig *r = *state;
    static uint8_t hello[TLS_GREETING_MAX + TLS_RECORD_MAX];

    give_secret(r, &r->server, "a", SECRET_A);
    open_end(&r->server);
    feed(&r->server, (const uint8_t *)"GET / HTTP/1.1\r\n\r\n", 18);
    assert_trouble(&r->server, "");
    close_end(&r->server);

    open_end(&r->server);
    for (size_t at = 0; at + 5 + 16384 <= sizeof(hello); at += 5 + 16384) {
        const uint8_t head[] = {TLS_FIRST_BYTE, 3, 1, 0x40, 0};

        memcpy(hello + at, head, sizeof(head));
    }
    memcpy(hello + 5, (const uint8_t[]){1, 0x01, 0xff, 0xf0}, 4); /* 130 KiB follow */
    r->server.rv = 0;
    feed(&r->server, hello, sizeof(hello));
    assert_true(r->server.rv < 0);
}

/* ---- certificates ---- */

static void certificates_of_one_ca_open_and_name_job_and_node(void **state)
{
    struct rig *r = *state;
    const struct identity *peer;

    give_certificate(r, &r->server, "ca", "ctrun://service", 1);
    give_certificate(r, &r->client, "ca", "ctrun://job/7/agent/node3", 1);
    shake_in_steps(r, 100);
    assert_talk(r);
    peer = tls_pump_peer(r->server.pump);
    assert_int_equal(peer->kind, IDENTITY_CERTIFICATE);
    assert_int_equal(peer->role, IDENTITY_AGENT);
    assert_string_equal(peer->job, "7");
    assert_string_equal(peer->name, "node3");
    assert_int_equal(tls_pump_peer(r->client.pump)->role, IDENTITY_SERVICE);
}

static void expired_certificates_are_refused(void **state)
{
    struct rig *r = *state;

    give_certificate(r, &r->server, "ca", "ctrun://service", 1);
    give_certificate(r, &r->client, "ca", "ctrun://job/7/agent/n", 0);
    shake(r);
    assert_trouble(&r->server, "its certificate is not right: certificate has expired");
    assert_trouble(&r->client, "this side's certificate has expired");
    assert_int_equal(r->server.rv, ERR_REFUSED);
}

static void expired_certificate_of_the_service_is_refused(void **state)
{
    struct rig *r = *state;

    give_certificate(r, &r->server, "ca", "ctrun://service", 0);
    give_certificate(r, &r->client, "ca", "ctrun://job/7/agent/n", 1);
    shake(r);
    assert_trouble(&r->client, "certificate has expired");
    assert_trouble(&r->server, "this side's certificate has expired");
}

static void certificates_of_another_ca_are_refused(void **state)
{
    struct rig *r = *state;
    struct tls_config foreign;

    give_certificate(r, &r->server, "ca", "ctrun://service", 1);
    foreign = certificate(r, "other", "ctrun://job/7/agent/n", 1);
    (void)snprintf(r->ca, sizeof(r->ca), "%s", scratch_path(&r->scratch, "ca/ca.pem"));
    make(&r->client, &foreign); /* it knows the service's CA */
    shake(r);
    assert_trouble(&r->server, "its certificate is not right");
    assert_trouble(&r->client, "does not know the CA of this side's certificate");
}

static void service_of_another_ca_is_refused(void **state)
{
    struct rig *r = *state;

    give_certificate(r, &r->server, "other", "ctrun://service", 1);
    give_certificate(r, &r->client, "ca", "ctrun://job/7/agent/n", 1);
    shake(r);
    assert_trouble(&r->client, "its certificate is not right");
    assert_trouble(&r->server, "does not know the CA");
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
    struct rig *r = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        give_certificate(r, &r->server, "ca", cases[i].server, 1);
        give_certificate(r, &r->client, "ca", "ctrun://job/7/agent/m", 1);
        shake(r);
        if (cases[i].may) {
            assert_talk(r);
        } else {
            assert_trouble(&r->client, "may not serve this job");
        }
        (void)teardown(state);
        (void)setup(state);
    }
}

static void service_does_not_come_as_a_client(void **state)
{
    struct rig *r = *state;

    give_certificate(r, &r->server, "ca", "ctrun://service", 1);
    give_certificate(r, &r->client, "ca", "ctrun://service", 1);
    shake(r);
    assert_trouble(&r->server, "certificate ctrun://service may not come here");
    assert_trouble(&r->client, "does not take this side's certificate");
}

/* ---- one of each ---- */

static void secret_does_not_open_to_whoever_shows_a_certificate(void **state)
{
    struct rig *r = *state;

    give_certificate(r, &r->server, "ca", "ctrun://service", 1);
    give_secret(r, &r->client, "a", SECRET_A);
    shake(r);
    assert_trouble(&r->client,
                   "it shows a certificate, and does not know this side's secret");
    assert_trouble(&r->server, "it does not know the CA");
}

static void certificate_does_not_open_where_a_secret_is_asked_for(void **state)
{
    struct rig *r = *state;

    give_secret(r, &r->server, "a", SECRET_A);
    give_certificate(r, &r->client, "ca", "ctrun://job/7/agent/n", 1);
    shake(r);
    assert_trouble(&r->server, "it has no secret of ours");
    assert_trouble(&r->client, "does not take this side's certificate");
}

static void service_with_both_takes_either(void **state)
{
    struct rig *r = *state;
    struct tls_config both = certificate(r, "ca", "ctrun://service", 1);
    struct secrets s = read_secret(r, "a", SECRET_A);

    both.is_server = true;
    both.secrets = &s;
    make(&r->server, &both);
    secrets_release(&s);
    give_secret(r, &r->client, "a", SECRET_A);
    shake(r);
    assert_talk(r);
    assert_int_equal(tls_pump_peer(r->server.pump)->kind, IDENTITY_PSK);
    close_end(&r->client);
    close_end(&r->server);
    tls_context_free(r->client.context);

    give_certificate(r, &r->client, "ca", "ctrun://operator/anna", 1);
    shake(r);
    assert_talk(r);
    assert_int_equal(tls_pump_peer(r->server.pump)->kind, IDENTITY_CERTIFICATE);
    assert_int_equal(tls_pump_peer(r->server.pump)->role, IDENTITY_OPERATOR);
    close_end(&r->client);
    close_end(&r->server);
    tls_context_free(r->client.context);

    give_secret(r, &r->client, "b", SECRET_B);
    shake(r);
    assert_trouble(&r->client, "does not know this side's secret");
    assert_trouble(&r->server, "none of ours");
}

static void files_that_are_not_right_are_named(void **state)
{
    struct rig *r = *state;
    struct tls_config config = certificate(r, "ca", "ctrun://service", 1);
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
    assert_int_equal(tls_context_new(&config, &c, &msg), ERR_INVALID);
    assert_non_null(strstr(msg.text, "cannot read the CA /does/not/exist"));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(same_secret_opens_and_names_agent_and_owner),
        CASE(bytes_may_come_one_by_one),
        CASE(much_passes_whole_and_in_order),
        CASE(another_secret_is_refused_by_both_in_words),
        CASE(operators_secret_is_known_by_its_name),
        CASE(previous_secret_still_opens_and_has_the_same_owner),
        CASE(reload_keeps_connections_and_takes_the_new_secret_only),
        CASE(one_secret_under_two_names_is_a_mistake),
        CASE(who_has_no_secrets_says_so_by_an_alert),
        CASE(garbage_and_endless_greetings_are_refused),
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
