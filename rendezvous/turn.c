#include "rendezvous/turn.h"

#include "rendezvous/history.h"
#include "rendezvous/record.h"
#include "rendezvous/service.h"
#include "rendezvous/tally.h"

#include "common/err.h"

enum { AWAIT_MS = 10 }; /* a disk that takes longer is no reason to sleep */

static void end_turn(struct turn *t)
{
    const struct durable *durable = t->config.durable;
    bool goes_on = true;

    while (goes_on && !durable->commit(durable->arg)) {
        pool_set_hold(t->config.pool, HOLD_OUTPUT);
        pool_send(t->config.pool);
        t->config.on_settled(t->config.arg);
        goes_on = pool_go_on(t->config.pool);
    }
    if (goes_on) {
        t->begun_ns = uv_hrtime();
        pool_set_hold(t->config.pool, HOLD_ALL);
    } else {
        t->config.on_turn(t->config.arg);
    }
}

static bool has_something(const struct turn *t)
{
    const struct durable *durable = t->config.durable;

    return !turn_is_waiting(t) &&
           (t->config.pool->dirty || durable->has_saved(durable->arg));
}

/* Before the loop looks at its sockets again. */
static void on_prepare(uv_prepare_t *prepare)
{
    struct turn *t = prepare->data;
    const struct durable *durable = t->config.durable;

    if (has_something(t)) {
        end_turn(t);
    }
    if (turn_is_waiting(t)) {
        durable->await(durable->arg, AWAIT_MS);
    }
}

static void on_check(uv_check_t *check)
{
    struct turn *t = check->data;

    if (has_something(t)) {
        end_turn(t);
    }
}

static void on_committed(void *arg)
{
    struct turn *t = arg;

    tally_commit(t->config.tally, uv_hrtime() - t->begun_ns);
    end_turn(t);
}

static void on_space(void *arg, enum durable_space space)
{
    const struct turn *t = arg;

    t->config.on_space(t->config.arg, space);
}

void turn_begin(struct turn *t, const struct turn_config *config)
{
    const struct durable_user user = {t, on_committed, on_space};
    int rv;

    *t = (struct turn){.config = *config, .n_open = 2};
    rv = uv_prepare_init(config->loop, &t->prepare);
    rv = rv == 0 ? uv_check_init(config->loop, &t->check) : rv;
    rv = rv == 0 ? uv_prepare_start(&t->prepare, on_prepare) : rv;
    rv = rv == 0 ? uv_check_start(&t->check, on_check) : rv;
    ASSERT(rv == 0); /* documented never to fail */
    t->prepare.data = t;
    t->check.data = t;
    uv_unref((uv_handle_t *)&t->prepare); /* they are no reason to go on */
    uv_unref((uv_handle_t *)&t->check);
    pool_set_hold(config->pool, HOLD_OUTPUT);
    config->durable->use(config->durable->arg, &user);
}

bool turn_is_waiting(const struct turn *t)
{
    return t->config.durable && t->config.pool->hold == HOLD_ALL;
}

uint64_t turn_waits_ms(const struct turn *t)
{
    return turn_is_waiting(t) ? (uv_hrtime() - t->begun_ns) / 1000000 : 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct turn *t = handle->data;

    if (--t->n_open == 0) {
        t->on_ended(t->config.arg);
    }
}

void turn_end(struct turn *t, void (*on_ended)(void *arg))
{
    t->on_ended = on_ended;
    uv_close((uv_handle_t *)&t->prepare, on_closed);
    uv_close((uv_handle_t *)&t->check, on_closed);
}

/* ---- at the start ---- */

struct takers {
    struct service *service;
    struct history *history;
};

/* An event or a curve that cannot be read is no reason not to serve: they are for
 * people. */
static int take(void *taker, const struct record *r, struct errmsg *msg)
{
    const struct takers *takers = taker;

    if (r->kind == RECORD_EVENT || r->kind == RECORD_CURVE) {
        (void)history_restore(takers->history, r);
        return 0;
    }
    return service_restore(takers->service, r, msg);
}

int turn_restore(const struct durable *durable, struct service *service,
                 struct history *history, uint64_t now_ms, struct errmsg *msg)
{
    struct takers takers = {service, history};
    int rv = durable->load(durable->arg, take, &takers, msg);

    if (rv == 0) {
        history_restored(history, now_ms);
        rv = service_restored(service, now_ms, msg);
    }
    return rv;
}
