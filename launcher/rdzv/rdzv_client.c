/* Happy path: 1. resolve the host (numeric ones at once); 2. if one of its addresses is
 * this host's, bind it and serve; 3. connect to the addresses in turn; 4. send the
 * magic, tell. Failures: nothing resolves or connects → on_failed; the port is taken →
 * a client like any other, and the agent is told by whom; FIN, RST, a broken frame →
 * on_disconnected; a kernel time-out → on_disconnected(LOSS_SILENT). */

#include "launcher/rdzv/rdzv_client.h"

#include "launcher/rdzv/embed.h"
#include "launcher/rdzv/keys.h"
#include "launcher/rdzv/link_conn.h"
#include "launcher/rdzv/netaddr.h"
#include "launcher/rdzv/rdzv_serving.h"
#include "launcher/rdzv/rdzv_trouble.h"

#include "common/closer.h"
#include "common/listener.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/portowner.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

enum {
    MAX_ADDRS = 8,
    CONNECT_TIMEOUT_MS = 5000,
    LINGER_POLL_MS = 5,
};

struct rdzv_client {
    struct rdzv_client_config config;
    struct closer closer;
    uv_timer_t timer; /* of the attempt; while stopping: of the linger */
    uv_getaddrinfo_t dns;
    bool is_resolving;
    bool is_wanted; /* an attempt is under way or the connection is up */
    struct sockaddr_storage addrs[MAX_ADDRS];
    unsigned n_addrs, next_addr;
    struct link_conn *conn; /* owned; NULL: none */
    struct embed *embed;    /* owned; NULL: served elsewhere, or not yet */
    bool is_wildcard;       /* the embedded one listens everywhere */
    bool is_kept_elsewhere; /* a service that remembers was there, and will be again */
    char taken[256];        /* "" or that the port could not be bound … */
    char taken_addr[MSG_ADDR_MAX];  /* … at this address */
    char trouble[RDZV_TROUBLE_MAX]; /* why the last address failed */
    bool is_impossible;             /* … and this host is at fault */
    bool is_refused; /* … or by one of the addresses, for want of the right key */
    uint64_t linger_until_ms;
    bool is_stopping;
    void (*on_stopped)(void *arg);
    void *stopped_arg;
};

int rdzv_client_new(const struct rdzv_client_config *config, struct rdzv_client **ret,
                    struct errmsg *msg)
{
    struct rdzv_client *c = mem_zalloc(sizeof(*c));
    int rv = uv_timer_init(config->loop, &c->timer);

    if (rv < 0) {
        mem_free(c);
        return errmsg_set(msg, rv, "timer: %s", err_text(rv));
    }
    c->config = *config;
    c->timer.data = c;
    closer_init(&c->closer);
    closer_opened(&c->closer);
    *ret = c;
    return 0;
}

/* --- the connection --- */

static void on_conn_open(void *arg);
static void on_conn_end(void *arg, int status);

static int on_conn_message(void *arg, const struct msg *m)
{
    struct rdzv_client *c = arg;

    if (m->type == MSG_WELCOME) {
        c->is_kept_elsewhere = !m->u.welcome.ephemeral;
    }
    return c->config.on_message(c->config.arg, m);
}

static void on_conn_pause(void *arg, bool is_paused)
{
    struct rdzv_client *c = arg;

    c->config.on_pause(c->config.arg, is_paused);
}

/* The connection's end, or the embedded service's. */
static void on_part_closed(void *arg)
{
    struct rdzv_client *c = arg;

    closer_closed(&c->closer);
}

static void fail(struct rdzv_client *c, const char *text)
{
    c->is_wanted = false;
    (void)uv_timer_stop(&c->timer); /* always 0 */
    if (c->is_refused) {
        c->config.on_refused(c->config.arg, text);
    } else if (c->is_impossible) {
        c->config.on_impossible(c->config.arg, text);
    } else if (c->taken[0] != '\0') {
        c->config.on_port_taken(c->config.arg, text, c->taken);
    } else {
        c->config.on_failed(c->config.arg, text);
    }
}

/* The files of the keys are not what they have to be. */
static void refuse_keys(struct rdzv_client *c, const struct errmsg *msg)
{
    c->is_impossible = true;
    fail(c, msg->text);
}

static void on_attempt_timeout(uv_timer_t *timer)
{
    struct rdzv_client *c = timer->data;

    on_conn_end(c, -ETIMEDOUT);
}

