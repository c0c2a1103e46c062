#include "tests/lib/tls_rig.h"

#include "tests/lib/cmocka.h"

#include "common/tls_ca.h"
#include "common/tls_internal.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WIRE_MAX = 1 << 22 };

int tls_rig_setup(void **state)
{
    static struct tls_rig rig;

    rig = (struct tls_rig){.client = {.rv = 0}};
    scratch_open(&rig.scratch);
    *state = &rig;
    return 0;
}

void tls_rig_close_end(struct tls_rig_end *e)
{
    tls_pump_free(e->pump);
    e->pump = NULL;
    buf_release(&e->wire);
    buf_release(&e->got);
}

int tls_rig_teardown(void **state)
{
    struct tls_rig *r = *state;

    tls_rig_close_end(&r->client);
    tls_rig_close_end(&r->server);
    tls_context_free(r->client.context);
    tls_context_free(r->server.context);
    scratch_close(&r->scratch);
    return 0;
}

/* ---- what the ends have to show ---- */

struct secrets tls_rig_read_secret(struct tls_rig *r, const char *name,
                                   const char *text)
{
    const char *path = scratch_text(&r->scratch, name, text);
    struct errmsg msg = {""};
    struct secrets s;

    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(secrets_read(path, &s, &msg), 0);
    return s;
}

void tls_rig_make(struct tls_rig_end *e, const struct tls_config *config)
{
    struct errmsg msg = {""};

    if (tls_context_new(config, &e->context, &msg) < 0) {
        fail_msg("%s", msg.text);
    }
}

void tls_rig_give_secret(struct tls_rig *r, struct tls_rig_end *e, const char *name,
                         const char *text)
{
    struct secrets s = tls_rig_read_secret(r, name, text);

    tls_rig_make(e, &(struct tls_config){.is_server = e == &r->server,
                                         .secrets = &s,
                                         .agent_id = TLS_RIG_AGENT,
                                         .job = "7"});
    secrets_release(&s);
}

/* A certificate of the CA in `folder`, which is made where it is not there. */
struct tls_config tls_rig_certificate(struct tls_rig *r, const char *folder,
                                      const char *uri, int days)
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
    return (struct tls_config){.ca = r->ca,
                               .cert = r->cert,
                               .key = r->key,
                               .agent_id = TLS_RIG_AGENT,
                               .job = "7"};
}

void tls_rig_give_certificate(struct tls_rig *r, struct tls_rig_end *e,
                              const char *folder, const char *uri, int days)
{
    struct tls_config config = tls_rig_certificate(r, folder, uri, days);

    config.is_server = e == &r->server;
    tls_rig_make(e, &config);
}

void tls_rig_swap_certificate(struct tls_rig_end *e, const struct tls_config *by)
{
    SSL_CTX *ctx = e->context->ctx;

    assert_int_equal(SSL_CTX_use_certificate_chain_file(ctx, by->cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey_file(ctx, by->key, SSL_FILETYPE_PEM), 1);
}

/* ---- the wires ---- */

void tls_rig_open_end(struct tls_rig_end *e)
{
    buf_init(&e->wire, WIRE_MAX);
    buf_init(&e->got, WIRE_MAX);
    e->pump = tls_pump_new(e->context, &e->wire);
}

void tls_rig_feed(struct tls_rig_end *e, const uint8_t *data, size_t size)
{
    static uint8_t plain[TLS_RIG_PLAIN];
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
static bool move(struct tls_rig_end *from, struct tls_rig_end *to, size_t step)
{
    bool any = buf_len(&from->wire) > 0;

    while (buf_len(&from->wire) > 0 && to->rv == 0) {
        size_t n = MIN(step, buf_len(&from->wire));

        tls_rig_feed(to, buf_bytes(&from->wire), n);
        buf_consume(&from->wire, n);
    }
    buf_clear(&from->wire);
    return any;
}

void tls_rig_run_in_steps(struct tls_rig *r, size_t step)
{
    bool any = true;

    while (any) {
        any = move(&r->client, &r->server, step);
        any = move(&r->server, &r->client, step) || any;
    }
}

void tls_rig_shake_in_steps(struct tls_rig *r, size_t step)
{
    tls_rig_open_end(&r->client);
    tls_rig_open_end(&r->server);
    assert_int_equal(tls_pump_start(r->client.pump), 0);
    tls_rig_run_in_steps(r, step);
}

void tls_rig_shake(struct tls_rig *r)
{
    tls_rig_shake_in_steps(r, SIZE_MAX);
}

void tls_rig_assert_open(const struct tls_rig *r)
{
    if (!tls_pump_is_open(r->client.pump) || !tls_pump_is_open(r->server.pump)) {
        fail_msg("client: %s; server: %s", tls_pump_trouble(r->client.pump),
                 tls_pump_trouble(r->server.pump));
    }
}

void tls_rig_assert_trouble(const struct tls_rig_end *e, const char *words)
{
    assert_true(e->rv < 0);
    assert_false(tls_pump_is_open(e->pump));
    if (!strstr(tls_pump_trouble(e->pump), words)) {
        fail_msg("'%s' is not in: %s", words, tls_pump_trouble(e->pump));
    }
}

void tls_rig_say(struct tls_rig_end *e, const char *text)
{
    assert_int_equal(tls_pump_write(e->pump, text, strlen(text)), 0);
}

void tls_rig_assert_got(struct tls_rig_end *e, const char *text)
{
    assert_int_equal(buf_len(&e->got), strlen(text));
    assert_memory_equal(buf_bytes(&e->got), text, strlen(text));
    buf_clear(&e->got);
}

void tls_rig_assert_talk(struct tls_rig *r)
{
    tls_rig_assert_open(r);
    tls_rig_say(&r->client, "how are you");
    tls_rig_say(&r->server, "fine");
    tls_rig_run_in_steps(r, SIZE_MAX);
    tls_rig_assert_got(&r->server, "how are you");
    tls_rig_assert_got(&r->client, "fine");
}
