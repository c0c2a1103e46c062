/* Contexts. Happy path: 1. the secrets are copied, each with the id of its key; 2. the
 * certificate, its key and the CA are read, and it is looked at as a peer would
 * (tls_own.c); 3. an SSL_CTX that offers and takes nothing but that. Failures: a file
 * that is not right → its name and why. */

#include "common/mem.h"
#include "common/tls_internal.h"

#include <stdio.h>
#include <string.h>

static char salt[] = "ctrun 1";

bool tls_derive(const struct secret *s, const char *info, uint8_t *ret, size_t size)
{
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *ctx = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
    char digest[] = "SHA256";
    char text[IDENTITY_PSK_SIZE];
    bool is_done = false;

    (void)snprintf(text, sizeof(text), "%s", info); /* fits: an identity at most */
    if (ctx) {
        OSSL_PARAM params[] = {
            OSSL_PARAM_construct_utf8_string("digest", digest, 0),
            OSSL_PARAM_construct_octet_string("key", s->bytes, s->size),
            OSSL_PARAM_construct_octet_string("salt", salt, sizeof(salt) - 1),
            OSSL_PARAM_construct_octet_string("info", text, strlen(text)),
            OSSL_PARAM_construct_end(),
        };

        is_done = EVP_KDF_derive(ctx, ret, size, params) == 1;
    }
    EVP_KDF_CTX_free(ctx);
    EVP_KDF_free(kdf);
    return is_done;
}

/* Its id tells nothing of the secret. */
static bool make_key_id(const struct secret *s, char ret[IDENTITY_KEY_ID_SIZE])
{
    uint8_t id[8];

    if (!tls_derive(s, "key id", id, sizeof(id))) {
        return false;
    }
    for (size_t i = 0; i < sizeof(id); i++) {
        (void)snprintf(ret + 2 * i, 3, "%02x", id[i]); /* fits */
    }
    return true;
}

static int refuse(struct errmsg *msg, const char *what)
{
    const char *reason = ERR_reason_error_string(ERR_peek_error());

    (void)errmsg_set(msg, ERR_INVALID, "%s: %s", what, reason ? reason : "OpenSSL");
    ERR_clear_error();
    return ERR_INVALID;
}

static int copy_secrets(struct tls_context *c, const struct secrets *from,
                        struct errmsg *msg)
{
    c->secrets = mem_array(from->n, sizeof(*c->secrets));
    for (size_t i = 0; i < from->n; i++) {
        struct tls_secret *one = &c->secrets[c->n_secrets++];

        one->secret = from->list[i];
        one->secret.bytes = mem_dup(from->list[i].bytes, from->list[i].size);
        if (!make_key_id(&one->secret, one->key_id)) {
            return refuse(msg, "cannot make a key of a secret");
        }
    }
    return 0;
}

/* Another one's with the same id: NULL, there is none. */
static const struct tls_secret *find_twin(const struct tls_context *c, size_t of)
{
    const struct tls_secret *one = &c->secrets[of];

    for (size_t i = 0; i < of; i++) {
        const struct tls_secret *other = &c->secrets[i];

        if (strcmp(one->key_id, other->key_id) == 0 &&
            strcmp(one->secret.name, other->secret.name) != 0) {
            return other;
        }
    }
    return NULL;
}

/* Owners are told apart by their secrets. */
static int check_secrets(const struct tls_context *c, struct errmsg *msg)
{
    for (size_t i = 1; i < c->n_secrets && c->is_server; i++) {
        const struct tls_secret *twin = find_twin(c, i);

        if (twin) {
            return errmsg_set(msg, ERR_INVALID,
                              "the secrets %s and %s are the same: nobody could tell "
                              "whose a job is",
                              c->secrets[i].secret.name, twin->secret.name);
        }
    }
    return 0;
}

/* --- certificates --- */

static int read_certificate(struct tls_context *c, const struct tls_config *config,
                            struct errmsg *msg)
{
    int rv = auth_check_private(config->key, msg);
    char what[512];