/* Opens the connection to the next address; when there is none left, it has failed. */
static void try_next(struct rdzv_client *c)
{
    struct link_conn_config config = {
        .loop = c->config.loop,
        .arg = c,
        .on_open = on_conn_open,
        .on_message = on_conn_message,
        .on_end = on_conn_end,
        .on_pause = on_conn_pause,
        .on_closed = on_part_closed,
    };
    struct errmsg msg = {""};
    int rv = keys_client(c->config.keys, &config.tls, &msg);

    if (rv < 0) {
        refuse_keys(c, &msg);
        return;
    }

    while (c->next_addr < c->n_addrs) {
        const struct sockaddr_storage *addr = &c->addrs[c->next_addr++];

        rv = link_conn_open(&config, (const struct sockaddr *)addr, &c->conn);
        if (rv == 0) {
            closer_opened(&c->closer);
            (void)uv_timer_start(&c->timer, on_attempt_timeout, CONNECT_TIMEOUT_MS, 0);
            return;
        }
        c->is_impossible = rdzv_trouble((const struct sockaddr *)addr, rv, c->trouble,
                                        sizeof(c->trouble));
    }
    fail(c, c->trouble);
}

static void on_conn_open(void *arg)
{
    struct rdzv_client *c = arg;

    (void)uv_timer_stop(&c->timer); /* always 0 */
    c->next_addr = 0;
    c->config.on_connected(c->config.arg, c->taken);
}

static void on_conn_end(void *arg, int status)
{
    struct rdzv_client *c = arg;
    size_t tried = MAX(c->next_addr, 1) - 1; /* one that was open counts from anew */
    const struct sockaddr *addr = (const struct sockaddr *)&c->addrs[tried];
    bool was_open = link_conn_is_open(c->conn);

    if (status == ERR_REFUSED) {
        rdzv_trouble_refused(addr, link_conn_trouble(c->conn), c->config.keys,
                             c->trouble, sizeof(c->trouble));
        c->is_refused = true;
    }
    link_conn_close(c->conn);
    c->conn = NULL;
    if (was_open) {
        c->is_wanted = false;
        c->config.on_disconnected(c->config.arg, rdzv_loss(status));
        return;
    }
    (void)uv_timer_stop(&c->timer); /* always 0 */
    if (!c->is_refused) {
        c->is_impossible = rdzv_trouble(addr, status, c->trouble, sizeof(c->trouble));
    }
    try_next(c);
}

/* --- serving --- */

static void add_addr(struct rdzv_client *c, const struct sockaddr *addr)
{
    size_t size = addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                             : sizeof(struct sockaddr_in6);

    if (c->n_addrs < MAX_ADDRS &&
        (addr->sa_family == AF_INET || addr->sa_family == AF_INET6)) {
        memcpy(&c->addrs[c->n_addrs++], addr, size);
    }
}

static void add_loopback(struct rdzv_client *c, int port)
{
    struct sockaddr_in own;

    (void)uv_ip4_addr("127.0.0.1", port, &own); /* it is one */
    add_addr(c, (const struct sockaddr *)&own);
}

