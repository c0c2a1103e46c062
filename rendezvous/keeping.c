/* PURE. What of a key space is durable: keys, queues, and for each client the last
 * request that changed something, with the last replies. A client's record has a slot
 * for each reply that is kept, so that a request writes one, and one for those that are
 * only acknowledged. */

#include "rendezvous/keyspace_internal.h"
#include "rendezvous/record_fields.h"

#include "common/mem.h"

enum { SLOT_ACK = KEYSPACE_KEPT, SLOT_COUNT };

static void save(struct keyspace *k, struct record *r)
{
    r->generation = k->config.generation;
    k->config.save(k->config.save_arg, r);
}

static bool is_saved(const struct keyspace *k)
{
    return k->config.save && !k->is_restoring;
}

/* --- keys and queues --- */

static void save_item(struct keyspace *k, const struct store_change *c)
{
    struct record r = {.act = c->kind == STORE_ITEM ? RECORD_PUT : RECORD_DROP,
                       .kind = RECORD_QUEUE,
                       .value = {c->data, c->size}};
    struct record_key number = {.size = 0};
    struct buf key;
    int rv;

    record_key_u64(&number, c->number);
    buf_init(&key, RECORD_KEY_MAX);
    rv = buf_append(&key, c->key, c->key_size);
    rv = rv < 0 ? rv : buf_append(&key, number.data, number.size);
    ASSERT(rv == 0); /* the store's keys are shorter */
    r.key = record_bytes(&key);
    save(k, &r);
    buf_release(&key);
}

void keeping_on_change(void *arg, const struct store_change *c)
{
    struct keyspace *k = arg;
    struct record r = {.act = c->kind == STORE_VALUE ? RECORD_PUT : RECORD_DROP,
                       .kind = RECORD_KEY,
                       .key = {c->key, c->key_size},
                       .value = {c->data, c->size}};

    if (c->kind == STORE_ITEM || c->kind == STORE_NO_ITEM) {
        save_item(k, c);
    } else {
        save(k, &r);
    }
}

/* --- clients --- */

static void make_key(const struct relay *r, size_t slot, struct record_key *ret)
{
    ret->size = 0;
    record_key_u64(ret, r->session);
    record_key_u32(ret, r->client);
    record_key_u8(ret, (uint8_t)slot);
}

static void put_client(struct keyspace *k, struct relay *r, size_t slot,
                       const struct record_client *client)
{
    struct record record = {.act = RECORD_PUT, .kind = RECORD_CLIENT};
    struct record_key key;
    struct buf value;
    int rv;

    make_key(r, slot, &key);
    buf_init(&value, RECORD_LOOSE_MAX + 64);
    rv = record_put_client(client, &value);
    ASSERT(rv == 0); /* replies are smaller: STORE_MAX_REPLY */
    record.key = record_key_bytes(&key);
    record.value = record_bytes(&value);
    save(k, &record);
    buf_release(&value);
    r->saved |= 1U << slot;
}

static void drop_client(struct keyspace *k, struct relay *r, size_t slot)
{
    struct record record = {.act = RECORD_DROP, .kind = RECORD_CLIENT};
    struct record_key key;

    if (r->saved >> slot & 1) {
        make_key(r, slot, &key);
        record.key = record_key_bytes(&key);
        save(k, &record);
        r->saved &= ~(1U << slot);
    }
}

/* What changes nothing can be asked again. */
static bool is_durable(enum tcpstore_op op)
{
    return op != TCPSTORE_WAIT && op != TCPSTORE_CANCEL_WAIT && op != TCPSTORE_VALIDATE;
}

void keeping_save_reply(struct keyspace *k, struct relay *r, uint64_t seq)
{
    const struct kept *kept = keyspace_kept_slot(r, seq);
    struct record_client client = {.seq = seq,
                                   .state = CLIENT_ANSWERED,
                                   .op = (uint8_t)r->last_op,
                                   .body = {kept->data, kept->size}};

    if (!is_saved(k) || !is_durable(r->last_op)) {
        return;
    }
    if (kept->forgot) {
        client.state = CLIENT_FORGOTTEN;
        client.body = (struct bytes){NULL, 0};
    }
    put_client(k, r, (size_t)(kept - r->kept), &client);
}

void keeping_save_ack(struct keyspace *k, struct relay *r, uint64_t seq)
{
    if (is_saved(k) && is_durable(r->last_op)) {
        put_client(k, r, SLOT_ACK,
                   &(struct record_client){.seq = seq,
                                           .state = CLIENT_ANSWERED,
                                           .op = (uint8_t)r->last_op});
    }
}

void keeping_save_barrier(struct keyspace *k, struct relay *r,
                          const struct tcpstore_request *request)
{
    size_t slot = (size_t)(keyspace_kept_slot(r, r->last_seq) - r->kept);

    if (is_saved(k)) {
        put_client(k, r, slot,
                   &(struct record_client){.seq = r->last_seq,
                                           .state = CLIENT_WAITING,
                                           .op = TCPSTORE_BARRIER,
                                           .body = {request->body, request->size}});
    }
}

