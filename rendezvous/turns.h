#ifndef RENDEZVOUS_TURNS_H
#define RENDEZVOUS_TURNS_H

/* An agent's messages on their way to the service: at once, but for the store requests
 * of workers that are behind with their replies, which are put aside and taken in turns.
 * The loop's thread. */

#include "rendezvous/connection.h"

struct service;

struct turns {
    struct service *service; /* borrowed */
    void *arg;
    int (*on_message)(void *arg, struct connection *c, const struct msg *m);
    /* A request was put aside: its sender lives. */
    void (*on_heard)(void *arg, const struct connection *c);
};

/* As pool_config.on_input. */
int turns_take(const struct turns *t, struct connection *c, const uint8_t *data,
               size_t size);

#endif
