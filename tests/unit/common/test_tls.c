/* Two pumps, and their wires between them: who lets whom in by a secret, and in which
 * words not. */

#include "tests/lib/cmocka.h"
#include "tests/lib/tls_rig.h"

#include "common/mem.h"

#include <string.h>
#include <sys/stat.h>

static void same_secret_opens_and_names_agent_and_owner(void **state)
{
    struct tls_rig *r = *state;
    const struct identity *peer;

    tls_rig_give_secret(r, &r->client, "my-copy", TLS_RIG_SECRET_A "\n");
    tls_rig_give_secret(r, &r->server, "team-a", TLS_RIG_SECRET_A);
    tls_rig_shake(r);
    tls_rig_assert_talk(r);
    peer = tls_pump_peer(r->server.pump);
    assert_int_equal(peer->kind, IDENTITY_PSK);
    assert_int_equal(peer->role, IDENTITY_AGENT);
    assert_true(peer->agent_id == TLS_RIG_AGENT);
    assert_string_equal(peer->owner, "secret team-a");
    assert_int_equal(tls_pump_peer(r->client.pump)->role, IDENTITY_SERVICE);
}

static void bytes_may_come_one_by_one(void **state)
{
    struct tls_rig *r = *state;

    tls_rig_give_secret(r, &r->client, "a", TLS_RIG_SECRET_A);
    tls_rig_give_secret(r, &r->server, "a", TLS_RIG_SECRET_A);
    tls_rig_shake_in_steps(r, 1);
    tls_rig_assert_open(r);
    tls_rig_say(&r->client, "slowly");
    tls_rig_run_in_steps(r, 1);
    tls_rig_assert_got(&r->server, "slowly");
}

static void much_passes_whole_and_in_order(void **state)
{
    struct tls_rig *r = *state;
    char *text = mem_alloc(TLS_RIG_PLAIN + 100001);

    tls_rig_give_secret(r, &r->client, "a", TLS_RIG_SECRET_A);
    tls_rig_give_secret(r, &r->server, "a", TLS_RIG_SECRET_A);
    tls_rig_shake(r);
    for (size_t i = 0; i < TLS_RIG_PLAIN + 100000; i++) {
        text[i] = (char)('a' + i * i % 23);
    }
    text[TLS_RIG_PLAIN + 100000] = '\0';
    tls_rig_say(&r->server, text);
    tls_rig_run_in_steps(r, 30011);
    tls_rig_assert_got(&r->client, text);
    mem_free(text);
}

static void another_secret_is_refused_by_both_in_words(void **state)
{
    struct tls_rig *r = *state;

    tls_rig_give_secret(r, &r->client, "a", TLS_RIG_SECRET_A);
    tls_rig_give_secret(r, &r->server, "a", TLS_RIG_SECRET_B);
    tls_rig_shake(r);
    tls_rig_assert_trouble(&r->server, "a secret that is none of ours, key id");
    tls_rig_assert_trouble(&r->client, "does not know this side's secret");
    assert_int_equal(r->server.rv, ERR_REFUSED);
    assert_int_equal(r->client.rv, ERR_REFUSED);
}

static void operators_secret_is_known_by_its_name(void **state)
{
    struct tls_rig *r = *state;

    tls_rig_give_secret(r, &r->client, "secret", TLS_RIG_SECRET_A);
    tls_rig_give_secret(r, &r->server, "operator-anna", TLS_RIG_SECRET_A);
    tls_rig_shake(r);
    tls_rig_assert_open(r);
    assert_int_equal(tls_pump_peer(r->server.pump)->role, IDENTITY_OPERATOR);
}

static void previous_secret_still_opens_and_has_the_same_owner(void **state)
{
    struct tls_rig *r = *state;
    struct secrets old = tls_rig_read_secret(r, "team.previous", TLS_RIG_SECRET_A);
    struct secrets both;

    secrets_release(&old);
    both = tls_rig_read_secret(r, "team", TLS_RIG_SECRET_B);
    tls_rig_make(&r->server, &(struct tls_config){.is_server = true, .secrets = &both});
    secrets_release(&both);
    tls_rig_give_secret(r, &r->client, "a", TLS_RIG_SECRET_A);
    tls_rig_shake(r);
    tls_rig_assert_talk(r);
    assert_string_equal(tls_pump_peer(r->server.pump)->owner, "secret team");
}

