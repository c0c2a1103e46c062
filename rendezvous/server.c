/* Happy path: 1. a listener hands over a descriptor: a connection in the pool; 2. its
 * first bytes decide what it is; 3. a store client's requests go to the store that
 * belongs to no job, an agent's messages to the service (server_service.c); 4. replies go
 * back through the pool, and the timer is set to the service's next deadline. Failures
 * end the one connection. */

#include "rendezvous/limits.h"
#include "rendezvous/output.h"
#include "rendezvous/peer.h"
#include "rendezvous/server_internal.h"
#include "rendezvous/stream.h"

#include "common/clock.h"
#include "common/listener.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    STOP_MS = 1000,
    LAST_OPCODE = TCPSTORE_OP_COUNT - 1,
};

static void log_peer(struct server *s, const char *peer, const char *what)
{
    gate_log_peer(&s->gate, peer, what, clock_ms());
}

/* From now on it has a while to say who it is. */
static void begin_greeting(struct connection *c)
{
    if (!c->is_greeting) {
        c->is_greeting = true;
        connection_set_deadline(c, clock_ms() + LIMIT_GREETING_MS);
    }
}

/* ---- the store's side ---- */

static uint64_t store_client(const struct connection *c)
{
    return (uint64_t)(uintptr_t)c; /* dropped from the store before it is freed */
}

static void on_store_reply(void *arg, uint64_t client, uint64_t seq,
                           const uint8_t *bytes, size_t size)
{
    (void)arg;
    (void)seq;
    connection_send((struct connection *)(uintptr_t)client, bytes, size);
}

/* PyTorch's legacy clients cannot cancel a wait that timed out: they ask for something
 * else, and a late answer to the wait would be taken for the answer to that. */
static void cancel_legacy_wait(struct server *s, const struct connection *c)
{
    if (c->parser.dialect != TCPSTORE_MODERN) {
        store_drop_client(s->store, store_client(c));
    }
}

static int take_requests(struct server *s, struct connection *c, const uint8_t *data,
                         size_t size)
{
    struct tcpstore_request request;
    uint64_t begun_ns;
    size_t at = 0;
    int n = 0;

    while (c->why == 0 && !connection_is_choked(c)) {
        n = tcpstore_parse(&c->parser, data + at, size - at, &request);
        if (n <= 0) {
            break;
        }
        cancel_legacy_wait(s, c);
        at += (size_t)n;
        begun_ns = uv_hrtime();
        n = store_execute(s->store, store_client(c), 0, &request);
        tally_store(&s->lookout.tally, (uint8_t)request.op, uv_hrtime() - begun_ns);
        if (n < 0) {
            break;
        }
    }
    if (c->parser.dialect != TCPSTORE_UNKNOWN) {
        connection_know(c);
    }
    return n < 0 ? n : (int)at;
}

/* ---- connections ---- */

/* A peer that has shown a key reads from our magic that it was let in. */
static int begin_agent(struct server *s, struct connection *c)
{
    const struct identity *who = stream_peer(c);

    if (!guard_admits_agent(&s->guard, c)) {
        return MSG_MAGIC_SIZE;
    }
    if (who) {
        connection_send(c, MSG_MAGIC, MSG_MAGIC_SIZE);
    }
    c->kind = CONN_AGENT;
    connection_set_limits(c, LIMIT_AGENT_CHOKED_AT, LIMIT_AGENT_OUT);
    connection_set_max_later(c, LIMIT_AGENT_LATER);
    connection_watch_closely(c, s->config.lease_ms);
    service_opened(s->service, c->id, c->peer, server_now(s));
    service_identify(s->service, c->id, who);
    return MSG_MAGIC_SIZE;
}

static bool may_be_store(const struct server *s, const struct connection *c)
{
    return c->is_loopback || s->config.insecure || s->config.on_store || c->tls;
}

