#ifndef RENDEZVOUS_SERVER_INTERNAL_H
#define RENDEZVOUS_SERVER_INTERNAL_H

/* server.c (connections, the store of clients without a job, life) and server_service.c
 * (the service's side) only. */

#include "rendezvous/connection.h"
#include "rendezvous/durable.h"
#include "rendezvous/gate.h"
#include "rendezvous/guard.h"
#include "rendezvous/lookout.h"
#include "rendezvous/reception.h"
#include "rendezvous/server.h"
#include "rendezvous/service.h"
#include "rendezvous/store.h"
#include "rendezvous/turn.h"

struct server {
    struct server_config config;
    struct connection_pool pool;
    struct service *service;     /* owned */
    struct lookout lookout;      /* for those who look on */
    struct reception *reception; /* owned: of operators */
    struct store *store;         /* owned: of clients that belong to no job … */
    struct store_budget budget;  /* … and cannot take what the jobs' need */
    struct guard guard;
    struct listener **listeners; /* owned */
    size_t n_listeners;
    size_t n_store; /* connections of store clients */
    struct gate gate;
    uv_timer_t timer; /* the service's next deadline */
    struct turn turn; /* where state is kept */
    struct closer closer;
    bool is_stopping;
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;
};

/* The service's clock, which goes on where it was when the machine starts anew. */
uint64_t server_now(const struct server *s);

/* To the service's next deadline; after everything that may have changed it. */
void server_arm_timer(struct server *s);

/* An agent's bytes, as pool_config.on_input. */
int server_take_messages(struct server *s, struct connection *c, const uint8_t *data,
                         size_t size);

/* As service_sink.note. */
void server_note(void *arg, const struct job_event *e);

/* The first with what was kept; the second when the pool is there. */
int server_start_service(struct server *s, const uint64_t *seeds,
                         struct errmsg *msg) MUST_CHECK;
void server_start_clock(struct server *s);

#endif
