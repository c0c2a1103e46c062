#ifndef LAUNCHER_RDZV_EMBED_H
#define LAUNCHER_RDZV_EMBED_H

/* The rendezvous service inside ctrun: for --standalone, and for the node that owns
 * --rdzv-endpoint. The one door from launcher/ to rendezvous/. Loop thread only. */

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tls_context;
struct uv_loop_s;
struct embed;

struct embed_config {
    struct uv_loop_s *loop;  /* borrowed: outlives it */
    const char *addr;        /* numeric; "::" for all */
    int port;                /* 0 picks one */
    struct tls_context *tls; /* borrowed: outlives it; NULL: everybody may come */
    /* NULL, or takes the store's clients that come to the port: server.h. */
    void (*on_store)(void *arg, int fd, const uint8_t *bytes, size_t size);
    void *arg;
};

/* -EADDRINUSE: the text says that the port is taken, not by whom. */
int embed_start(const struct embed_config *config, struct embed **ret,
                struct errmsg *msg) MUST_CHECK;
int embed_port(const struct embed *e);

/* True while a job is neither done nor failed, or an agent is connected. */
bool embed_is_busy(const struct embed *e);

/* The others finish their step and go, and hear that this node leaves; as long as
 * embed_is_draining, some have not. */
void embed_finish(struct embed *e);
bool embed_is_draining(const struct embed *e);

/* Asynchronous; frees itself after the callback. */
void embed_stop(struct embed *e, void (*on_stopped)(void *arg), void *arg);

#endif