/* Whose it is from here on: the connection lives by the other descriptor. */
static int hand_over(const struct server *s, const struct connection *c,
                     const uint8_t *data, size_t size)
{
    int fd;
    int rv = uv_fileno((const uv_handle_t *)&c->tcp, &fd);

    fd = rv < 0 ? rv : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0) {
        s->config.on_store(s->config.arg, fd, data, size);
    }
    return ERR_CLOSED;
}

static int begin_store(struct server *s, struct connection *c)
{
    if (!may_be_store(s, c)) {
        s->lookout.tally.refused[TALLY_STORE_CLIENT]++;
        log_peer(
            s, c->peer,
            "turned a store client away: it is not on this machine, and --insecure "
            "was not given");
        return ERR_REFUSED;
    }
    if (!guard_admits_store(&s->guard, c)) {
        return 0;
    }
    if (s->n_store >= s->pool.config.max_connections -
                          s->pool.config.max_connections / LIMIT_RESERVE) {
        log_peer(s, c->peer,
                 "turned a store client away: the last connections are for agents");
        return ERR_REFUSED;
    }
    s->n_store++;
    c->kind = CONN_STORE;
    tcpstore_parser_init(&c->parser, s->config.legacy_b);
    return 0;
}

/* Returns how many bytes the decision took. */
static int sniff(struct server *s, struct connection *c, const uint8_t *data,
                 size_t size)
{
    static const char magic[] = MSG_MAGIC;

    if (data[0] <= LAST_OPCODE && !c->is_local) {
        return s->config.on_store && !c->tls ? hand_over(s, c, data, size)
                                             : begin_store(s, c);
    }
    if (memcmp(data, magic, MIN(size, (size_t)MSG_MAGIC_SIZE)) != 0) {
        return ERR_PROTOCOL;
    }
    return size < MSG_MAGIC_SIZE ? 0 : begin_agent(s, c);
}

/* Who stops in the middle of a request has a while to go on; so do those whom we have
 * stopped reading, once we read them again. */
static void watch_request(struct connection *c, bool is_partial)
{
    if (c->kind == CONN_STORE && c->is_known) {
        connection_set_deadline(c, is_partial && !connection_is_choked(c)
                                       ? clock_ms() + LIMIT_PARTIAL_MS
                                       : 0);
    }
}

static int on_input(void *arg, struct connection *c, const uint8_t *data, size_t size)
{
    struct server *s = arg;
    int sniffed = 0;
    int n = 0;

    begin_greeting(c);
    if (c->kind == CONN_NEW) {
        sniffed = sniff(s, c, data, size);
        if (sniffed < 0) {
            return sniffed;
        }
    }
    data += sniffed;
    size -= (size_t)sniffed;
    switch (c->kind) {
    case CONN_NEW:
        break;
    case CONN_STORE:
        n = take_requests(s, c, data, size);
        watch_request(c, n >= 0 && (size_t)n < size);
        break;
    case CONN_AGENT:
        n = server_take_messages(s, c, data, size);
        break;
    }
    return n < 0 ? n : n + sniffed;
}

/* Where nobody but an agent may come from, silence is no greeting. */
static void on_opened(void *arg, struct connection *c)
{
    struct server *s = arg;

    s->lookout.tally.accepted++;
    if (!may_be_store(s, c)) {
        begin_greeting(c);
    }
}

static void on_tls(void *arg, struct connection *c)
{
    struct server *s = arg;

    begin_greeting(c);
    guard_secure(&s->guard, c);
}

static void on_refused(void *arg, struct connection *c, const char *text)
{
    struct server *s = arg;

    guard_refused(&s->guard, c, REFUSAL_KEY, text);
}

