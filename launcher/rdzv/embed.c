#include "launcher/rdzv/embed.h"

#include "rendezvous/server.h"

#include "common/mem.h"

enum { DOOR_MS = 20 }; /* the workers come first, and short jobs need none */

struct embed {
    struct server *server; /* owned */
    int port;
    void (*on_stopped)(void *arg);
    void *arg;
};

static void on_unused_stopped(void *arg)
{
    mem_free(arg);
}

static void on_server_stopped(void *arg)
{
    struct embed *e = arg;

    e->on_stopped(e->arg);
    mem_free(e);
}

int embed_start(const struct embed_config *config, struct embed **ret,
                struct errmsg *msg)
{
    struct embed *e = mem_zalloc(sizeof(*e));
    struct server_config server = {.loop = config->loop,
                                   .store_max_bytes = (size_t)256 << 20,
                                   .tls = config->tls,
                                   .on_store = config->on_store,
                                   .arg = config->arg};
    int rv;

    rv = server_new(&server, &e->server, msg);
    if (rv < 0) {
        mem_free(e);
        return rv;
    }
    rv = server_listen(e->server, config->addr, config->port, &e->port, msg);
    if (rv < 0) {
        server_stop(e->server, on_unused_stopped, e);
        return rv;
    }
    server_receive_operators(e->server, DOOR_MS);
    *ret = e;
    return 0;
}

int embed_port(const struct embed *e)
{
    return e->port;
}

bool embed_is_busy(const struct embed *e)
{
    return server_is_busy(e->server);
}

void embed_finish(struct embed *e)
{
    server_finish(e->server, "the node that serves the rendezvous leaves");
}

bool embed_is_draining(const struct embed *e)
{
    return server_is_draining(e->server);
}

void embed_stop(struct embed *e, void (*on_stopped)(void *arg), void *arg)
{
    e->on_stopped = on_stopped;
    e->arg = arg;
    server_stop(e->server, on_server_stopped, e);
}
