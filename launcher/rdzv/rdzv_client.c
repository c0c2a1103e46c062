/* Happy path: 1. resolve the host (numeric ones at once); 2. if one of its addresses is
 * this host's, bind it and serve (rdzv_host.c); 3. connect to the addresses in turn;
 * 4. send the magic, tell. Failures: nothing resolves or connects → on_failed; the port
 * is taken → a client like any other, and the agent is told by whom; FIN, RST, a broken
 * frame → on_disconnected; a kernel time-out → on_disconnected(LOSS_SILENT). */

#include "launcher/rdzv/rdzv_client.h"

#include "launcher/rdzv/keys.h"
#include "launcher/rdzv/link_conn.h"
#include "launcher/rdzv/netaddr.h"
#include "launcher/rdzv/rdzv_host.h"
#include "launcher/rdzv/rdzv_trouble.h"
#include "launcher/rdzv/resolver.h"

#include "common/closer.h"
#include "common/listener.h"
#include "common/mem.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

enum {
    CONNECT_TIMEOUT_MS = 5000,
    LINGER_POLL_MS = 5,
};

struct rdzv_client {
    struct rdzv_client_config config;
    struct closer closer;
    uv_timer_t timer;            /* of the attempt; while stopping: of the linger */
    struct aside *lookup;        /* of the host's name; NULL: none is under way */
    bool is_wanted;              /* an attempt is under way or the connection is up */
    struct rdzv_attempt attempt; /* the last */
    struct rdzv_host host;
    struct link_conn *conn; /* owned; NULL: none */
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
    c->host = (struct rdzv_host){.config = &c->config, .is_alone = config->standalone};
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

