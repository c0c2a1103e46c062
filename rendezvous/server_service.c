/* The service's side of the server: what it sends, saves and wants to know, its clock and
 * its timer, and the agents' messages on their way to it. */

#include "rendezvous/output.h"
#include "rendezvous/server_internal.h"
#include "rendezvous/turns.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"

enum { ASLEEP_MS = 1000 }; /* that is said */

uint64_t server_now(const struct server *s)
{
    const struct durable *durable = s->config.durable;

    return clock_ms() + (durable ? durable->clock_offset_ms : 0);
}

static void on_timer(uv_timer_t *timer);

void server_arm_timer(struct server *s)
{
    uint64_t deadline = service_deadline(s->service);
    uint64_t now_ms = server_now(s);
    int rv;

    reception_go_on(s->reception);
    if (s->is_stopping || deadline == UINT64_MAX) {
        (void)uv_timer_stop(&s->timer); /* returns 0 always */
        return;
    }
    uv_update_time(s->config.loop);
    rv = uv_timer_start(&s->timer, on_timer, deadline > now_ms ? deadline - now_ms : 0,
                        0);
    ASSERT(rv == 0);
}

/* The heartbeats of an agent that is behind may not be read, or be slow to come: that
 * it takes what we owe it says as much. */
static void hear_agents_behind(struct server *s)
{
    struct connection *c = NULL;

    while ((c = pool_next(&s->pool, c)) != NULL) {
        if (c->kind == CONN_AGENT && connection_took(c)) {
            service_heard(s->service, c->id, server_now(s));
        }
    }
}

/* Agents have said that they hear nothing; here is why. */
static void say_asleep(uint64_t late_ms)
{
    if (late_ms >= ASLEEP_MS) {
        log_warn(
            "this service stood still: it was stopped, or waited for a processor or "
            "its disk; every lease begins anew",
            "for_ms=%llu", (unsigned long long)late_ms);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct server *s = timer->data;

    if (turn_is_waiting(&s->turn)) {
        return; /* nobody is judged who cannot be heard */
    }
    hear_agents_behind(s);
    service_tick(s->service, server_now(s));
    say_asleep(service_late_ms(s->service));
    pool_flush(&s->pool);
    server_arm_timer(s);
}

static void on_settled(void *arg)
{
    const struct server *s = arg;

    lookout_go_on(&s->lookout);
}

/* What was decided is on the disk, and has been told. */
static void on_turn(void *arg)
{
    struct server *s = arg;

    server_arm_timer(s);
}

static void on_space(void *arg, enum durable_space space)
{
    struct server *s = arg;

    lookout_set_space(&s->lookout, space);
    service_set_space(s->service, space);
}

void server_finish(struct server *s, const char *why)
{
    service_finish(s->service, why, server_now(s));
    pool_flush(&s->pool);
    server_arm_timer(s);
}

bool server_is_draining(const struct server *s)
{
    return service_is_draining(s->service);
}

static void on_service_save(void *arg, const struct record *r)
{
    const struct server *s = arg;

    s->config.durable->save(s->config.durable->arg, r);
}

static uint64_t on_service_kept(void *arg)
{
    const struct server *s = arg;

    return s->config.durable->kept(s->config.durable->arg);
}

/* No message relies on its place among the replies of the store: those of another
 * generation are ignored, and one ends when the workers that wait for them are gone. */
static void on_service_send(void *arg, uint64_t conn, const struct msg *m)
{
    struct server *s = arg;
    struct connection *c = pool_find(&s->pool, conn);

    if (c && m->type == MSG_STORE_REPLY) {
        connection_send_bulk(c, m);
    } else if (c) {
        connection_send_msg(c, m);
    }
}

static void on_service_close(void *arg, uint64_t conn)
{
    struct server *s = arg;
    struct connection *c = pool_find(&s->pool, conn);

    if (c) {
        c->is_dismissed = true;
        connection_drain(c);
    }
}

static void on_service_inspected(void *arg, uint64_t session,
                                 const struct msg_inspected *m)
{
    const struct server *s = arg;

    reception_inspected(s->reception, session, m);
}

void server_note(void *arg, const struct job_event *e)
{
    struct server *s = arg;

    if (lookout_note(&s->lookout, e, server_now(s)) && s->config.logs_jobs) {
        gate_log_event(&s->gate, e, clock_ms());
    }
}

static void on_service_refused(void *arg, uint64_t conn, enum refusal why,
                               const char *text)
{
    struct server *s = arg;
    struct connection *c = pool_find(&s->pool, conn);

    if (c) {
        guard_refused(&s->guard, c, why, text);
    }
}

static int on_agent_message(void *arg, struct connection *c, const struct msg *m)
{
    struct server *s = arg;
    uint64_t begun_ns = uv_hrtime();
    int rv = reception_is_for(c, m)
                 ? reception_message(s->reception, c, m)
                 : service_message(s->service, c->id, m, server_now(s));

    if (m->type == MSG_STORE && !m->u.store.more) {
        tally_store(&s->lookout.tally, m->u.store.op, uv_hrtime() - begun_ns);
    }
    return rv;
}

static void on_agent_heard(void *arg, const struct connection *c)
{
    struct server *s = arg;

    service_heard(s->service, c->id, server_now(s));
}

int server_take_messages(struct server *s, struct connection *c, const uint8_t *data,
                         size_t size)
{
    const struct turns turns = {s->service, s, on_agent_message, on_agent_heard};
    int n = turns_take(&turns, c, data, size);

    server_arm_timer(s);
    return n;
}

int server_start_service(struct server *s, const uint64_t *seeds, struct errmsg *msg)
{
    const struct durable *durable = s->config.durable;
    struct service_config config = {
        .cluster = durable ? durable->cluster : seeds[0],
        .boot = durable ? durable->boot : 1,
        .start = durable ? durable->start : 0,
        .found = durable ? durable->found : 0,
        .ephemeral = !durable,
        .lease_ms = s->config.lease_ms,
        .store_max_bytes = s->config.store_max_bytes,
        .job_max_bytes = s->config.job_max_bytes,
        .seed = seeds[1],
        .tally = &s->lookout.tally,
        .sink = {.arg = s,
                 .send = on_service_send,
                 .close = on_service_close,
                 .note = server_note,
                 .inspected = on_service_inspected,
                 .save = durable ? on_service_save : NULL,
                 .kept = durable ? on_service_kept : NULL,
                 .refused = on_service_refused},
    };
    int rv = 0;

    lookout_init(&s->lookout, seeds[1], s->config.history_ms, durable);
    s->service = service_new(&config);
    if (durable) {
        rv = turn_restore(durable, s->service, &s->lookout.history, server_now(s), msg);
    }
    if (rv < 0) {
        service_free(s->service);
        lookout_release(&s->lookout);
    }
    return rv;
}

void server_start_clock(struct server *s)
{
    int rv = uv_timer_init(s->config.loop, &s->timer);

    ASSERT(rv == 0); /* documented never to fail */
    s->timer.data = s;
    closer_opened(&s->closer);
    if (s->config.durable) {
        turn_begin(&s->turn, &(struct turn_config){.loop = s->config.loop,
                                                   .durable = s->config.durable,
                                                   .pool = &s->pool,
                                                   .tally = &s->lookout.tally,
                                                   .arg = s,
                                                   .on_settled = on_settled,
                                                   .on_turn = on_turn,
                                                   .on_space = on_space});
        server_arm_timer(s); /* nodes of before the start are waited for */
    }
}
