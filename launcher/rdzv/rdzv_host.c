#include "launcher/rdzv/rdzv_host.h"

#include "launcher/rdzv/embed.h"
#include "launcher/rdzv/keys.h"
#include "launcher/rdzv/netaddr.h"
#include "launcher/rdzv/rdzv_serving.h"

#include "common/listener.h"
#include "common/log.h"
#include "common/portowner.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

void rdzv_attempt_add(struct rdzv_attempt *a, const struct sockaddr *addr)
{
    size_t size = addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                             : sizeof(struct sockaddr_in6);

    if (a->n_addrs < RDZV_ADDRS_MAX &&
        (addr->sa_family == AF_INET || addr->sa_family == AF_INET6)) {
        memcpy(&a->addrs[a->n_addrs++], addr, size);
    }
}

/* … and nowhere else. */
static void set_loopback(struct rdzv_attempt *a, int port)
{
    int rv = netaddr_parse("127.0.0.1", port, &a->addrs[0]);

    ASSERT(rv == 0); /* it is one */
    a->n_addrs = 1;
}

/* NULL, too, where that cannot be found out: the next attempt asks again. */
static const struct sockaddr *find_ours(const struct rdzv_attempt *a)
{
    bool is_ours = false;

    for (unsigned i = 0; i < a->n_addrs; i++) {
        const struct sockaddr *addr = (const struct sockaddr *)&a->addrs[i];
        int rv = netaddr_is_this_host(addr, &is_ours);

        if (rv < 0) {
            log_warn("cannot list this host's addresses", "error=\"%s\"", err_text(rv));
            return NULL;
        }
        if (is_ours) {
            return addr;
        }
    }
    return NULL;
}

static void say_wildcard(const struct rdzv_host *h, bool is_ours)
{
    char text[512];

    (void)snprintf(text, sizeof(text),
                   "%s is %s here; serving the rendezvous on all addresses, port %d%s",
                   h->config->host, is_ours ? "a loopback address" : "no address",
                   h->config->port,
                   is_ours || !h->config->is_static
                       ? ""
                       : " (if a ctrun-rendezvous runs there: --rdzv-backend=c10d)");
    log_info(text, "%s", "");
}

/* The workers would ask whoever has the port. */
static void refuse_taken(const struct rdzv_host *h, struct rdzv_attempt *a,
                         const char *addr)
{
    listener_name_holder(addr, h->config->port, a->trouble, sizeof(a->trouble));
    a->is_impossible = true;
}

/* 0: serving, or somebody does already (a->taken). */
static int serve(struct rdzv_host *h, struct rdzv_attempt *a, const char *addr,
                 int port)
{
    struct errmsg msg = {0};
    struct embed_config config = {.loop = h->config->loop,
                                  .addr = addr,
                                  .port = port,
                                  .on_store =
                                      h->config->is_static ? h->config->on_store : NULL,
                                  .arg = h->config->arg};
    int rv = keys_server(h->config->keys, &config.tls, &msg);

    a->is_impossible = rv < 0;
    rv = rv < 0 ? rv : embed_start(&config, &h->embed, &msg);
    if (rv == -EADDRINUSE && h->config->is_static) {
        refuse_taken(h, a, addr);
        return rv;
    }
    if (rv == -EADDRINUSE) {
        (void)snprintf(a->taken, sizeof(a->taken), "%.255s", msg.text);
        (void)snprintf(a->taken_addr, sizeof(a->taken_addr), "%s", addr);
        return 0;
    }
    if (rv < 0) {
        (void)snprintf(a->trouble, sizeof(a->trouble), "%s", msg.text);
        a->is_impossible = a->is_impossible || rv == -EMFILE || rv == -ENFILE;
        return rv;
    }
    if (h->was_elsewhere) {
        log_info("the server is gone: this node serves the rendezvous in its place",
                 "port=%d", embed_port(h->embed));
    }
    if (!config.tls && h->config->max_nodes > 1) {
        rdzv_advise(addr, embed_port(h->embed));
    }
    return 0;
}