    if (m->type == MSG_WELCOME && !m->u.welcome.ephemeral) {
        c->host.is_kept_elsewhere = true; /* for good: all others are refused then */
    }
    if (m->type == MSG_WELCOME) {
        c->host.was_elsewhere = !c->host.embed;
        link_conn_bear_silence(c->conn, m->u.welcome.lease_ms);
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
    if (c->attempt.is_refused) {
        c->config.on_refused(c->config.arg, text);
    } else if (c->attempt.is_impossible) {
        c->config.on_impossible(c->config.arg, text);
    } else if (c->attempt.taken[0] != '\0') {
        c->config.on_port_taken(c->config.arg, text, c->attempt.taken);
    } else {
        c->config.on_failed(c->config.arg, text);
    }
}

/* The files of the keys are not what they have to be. */
static void refuse_keys(struct rdzv_client *c, const struct errmsg *msg)
{
    c->attempt.is_impossible = true;
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

    while (c->attempt.next_addr < c->attempt.n_addrs) {
        const struct sockaddr_storage *addr = &c->attempt.addrs[c->attempt.next_addr++];

        rv = link_conn_open(&config, (const struct sockaddr *)addr, &c->conn);
        if (rv == 0) {
            closer_opened(&c->closer);
            (void)uv_timer_start(&c->timer, on_attempt_timeout, CONNECT_TIMEOUT_MS, 0);
            return;
        }
        c->attempt.is_impossible =
            rdzv_trouble((const struct sockaddr *)addr, rv, c->attempt.trouble,
                         sizeof(c->attempt.trouble));
    }
    fail(c, c->attempt.trouble);
}

static void on_conn_open(void *arg)
{
    struct rdzv_client *c = arg;

    (void)uv_timer_stop(&c->timer); /* always 0 */
    c->attempt.next_addr = 0;
    c->config.on_connected(c->config.arg, c->attempt.taken);
}

static void on_conn_end(void *arg, int status)
{
    struct rdzv_client *c = arg;
    size_t tried =
        MAX(c->attempt.next_addr, 1) - 1; /* one that was open counts from anew */
    const struct sockaddr *addr = (const struct sockaddr *)&c->attempt.addrs[tried];
    bool was_open = link_conn_is_open(c->conn);

    if (status == ERR_REFUSED) {
        rdzv_trouble_refused(addr, link_conn_trouble(c->conn), c->config.keys,
                             c->attempt.trouble, sizeof(c->attempt.trouble));
        c->attempt.is_refused = true;
    }
    link_conn_close(c->conn);
    c->conn = NULL;
    if (was_open) {
        c->is_wanted = false;
        c->config.on_disconnected(c->config.arg, rdzv_loss(status));
        return;
    }
    (void)uv_timer_stop(&c->timer); /* always 0 */
    if (!c->attempt.is_refused) {
        c->attempt.is_impossible =
            rdzv_trouble(addr, status, c->attempt.trouble, sizeof(c->attempt.trouble));
    }
    try_next(c);
}

/* --- resolving --- */

/* With the endpoint's addresses. */
static void go_on(struct rdzv_client *c)
{
    if (rdzv_host_serve(&c->host, &c->attempt) < 0) {
        fail(c, c->attempt.trouble);
    } else {
        try_next(c);
    }
}

static void on_resolved(void *arg, void *answer)
{
    struct rdzv_client *c = arg;
    const char *why;
    const struct addrinfo *found = resolver_found(answer, &why);
    char text[512];

    c->lookup = NULL;
    if (!c->is_wanted) {
        return;
    }
    if (!found) {
        (void)snprintf(text, sizeof(text), "the name %s does not resolve: %s",
                       c->config.host, why);
        fail(c, text);
        return;
    }
    for (const struct addrinfo *ai = found; ai; ai = ai->ai_next) {
        rdzv_attempt_add(&c->attempt, ai->ai_addr);
    }
    go_on(c);
}

/* One of an attempt that was dropped is as good. */
static void resolve_name(struct rdzv_client *c)
{
    if (!c->lookup) {
        c->lookup = resolver_ask(c->config.loop, c->config.host, c->config.port,
                                 on_resolved, c);
    }
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
    rdzv_attempt_add(&c->attempt, (const struct sockaddr *)&addr);
    return true;
}

/* From the loop: an attempt never fails inside rdzv_client_connect. */
static void on_begin(uv_timer_t *timer)
{
    struct rdzv_client *c = timer->data;

    if (c->host.is_alone || resolve_numeric(c)) {
        go_on(c);
    } else {
        resolve_name(c);
    }
}

void rdzv_client_connect(struct rdzv_client *c)
{
    ASSERT(!c->conn && !c->is_wanted && !c->is_stopping);
    c->is_wanted = true;
    c->attempt = (struct rdzv_attempt){.trouble = "no address"};
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
    return c->host.embed != NULL;
}

void rdzv_client_describe(const struct rdzv_client *c, char *ret, size_t size)
{
    char addr[MSG_ADDR_MAX];

    ret[0] = '\0';
    if (c->is_wanted && c->lookup) {
        (void)snprintf(ret, size, "looking up the name %s", c->config.host);
    } else if (c->conn && !link_conn_is_open(c->conn)) {
        netaddr_format(
            (const struct sockaddr *)&c->attempt.addrs[c->attempt.next_addr - 1], addr,
            sizeof(addr));
        (void)snprintf(ret, size, "%s: " RDZV_NO_ANSWER, addr);
    }
}

void rdzv_client_name_holder(const struct rdzv_client *c, char *ret, size_t size)
{
    listener_name_holder(c->attempt.taken_addr, c->config.port, ret, size);
}

void rdzv_client_local_addr(const struct rdzv_client *c, char ret[MSG_ADDR_MAX])
{
    ret[0] = '\0';
    if (c->host.is_wildcard) {
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
    if (rdzv_host_stop(&c->host, on_part_closed, c)) {
        closer_opened(&c->closer);
    }
    if (c->lookup) {
        aside_drop(c->lookup);
    }
    uv_close((uv_handle_t *)&c->timer, on_timer_closed);
    closer_finish(&c->closer, on_all_closed, c);
}

static void on_linger(uv_timer_t *timer)
{
    struct rdzv_client *c = timer->data;

    if (rdzv_host_is_busy(&c->host) && uv_now(c->config.loop) < c->linger_until_ms) {
        return;
    }
    (void)uv_timer_stop(&c->timer); /* always 0 */
    close_all(c);
}

void rdzv_client_stop(struct rdzv_client *c, const struct rdzv_linger *linger,
                      void (*on_stopped)(void *arg), void *arg)
{
    c->is_stopping = true;
    c->is_wanted = false;
    c->on_stopped = on_stopped;
    c->stopped_arg = arg;
    c->linger_until_ms = uv_now(c->config.loop) + linger->ms;
    if (linger->is_leaving) {
        rdzv_host_finish(&c->host);
    }
    if (c->conn) {
        link_conn_finish(c->conn);
        c->conn = NULL;
    }
    (void)uv_timer_start(&c->timer, on_linger, 0,
                         LINGER_POLL_MS); /* 0: has a callback */
}
