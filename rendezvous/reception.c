#include "rendezvous/reception.h"

#include "rendezvous/guard.h"
#include "rendezvous/operator.h"
#include "rendezvous/output.h"
#include "rendezvous/service.h"
#include "rendezvous/stream.h"

#include "common/clock.h"
#include "common/mem.h"

enum {
    ASK_MS = 10 * 1000, /* from OPERATOR to ASK */
    CHOKED_AT = 256 * 1024,
};

struct reception {
    struct reception_config config;
    struct operators *operators; /* owned */
    struct door *door;           /* owned; NULL: none */
    uv_timer_t timer;            /* the operators' next deadline, or the door's */
    uint64_t door_ms;            /* to be opened then; 0: it is, or need not be */
    bool is_stopping;
};

static uint64_t service_ms(const struct reception *r)
{
    return clock_ms() + r->config.clock_offset_ms;
}

/* ---- what the core wants done ---- */

static void on_send(void *arg, uint64_t conn, const struct msg *m)
{
    const struct reception *r = arg;
    struct connection *c = pool_find(r->config.pool, conn);

    if (c) {
        connection_send_msg(c, m);
    }
}

static void on_close(void *arg, uint64_t conn)
{
    const struct reception *r = arg;
    struct connection *c = pool_find(r->config.pool, conn);

    if (c) {
        c->is_dismissed = true;
        connection_drain(c);
    }
}

static bool on_is_behind(void *arg, uint64_t conn)
{
    const struct reception *r = arg;
    const struct connection *c = pool_find(r->config.pool, conn);

    return c && connection_is_behind(c);
}

/* ---- time ---- */

static void on_timer(uv_timer_t *timer);

static void arm(struct reception *r)
{
    uint64_t deadline = operators_deadline(r->operators);
    uint64_t now_ms = service_ms(r);
    int rv;

    deadline = r->door_ms != 0 ? MIN(deadline, r->door_ms) : deadline;
    if (r->is_stopping || deadline == UINT64_MAX) {
        (void)uv_timer_stop(&r->timer); /* returns 0 always */
        return;
    }
    uv_update_time(r->timer.loop);
    rv = uv_timer_start(&r->timer, on_timer, deadline > now_ms ? deadline - now_ms : 0,
                        0);
    ASSERT(rv == 0);
}

static void open_door(struct reception *r)
{
    r->door_ms = 0;
    door_open(&r->config.listener, &r->door);
    if (r->door) {
        closer_opened(r->config.closer);
    }
}

void reception_go_on(struct reception *r)
{
    operators_go_on(r->operators, service_ms(r));
    arm(r);
}

static void on_timer(uv_timer_t *timer)
{
    struct reception *r = timer->data;

    if (r->door_ms != 0 && service_ms(r) >= r->door_ms) {
        open_door(r);
    }
    reception_go_on(r);
    pool_flush(r->config.pool);
}

/* ---- messages ---- */

bool reception_is_for(const struct connection *c, const struct msg *m)
{
    return c->is_operator || c->is_local || m->type == MSG_OPERATOR;
}

/* It was an agent's connection as far as anybody knew. */
static void begin(struct reception *r, struct connection *c,
                  const struct msg_operator *m)
{
    const char *why;

    service_closed(r->config.service, c->id, service_ms(r));
    connection_set_limits(c, CHOKED_AT, OPERATOR_MAX_OUT);
    connection_set_max_later(c, 0);
    connection_watch_patiently(c);
    c->is_operator = true;
    if (!door_admits(c, r->config.insecure, &why)) {
        guard_refused(r->config.guard, c, REFUSAL_ROLE, why);
        operators_refuse(r->operators, c->id, why);
    } else if (operators_open(r->operators, c->id, m, stream_peer(c))) {
        connection_set_deadline(c, clock_ms() + ASK_MS);
    }
}

int reception_message(struct reception *r, struct connection *c, const struct msg *m)
{
    int rv = 0;

    if (c->is_operator == (m->type == MSG_OPERATOR)) {
        rv = ERR_PROTOCOL; /* it comes first, and once; agents come by TCP */
    } else if (!c->is_operator) {
        begin(r, c, &m->u.operator);
    } else {
        connection_set_deadline(c, 0);
        c->lingers = true;
        rv = operators_message(r->operators, c->id, m, service_ms(r));
    }
    arm(r);
    return rv;
}

void reception_gone(struct reception *r, const struct connection *c)
{
    operators_closed(r->operators, c->id);
}

void reception_inspected(struct reception *r, uint64_t session,
                         const struct msg_inspected *m)
{
    operators_inspected(r->operators, session, m, service_ms(r));
    arm(r);
}

/* ---- life ---- */

struct reception *reception_new(const struct reception_config *config)
{
    struct reception *r = mem_zalloc(sizeof(*r));
    int rv = uv_timer_init(config->listener.loop, &r->timer);

    ASSERT(rv == 0); /* documented never to fail */
    r->config = *config;
    r->timer.data = r;
    closer_opened(config->closer);
    r->operators = operators_new(&(struct operators_config){
        .service = config->service,
        .history = config->history,
        .welcome = config->welcome,
        .arg = r,
        .send = on_send,
        .close = on_close,
        .is_behind = on_is_behind,
    });
    return r;
}

void reception_free(struct reception *r)
{
    operators_free(r->operators);
    mem_free(r);
}

void reception_open_door(struct reception *r, uint64_t delay_ms)
{
    if (delay_ms == 0) {
        open_door(r);
    } else {
        r->door_ms = service_ms(r) + delay_ms;
        arm(r);
    }
}

static void on_door_closed(void *arg)
{
    closer_closed(arg);
}

static void on_timer_closed(uv_handle_t *handle)
{
    const struct reception *r = handle->data;

    closer_closed(r->config.closer);
}

void reception_stop(struct reception *r)
{
    r->is_stopping = true;
    operators_stop(r->operators); /* their keys go with their connections */
    if (r->door) {
        door_close(r->door, on_door_closed, r->config.closer);
        r->door = NULL;
    }
    uv_close((uv_handle_t *)&r->timer, on_timer_closed);
}
