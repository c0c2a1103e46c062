/* Slots, waits and the memory they take. Every allocation that a client can cause is
 * counted in the budget when it is made, with what the allocator and the tables need
 * for it. */

#include "rendezvous/store.h"

#include "rendezvous/store_internal.h"

#include "common/err.h"
#include "common/mem.h"

#include <string.h>

enum {
    ALLOC_OVERHEAD = 16, /* malloc's own, per block */
    NODE_OVERHEAD = 32,  /* of a block in a table, with its bucket */
    MIN_CAPACITY = 24,   /* of a value: what malloc gives anyway */
    SHRINK_FROM = 4096,  /* larger blocks are given back when a quarter would do */
    KEEP_SCRATCH = 1 << 20,
};

struct store *store_new(const struct store_config *config)
{
    struct store *s = mem_zalloc(sizeof(*s));

    s->config = *config;
    table_init(&s->slots);
    table_init(&s->waits);
    buf_init(&s->reply, STORE_MAX_REPLY);
    return s;
}

static void charge(struct store *s, size_t size)
{
    s->bytes += size;
    store_budget_take(s->config.budget, size);
}

static void give_back(struct store *s, size_t size)
{
    s->bytes -= size;
    store_budget_return(s->config.budget, size);
}

static void slot_free(struct store *s, struct slot *slot)
{
    give_back(s, store_slot_cost(slot->key_size));
    table_remove(&s->slots, &slot->node);
    mem_free(slot);
}

static void empty_slot(struct store *s, struct slot *slot)
{
    while (slot->head) {
        store_drop_item(s, slot);
    }
    store_drop_value(s, slot);
    slot_free(s, slot);
}

static size_t wait_cost(size_t n_regs)
{
    return sizeof(struct wait) + n_regs * sizeof(struct reg) + NODE_OVERHEAD;
}

static void wait_free(struct store *s, struct wait *wait)
{
    give_back(s, wait_cost(wait->n_regs));
    table_remove(&s->waits, &wait->node);
    mem_free(wait);
}

void store_free(struct store *s)
{
    struct table_node *node;
    struct table_node *next;

    if (!s) {
        return;
    }
    for (node = table_next(&s->waits, NULL); node; node = next) {
        next = table_next(&s->waits, node);
        store_drop_client(s, CONTAINER_OF(node, struct wait, node)->client);
    }
    for (node = table_next(&s->slots, NULL); node; node = next) {
        next = table_next(&s->slots, node);
        empty_slot(s, CONTAINER_OF(node, struct slot, node));
    }
    ASSERT(s->bytes == 0 && s->n_keys == 0 && s->n_regs == 0);
    table_release(&s->slots);
    table_release(&s->waits);
    buf_release(&s->reply);
    mem_free(s);
}

int store_execute(struct store *s, uint64_t client, uint64_t seq,
                  const struct tcpstore_request *request)
{
    int rv = tcpstore_check_body(request->op, request->body, request->size);

    if (rv < 0) {
        return rv;
    }
    rv = store_dispatch(s, client, seq, request);
    if (s->reply.capacity > KEEP_SCRATCH) {
        buf_release(&s->reply);
    }
    return rv;
}

/* ---- slots ---- */

struct slot *store_find(const struct store *s, struct slice key)
{
    uint64_t hash = table_hash(key.data, key.size, s->config.seed);
    struct table_node *node;

    for (node = table_bucket(&s->slots, hash); node; node = node->next) {
        struct slot *slot = CONTAINER_OF(node, struct slot, node);

        if (node->hash == hash && slot->key_size == key.size &&
            memcmp(slot->key, key.data, key.size) == 0) {
            return slot;
        }
    }
    return NULL;
}

size_t store_slot_cost(size_t key_size)
{
    return sizeof(struct slot) + key_size + NODE_OVERHEAD;
}

struct slot *store_slot_new(struct store *s, struct slice key)
{
    struct slot *slot = mem_alloc(sizeof(*slot) + key.size);

    *slot = (struct slot){.key_size = key.size};
    memcpy(slot->key, key.data, key.size);
    table_insert(&s->slots, &slot->node,
                 table_hash(key.data, key.size, s->config.seed));
    charge(s, store_slot_cost(key.size));
    return slot;
}

void store_slot_settle(struct store *s, struct slot *slot)
{
    if (!slot->value && !slot->head && !slot->first) {
        slot_free(s, slot);
    }
}

size_t store_value_cost(size_t size)
{
    return MAX(size, (size_t)MIN_CAPACITY) + ALLOC_OVERHEAD;
}

/* The capacity a slot's value should have for `size` bytes. */
static size_t choose_capacity(const struct slot *slot, size_t size, bool grows)
{
    size_t old = slot && slot->value ? slot->capacity : 0;

    if (size > old) {
        return grows ? MAX(size, old + old / 2) : MAX(size, (size_t)MIN_CAPACITY);
    }
    return old > SHRINK_FROM && size < old / 4 ? MAX(size, (size_t)MIN_CAPACITY) : old;
}

static void set_capacity(struct store *s, struct slot *slot, size_t capacity)
{
    if (!slot->value || capacity != slot->capacity) {
        size_t old = slot->value ? store_value_cost(slot->capacity) : 0;

        s->n_keys += slot->value == NULL;
        slot->value = mem_grow(slot->value, capacity, 1);
        slot->capacity = capacity;
        give_back(s, old);
        charge(s, store_value_cost(capacity));
    }
}

int store_make_value(struct store *s, struct slice key, size_t size, bool grows,
                     struct slot **ret)
{
    struct slot *slot = store_find(s, key);
    size_t old = slot && slot->value ? store_value_cost(slot->capacity) : 0;
    size_t fixed = slot ? 0 : store_slot_cost(key.size);
    size_t capacity = choose_capacity(slot, size, grows);
    const struct store_budget *budget = s->config.budget;