/* NULL, too, where that cannot be found out: the next attempt asks again. */
static const struct sockaddr *find_ours(const struct rdzv_client *c)
{
    bool is_ours = false;

    for (unsigned i = 0; i < c->n_addrs; i++) {
        const struct sockaddr *addr = (const struct sockaddr *)&c->addrs[i];
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

static void say_wildcard(const struct rdzv_client *c, bool is_ours)
{
    char text[512];

    (void)snprintf(text, sizeof(text),
                   "%s is %s here; serving the rendezvous on all addresses, port %d%s",
                   c->config.host, is_ours ? "a loopback address" : "no address",
                   c->config.port,
                   is_ours || !c->config.is_static
                       ? ""
                       : " (if a ctrun-rendezvous runs there: --rdzv-backend=c10d)");
    log_info(text, "%s", "");
}

/* The workers would ask whoever has the port. */
static void refuse_taken(struct rdzv_client *c, const char *addr)
{
    listener_name_holder(addr, c->config.port, c->trouble, sizeof(c->trouble));
    c->is_impossible = true;
}

/* 0: serving, or somebody does already (c->taken). */
static int serve(struct rdzv_client *c, const char *addr, int port)
{
    struct errmsg msg = {0};
    struct embed_config config = {.loop = c->config.loop,
                                  .addr = addr,
                                  .port = port,
                                  .on_store =
                                      c->config.is_static ? c->config.on_store : NULL,
                                  .arg = c->config.arg};
    int rv = keys_server(c->config.keys, &config.tls, &msg);

    c->is_impossible = rv < 0;
    rv = rv < 0 ? rv : embed_start(&config, &c->embed, &msg);
    if (rv == -EADDRINUSE && c->config.is_static) {
        refuse_taken(c, addr);
        return rv;
    }
    if (rv == -EADDRINUSE) {
        (void)snprintf(c->taken, sizeof(c->taken), "%.255s", msg.text);
        (void)snprintf(c->taken_addr, sizeof(c->taken_addr), "%s", addr);
        return 0;
    }
    if (rv < 0) {
        (void)snprintf(c->trouble, sizeof(c->trouble), "%s", msg.text);
        c->is_impossible = c->is_impossible || rv == -EMFILE || rv == -ENFILE;
    } else if (!config.tls && c->config.max_nodes > 1) {
        rdzv_advise(addr, embed_port(c->embed));
    }
    return rv;
}

/* On this host alone, and a client of it. */
static int serve_alone(struct rdzv_client *c)
{
    int rv = c->embed ? 0 : serve(c, "127.0.0.1", 0);

    c->n_addrs = 0;
    if (c->embed) {
        add_loopback(c, embed_port(c->embed));
    }
    return rv;
}

static int serve_everywhere(struct rdzv_client *c, bool is_ours)
{
    int rv = serve(c, "::", c->config.port);

    c->is_wildcard = rv == 0 && c->embed;
    if (c->is_wildcard) {
        say_wildcard(c, is_ours);
    }
    return rv;
}

/* The port is taken, by the ctrun of another job. Slow; asked once. */
static bool is_another_jobs(const struct rdzv_client *c, const struct sockaddr *ours)
{
    char holder[256];
    char text[512];

    if (c->taken[0] == '\0' || c->config.max_nodes > 1 || !c->config.is_anonymous ||
        !portowner_find(ours, holder, sizeof(holder)) || !strstr(holder, "(ctrun)")) {
        return false;
    }
    (void)snprintf(
        text, sizeof(text),
        "%s:%d serves another job, of %s; this one, of a single node, takes a "
        "free port",
        c->config.host, c->config.port, holder);
    log_info(text, "%s", "");
    return true;
}

static int serve_own_address(struct rdzv_client *c, const struct sockaddr *ours)
{
    char addr[MSG_ADDR_MAX];
    int rv;

    netaddr_format(ours, addr, sizeof(addr));
    rv = serve(c, addr, c->config.port);
    if (rv == 0 && is_another_jobs(c, ours)) {
        c->config.standalone = true;
        c->taken[0] = '\0';
        rv = serve_alone(c);
        if (rv == 0) {
            (void)snprintf(addr, sizeof(addr), "127.0.0.1:%d", embed_port(c->embed));
            c->config.on_moved(c->config.arg, addr);
        }
    }
    return rv;
}

static int serve_if_ours(struct rdzv_client *c)
{
    const struct sockaddr *ours = find_ours(c);
    struct rdzv_endpoint endpoint = {.host = c->config.host,
                                     .is_ours = ours != NULL,
                                     .is_loopback = ours && netaddr_is_loopback(ours),
                                     .max_nodes = c->config.max_nodes};
    int rv = 0;

    if (c->is_kept_elsewhere) {
        return 0; /* nobody could go on in its place, and it wants its port again */
    }
    switch (rdzv_serving_place(c->config.serving, &endpoint)) {
    case RDZV_NOWHERE:
        return 0;
    case RDZV_OWN_ADDRESS:
        return c->embed ? 0 : serve_own_address(c, ours);
    case RDZV_EVERYWHERE:
        rv = c->embed ? 0 : serve_everywhere(c, ours != NULL);
        break;
    }
    if (rv == 0 && c->embed && !ours) { /* we are at none of them */
        c->n_addrs = 0;
        add_loopback(c, c->config.port);
    }
    return rv;
}

/* --- resolving --- */

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *res)
{
    struct rdzv_client *c = req->data;
    char text[512];

    c->is_resolving = false;
    closer_closed(&c->closer);
    if (c->is_stopping || !c->is_wanted) {
        uv_freeaddrinfo(res);
        return;
    }
    if (status < 0) {
        (void)snprintf(text, sizeof(text), "the name %s does not resolve: %s",
                       c->config.host, uv_strerror(status));
        fail(c, text);
        return;
    }
    for (const struct addrinfo *ai = res; ai; ai = ai->ai_next) {
        add_addr(c, ai->ai_addr);
    }
    uv_freeaddrinfo(res);
    if (serve_if_ours(c) < 0) {
        fail(c, c->trouble);
        return;
    }
    try_next(c);
}

/* Names go to the resolver's thread. */
static void resolve_name(struct rdzv_client *c)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char port[16];
    int rv;

    if (c->is_resolving) {
        return; /* of an attempt that was dropped; its answer is as good */
    }
    (void)snprintf(port, sizeof(port), "%d", c->config.port);
    c->dns.data = c;
    rv = uv_getaddrinfo(c->config.loop, &c->dns, on_resolved, c->config.host, port,
                        &hints);
    if (rv < 0) {
        fail(c, uv_strerror(rv));
        return;
    }
    c->is_resolving = true;
    closer_opened(&c->closer);
}