/* On this host alone, and a client of it. */
static int serve_alone(struct rdzv_host *h, struct rdzv_attempt *a)
{
    int rv = h->embed ? 0 : serve(h, a, "127.0.0.1", 0);

    a->n_addrs = 0;
    if (h->embed) {
        set_loopback(a, embed_port(h->embed));
    }
    return rv;
}

static int serve_everywhere(struct rdzv_host *h, struct rdzv_attempt *a, bool is_ours)
{
    int rv = serve(h, a, "::", h->config->port);

    h->is_wildcard = rv == 0 && h->embed;
    if (h->is_wildcard) {
        say_wildcard(h, is_ours);
    }
    return rv;
}

/* The port is taken, by the ctrun of another job. Slow; asked once. */
static bool is_another_jobs(const struct rdzv_host *h, const struct rdzv_attempt *a,
                            const struct sockaddr *ours)
{
    char holder[256];
    char text[512];

    if (a->taken[0] == '\0' || h->config->max_nodes > 1 || !h->config->is_anonymous ||
        !portowner_find(ours, holder, sizeof(holder)) || !strstr(holder, "(ctrun)")) {
        return false;
    }
    (void)snprintf(
        text, sizeof(text),
        "%s:%d serves another job, of %s; this one, of a single node, takes a "
        "free port",
        h->config->host, h->config->port, holder);
    log_info(text, "%s", "");
    return true;
}

static int serve_own_address(struct rdzv_host *h, struct rdzv_attempt *a,
                             const struct sockaddr *ours)
{
    char addr[MSG_ADDR_MAX];
    int rv;

    netaddr_format(ours, addr, sizeof(addr));
    rv = serve(h, a, addr, h->config->port);
    if (rv == 0 && is_another_jobs(h, a, ours)) {
        h->is_alone = true;
        a->taken[0] = '\0';
        rv = serve_alone(h, a);
        if (rv == 0) {
            (void)snprintf(addr, sizeof(addr), "127.0.0.1:%d", embed_port(h->embed));
            h->config->on_moved(h->config->arg, addr);
        }
    }
    return rv;
}

static int serve_if_ours(struct rdzv_host *h, struct rdzv_attempt *a)
{
    const struct sockaddr *ours = find_ours(a);
    struct rdzv_endpoint endpoint = {.host = h->config->host,
                                     .is_ours = ours != NULL,
                                     .is_loopback = ours && netaddr_is_loopback(ours),
                                     .max_nodes = h->config->max_nodes,
                                     .is_kept_elsewhere = h->is_kept_elsewhere};
    int rv = 0;

    switch (rdzv_serving_place(h->config->serving, &endpoint)) {
    case RDZV_NOWHERE:
        return 0;
    case RDZV_OWN_ADDRESS:
        return h->embed ? 0 : serve_own_address(h, a, ours);
    case RDZV_EVERYWHERE:
        rv = h->embed ? 0 : serve_everywhere(h, a, ours != NULL);
        break;
    }
    if (rv == 0 && h->embed && !ours) { /* we are at none of them */
        set_loopback(a, h->config->port);
    }
    return rv;
}

int rdzv_host_serve(struct rdzv_host *h, struct rdzv_attempt *a)
{
    return h->is_alone ? serve_alone(h, a) : serve_if_ours(h, a);
}

bool rdzv_host_is_busy(const struct rdzv_host *h)
{
    if (!h->embed) {
        return false;
    }
    return h->is_finishing ? embed_is_draining(h->embed) : embed_is_busy(h->embed);
}

void rdzv_host_finish(struct rdzv_host *h)
{
    h->is_finishing = true;
    if (h->embed) {
        embed_finish(h->embed);
    }
}

bool rdzv_host_stop(struct rdzv_host *h, void (*on_stopped)(void *arg), void *arg)
{
    if (!h->embed) {
        return false;
    }
    embed_stop(h->embed, on_stopped, arg);
    h->embed = NULL;
    return true;
}
