/* The watchdog is told that we live as often as systemd wants, if since the last time the
 * loop has come by its I/O, and not only by its timers, and nobody has waited for the
 * disk for all that time: then whoever waits for an answer gets one. */

#include "rendezvous/manager.h"

#include "rendezvous/server.h"

#include "common/closer.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/notify.h"

#include <stdio.h>
#include <string.h>
#include <uv.h>

enum { STATUS_MS = 1000 };

struct manager {
    const struct server *server;
    uv_check_t turn; /* after each look at the sockets */
    uv_timer_t watchdog;
    uv_timer_t status;
    struct closer closer;
    bool has_turned;
    uint64_t every_ms; /* of the watchdog */
    bool is_unheard;   /* said so already */
    char said[128];    /* the last line of status */
};

static void notify(struct manager *m, const char *text)
{
    int rv = notify_send(text);

    if (rv < 0 && !m->is_unheard) {
        log_warn("cannot notify the service manager", "cause=\"%s\"", err_text(rv));
    }
    m->is_unheard = rv < 0;
}

static void on_turn(uv_check_t *check)
{
    struct manager *m = check->data;

    m->has_turned = true;
}

static void on_watchdog(uv_timer_t *timer)
{
    struct manager *m = timer->data;
    struct server_counts counts;

    server_count(m->server, &counts);
    if (m->has_turned && counts.waits_ms <= m->every_ms) {
        m->has_turned = false;
        notify(m, "WATCHDOG=1");
    }
}

/* As `systemctl status` shows it. */
static void tell_status(struct manager *m)
{
    struct server_counts counts;
    char text[sizeof(m->said)];

    server_count(m->server, &counts);
    (void)snprintf(text, sizeof(text), "STATUS=%zu job%s, %zu node%s, %zu connection%s",
                   counts.jobs, counts.jobs == 1 ? "" : "s", counts.nodes,
                   counts.nodes == 1 ? "" : "s", counts.connections,
                   counts.connections == 1 ? "" : "s");
    if (strcmp(text, m->said) != 0) {
        memcpy(m->said, text, sizeof(m->said));
        notify(m, text);
    }
}

static void on_status(uv_timer_t *timer)
{
    tell_status(timer->data);
}

static int start(struct manager *m, uv_loop_t *loop)
{
    uint64_t every_ms = notify_watchdog_ms();
    int rv = uv_check_init(loop, &m->turn);

    rv = rv == 0 ? uv_timer_init(loop, &m->watchdog) : rv;
    rv = rv == 0 ? uv_timer_init(loop, &m->status) : rv;
    ASSERT(rv == 0); /* documented never to fail */
    m->turn.data = m;
    m->watchdog.data = m;
    m->status.data = m;
    rv = uv_check_start(&m->turn, on_turn);
    m->every_ms = every_ms;
    if (rv == 0 && every_ms > 0) {
        rv = uv_timer_start(&m->watchdog, on_watchdog, every_ms, every_ms);
    }
    if (rv == 0 && notify_is_heard()) {
        rv = uv_timer_start(&m->status, on_status, STATUS_MS, STATUS_MS);
    }
    return rv;
}

int manager_new(uv_loop_t *loop, const struct server *server, struct manager **ret)
{
    struct manager *m = mem_zalloc(sizeof(*m));

    m->server = server;
    m->has_turned = true;
    closer_init(&m->closer);
    for (int i = 0; i < 3; i++) {
        closer_opened(&m->closer);
    }
    *ret = m;
    return start(m, loop);
}

void manager_ready(struct manager *m)
{
    notify(m, "READY=1");
    tell_status(m);
}

void manager_reloading(struct manager *m)
{
    int rv = notify_reloading();

    m->is_unheard = rv < 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct manager *m = handle->data;

    closer_closed(&m->closer);
}

static void on_all_closed(void *arg)
{
    mem_free(arg);
}

void manager_stop(struct manager *m)
{
    notify(m, "STOPPING=1");
    uv_close((uv_handle_t *)&m->turn, on_closed);
    uv_close((uv_handle_t *)&m->watchdog, on_closed);
    uv_close((uv_handle_t *)&m->status, on_closed);
    closer_finish(&m->closer, on_all_closed, m);
}