    rv = rv < 0 ? rv : auth_check_public(config->ca, msg);
    rv = rv < 0 ? rv : auth_check_public(config->cert, msg);
    if (rv < 0) {
        return rv;
    }
    if (SSL_CTX_load_verify_locations(c->ctx, config->ca, NULL) != 1) {
        (void)snprintf(what, sizeof(what), "cannot read the CA %.200s", config->ca);
        return refuse(msg, what);
    }
    if (SSL_CTX_use_certificate_chain_file(c->ctx, config->cert) != 1) {
        (void)snprintf(what, sizeof(what), "cannot read the certificate %.200s",
                       config->cert);
        return refuse(msg, what);
    }
    if (SSL_CTX_use_PrivateKey_file(c->ctx, config->key, SSL_FILETYPE_PEM) != 1) {
        (void)snprintf(what, sizeof(what), "cannot use the key %.200s (of %.200s)",
                       config->key, config->cert);
        return refuse(msg, what);
    }
    c->has_certificate = true;
    return tls_check_own(c->ctx, config, msg);
}

/* --- the context --- */

static int set_up(SSL_CTX *ctx, bool is_server, struct errmsg *msg)
{
    static const unsigned char id[] = "ctrun"; /* a server that verifies needs one */

    if (is_server && SSL_CTX_set_session_id_context(ctx, id, sizeof(id) - 1) != 1) {
        return refuse(msg, "cannot set up TLS");
    }
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256") != 1 ||
        SSL_CTX_set_num_tickets(ctx, 0) != 1) {
        return refuse(msg, "cannot set up TLS");
    }
    (void)SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
    (void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_AUTO_RETRY);
    return 0;
}

static void let_in(const struct tls_context *c)
{
    int verify = SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;

    SSL_CTX_set_verify(c->ctx, verify, tls_on_verify);
    if (c->n_secrets > 0 && c->is_server) {
        SSL_CTX_set_psk_find_session_callback(c->ctx, tls_on_find_session);
    } else if (c->n_secrets > 0) {
        SSL_CTX_set_psk_use_session_callback(c->ctx, tls_on_use_session);
    }
}

static void clear(struct tls_context *c)
{
    for (size_t i = 0; i < c->n_secrets; i++) {
        explicit_bzero(c->secrets[i].secret.bytes, c->secrets[i].secret.size);
        mem_free(c->secrets[i].secret.bytes);
    }
    mem_free(c->secrets);
    if (c->ctx) {
        SSL_CTX_free(c->ctx);
    }
    if (c->bio) {
        BIO_meth_free(c->bio);
    }
}

static void name(struct tls_context *c, const struct tls_config *config)
{
    if (c->n_secrets > 0) {
        (void)snprintf(c->name, sizeof(c->name), "key id %s", c->secrets[0].key_id);
    } else {
        (void)snprintf(c->name, sizeof(c->name), "certificate %.200s", config->cert);
    }
}

static int fill(struct tls_context *c, const struct tls_config *config,
                struct errmsg *msg)
{
    int rv = 0;

    ASSERT(config->cert || (config->secrets && config->secrets->n > 0));
    rv = openssl_load(msg);
    if (rv < 0) {
        return rv;
    }
    c->ctx = SSL_CTX_new(config->is_server ? TLS_server_method() : TLS_client_method());
    c->bio = tls_bio_method();
    if (!c->ctx || !c->bio) {
        return refuse(msg, "cannot set up TLS");
    }
    rv = set_up(c->ctx, c->is_server, msg);
    if (rv == 0 && config->secrets) {
        rv = copy_secrets(c, config->secrets, msg);
    }
    rv = rv < 0 ? rv : check_secrets(c, msg);
    if (rv == 0 && config->cert) {
        rv = read_certificate(c, config, msg);
    }
    if (rv < 0) {
        return rv;
    }
    let_in(c);
    name(c, config);
    return 0;
}

int tls_context_new(const struct tls_config *config, struct tls_context **ret,
                    struct errmsg *msg)
{
    struct tls_context *c = mem_zalloc(sizeof(*c));
    int rv;

    c->is_server = config->is_server;
    c->agent_id = config->agent_id;
    c->on_unknown_secret = config->on_unknown_secret;
    c->arg = config->arg;
    (void)snprintf(c->job, sizeof(c->job), "%s", config->job ? config->job : "");
    rv = fill(c, config, msg);
    if (rv < 0) {
        tls_context_free(c);
        return rv;
    }
    *ret = c;
    return 0;
}

/* Connections hold on to the SSL_CTX they were made with; the method of their wires goes
 * with the context. */
void tls_context_replace(struct tls_context *c, struct tls_context *fresh)
{
    struct tls_context old = *c;

    *c = *fresh;
    c->bio = old.bio;
    old.bio = fresh->bio;
    clear(&old);
    mem_free(fresh);
}

void tls_context_free(struct tls_context *c)
{
    if (c) {
        clear(c);
        mem_free(c);
    }
}

const char *tls_context_name(const struct tls_context *c)
{
    return c->name;
}