static void on_gone(void *arg, struct connection *c, int why)
{
    struct server *s = arg;

    tally_end(&s->lookout.tally, why);
    if (why == ERR_PROTOCOL || why == ERR_TOO_LARGE) {
        log_peer(s, c->peer,
                 why == ERR_PROTOCOL ? "closed a connection that broke the protocol"
                                     : "closed a connection that passed a limit");
    } else if (why == ERR_BUSY) {
        log_peer(s, c->peer, "closed a silent connection: there are too many");
    } else if (why == ERR_TIMEOUT) {
        log_peer(s, c->peer, "closed a connection that stopped in the middle");
    }
    if (c->kind == CONN_STORE) {
        s->n_store--;
        store_drop_client(s->store, store_client(c));
    } else if (c->is_operator) {
        reception_gone(s->reception, c);
    } else if (c->kind == CONN_AGENT) {
        service_closed(s->service, c->id, server_now(s));
        server_arm_timer(s);
    }
}

static void on_accept(void *arg, int fd, const struct sockaddr *peer)
{
    struct server *s = arg;

    if (s->is_stopping) {
        (void)close(fd); /* nothing was said on it */
    } else if (!gate_admits(&s->gate, peer, clock_ms())) {
        (void)close(fd);
        tally_end(&s->lookout.tally, ERR_BUSY);
        log_peer(s, "any", "turned a connection away: too many of one network at once");
    } else if (connection_accept(&s->pool, fd, peer) < 0) {
        tally_end(&s->lookout.tally, ERR_BUSY);
        log_peer(s, "any", "turned a connection away: there are too many");
    }
}

/* ---- life ---- */

static void take_config(struct server *s, const struct server_config *config,
                        uint64_t seed)
{
    s->config = *config;
    s->guard.tls = config->tls;
    s->config.lease_ms = config->lease_ms ? config->lease_ms : LIMIT_LEASE_MS;
    s->config.store_max_bytes =
        config->store_max_bytes ? config->store_max_bytes : LIMIT_STORE_BYTES;
    s->config.accept_per_s =
        config->accept_per_s ? config->accept_per_s : (uint32_t)LIMIT_ACCEPT_PER_S;
    gate_init(&s->gate, seed, s->config.accept_per_s);
}

static void start_pool(struct server *s, uint64_t seed)
{
    closer_init(&s->closer);
    pool_init(&s->pool,
              &(struct pool_config){
                  .loop = s->config.loop,
                  .closer = &s->closer,
                  .max_connections = s->config.max_connections
                                         ? s->config.max_connections
                                         : LIMIT_CONNECTIONS,
                  .max_buffered = limits_max_buffered(s->config.store_max_bytes),
                  .seed = seed,
                  .on_opened = on_opened,
                  .on_tls = on_tls,
                  .on_refused = on_refused,
                  .on_input = on_input,
                  .on_gone = on_gone,
                  .arg = s,
              });
}

static void start_reception(struct server *s, uint64_t cluster)
{
    const struct durable *durable = s->config.durable;

    s->reception = reception_new(&(struct reception_config){
        .listener = {s->config.loop, on_accept, s},
        .pool = &s->pool,
        .closer = &s->closer,
        .guard = &s->guard,
        .service = s->service,
        .history = &s->lookout.history,
        .welcome = {.cluster = durable ? durable->cluster : cluster,
                    .boot = durable ? durable->boot : 1,
                    .ephemeral = !durable},
        .clock_offset_ms = durable ? durable->clock_offset_ms : 0,
        .insecure = s->config.insecure,
    });
}

/* Of clients that belong to no job. */
static void start_store(struct server *s, uint64_t seed)
{
    s->budget.max = s->config.store_max_bytes;
    s->store = store_new(&(struct store_config){
        .budget = &s->budget,
        .max_waiters = LIMIT_WAITERS,
        .seed = seed,
        .reply = on_store_reply,
    });
}

int server_new(const struct server_config *config, struct server **ret,
               struct errmsg *msg)
{
    uint64_t seeds[5];
    struct server *s;
    int rv;

