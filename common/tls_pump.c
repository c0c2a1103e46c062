/* One connection. Happy path: 1. the peer's bytes are given to OpenSSL where they lie;
 * 2. what it wants to send is appended to `wire`; 3. the handshake ends, and the peer is
 * looked at: it has shown the secret that it named, or a certificate of our CA; 4. plain
 * bytes come out, and go in. Failures: tls_words.c says why; nothing goes on after
 * one. */

#include "common/mem.h"
#include "common/tls_internal.h"

#include <stdio.h>
#include <string.h>

/* --- the wire: a BIO of the caller's buffers --- */

static int on_bio_read(BIO *bio, char *data, size_t size, size_t *ret)
{
    struct tls_pump *p = BIO_get_data(bio);
    size_t n = MIN(size, p->from.size);

    BIO_clear_retry_flags(bio);
    if (n == 0) {
        BIO_set_retry_read(bio);
        return 0;
    }
    memcpy(data, p->from.data, n);
    p->from.data += n;
    p->from.size -= n;
    *ret = n;
    return 1;
}

static int on_bio_write(BIO *bio, const char *data, size_t size, size_t *ret)
{
    const struct tls_pump *p = BIO_get_data(bio);

    if (buf_append(p->wire, data, size) < 0) {
        return 0;
    }
    *ret = size;
    return 1;
}

static long on_bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD *tls_bio_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "ctrun");

    if (!m || BIO_meth_set_read_ex(m, on_bio_read) != 1 ||
        BIO_meth_set_write_ex(m, on_bio_write) != 1 ||
        BIO_meth_set_ctrl(m, on_bio_ctrl) != 1) {
        BIO_meth_free(m);
        return NULL;
    }
    return m;
}

/* --- secrets --- */

/* The identity is public: what the secret makes of it is the key. NULL: out of luck. */
static SSL_SESSION *make_session(SSL *ssl, const struct secret *s, const char *identity)
{
    static const unsigned char aes_128_gcm_sha256[] = {0x13, 0x01};
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
    SSL_SESSION *session = SSL_SESSION_new();
    uint8_t key[TLS_KEY_SIZE];
    bool is_fine = session && cipher && tls_derive(s, identity, key, sizeof(key)) &&
                   SSL_SESSION_set1_master_key(session, key, sizeof(key)) == 1 &&
                   SSL_SESSION_set_cipher(session, cipher) == 1 &&
                   SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;

    explicit_bzero(key, sizeof(key));
    if (!is_fine) {
        SSL_SESSION_free(session);
        return NULL;
    }
    return session;
}

static const struct tls_secret *find_secret(const struct tls_context *c,
                                            const char *key_id)
{
    for (size_t i = 0; i < c->n_secrets; i++) {
        if (strcmp(c->secrets[i].key_id, key_id) == 0) {
            return &c->secrets[i];
        }
    }
    return NULL;
}

/* Maybe it is ours by now. */
static const struct tls_secret *find_fresh(struct tls_context *c, const char *key_id)
{
    const struct tls_secret *known = find_secret(c, key_id);

    if (!known && c->on_unknown_secret) {
        c->on_unknown_secret(c->arg);
        known = find_secret(c, key_id);
    }
    return known;
}

static void set_peer(struct tls_pump *p, const struct secret *s, uint64_t agent_id)
{
    p->peer = (struct identity){
        .kind = IDENTITY_PSK,
        .role = s->is_operator ? IDENTITY_OPERATOR : IDENTITY_AGENT,
        .agent_id = agent_id,
    };
    (void)snprintf(p->peer.owner, sizeof(p->peer.owner), "secret %s", s->name);
}

/* A server's: the client has named a key. Without a session the handshake goes on as if
 * it had not. */
int tls_on_find_session(SSL *ssl, const unsigned char *identity, size_t size,
                        SSL_SESSION **ret)
{
    struct tls_pump *p = SSL_get_app_data(ssl);
    const struct tls_secret *known;
    char key_id[IDENTITY_KEY_ID_SIZE];
    uint64_t agent_id;

    *ret = NULL;
    if (identity_parse_psk(identity, size, key_id, &agent_id) < 0) {
        return 1;
    }
    known = find_fresh(p->context, key_id);
    if (!known) {
        memcpy(p->unknown_key, key_id, sizeof(key_id));
        return 1;
    }
    identity_format_psk(key_id, agent_id, p->psk_identity);
    *ret = make_session(ssl, &known->secret, p->psk_identity);
    set_peer(p, &known->secret, agent_id);
    return *ret ? 1 : 0;
}

