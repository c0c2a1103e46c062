#ifndef COMMON_TLS_INTERNAL_H
#define COMMON_TLS_INTERNAL_H

/* What tls.c (contexts), tls_own.c (our certificate), tls_pump.c
 * (connections) and tls_words.c share. */

#include "common/openssl.h"
#include "common/tls.h"

enum {
    TLS_KEY_SIZE = 32,
    TLS_ALERT_NO_SECRET = 111, /* certificate_unobtainable: nobody else says it */
};

struct tls_secret {
    struct secret secret; /* its bytes are owned */
    char key_id[IDENTITY_KEY_ID_SIZE];
};

struct tls_context {
    bool is_server;
    SSL_CTX *ctx;               /* owned */
    BIO_METHOD *bio;            /* owned: of the pumps' wires */
    struct tls_secret *secrets; /* owned */
    size_t n_secrets;
    bool has_certificate;
    uint64_t agent_id;
    void (*on_unknown_secret)(void *arg);
    void *arg;
    char job[MSG_ID_MAX];
    char name[256];
};

struct tls_pump {
    struct tls_context *context; /* borrowed: outlives it */
    SSL *ssl;                    /* owned */
    struct buf *wire;            /* borrowed: outlives it */
    struct bytes from;           /* the peer's bytes, during tls_pump_read */
    size_t n_greeting;           /* of them before it was open */
    bool is_open;
    int error; /* the first: it stays */
    char psk_identity[IDENTITY_PSK_SIZE];
    char unknown_key[IDENTITY_KEY_ID_SIZE]; /* a secret that we do not have */
    struct identity peer;
    char trouble[256];
};

/* HKDF-SHA256 of the secret; false: OpenSSL cannot. */
bool tls_derive(const struct secret *s, const char *info, uint8_t *ret,
                size_t size) MUST_CHECK;

/* Fills role, job, name of a certificate that has one URI, one of ours. */
bool tls_read_uri(const X509 *certificate, struct identity *ret) MUST_CHECK;

/* What peers would say of our own certificate, before the first of them does: its dates,
 * its chain, its URI. ERR_INVALID with one line: the file, what is wrong, the remedy. */
int tls_check_own(SSL_CTX *ctx, const struct tls_config *config,
                  struct errmsg *msg) MUST_CHECK;

/* The callbacks of a context: their pump is the SSL's app data. */
int tls_on_find_session(SSL *ssl, const unsigned char *identity, size_t size,
                        SSL_SESSION **ret);
int tls_on_use_session(SSL *ssl, const EVP_MD *md, const unsigned char **ret_identity,
                       size_t *ret_size, SSL_SESSION **ret);
int tls_on_verify(int is_fine, X509_STORE_CTX *x);
BIO_METHOD *tls_bio_method(void);

/* Puts OpenSSL's first error into p->trouble, and forgets all of them. */
void tls_note_failure(struct tls_pump *p);

#endif
