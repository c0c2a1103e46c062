#ifndef RENDEZVOUS_RECEPTION_H
#define RENDEZVOUS_RECEPTION_H

/* The server's side that operators see: the door (door.h), their connections among
 * those of the pool, and what they are answered (operator.h). The loop's thread. */

#include "rendezvous/door.h"

#include "common/msg.h"

struct closer;
struct guard;
struct connection;
struct connection_pool;
struct history;
struct reception;
struct service;

/* All of it is borrowed, and outlives the reception. */
struct reception_config {
    struct listener_config listener; /* of the pool */
    struct connection_pool *pool;
    struct closer *closer;
    struct guard *guard; /* says and counts who is turned away */
    struct service *service;
    const struct history *history;
    struct msg_welcome welcome; /* which server this is */
    uint64_t clock_offset_ms;   /* the service's clock to ours */
    bool insecure;
};

struct reception *reception_new(const struct reception_config *config);
void reception_free(struct reception *r); /* once all is closed */

/* The socket for `ctrun status` on this machine, once so much time has passed. */
void reception_open_door(struct reception *r, uint64_t delay_ms);

/* True for the messages of operators, their first one too, and for all that come by the
 * door: they go to reception_message. */
bool reception_is_for(const struct connection *c, const struct msg *m);
int reception_message(struct reception *r, struct connection *c,
                      const struct msg *m) MUST_CHECK;
void reception_gone(struct reception *r, const struct connection *c);

/* An agent answers an operator's question. */
void reception_inspected(struct reception *r, uint64_t session,
                         const struct msg_inspected *m);

/* Something of a job may have changed. */
void reception_go_on(struct reception *r);

/* Closes what is its own; the closer counts it. */
void reception_stop(struct reception *r);

#endif