static void replace(const struct tls_rig_end *e, const struct tls_config *config)
{
    struct tls_context *fresh;
    struct errmsg msg = {""};

    assert_int_equal(tls_context_new(config, &fresh, &msg), 0);
    tls_context_replace(e->context, fresh);
}

static void replacing_keeps_connections_and_takes_the_new_secret_only(void **state)
{
    struct tls_rig *r = *state;
    struct secrets fresh;

    tls_rig_give_secret(r, &r->client, "a", TLS_RIG_SECRET_A);
    tls_rig_give_secret(r, &r->server, "a", TLS_RIG_SECRET_A);
    tls_rig_shake(r);
    fresh = tls_rig_read_secret(r, "b", TLS_RIG_SECRET_B);
    replace(&r->server, &(struct tls_config){.is_server = true, .secrets = &fresh});
    tls_rig_assert_talk(r);
    tls_rig_close_end(&r->client);
    tls_rig_close_end(&r->server);
    tls_rig_shake(r);
    tls_rig_assert_trouble(&r->server, "none of ours");
    tls_rig_close_end(&r->client);
    tls_rig_close_end(&r->server);
    r->client.rv = r->server.rv = 0;
    replace(&r->client, &(struct tls_config){.secrets = &fresh});
    secrets_release(&fresh);
    tls_rig_shake(r);
    tls_rig_assert_talk(r);
}

static void one_secret_under_two_names_is_a_mistake(void **state)
{
    struct tls_rig *r = *state;
    struct secrets a = tls_rig_read_secret(r, "d/a", TLS_RIG_SECRET_A);
    struct errmsg msg = {""};
    struct secrets both;
    struct tls_context *c;

    secrets_release(&a);
    a = tls_rig_read_secret(r, "d/b", TLS_RIG_SECRET_A);
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
    struct tls_rig *r = *state;
    struct bytes alert = tls_no_secret_alert();

    tls_rig_give_secret(r, &r->client, "a", TLS_RIG_SECRET_A);
    tls_rig_open_end(&r->client);
    assert_int_equal(tls_pump_start(r->client.pump), 0);
    assert_true(buf_bytes(&r->client.wire)[0] == TLS_FIRST_BYTE);
    tls_rig_feed(&r->client, alert.data, alert.size);
    tls_rig_assert_trouble(&r->client, "it has no secret, and this side has one");
}

static void garbage_and_endless_greetings_are_refused(void **state)
{
    struct tls_rig *r = *state;
    static uint8_t hello[TLS_GREETING_MAX + TLS_RECORD_MAX];

    tls_rig_give_secret(r, &r->server, "a", TLS_RIG_SECRET_A);
    tls_rig_open_end(&r->server);
    tls_rig_feed(&r->server, (const uint8_t *)"GET / HTTP/1.1\r\n\r\n", 18);
    tls_rig_assert_trouble(&r->server, "");
    tls_rig_close_end(&r->server);

    tls_rig_open_end(&r->server);
    for (size_t at = 0; at + 5 + 16384 <= sizeof(hello); at += 5 + 16384) {
        const uint8_t head[] = {TLS_FIRST_BYTE, 3, 1, 0x40, 0};

        memcpy(hello + at, head, sizeof(head));
    }
    memcpy(hello + 5, (const uint8_t[]){1, 0x01, 0xff, 0xf0}, 4); /* 130 KiB follow */
    r->server.rv = 0;
    tls_rig_feed(&r->server, hello, sizeof(hello));
    assert_true(r->server.rv < 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, tls_rig_setup, tls_rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(same_secret_opens_and_names_agent_and_owner),
        CASE(bytes_may_come_one_by_one),
        CASE(much_passes_whole_and_in_order),
        CASE(another_secret_is_refused_by_both_in_words),
        CASE(operators_secret_is_known_by_its_name),
        CASE(previous_secret_still_opens_and_has_the_same_owner),
        CASE(replacing_keeps_connections_and_takes_the_new_secret_only),
        CASE(one_secret_under_two_names_is_a_mistake),
        CASE(who_has_no_secrets_says_so_by_an_alert),
        CASE(garbage_and_endless_greetings_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
