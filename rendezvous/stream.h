#ifndef RENDEZVOUS_STREAM_H
#define RENDEZVOUS_STREAM_H

/* What is between a connection's bytes and its socket: nothing (tcp), or TLS. A
 * connection begins as tcp; the first byte of a TLS client makes the pool ask its owner
 * (on_tls), who begins TLS by stream_secure or refuses. The loop's thread. */

#include "rendezvous/connection.h"

struct identity;
struct tls_context;

struct conn_ops {
    /* Bytes of the socket; what they mean goes to connection_take. */
    int (*received)(struct connection *c, const uint8_t *data, size_t size);
    /* What the socket gets next, at the front of what is to be sent; empty: nothing. */
    struct buf *(*ready)(struct connection *c);
};

extern const struct conn_ops stream_tcp;

enum {
    STREAM_SEAL_AT_ONCE = 256 * 1024, /* bytes between `out` and the socket */
    STREAM_WIRE_MAX = 1024 * 1024,
    STREAM_TLS_MEMORY = 27 * 1024, /* of OpenSSL, for one connection: measured */
};

/* From its first byte on, which has come. */
void stream_secure(struct connection *c, struct tls_context *tls);

/* Who is at the other end; NULL: it has shown nothing. */
const struct identity *stream_peer(const struct connection *c);

void stream_release(struct connection *c);

#endif