void keeping_save_close(struct keyspace *k, struct relay *r)
{
    if (!is_saved(k) || r->saved == 0) {
        return; /* it changed nothing that could be asked for again */
    }
    for (size_t slot = 0; slot < SLOT_ACK; slot++) {
        drop_client(k, r, slot);
    }
    put_client(k, r, SLOT_ACK,
               &(struct record_client){.seq = r->last_seq, .state = CLIENT_CLOSED});
}

void keeping_drop(struct keyspace *k, struct relay *r)
{
    for (size_t slot = 0; slot < SLOT_COUNT && is_saved(k); slot++) {
        drop_client(k, r, slot);
    }
}

/* --- the next start --- */

static int restore_item(struct keyspace *k, const struct record *r)
{
    struct bytes number = r->key;
    struct store_change c = {.kind = STORE_ITEM,
                             .key = r->key.data,
                             .data = r->value.data,
                             .size = r->value.size};

    if (r->key.size < sizeof(c.number)) {
        return ERR_CORRUPT;
    }
    c.key_size = r->key.size - sizeof(c.number);
    number.data += c.key_size;
    number.size -= c.key_size;
    if (record_take_number(&number, sizeof(c.number), &c.number) < 0) {
        return ERR_CORRUPT;
    }
    return store_restore(k->store, &c);
}

static int restore_value(struct keyspace *k, const struct record *r)
{
    return store_restore(k->store, &(struct store_change){.kind = STORE_VALUE,
                                                          .key = r->key.data,
                                                          .key_size = r->key.size,
                                                          .data = r->value.data,
                                                          .size = r->value.size});
}

static int read_client_key(struct bytes key, uint64_t *session, uint32_t *client,
                           uint64_t *slot)
{
    uint64_t number;
    int rv = record_take_number(&key, sizeof(*session), session);

    rv = rv < 0 ? rv : record_take_number(&key, sizeof(*client), &number);
    rv = rv < 0 ? rv : record_take_number(&key, 1, slot);
    if (rv < 0 || key.size > 0 || *slot >= SLOT_COUNT) {
        return ERR_CORRUPT;
    }
    *client = (uint32_t)number;
    return 0;
}

/* The last of what its slots say. */
static int restore_state(struct keyspace *k, struct relay *r,
                         const struct record_client *c)
{
    struct tcpstore_request request = {TCPSTORE_BARRIER, c->body.data, c->body.size};

    if (c->state == CLIENT_CLOSED) {
        r->last_seq = c->seq;
        keyspace_close_relay(k, r);
        return 0;
    }
    if (c->seq <= r->last_seq) {
        return 0;
    }
    keyspace_withdraw(k, r);
    r->last_seq = c->seq;
    r->last_op = (enum tcpstore_op)c->op;
    r->state = RELAY_IDLE;
    if (c->state != CLIENT_WAITING) {
        return 0;
    }
    r->state = RELAY_WAITING;
    return store_restore_barrier(k->store, (uint64_t)(uintptr_t)r, c->seq, &request);
}

static bool is_without_reply(const struct record_client *c)
{
    return c->state == CLIENT_CLOSED || !tcpstore_has_reply((enum tcpstore_op)c->op);
}

static void restore_reply(struct keyspace *k, struct relay *r, struct kept *kept,
                          const struct record_client *c)
{
    kept->seq = c->seq;
    kept->forgot = true;
    if (c->state == CLIENT_ANSWERED) {
        keyspace_keep_reply(k, r, c->seq, c->body);
    }
}

static int restore_client(struct keyspace *k, const struct record *record)
{
    struct record_client c;
    struct relay *r;
    uint64_t session;
    uint64_t slot;
    uint32_t client;
    int rv = record_get_client(record->value, &c);

    rv = rv < 0 ? rv : read_client_key(record->key, &session, &client, &slot);
    if (rv < 0) {
        return rv;
    }
    if (c.seq == 0 || c.state > CLIENT_CLOSED || c.op >= TCPSTORE_OP_COUNT ||
        (slot == SLOT_ACK) != is_without_reply(&c) ||
        (c.state == CLIENT_WAITING && c.op != TCPSTORE_BARRIER)) {
        return ERR_CORRUPT;
    }
    r = keyspace_find_relay(k, session, client);
    r = r ? r : keyspace_relay_new(k, session, client);
    if (!r || r->state == RELAY_CLOSED) {
        return ERR_CORRUPT;
    }
    r->saved |= 1U << slot;
    if (slot < SLOT_ACK) {
        restore_reply(k, r, &r->kept[slot], &c);
    }
    return restore_state(k, r, &c);
}

int keyspace_restore(struct keyspace *k, const struct record *r)
{
    int rv = ERR_CORRUPT;

    k->is_restoring = true;
    k->is_used = k->is_used || r->kind == RECORD_KEY || r->kind == RECORD_QUEUE;
    if (r->kind == RECORD_KEY) {
        rv = restore_value(k, r);
    } else if (r->kind == RECORD_QUEUE) {
        rv = restore_item(k, r);
    } else if (r->kind == RECORD_CLIENT) {
        rv = restore_client(k, r);
    }
    k->is_restoring = false;
    return rv;
}
