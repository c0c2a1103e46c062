/* The operations, one function each, by what PyTorch's clients can see. Each first
 * finds out whether it can be done within the limits, then changes something, then
 * replies. */

#include "rendezvous/store_internal.h"

#include "common/err.h"
#include "common/wire.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct call {
    struct store *s;
    uint64_t client;
    uint64_t seq;
    struct wire_reader body; /* known to be well-formed */
};

enum { NUMBER_SIZE = 24 }; /* an i64 as text */

static struct slice take_string(struct call *c)
{
    struct slice string = {.size = wire_get_u64(&c->body)};

    string.data = wire_get_raw(&c->body, string.size);
    ASSERT(string.data);
    return string;
}

/* ---- replies: built in the scratch buffer, sent by done() ---- */

static void begin(struct call *c)
{
    buf_clear(&c->s->reply);
}

static int add_string(struct call *c, const uint8_t *data, size_t size)
{
    int rv = wire_put_u64(&c->s->reply, size);

    return rv < 0 ? rv : buf_append(&c->s->reply, data, size);
}

static int done(struct call *c, int rv)
{
    if (rv == 0) {
        c->s->config.reply(c->s->config.reply_arg, c->client, c->seq,
                           buf_bytes(&c->s->reply), buf_len(&c->s->reply));
    }
    return rv;
}

static int reply_string(struct call *c, const uint8_t *data, size_t size)
{
    begin(c);
    return done(c, add_string(c, data, size));
}

static int reply_i64(struct call *c, int64_t v)
{
    uint64_t le = htole64((uint64_t)v);

    c->s->config.reply(c->s->config.reply_arg, c->client, c->seq, (uint8_t *)&le,
                       sizeof(le));
    return 0;
}

static int reply_byte(struct call *c, uint8_t byte)
{
    store_reply_byte(c->s, c->client, c->seq, byte);
    return 0;
}

/* ---- values ---- */

static int set_value(struct store *s, struct slice key, struct slice value)
{
    struct slot *slot;
    int rv;

    rv = store_make_value(s, key, value.size, false, &slot);
    if (rv < 0) {
        return rv;
    }
    memcpy(slot->value, value.data, value.size);
    slot->size = value.size;
    store_tell_value(s, slot);
    store_wake_all(s, slot);
    return 0;
}

static int op_set(struct call *c)
{
    struct slice key = take_string(c);
    struct slice value = take_string(c);

    return set_value(c->s, key, value);
}

static bool has_bytes(const struct slot *slot, struct slice value)
{
    return slot->size == value.size && memcmp(slot->value, value.data, value.size) == 0;
}

/* A missing key with another expectation than "" gives the expected value back: a lie
 * that clients' tests depend on. */
static int op_compare_set(struct call *c)
{
    struct slice key = take_string(c);
    struct slice expected = take_string(c);
    struct slice desired = take_string(c);
    struct slot *slot = store_find(c->s, key);
    bool is_there = slot && slot->value;
    bool stores = is_there ? has_bytes(slot, expected) : expected.size == 0;
    int rv;

    if (!stores) {
        return is_there ? reply_string(c, slot->value, slot->size)
                        : reply_string(c, expected.data, expected.size);
    }
    rv = set_value(c->s, key, desired);
    return rv < 0 ? rv : reply_string(c, desired.data, desired.size);
}

static int add_value(struct call *c, struct slice key)
{
    struct slot *slot = store_find(c->s, key);

    return slot && slot->value ? add_string(c, slot->value, slot->size)
                               : add_string(c, NULL, 0);
}

static int op_get(struct call *c)
{
    begin(c);
    return done(c, add_value(c, take_string(c)));
}

static int op_multi_get(struct call *c)
{
    static const uint8_t nothing;
    uint64_t n = wire_get_u64(&c->body);
    int rv = 0;

    if (n == 0) {
        c->s->config.reply(c->s->config.reply_arg, c->client, c->seq, &nothing, 0);
        return 0;
    }
    begin(c);
    for (uint64_t i = 0; rv == 0 && i < n; i++) {
        rv = add_value(c, take_string(c));
    }
    return done(c, rv);
}

/* All or nothing, so the cost is summed first, as if every key and value were new. */
static int op_multi_set(struct call *c)
{
    struct wire_reader first = c->body;
    uint64_t n = wire_get_u64(&c->body);
    size_t cost = 0;
    int rv = 0;

    for (uint64_t i = 0; i < n; i++) {
        struct slice key = take_string(c);
        struct slice value = take_string(c);

        cost += store_slot_cost(key.size) + store_value_cost(value.size);
    }
    if (!store_fits(c->s, cost)) {
        return ERR_TOO_LARGE;
    }
    c->body = first;
    (void)wire_get_u64(&c->body); /* the count again */
    for (uint64_t i = 0; rv == 0 && i < n; i++) {
        rv = op_set(c);
    }
    ASSERT(rv == 0);
    return 0;
}

