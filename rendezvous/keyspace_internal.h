#ifndef RENDEZVOUS_KEYSPACE_INTERNAL_H
#define RENDEZVOUS_KEYSPACE_INTERNAL_H

/* PURE. What keyspace.c (requests and replies) and keeping.c (what of them is durable)
 * share. */

#include "rendezvous/keyspace.h"
#include "rendezvous/store.h"

#include "common/buf.h"
#include "common/table.h"

enum relay_state {
    RELAY_IDLE,    /* the last request is answered */
    RELAY_WAITING, /* the last request is parked in the store */
    RELAY_DEAD,    /* broke a rule: everything is answered with close */
    RELAY_CLOSED,  /* the worker is gone; what is repeated is acknowledged */
};

/* A reply that can be given again. */
struct kept {
    uint64_t seq; /* 0: none */
    uint8_t *data;
    size_t size;
    bool forgot; /* there was no room for it */
};

struct relay {
    struct table_node node; /* by session and client */
    uint64_t session;
    uint32_t client;
    enum relay_state state;
    enum tcpstore_op last_op;
    uint64_t last_seq;               /* executed */
    uint64_t parts_seq;              /* the request of which … */
    struct buf parts;                /* … these are there */
    struct kept kept[KEYSPACE_KEPT]; /* owned; where nothing is saved the last alone */
    unsigned saved;                  /* its records, by slot: bits */
    bool may_skip;    /* restored: of the numbers between some only read, maybe */
    bool is_forsaken; /* nobody reads its replies */
    struct relay *prev_closed, *next_closed;
};

struct keyspace {
    struct keyspace_config config;
    struct store *store;
    struct table relays;
    struct relay *oldest_closed, *newest_closed; /* forgotten in this order */
    size_t extra_bytes;                          /* parts and kept replies */
    bool is_used;                                /* keyspace_is_used */
    bool is_reading;   /* the request being executed only reads */
    bool is_restoring; /* nothing is saved meanwhile */
};

struct relay *keyspace_find_relay(const struct keyspace *k, uint64_t session,
                                  uint32_t client);
/* NULL when there are too many. */
struct relay *keyspace_relay_new(struct keyspace *k, uint64_t session, uint32_t client);
void keyspace_close_relay(struct keyspace *k, struct relay *r);
void keyspace_withdraw(struct keyspace *k, struct relay *r); /* what it has parked */

/* Where the reply to that request is or, when it is not kept, would be. */
struct kept *keyspace_kept_slot(struct relay *r, uint64_t seq);
void keyspace_keep_reply(struct keyspace *k, struct relay *r, uint64_t seq,
                         struct bytes body);

/* keeping.c */
void keeping_on_change(void *arg, const struct store_change *c);
void keeping_save_reply(struct keyspace *k, struct relay *r, uint64_t seq);
void keeping_save_ack(struct keyspace *k, struct relay *r, uint64_t seq);
void keeping_save_barrier(struct keyspace *k, struct relay *r,
                          const struct tcpstore_request *request);
void keeping_save_close(struct keyspace *k, struct relay *r);
void keeping_drop(struct keyspace *k,
                  struct relay *r); /* it is about to be forgotten */

#endif
