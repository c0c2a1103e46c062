#ifndef RENDEZVOUS_KEYSPACE_H
#define RENDEZVOUS_KEYSPACE_H

/* PURE. A generation's key space as the agents' relays reach it: a store, and for each
 * relay client (agent session, worker connection) the last request number with its
 * reply, so that a request repeated after a reconnect is answered again and applied
 * once. Chunks of a large request are put together here, replies are cut into chunks.
 *
 * Where it is kept (config.save), so are with every request that changes something the
 * changes, its number and its reply. Those that only read, and a WAIT, are not: their
 * numbers may be missing when a client is heard again. */

#include "rendezvous/record.h"

#include "common/err.h"

struct keyspace;
struct store_budget;

typedef void (*keyspace_reply_cb)(void *arg, uint64_t session,
                                  const struct msg_store_reply *reply);

struct keyspace_config {
    uint64_t generation;
    /* Borrowed, shared with others: of the store, requests in parts and kept replies.
     */
    struct store_budget *budget;
    size_t max_clients; /* relay clients */
    uint64_t seed;      /* of the hash tables */
    keyspace_reply_cb reply;
    void *reply_arg;
    /* A record of what has changed, its job not filled in; NULL: nothing is kept. */
    void (*save)(void *arg, struct record *r);
    void *save_arg;
    bool is_restored; /* from before the service's start: keyspace_restore follows */
};

enum {
    KEYSPACE_KEPT = 4, /* replies of a client that can be given again, where saved: as
                        * many as a relay lets be on their way (RELAY_FLOW_MAX_DUE) */
    KEYSPACE_SMALL = 64 * 1024, /* bytes of a request that may come out of a reserve */
};

struct keyspace *keyspace_new(const struct keyspace_config *config);
void keyspace_free(struct keyspace *k); /* NULL allowed */

/* A chunk of a request. A request that breaks the protocol or a limit, or skips a
 * number, is answered with MSG_CLOSE_BROKEN, one that a full disk has no space for with
 * MSG_CLOSE_FULL, and so is everything that client sends from then on. Messages of
 * another generation are ignored. Requests without a reply of their own are acknowledged
 * with an empty body. A client's number is never used again in its session: a closed one
 * is remembered for a while, so that what is repeated for it is not applied twice. */
void keyspace_store(struct keyspace *k, uint64_t session, const struct msg_store *m);

/* seq 0: the worker's connection is gone, its waits are withdrawn; else cancels that
 * wait. */
void keyspace_close_client(struct keyspace *k, uint64_t session,
                           const struct msg_store_close *m);

/* The worker's connection is gone, which keyspace_close_client will say when the
 * requests are through that came before: from now on their replies are empty. */
void keyspace_forsake(struct keyspace *k, uint64_t session,
                      const struct msg_store_close *m);

/* The session's agent came back on a new connection: requests of which only a part had
 * arrived start over. */
void keyspace_reattach(struct keyspace *k, uint64_t session);

/* Somebody has stored a key in it, or wanted to. */
bool keyspace_is_used(const struct keyspace *k);

void keyspace_drop_session(struct keyspace *k, uint64_t session);

/* Puts a KEY, QUEUE or CLIENT back, in the order of record.h, before anything else is
 * done, and whatever the budget says. ERR_CORRUPT, ERR_UNSUPPORTED. */
int keyspace_restore(struct keyspace *k, const struct record *r) MUST_CHECK;

#endif