/* A client's. */
int tls_on_use_session(SSL *ssl, const EVP_MD *md, const unsigned char **ret_identity,
                       size_t *ret_size, SSL_SESSION **ret)
{
    struct tls_pump *p = SSL_get_app_data(ssl);
    const struct tls_secret *own = &p->context->secrets[0];

    (void)md; /* there is one suite, and so one hash */
    identity_format_psk(own->key_id, p->context->agent_id, p->psk_identity);
    *ret = make_session(ssl, &own->secret, p->psk_identity);
    *ret_identity = (const unsigned char *)p->psk_identity;
    *ret_size = strlen(p->psk_identity);
    set_peer(p, &own->secret, 0);
    p->peer.role = IDENTITY_SERVICE;
    return *ret ? 1 : 0;
}

/* --- certificates --- */

/* The one URI of ours among the certificate's names. */
bool tls_read_uri(const X509 *certificate, struct identity *ret)
{
    GENERAL_NAMES *names =
        X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    int n_uris = 0;
    bool is_ours = false;

    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *one = sk_GENERAL_NAME_value(names, i);
        const ASN1_IA5STRING *uri;

        if (one->type != GEN_URI) {
            continue;
        }
        uri = one->d.uniformResourceIdentifier;
        n_uris++;
        is_ours = identity_parse_uri(ASN1_STRING_get0_data(uri),
                                     (size_t)ASN1_STRING_length(uri), ret) == 0;
    }
    GENERAL_NAMES_free(names);
    return n_uris == 1 && is_ours;
}

/* Whether it may be at the other end: a service serves; a job's agents may serve it,
 * too. */
static bool may_be_peer(const struct tls_context *c, const struct identity *who)
{
    switch (who->role) {
    case IDENTITY_SERVICE:
        return !c->is_server;
    case IDENTITY_AGENT:
        return c->is_server || who->job[0] == '\0' || c->job[0] == '\0' ||
               strcmp(who->job, c->job) == 0;
    case IDENTITY_OPERATOR:
    case IDENTITY_WORKER:
        return c->is_server;
    }
    return false;
}

static bool take_certificate(struct tls_pump *p, X509 *certificate)
{
    struct identity who = {.kind = IDENTITY_CERTIFICATE, .owner = "ca"};
    char text[160];

    if (!tls_read_uri(certificate, &who)) {
        (void)snprintf(p->trouble, sizeof(p->trouble),
                       "its certificate has no name of ours (one URI, such as "
                       "ctrun://job/ID/agent/HOST)");
        return false;
    }
    if (!may_be_peer(p->context, &who)) {
        identity_describe(&who, text, sizeof(text));
        (void)snprintf(p->trouble, sizeof(p->trouble), "%s may not %s", text,
                       p->context->is_server ? "come here" : "serve this job");
        return false;
    }
    p->peer = who;
    return true;
}

int tls_on_verify(int is_fine, X509_STORE_CTX *x)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(x, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct tls_pump *p = SSL_get_app_data(ssl);

    if (is_fine == 1 && X509_STORE_CTX_get_error_depth(x) == 0 &&
        !take_certificate(p, X509_STORE_CTX_get_current_cert(x))) {
        X509_STORE_CTX_set_error(x, X509_V_ERR_APPLICATION_VERIFICATION);
        return 0;
    }
    return is_fine;
}

/* --- the pump --- */

struct tls_pump *tls_pump_new(struct tls_context *context, struct buf *wire)
{
    struct tls_pump *p = mem_zalloc(sizeof(*p));
    BIO *bio = BIO_new(context->bio);

    p->context = context;
    p->wire = wire;
    p->ssl = SSL_new(context->ctx);
    ASSERT(p->ssl && bio); /* only without memory */
    BIO_set_data(bio, p);
    BIO_set_init(bio, 1);
    SSL_set_bio(p->ssl, bio, bio); /* takes it */
    ASSERT(SSL_set_app_data(p->ssl, p) == 1);
    if (context->is_server) {
        SSL_set_accept_state(p->ssl);
    } else {
        SSL_set_connect_state(p->ssl);
    }
    return p;
}