    if (!store_budget_fits(budget, old, fixed + store_value_cost(capacity))) {
        capacity = MAX(size, (size_t)MIN_CAPACITY);
    }
    if (!store_budget_fits(budget, old, fixed + store_value_cost(capacity))) {
        return ERR_TOO_LARGE;
    }
    *ret = slot ? slot : store_slot_new(s, key);
    set_capacity(s, *ret, capacity);
    return 0;
}

struct slot *store_restore_value(struct store *s, struct slice key, size_t size)
{
    struct slot *slot = store_find(s, key);

    slot = slot ? slot : store_slot_new(s, key);
    set_capacity(s, slot, MAX(size, (size_t)MIN_CAPACITY));
    return slot;
}

void store_drop_value(struct store *s, struct slot *slot)
{
    if (slot->value) {
        give_back(s, store_value_cost(slot->capacity));
        s->n_keys--;
        mem_free(slot->value);
        slot->value = NULL;
        slot->size = 0;
        slot->capacity = 0;
    }
}

size_t store_item_cost(size_t size)
{
    return sizeof(struct item) + size + ALLOC_OVERHEAD;
}

void store_push_item(struct store *s, struct slot *slot, struct slice data)
{
    struct item *item = mem_alloc(sizeof(*item) + data.size);

    *item = (struct item){.size = data.size};
    memcpy(item->data, data.data, data.size);
    if (slot->tail) {
        slot->tail->next = item;
    } else {
        slot->head = item;
    }
    slot->tail = item;
    slot->n_items++;
    slot->n_pushed++;
    charge(s, store_item_cost(data.size));
}

void store_drop_item(struct store *s, struct slot *slot)
{
    struct item *item = slot->head;

    slot->head = item->next;
    slot->tail = slot->head ? slot->tail : NULL;
    slot->n_items--;
    give_back(s, store_item_cost(item->size));
    mem_free(item);
}

/* ---- waits ---- */

static uint64_t client_hash(const struct store *s, uint64_t client)
{
    return table_hash(&client, sizeof(client), s->config.seed);
}

static struct wait *find_wait(const struct store *s, uint64_t client)
{
    uint64_t hash = client_hash(s, client);
    struct table_node *node;

    for (node = table_bucket(&s->waits, hash); node; node = node->next) {
        struct wait *wait = CONTAINER_OF(node, struct wait, node);

        if (wait->client == client) {
            return wait;
        }
    }
    return NULL;
}

int store_can_park(const struct store *s, uint64_t client, size_t n, size_t more)
{
    if (find_wait(s, client)) {
        return ERR_PROTOCOL; /* a client that waits does not ask to wait again */
    }
    if (n > s->config.max_waiters || s->n_regs > s->config.max_waiters - n) {
        return ERR_TOO_LARGE;
    }
    return store_fits(s, wait_cost(n) + more) ? 0 : ERR_TOO_LARGE;
}

struct wait *store_park(struct store *s, uint64_t client, uint64_t seq, size_t n)
{
    struct wait *wait = mem_alloc(sizeof(*wait) + n * sizeof(wait->regs[0]));

    *wait = (struct wait){.client = client, .seq = seq, .n_regs = n};
    table_insert(&s->waits, &wait->node, client_hash(s, client));
    charge(s, wait_cost(n));
    return wait;
}

void store_register(struct store *s, struct wait *wait, struct slot *slot)
{
    struct reg *reg = &wait->regs[wait->missing];

    ASSERT(wait->missing < wait->n_regs);
    *reg = (struct reg){.slot = slot, .wait = wait, .prev = slot->last};
    if (slot->last) {
        slot->last->next = reg;
    } else {
        slot->first = reg;
    }
    slot->last = reg;
    wait->missing++;
    s->n_regs++;
}

static void unlink_reg(struct store *s, struct reg *reg)
{
    struct slot *slot = reg->slot;

    ASSERT(slot);
    *(reg->prev ? &reg->prev->next : &slot->first) = reg->next;
    *(reg->next ? &reg->next->prev : &slot->last) = reg->prev;
    reg->slot = NULL;
    s->n_regs--;
}

static void settle(struct store *s, struct reg *reg)
{
    struct wait *wait = reg->wait;

    unlink_reg(s, reg);
    wait->missing--;
    if (wait->missing == 0) {
        uint64_t client = wait->client;
        uint64_t seq = wait->seq;

        wait_free(s, wait);
        store_reply_byte(s, client, seq, 0);
    }
}

void store_wake_all(struct store *s, struct slot *slot)
{
    while (slot->first) {
        settle(s, slot->first);
    }
}

/* Those who arrived at a barrier of that name wait for its value, not for the queue. */
void store_wake_one(struct store *s, struct slot *slot)
{
    struct reg *reg = slot->first;
    bool again;

    while (reg && reg->wait->is_barrier) {
        reg = reg->next;
    }
    for (again = reg != NULL; again;) {
        struct reg *next = reg->next;

        again = next && next->wait == reg->wait;
        settle(s, reg);
        reg = next;
    }
}

void store_drop_client(struct store *s, uint64_t client)
{
    struct wait *wait = find_wait(s, client);

    if (!wait) {
        return;
    }
    for (size_t i = 0; i < wait->n_regs; i++) {
        struct slot *slot = wait->regs[i].slot;

        if (slot) {
            unlink_reg(s, &wait->regs[i]);
            store_slot_settle(s, slot);
        }
    }
    wait_free(s, wait);
}

void store_reply_byte(struct store *s, uint64_t client, uint64_t seq, uint8_t byte)
{
    s->config.reply(s->config.reply_arg, client, seq, &byte, sizeof(byte));
}
