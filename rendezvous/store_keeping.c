/* PURE. What a store tells who keeps it, and what it takes back at the next start: all
 * of it, though the limits may be lower than they were. Then it is full. */

#include "rendezvous/store_internal.h"

#include "common/err.h"
#include "common/wire.h"

#include <string.h>

static void tell(const struct store *s, const struct slot *slot,
                 struct store_change change)
{
    if (s->config.changed) {
        change.key = slot->key;
        change.key_size = slot->key_size;
        s->config.changed(s->config.changed_arg, &change);
    }
}

void store_tell_value(const struct store *s, const struct slot *slot)
{
    tell(s, slot,
         (struct store_change){
             .kind = STORE_VALUE, .data = slot->value, .size = slot->size});
}

void store_tell_no_value(const struct store *s, const struct slot *slot)
{
    tell(s, slot, (struct store_change){.kind = STORE_NO_VALUE});
}

void store_tell_item(const struct store *s, const struct slot *slot)
{
    tell(s, slot,
         (struct store_change){.kind = STORE_ITEM,
                               .data = slot->tail->data,
                               .size = slot->tail->size,
                               .number = slot->n_pushed - 1});
}

void store_tell_no_item(const struct store *s, const struct slot *slot)
{
    tell(s, slot,
         (struct store_change){.kind = STORE_NO_ITEM,
                               .number = slot->n_pushed - (uint64_t)slot->n_items});
}

static void restore_value(struct store *s, const struct store_change *c)
{
    struct slice key = {c->key, c->key_size};
    struct slot *slot = store_restore_value(s, key, c->size);

    if (c->size > 0) {
        memcpy(slot->value, c->data, c->size);
    }
    slot->size = c->size;
}

static int restore_item(struct store *s, const struct store_change *c)
{
    struct slice key = {c->key, c->key_size};
    struct slot *slot = store_find(s, key);

    if (slot && slot->head && slot->n_pushed != c->number) {
        return ERR_CORRUPT; /* one between is missing, or it comes twice */
    }
    slot = slot ? slot : store_slot_new(s, key);
    slot->n_pushed = c->number;
    store_push_item(s, slot, (struct slice){c->data, c->size});
    return 0;
}

int store_restore(struct store *s, const struct store_change *c)
{
    bool is_sane = c->key_size <= TCPSTORE_MAX_KEY && c->number < UINT64_MAX;

    if (is_sane && c->kind == STORE_VALUE) {
        restore_value(s, c);
        return 0;
    }
    if (is_sane && c->kind == STORE_ITEM) {
        return restore_item(s, c);
    }
    return ERR_CORRUPT;
}

int store_restore_barrier(struct store *s, uint64_t client, uint64_t seq,
                          const struct tcpstore_request *request)
{
    struct wire_reader body;
    struct wait *wait;
    struct slot *slot;
    struct slice key;
    int64_t arrived;
    int rv = tcpstore_check_body(TCPSTORE_BARRIER, request->body, request->size);

    if (rv < 0) {
        return ERR_CORRUPT;
    }
    wire_reader_init(&body, request->body, request->size);
    key.size = wire_get_u64(&body);
    key.data = wire_get_raw(&body, key.size);
    slot = store_find(s, key);
    rv = store_read_counter(s, key, &arrived);
    if (rv < 0) {
        return ERR_CORRUPT; /* whatever made it so would have woken the client */
    }
    if (arrived >= (int64_t)wire_get_u64(&body)) {
        store_reply_byte(s, client, seq, 0);
        return 0;
    }
    wait = store_park(s, client, seq, 1);
    wait->is_barrier = true;
    store_register(s, wait, slot ? slot : store_slot_new(s, key)); /* it was deleted */
    return 0;
}
