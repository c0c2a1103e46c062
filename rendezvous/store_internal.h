#ifndef RENDEZVOUS_STORE_INTERNAL_H
#define RENDEZVOUS_STORE_INTERNAL_H

/* PURE. What store.c (slots, waits, memory) and store_ops.c (the operations) share.
 *
 * A slot is one name: its value, its queue and who waits for it; it exists while it has
 * any of the three. A wait is one parked WAIT or BARRIER: a registration for each
 * missing occurrence of a key, in the FIFO list of that key's slot. */

#include "rendezvous/store.h"

#include "common/buf.h"
#include "common/table.h"

struct slice {
    const uint8_t *data; /* borrowed */
    size_t size;
};

/* One element of a queue. */
struct item {
    struct item *next;
    size_t size;
    uint8_t data[];
};

struct reg {
    struct slot *slot; /* NULL once settled */
    struct wait *wait;
    struct reg *prev,
        *next; /* in the slot's list; those of one wait lie side by side */
};

struct wait {
    struct table_node node; /* by client */
    uint64_t client;
    uint64_t seq;
    bool is_barrier;
    size_t missing; /* registrations not yet settled */
    size_t n_regs;
    struct reg regs[];
};

struct slot {
    struct table_node node;
    uint8_t *value; /* owned; NULL: no value */
    size_t size;
    size_t capacity;
    struct item *head, *tail; /* owned: the queue */
    int64_t n_items;
    uint64_t n_pushed;        /* items, since the slot is there */
    struct reg *first, *last; /* waiters, oldest first */
    size_t key_size;
    uint8_t key[];
};

struct store {
    struct store_config config;
    struct table slots;
    struct table waits;
    struct buf reply; /* scratch: the reply being built */
    size_t bytes;     /* of config.budget->used */
    size_t n_keys;
    size_t n_regs;
};

/* The slot of that name, or NULL. */
struct slot *store_find(const struct store *s, struct slice key);

/* What a new slot with that key costs. */
size_t store_slot_cost(size_t key_size);
size_t store_value_cost(size_t size);

static inline bool store_fits(const struct store *s, size_t more)
{
    return store_budget_allows(s->config.budget, more);
}

/* A new slot, which the caller fills at once. The cost must fit. */
struct slot *store_slot_new(struct store *s, struct slice key);

/* Frees the slot if nothing is left of it. */
void store_slot_settle(struct store *s, struct slot *slot);

/* The slot with room for a value of `size` bytes, which the caller writes; made when it
 * is not there. `grows`: leave headroom. An old value's bytes stay (as far as they
 * fit). ERR_TOO_LARGE: the memory cap; nothing changed. */
int store_make_value(struct store *s, struct slice key, size_t size, bool grows,
                     struct slot **ret) MUST_CHECK;
/* … for a value that was taken before: whatever the cap says now. */
struct slot *store_restore_value(struct store *s, struct slice key, size_t size);
void store_drop_value(struct store *s, struct slot *slot);

void store_push_item(struct store *s, struct slot *slot, struct slice data);
void store_drop_item(struct store *s, struct slot *slot); /* the first */
size_t store_item_cost(size_t size);

/* Whether the client may park a wait of `n` registrations that costs `more` besides:
 * ERR_PROTOCOL when one is parked already, ERR_TOO_LARGE at a limit. */
int store_can_park(const struct store *s, uint64_t client, size_t n,
                   size_t more) MUST_CHECK;
struct wait *store_park(struct store *s, uint64_t client, uint64_t seq, size_t n);
void store_register(struct store *s, struct wait *wait, struct slot *slot);

/* The name exists now: settles every registration, or (a queue's push) one waiter's. */
void store_wake_all(struct store *s, struct slot *slot);
void store_wake_one(struct store *s, struct slot *slot);

/* Tells who keeps it: the slot's value has changed, or is to go. */
void store_tell_value(const struct store *s, const struct slot *slot);
void store_tell_no_value(const struct store *s, const struct slot *slot);
/* … the last item was pushed, or the first is to go. */
void store_tell_item(const struct store *s, const struct slot *slot);
void store_tell_no_item(const struct store *s, const struct slot *slot);

/* Sends one byte. */
void store_reply_byte(struct store *s, uint64_t client, uint64_t seq, uint8_t byte);

/* Carries out a request whose body is known to be well-formed. */
int store_dispatch(struct store *s, uint64_t client, uint64_t seq,
                   const struct tcpstore_request *request) MUST_CHECK;

/* The counter's value: 0 without one; ERR_PROTOCOL: it is no number. */
int store_read_counter(const struct store *s, struct slice key,
                       int64_t *ret) MUST_CHECK;

#endif