static int op_append(struct call *c)
{
    struct slice key = take_string(c);
    struct slice more = take_string(c);
    struct slot *slot = store_find(c->s, key);
    size_t old = slot && slot->value ? slot->size : 0;
    int rv;

    rv = store_make_value(c->s, key, old + more.size, true, &slot);
    if (rv < 0) {
        return rv;
    }
    memcpy(slot->value + old, more.data, more.size);
    slot->size = old + more.size;
    store_tell_value(c->s, slot);
    store_wake_all(c->s, slot);
    return 0;
}

static int op_delete_key(struct call *c)
{
    struct slot *slot = store_find(c->s, take_string(c));
    bool is_there = slot && slot->value;

    if (is_there) {
        store_tell_no_value(c->s, slot);
        store_drop_value(c->s, slot);
        store_slot_settle(c->s, slot);
    }
    return reply_i64(c, is_there);
}

static int op_num_keys(struct call *c)
{
    return reply_i64(c, (int64_t)c->s->n_keys);
}

static int op_list_keys(struct call *c)
{
    const struct table *t = &c->s->slots;
    struct table_node *n;
    int rv;

    begin(c);
    rv = wire_put_u64(&c->s->reply, c->s->n_keys);
    for (n = table_next(t, NULL); rv == 0 && n; n = table_next(t, n)) {
        struct slot *slot = CONTAINER_OF(n, struct slot, node);

        rv = slot->value ? add_string(c, slot->key, slot->key_size) : 0;
    }
    return done(c, rv);
}

/* ---- counters ---- */

