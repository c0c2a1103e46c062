#ifndef RENDEZVOUS_LOOKOUT_H
#define RENDEZVOUS_LOOKOUT_H

/* The server's side of those who look on: the history of its jobs, what it counts, and
 * the HTTP port where both are shown (routes.h). Part of the server; its loop's
 * thread. */

#include "rendezvous/connection.h"
#include "rendezvous/durable.h"
#include "rendezvous/history.h"
#include "rendezvous/server.h"
#include "rendezvous/service.h"
#include "rendezvous/tally.h"

struct http_server;

struct lookout_config {
    uv_loop_t *loop;               /* these are borrowed: they outlive it */
    const struct service *service; /* … */
    const struct connection_pool *pool;
    const struct refusals *refusals;
    uint32_t lease_ms;
};

struct lookout {
    struct lookout_config config;
    struct history history;
    struct tally tally;
    const struct durable *durable; /* borrowed: outlives it; NULL: nothing is saved */
    enum durable_space space;
    struct http_server *http; /* owned; NULL: none */
    struct server_http http_config;
    uint64_t started_ms; /* wall clock */
};

/* Events are saved by `durable`; NULL: nowhere. `history_ms`: how long they are shown, 0:
 * however old they are. */
void lookout_init(struct lookout *l, uint64_t seed, uint64_t history_ms,
                  const struct durable *durable);
void lookout_release(struct lookout *l);

/* Without space /readyz says no; once the reserve is spent history is terse: most events
 * are for people alone, and what must be kept needs the rest. */
void lookout_set_space(struct lookout *l, enum durable_space space);

/* True for what is an event; the rest is for the curves. */
bool lookout_note(struct lookout *l, const struct job_event *e, uint64_t now_ms);

/* The server stops. */
void lookout_stop(struct lookout *l);

/* As server_listen_http. */
int lookout_listen(struct lookout *l, const struct lookout_config *config,
                   const struct server_http *http, int *ret_port,
                   struct errmsg *msg) MUST_CHECK;

/* What is in memory is on the disk: who has asked for it meanwhile is answered. A view
 * never shows what a crash could take back. */
void lookout_go_on(const struct lookout *l);

/* Asynchronous; only with a `http`. */
void lookout_close(struct lookout *l, void (*on_closed)(void *arg), void *arg);

#endif