static bool resolve_numeric(struct rdzv_client *c)
{
    const char *host = c->config.host;
    struct sockaddr_storage addr;

    if (strcmp(host, "localhost") == 0) {
        host = "127.0.0.1"; /* what torchrun's users mean by it */
    }
    if (netaddr_parse(host, c->config.port, &addr) < 0) {
        return false;
    }
    add_addr(c, (const struct sockaddr *)&addr);
    return true;
}

/* From the loop: an attempt never fails inside rdzv_client_connect. */
static void on_begin(uv_timer_t *timer)
{
    struct rdzv_client *c = timer->data;
    int rv = 0;

    if (c->config.standalone) {
        rv = serve_alone(c);
    } else if (resolve_numeric(c)) {
        rv = serve_if_ours(c);
    } else {
        resolve_name(c);
        return;
    }
    if (rv < 0) {
        fail(c, c->trouble);
    } else {
        try_next(c);
    }
}

void rdzv_client_connect(struct rdzv_client *c)
{
    ASSERT(!c->conn && !c->is_wanted && !c->is_stopping);
    c->is_wanted = true;
    c->n_addrs = 0;
    c->next_addr = 0;
    c->taken[0] = '\0';
    c->is_impossible = false;
    c->is_refused = false;
    (void)snprintf(c->trouble, sizeof(c->trouble), "no address");
    (void)uv_timer_start(&c->timer, on_begin, 0, 0); /* 0 with a callback */
}

void rdzv_client_drop(struct rdzv_client *c)
{
    c->is_wanted = false;
    (void)uv_timer_stop(&c->timer); /* always 0 */
    if (c->conn) {
        link_conn_close(c->conn);
        c->conn = NULL;
    }
}

void rdzv_client_send(struct rdzv_client *c, const struct msg *m)
{
    if (c->conn) {
        link_conn_send(c->conn, m);
    }
}

bool rdzv_client_serves(const struct rdzv_client *c)
{
    return c->embed != NULL;
}

void rdzv_client_describe(const struct rdzv_client *c, char *ret, size_t size)
{
    char addr[MSG_ADDR_MAX];

    ret[0] = '\0';
    if (c->is_wanted && c->is_resolving) {
        (void)snprintf(ret, size, "looking up the name %s", c->config.host);
    } else if (c->conn && !link_conn_is_open(c->conn)) {
        netaddr_format((const struct sockaddr *)&c->addrs[c->next_addr - 1], addr,
                       sizeof(addr));
        (void)snprintf(ret, size, "%s: " RDZV_NO_ANSWER, addr);
    }
}

void rdzv_client_name_holder(const struct rdzv_client *c, char *ret, size_t size)
{
    listener_name_holder(c->taken_addr, c->config.port, ret, size);
}

void rdzv_client_local_addr(const struct rdzv_client *c, char ret[MSG_ADDR_MAX])
{
    ret[0] = '\0';
    if (c->is_wildcard) {
        netaddr_public(ret, MSG_ADDR_MAX);
    }
    if (ret[0] == '\0' && c->conn) {
        link_conn_local_addr(c->conn, ret, MSG_ADDR_MAX);
    }
    if (ret[0] == '\0') {
        (void)snprintf(ret, MSG_ADDR_MAX, "127.0.0.1");
    }
}

/* --- stopping --- */

static void on_all_closed(void *arg)
{
    struct rdzv_client *c = arg;

    c->on_stopped(c->stopped_arg);
    mem_free(c);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct rdzv_client *c = handle->data;

    closer_closed(&c->closer);
}

static void close_all(struct rdzv_client *c)
{
    if (c->embed) {
        closer_opened(&c->closer);
        embed_stop(c->embed, on_part_closed, c);
        c->embed = NULL;
    }
    if (c->is_resolving) {
        (void)uv_cancel((uv_req_t *)&c->dns); /* -EBUSY: it calls back soon anyway */
    }
    uv_close((uv_handle_t *)&c->timer, on_timer_closed);
    closer_finish(&c->closer, on_all_closed, c);
}

static void on_linger(uv_timer_t *timer)
{
    struct rdzv_client *c = timer->data;

    if (c->embed && embed_is_busy(c->embed) &&
        uv_now(c->config.loop) < c->linger_until_ms) {
        return;
    }
    (void)uv_timer_stop(&c->timer); /* always 0 */
    close_all(c);
}

void rdzv_client_stop(struct rdzv_client *c, uint64_t linger_ms,
                      void (*on_stopped)(void *arg), void *arg)
{
    c->is_stopping = true;
    c->is_wanted = false;
    c->on_stopped = on_stopped;
    c->stopped_arg = arg;
    c->linger_until_ms = uv_now(c->config.loop) + linger_ms;
    if (c->conn) {
        link_conn_finish(c->conn);
        c->conn = NULL;
    }
    (void)uv_timer_start(&c->timer, on_linger, 0,
                         LINGER_POLL_MS); /* 0: has a callback */
}