void tls_pump_free(struct tls_pump *p)
{
    if (p) {
        SSL_free(p->ssl);
        mem_free(p);
    }
}

bool tls_pump_is_open(const struct tls_pump *p)
{
    return p->is_open && p->error == 0;
}

const struct identity *tls_pump_peer(const struct tls_pump *p)
{
    return &p->peer;
}

const char *tls_pump_trouble(const struct tls_pump *p)
{
    return p->trouble;
}

static int fail(struct tls_pump *p, int error, const char *trouble)
{
    p->error = error;
    if (p->trouble[0] == '\0') {
        (void)snprintf(p->trouble, sizeof(p->trouble), "%s", trouble);
    }
    return error;
}

/* It has shown what it has to: the key of the secret that it named (a session that we
 * made of it is the only one there can be), or a certificate. */
static bool has_shown(const struct tls_pump *p)
{
    bool is_resumed = SSL_session_reused(p->ssl) == 1;

    switch (p->peer.kind) {
    case IDENTITY_NONE:
        return false;
    case IDENTITY_PSK:
        return is_resumed;
    case IDENTITY_CERTIFICATE:
        break;
    }
    return !is_resumed && p->context->has_certificate &&
           SSL_get0_peer_certificate(p->ssl) != NULL &&
           SSL_get_verify_result(p->ssl) == X509_V_OK;
}

/* What OpenSSL says to a call that did not do; 0: it wants more bytes. */
static int judge(struct tls_pump *p, int rv)
{
    int error = SSL_get_error(p->ssl, rv);

    if (error == SSL_ERROR_WANT_READ) {
        return 0;
    }
    if (error == SSL_ERROR_ZERO_RETURN) {
        return fail(p, ERR_CLOSED, "it has closed the connection");
    }
    tls_note_failure(p);
    return fail(p, p->is_open ? ERR_PROTOCOL : ERR_REFUSED, "TLS has failed");
}

static int greet(struct tls_pump *p)
{
    int rv;

    ERR_clear_error();
    rv = SSL_do_handshake(p->ssl);
    if (rv != 1) {
        return judge(p, rv);
    }
    if (!has_shown(p)) {
        return fail(p, ERR_REFUSED,
                    p->context->is_server
                        ? "it has shown neither secret nor certificate"
                        : "it has not shown that it knows the secret");
    }
    p->is_open = true;
    return 0;
}

int tls_pump_start(struct tls_pump *p)
{
    return p->error < 0 ? p->error : greet(p);
}

static int greet_with(struct tls_pump *p)
{
    size_t before = p->from.size;
    int rv = greet(p);

    p->n_greeting += before - p->from.size;
    if (rv == 0 && !p->is_open && p->n_greeting > TLS_GREETING_MAX) {
        return fail(p, ERR_TOO_LARGE, "it has sent 64 KiB and shown nothing");
    }
    return rv;
}

int tls_pump_read(struct tls_pump *p, struct bytes *from, uint8_t *plain, size_t size)
{
    size_t n = 0;
    int rv = p->error;

    p->from = *from;
    if (rv == 0 && !p->is_open) {
        rv = greet_with(p);
    }
    while (rv == 0 && p->is_open && n < size) {
        size_t more = 0;

        ERR_clear_error();
        if (SSL_read_ex(p->ssl, plain + n, size - n, &more) != 1) {
            rv = judge(p, 0);
            break;
        }
        n += more;
    }
    *from = p->from;
    p->from = (struct bytes){0};
    return n > 0 ? (int)n : rv; /* an error comes again */
}

int tls_pump_write(struct tls_pump *p, const void *plain, size_t size)
{
    size_t done = 0;

    ASSERT(p->is_open);
    if (p->error < 0) {
        return p->error;
    }
    ERR_clear_error();
    if (size > 0 && SSL_write_ex(p->ssl, plain, size, &done) != 1) {
        ERR_clear_error();
        return fail(p, ERR_TOO_LARGE, "what is to be sent does not fit");
    }
    ASSERT(done == size);
    return 0;
}

struct bytes tls_no_secret_alert(void)
{
    static const uint8_t alert[] = {21, 3, 3, 0, 2, 2, TLS_ALERT_NO_SECRET};

    return (struct bytes){alert, sizeof(alert)};
}
