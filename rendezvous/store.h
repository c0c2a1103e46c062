#ifndef RENDEZVOUS_STORE_H
#define RENDEZVOUS_STORE_H

/* PURE. A key-value store with waiters, counters, queues and barriers: the semantics of
 * PyTorch's TCPStore (wire: common/tcpstore.h), bounded in every dimension. No I/O, no
 * clock: requests in, replies out through a callback, during the call that causes them.
 *
 * A client is a number chosen by the caller; it has at most one parked WAIT or BARRIER.
 */

#include "rendezvous/durable.h"

#include "common/check.h"
#include "common/tcpstore.h"

#include <stdbool.h>

struct store;

/* A reply's bytes as on the wire; valid during the call. `seq` is the request's. */
typedef void (*store_reply_cb)(void *arg, uint64_t client, uint64_t seq,
                               const uint8_t *bytes, size_t size);

enum {
    STORE_MAX_REPLY =
        256 * 1024 * 1024, /* MULTI_GET may name one large value many times */
};

/* What stores may hold together: keys, values, queues and waiters. One may be a part of
 * another, whose other parts it cannot starve. */
struct store_budget {
    size_t max;
    size_t used;
    enum durable_space space; /* where what they hold is kept; of the parent, if any */
    size_t max_part;          /* of those that are parts of it; 0: all */
    struct store_budget *parent; /* borrowed: outlives it; NULL: none */
};

static inline void store_budget_init_part(struct store_budget *b,
                                          struct store_budget *parent)
{
    *b = (struct store_budget){.max = parent->max, .parent = parent};
    b->max = parent->max_part ? MIN(parent->max_part, b->max) : b->max;
}

static inline enum durable_space store_budget_space(const struct store_budget *b)
{
    while (b->parent) {
        b = b->parent;
    }
    return b->space;
}

/* So many more, when `less` were given back before. */
static inline bool store_budget_fits(const struct store_budget *b, size_t less,
                                     size_t more)
{
    for (; b; b = b->parent) {
        size_t used = b->used - less;

        if (used > b->max || more > b->max - used) {
            return false;
        }
    }
    return true;
}

static inline bool store_budget_allows(const struct store_budget *b, size_t more)
{
    return store_budget_fits(b, 0, more);
}

static inline void store_budget_take(struct store_budget *b, size_t size)
{
    for (; b; b = b->parent) {
        b->used += size;
    }
}

static inline void store_budget_return(struct store_budget *b, size_t size)
{
    for (; b; b = b->parent) {
        b->used -= size;
    }
}

/* What a request has changed, for who keeps it; valid during the call. */
enum store_change_kind { STORE_VALUE, STORE_NO_VALUE, STORE_ITEM, STORE_NO_ITEM };

struct store_change {
    enum store_change_kind kind;
    const uint8_t *key, *data; /* `data`: the whole value, or the item */
    size_t key_size, size;
    uint64_t number; /* of an item: how many were pushed before it */
};

struct store_config {
    struct store_budget *budget; /* borrowed: outlives the stores that share it */
    size_t max_waiters;          /* parked registrations */
    uint64_t seed; /* of the hash table, so that nobody can choose colliding keys */
    store_reply_cb reply;
    void *reply_arg;
    void (*changed)(void *arg, const struct store_change *c); /* NULL: nobody cares */
    void *changed_arg;
};

struct store *store_new(const struct store_config *config);
void store_free(struct store *s); /* NULL allowed */

/* Carries out one request. For an op with a reply, the callback is called once with it,
 * now or (WAIT, BARRIER) later; ops without a reply call nothing. ERR_PROTOCOL
 * (malformed body, ADD on a value that is no number) or ERR_TOO_LARGE (a limit): the
 * caller closes that client; the store is unchanged. VALIDATE and PING are handled too.
 */
int store_execute(struct store *s, uint64_t client, uint64_t seq,
                  const struct tcpstore_request *request) MUST_CHECK;

/* Withdraws what the client has parked, silently. */
void store_drop_client(struct store *s, uint64_t client);

/* Puts back what `changed` once told (STORE_VALUE, or STORE_ITEM in the order of the
 * numbers), and says nothing of it. No limit holds: it was within
 * those of its time. ERR_CORRUPT: no store says so. */
int store_restore(struct store *s, const struct store_change *c) MUST_CHECK;

/* A BARRIER that was counted, but not answered: waits again, or is answered. The client
 * has nothing parked. ERR_CORRUPT. */
int store_restore_barrier(struct store *s, uint64_t client, uint64_t seq,
                          const struct tcpstore_request *request) MUST_CHECK;

#endif