    if (getrandom(seeds, sizeof(seeds), 0) != (ssize_t)sizeof(seeds)) {
        return errmsg_set(msg, -errno, "no random numbers: %s", err_text(-errno));
    }
    s = mem_zalloc(sizeof(*s));
    take_config(s, config, seeds[4]);
    rv = server_start_service(s, seeds, msg);
    if (rv < 0) {
        mem_free(s);
        return rv;
    }
    start_pool(s, seeds[3]);
    start_reception(s, seeds[0]);
    start_store(s, seeds[2]);
    server_start_clock(s);
    server_note(s, &(struct job_event){.kind = SERVICE_HAS_STARTED});
    *ret = s;
    return 0;
}

int server_listen(struct server *s, const char *addr, int port, int *ret_port,
                  struct errmsg *msg)
{
    struct listener_config config = {s->config.loop, on_accept, s};
    struct listener *l;
    int rv;

    ASSERT(!s->is_stopping);
    rv = listener_open(&config, addr, port, &l, msg);
    if (rv < 0) {
        return rv;
    }
    s->listeners =
        mem_grow(s->listeners, s->n_listeners + 1, sizeof(struct listener *));
    s->listeners[s->n_listeners++] = l;
    closer_opened(&s->closer);
    *ret_port = listener_port(l);
    return 0;
}

void server_receive_operators(struct server *s, uint64_t delay_ms)
{
    reception_open_door(s->reception, delay_ms);
}

int server_listen_http(struct server *s, const struct server_http *http, int *ret_port,
                       struct errmsg *msg)
{
    const struct lookout_config config = {.loop = s->config.loop,
                                          .service = s->service,
                                          .pool = &s->pool,
                                          .refusals = &s->guard.refusals,
                                          .lease_ms = s->config.lease_ms};
    int rv = lookout_listen(&s->lookout, &config, http, ret_port, msg);

    if (rv == 0) {
        closer_opened(&s->closer);
    }
    return rv;
}

void server_set_limits(struct server *s, const struct server_limits *limits)
{
    s->pool.config.max_connections = limits->max_connections;
    s->pool.config.max_buffered = limits_max_buffered(limits->store_max_bytes);
    s->gate.accept_per_s = limits->accept_per_s;
    s->budget.max = limits->store_max_bytes;
    service_set_store(s->service, limits->store_max_bytes, limits->job_max_bytes);
}

void server_count(const struct server *s, struct server_counts *ret)
{
    *ret = (struct server_counts){
        .jobs = service_active_jobs(s->service),
        .nodes = service_sessions(s->service),
        .connections = s->pool.connections.count,
        .waits_ms = turn_waits_ms(&s->turn),
    };
}

bool server_is_busy(const struct server *s)
{
    return service_active_jobs(s->service) > 0 || service_sessions(s->service) > 0;
}

static void on_ended(void *arg)
{
    struct server *s = arg;

    s->on_stopped(s->on_stopped_arg);
    pool_release(&s->pool);
    reception_free(s->reception);
    service_free(s->service);
    lookout_release(&s->lookout);
    store_free(s->store);
    mem_free(s->listeners);
    mem_free(s);
}

static void on_all_closed(void *arg)
{
    struct server *s = arg;

    if (s->config.durable) {
        turn_end(&s->turn, on_ended);
    } else {
        on_ended(s);
    }
}

static void on_listener_closed(void *arg)
{
    struct server *s = arg;

    closer_closed(&s->closer);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct server *s = handle->data;

    closer_closed(&s->closer);
}

void server_stop(struct server *s, void (*on_stopped)(void *arg), void *arg)
{
    ASSERT(!s->is_stopping);
    s->is_stopping = true;
    s->on_stopped = on_stopped;
    s->on_stopped_arg = arg;
    lookout_stop(&s->lookout); /* while what is saved is still committed */
    for (size_t i = 0; i < s->n_listeners; i++) {
        listener_close(s->listeners[i], on_listener_closed, s);
    }
    if (s->lookout.http) {
        lookout_close(&s->lookout, on_listener_closed, s);
    }
    uv_close((uv_handle_t *)&s->timer, on_timer_closed);
    reception_stop(s->reception);
    pool_stop(&s->pool, STOP_MS);
    closer_finish(&s->closer, on_all_closed, s);
}