static bool is_space(uint8_t byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

static bool is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

/* As stoll reads it: leading white space, a sign, decimal digits; what follows is
 * ignored. */
static int parse_number(struct slice text, int64_t *ret)
{
    size_t at = 0;
    bool is_negative;
    size_t first;
    int64_t v = 0;

    while (at < text.size && is_space(text.data[at])) {
        at++;
    }
    is_negative = at < text.size && text.data[at] == '-';
    at += at < text.size && (is_negative || text.data[at] == '+');
    for (first = at; at < text.size && is_digit(text.data[at]); at++) {
        int digit = text.data[at] - '0';

        if (__builtin_mul_overflow(v, (int64_t)10, &v) ||
            __builtin_add_overflow(v, is_negative ? -digit : digit, &v)) {
            return ERR_PROTOCOL;
        }
    }
    if (at == first) {
        return ERR_PROTOCOL;
    }
    *ret = v;
    return 0;
}

int store_read_counter(const struct store *s, struct slice key, int64_t *ret)
{
    struct slot *slot = store_find(s, key);

    *ret = 0;
    return slot && slot->value
               ? parse_number((struct slice){slot->value, slot->size}, ret)
               : 0;
}

static int write_counter(struct store *s, struct slice key, int64_t v,
                         struct slot **ret_slot)
{
    char text[NUMBER_SIZE];
    size_t size = (size_t)snprintf(text, sizeof(text), "%" PRId64, v);
    int rv;

    rv = store_make_value(s, key, size, false, ret_slot);
    if (rv < 0) {
        return rv;
    }
    memcpy((*ret_slot)->value, text, size);
    (*ret_slot)->size = size;
    store_tell_value(s, *ret_slot);
    return 0;
}

static int64_t wrapping_add(int64_t a, int64_t b)
{
    int64_t sum;

    (void)__builtin_add_overflow(a, b, &sum); /* wraps around: max + 1 is min */
    return sum;
}

static int op_add(struct call *c)
{
    struct slice key = take_string(c);
    int64_t delta = (int64_t)wire_get_u64(&c->body);
    struct slot *slot;
    int64_t v;
    int rv;

    rv = store_read_counter(c->s, key, &v);
    if (rv < 0) {
        return rv;
    }
    v = wrapping_add(v, delta);
    rv = write_counter(c->s, key, v, &slot);
    if (rv < 0) {
        return rv;
    }
    (void)reply_i64(c, v); /* cannot fail */
    store_wake_all(c->s, slot);
    return 0;
}

/* A partial arrival makes the key exist, but wakes nobody; the last one wakes all. */
static int op_barrier(struct call *c)
{
    struct slice key = take_string(c);
    int64_t world = (int64_t)wire_get_u64(&c->body);
    struct slot *slot = NULL;
    struct wait *wait;
    int64_t arrived;
    int rv;

    rv = store_read_counter(c->s, key, &arrived);
    if (rv < 0) {
        return rv;
    }
    arrived = wrapping_add(arrived, 1);
    if (arrived < world) {
        rv = store_can_park(c->s, c->client, 1,
                            store_slot_cost(key.size) + store_value_cost(NUMBER_SIZE));
    }
    if (rv == 0) {
        rv = write_counter(c->s, key, arrived, &slot);
    }
    if (rv < 0) {
        return rv;
    }
    if (arrived < world) {
        wait = store_park(c->s, c->client, c->seq, 1);
        wait->is_barrier = true;
        store_register(c->s, wait, slot);
        return 0;
    }
    (void)reply_byte(c, 0); /* cannot fail */
    store_wake_all(c->s, slot);
    return 0;
}

/* ---- waiting ---- */

static bool exists(const struct slot *slot)
{
    return slot && (slot->value || slot->head);
}

/* Counts the missing occurrences, and what their slots would cost. */
static size_t count_missing(struct call *c, size_t *ret_cost)
{
    uint64_t n = wire_get_u64(&c->body);
    size_t missing = 0;

    *ret_cost = 0;
    for (uint64_t i = 0; i < n; i++) {
        struct slice key = take_string(c);
        struct slot *slot = store_find(c->s, key);

        missing += !exists(slot);
        *ret_cost += slot ? 0 : store_slot_cost(key.size);
    }
    return missing;
}

static int op_check(struct call *c)
{
    size_t cost;

    return reply_byte(c, count_missing(c, &cost) > 0);
}

static int op_wait(struct call *c)
{
    struct wire_reader first = c->body;
    size_t cost;
    size_t missing = count_missing(c, &cost);
    struct wait *wait;
    uint64_t n;
    int rv;

    if (missing == 0) {
        return reply_byte(c, 0);
    }
    rv = store_can_park(c->s, c->client, missing, cost);
    if (rv < 0) {
        return rv;
    }
    wait = store_park(c->s, c->client, c->seq, missing);
    c->body = first;
    n = wire_get_u64(&c->body);
    for (uint64_t i = 0; i < n; i++) {
        struct slice key = take_string(c);
        struct slot *slot = store_find(c->s, key);

        if (!exists(slot)) {
            store_register(c->s, wait, slot ? slot : store_slot_new(c->s, key));
        }
    }
    return 0;
}

static int op_cancel_wait(struct call *c)
{
    store_drop_client(c->s, c->client);
    return reply_byte(c, 1);
}

static int op_ping(struct call *c)
{
    c->s->config.reply(c->s->config.reply_arg, c->client, c->seq, c->body.data,
                       c->body.left);
    return 0;
}

static int op_validate(struct call *c)
{
    (void)c;
    return 0;
}

/* ---- queues ---- */

static int op_queue_push(struct call *c)
{
    struct slice key = take_string(c);
    struct slice data = take_string(c);
    struct slot *slot = store_find(c->s, key);
    size_t cost = store_item_cost(data.size) + (slot ? 0 : store_slot_cost(key.size));

    if (!store_fits(c->s, cost)) {
        return ERR_TOO_LARGE;
    }
    slot = slot ? slot : store_slot_new(c->s, key);
    store_push_item(c->s, slot, data);
    store_tell_item(c->s, slot);
    store_wake_one(c->s, slot);
    return 0;
}

static int op_queue_pop(struct call *c)
{
    struct slot *slot = store_find(c->s, take_string(c));
    int rv;

    if (!slot || !slot->head) {
        return reply_i64(c, 0);
    }
    begin(c);
    rv = wire_put_u64(&c->s->reply, (uint64_t)slot->n_items);
    ASSERT(rv == 0); /* one item is far smaller than the largest reply */
    rv = add_string(c, slot->head->data, slot->head->size);
    ASSERT(rv == 0);
    store_tell_no_item(c->s, slot);
    store_drop_item(c->s, slot);
    store_slot_settle(c->s, slot);
    return done(c, 0);
}

static int op_queue_len(struct call *c)
{
    struct slot *slot = store_find(c->s, take_string(c));

    return reply_i64(c, slot ? slot->n_items : 0);
}

int store_dispatch(struct store *s, uint64_t client, uint64_t seq,
                   const struct tcpstore_request *request)
{
    static int (*const ops[TCPSTORE_OP_COUNT])(struct call *) = {
        [TCPSTORE_VALIDATE] = op_validate,
        [TCPSTORE_SET] = op_set,
        [TCPSTORE_COMPARE_SET] = op_compare_set,
        [TCPSTORE_GET] = op_get,
        [TCPSTORE_ADD] = op_add,
        [TCPSTORE_CHECK] = op_check,
        [TCPSTORE_WAIT] = op_wait,
        [TCPSTORE_GETNUMKEYS] = op_num_keys,
        [TCPSTORE_DELETE_KEY] = op_delete_key,
        [TCPSTORE_APPEND] = op_append,
        [TCPSTORE_MULTI_GET] = op_multi_get,
        [TCPSTORE_MULTI_SET] = op_multi_set,
        [TCPSTORE_CANCEL_WAIT] = op_cancel_wait,
        [TCPSTORE_PING] = op_ping,
        [TCPSTORE_QUEUE_PUSH] = op_queue_push,
        [TCPSTORE_QUEUE_POP] = op_queue_pop,
        [TCPSTORE_QUEUE_LEN] = op_queue_len,
        [TCPSTORE_LIST_KEYS] = op_list_keys,
        [TCPSTORE_BARRIER] = op_barrier,
    };
    struct call call = {.s = s, .client = client, .seq = seq};

    wire_reader_init(&call.body, request->body, request->size);
    return ops[request->op](&call);
}
