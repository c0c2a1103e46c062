#ifndef COMMON_TLS_H
#define COMMON_TLS_H

/* TLS 1.3 over bytes: nothing here knows a socket. A context is what one end has to show
 * and whom it lets in; a pump is one connection: the peer's bytes in, plain bytes out,
 * and the other way round. Both ends show a key, or there is no connection:
 *
 *   secrets      an external PSK with (EC)DHE, TLS_AES_128_GCM_SHA256. The key is
 *                HKDF-SHA256(secret, "ctrun 1", the PSK identity), so each agent has one
 *                of its own.
 *   certificates of one CA, with one URI of identity.h among their names.
 *
 * No tickets, no resumption, no early data. tls*.c are the only users of OpenSSL, which
 * is loaded when the first context is made (openssl.h). One thread at a time for a
 * context and its pumps. */

#include "common/auth.h"
#include "common/identity.h"

struct tls_context; /* opaque */
struct tls_pump;    /* opaque */

enum {
    TLS_FIRST_BYTE = 0x16, /* of whatever a client says first */
    TLS_RECORD_MAX = 16 * 1024 + 512,
    TLS_GREETING_MAX = 64 * 1024, /* bytes of a peer that was not let in yet */
};

struct tls_config {
    bool is_server;
    const struct secrets *secrets; /* a client shows the first; NULL: none */
    const char *ca, *cert, *key;   /* PEM files; all or none (NULL) */
    unsigned
        roles; /* whose certificate it may be: bits 1 << IDENTITY_…; 0: anybody's */
    uint64_t agent_id; /* a client's */
    const char *job; /* a client's: agents of which job may serve it, too; NULL: any */
    /* A server's: somebody shows a secret that is none of ours; NULL, or may replace the
     * context's keys, which are then asked again. */
    void (*on_unknown_secret)(void *arg);
    void *arg;
};

/* ERR_INVALID or -errno with one line: which file, what is wrong. What `config` points
 * to is copied. */
int tls_context_new(const struct tls_config *config, struct tls_context **ret,
                    struct errmsg *msg) MUST_CHECK;

/* The keys of another context, made by whichever thread, in place of the old ones; pumps
 * that are there go on. `fresh` is gone then. */
void tls_context_replace(struct tls_context *c, struct tls_context *fresh);

/* Not before its pumps; NULL allowed. */
void tls_context_free(struct tls_context *c);

/* The key id of a client's secret, or its certificate's file: for people. */
const char *tls_context_name(const struct tls_context *c);

/* `wire`, borrowed: what is to be sent to the peer is appended there. */
struct tls_pump *tls_pump_new(struct tls_context *context, struct buf *wire);
void tls_pump_free(struct tls_pump *p); /* NULL allowed */

/* A client's first bytes. */
int tls_pump_start(struct tls_pump *p) MUST_CHECK;

/* Takes bytes of the peer out of `from` and gives plain ones: how many; 0: all of
 * `from` is taken, and there is nothing more. Also what opens the connection.
 * ERR_CLOSED: the peer has ended it well. ERR_REFUSED: one did not let the other in;
 * ERR_TOO_LARGE, ERR_PROTOCOL. tls_pump_trouble has words for them. After an error there
 * may be bytes in `wire` that tell the peer. */
int tls_pump_read(struct tls_pump *p, struct bytes *from, uint8_t *plain,
                  size_t size) MUST_CHECK;

/* Once it is open. ERR_TOO_LARGE: `wire` does not take it. */
int tls_pump_write(struct tls_pump *p, const void *plain, size_t size) MUST_CHECK;

bool tls_pump_is_open(const struct tls_pump *p);

/* Who the peer is, once it is open. */
const struct identity *tls_pump_peer(const struct tls_pump *p);

/* What went wrong, as the end of a sentence about the peer; "" while nothing has. */
const char *tls_pump_trouble(const struct tls_pump *p);

/* What an end without secrets answers to a TLS client, so that it can tell. */
struct bytes tls_no_secret_alert(void);

#endif
