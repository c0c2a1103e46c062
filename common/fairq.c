#include "common/fairq.h"

#include "common/mem.h"

#include <endian.h>
#include <string.h>

enum { BLOCK = 64 * 1024 };

/* Whole frames; the last block takes more until it holds so much. A queue of many bytes
 * is so never moved about to grow. */
struct fairq_block {
    struct fairq_block *next;
    struct buf bytes;
};

struct fairq_client {
    struct table_node node;
    struct fairq_client *prev, *next; /* in the ring */
    uint64_t generation;
    uint32_t client;
    int64_t credit; /* bytes it may still send in this turn; below 0: owed */
    size_t size;    /* of its frames */
    struct fairq_block *oldest, *newest; /* owned; the newest alone may be empty */
};

void fairq_init(struct fairq *q, size_t max, uint64_t seed)
{
    *q = (struct fairq){.max = max, .seed = seed};
}

/* --- clients --- */

static uint64_t hash(const struct fairq *q, uint64_t generation, uint32_t client)
{
    uint64_t id[2] = {generation, client};

    return table_hash(id, sizeof(id), q->seed);
}

static struct fairq_client *find(const struct fairq *q, uint64_t generation,
                                 uint32_t client)
{
    struct table_node *n = NULL;

    if (q->first) {
        n = table_bucket(&q->clients, hash(q, generation, client));
    }
    for (; n; n = n->next) {
        struct fairq_client *c = CONTAINER_OF(n, struct fairq_client, node);

        if (c->generation == generation && c->client == client) {
            return c;
        }
    }
    return NULL;
}

/* Its turn comes after those of all others. */
static struct fairq_client *add(struct fairq *q, uint64_t generation, uint32_t client)
{
    struct fairq_client *c = mem_zalloc(sizeof(*c));

    c->generation = generation;
    c->client = client;
    c->credit = FAIRQ_QUANTUM;
    c->prev = q->first ? q->first->prev : c;
    c->next = q->first ? q->first : c;
    c->prev->next = c;
    c->next->prev = c;
    if (!q->first) {
        q->first = c;
    }
    if (!q->clients.buckets) {
        table_init(&q->clients);
    }
    table_insert(&q->clients, &c->node, hash(q, generation, client));
    q->memory += sizeof(*c);
    return c;
}

static void drop_oldest(struct fairq *q, struct fairq_client *c)
{
    struct fairq_block *b = c->oldest;

    c->oldest = b->next;
    c->newest = b->next ? c->newest : NULL;
    q->memory -= sizeof(*b) + b->bytes.capacity;
    buf_release(&b->bytes);
    mem_free(b);
}

static void drop(struct fairq *q, struct fairq_client *c)
{
    while (c->oldest) {
        drop_oldest(q, c);
    }
    q->size -= c->size;
    q->memory -= sizeof(*c);
    table_remove(&q->clients, &c->node);
    c->prev->next = c->next;
    c->next->prev = c->prev;
    if (q->first == c) {
        q->first = c->next == c ? NULL : c->next;
    }
    mem_free(c);
}

void fairq_release(struct fairq *q)
{
    while (q->first) {
        drop(q, q->first);
    }
    if (q->clients.buckets) {
        table_release(&q->clients);
    }
}

size_t fairq_size_of(const struct fairq *q, uint64_t generation, uint32_t client)
{
    const struct fairq_client *c = find(q, generation, client);

    return c ? c->size : 0;
}

/* --- frames in --- */

static struct fairq_block *last_block(struct fairq *q, struct fairq_client *c)
{
    struct fairq_block *b = c->newest;

    if (!b || buf_len(&b->bytes) >= BLOCK) {
        b = mem_zalloc(sizeof(*b));
        *(c->newest ? &c->newest->next : &c->oldest) = b;
        c->newest = b;
        q->memory += sizeof(*b);
    }
    return b;
}

static int append(struct fairq *q, struct fairq_client *c, const struct msg *m)
{
    struct buf *bytes = &last_block(q, c)->bytes;
    size_t before = buf_len(bytes);
    size_t capacity = bytes->capacity;
    int rv;

    bytes->max = before + (q->max - q->size);
    rv = msg_encode(m, bytes);
    c->size += buf_len(bytes) - before;
    q->size += buf_len(bytes) - before;
    q->memory += bytes->capacity - capacity;
    return rv;
}

static void id_of(const struct msg *m, uint64_t *ret_generation, uint32_t *ret_client)
{
    if (m->type == MSG_STORE) {
        *ret_generation = m->u.store.generation;
        *ret_client = m->u.store.client;
    } else if (m->type == MSG_STORE_CLOSE) {
        *ret_generation = m->u.store_close.generation;
        *ret_client = m->u.store_close.client;
    } else {
        ASSERT(m->type == MSG_STORE_REPLY);
        *ret_generation = m->u.store_reply.generation;
        *ret_client = m->u.store_reply.client;
    }
}

int fairq_push(struct fairq *q, const struct msg *m)
{
    struct fairq_client *c;
    uint64_t generation;
    uint32_t client;
    int rv;

    id_of(m, &generation, &client);
    c = find(q, generation, client);
    c = c ? c : add(q, generation, client);
    rv = append(q, c, m);
    if (c->size == 0) {
        drop(q, c); /* it was made for this frame */
    }
    return rv;
}

/* --- frames out --- */

static size_t frame_size(const uint8_t *frame)
{
    uint32_t rest;

    memcpy(&rest, frame, sizeof(rest));
    return sizeof(rest) + le32toh(rest);
}

static struct bytes front_of(const struct fairq_client *c)
{
    const uint8_t *frame = buf_bytes(&c->oldest->bytes);

    return (struct bytes){frame, frame_size(frame)};
}

static void pop(struct fairq *q, struct fairq_client *c, size_t extra)
{
    size_t size = front_of(c).size;

    buf_consume(&c->oldest->bytes, size);
    if (buf_len(&c->oldest->bytes) == 0) {
        drop_oldest(q, c);
    }
    c->size -= size;
    q->size -= size;
    c->credit -= (int64_t)(size + extra);
    if (c->size == 0) {
        drop(q, c);
    }
}

struct bytes fairq_front(struct fairq *q)
{
    while (q->first->credit <= 0) {
        q->first->credit += FAIRQ_QUANTUM;
        q->first = q->first->next;
    }
    return front_of(q->first);
}

void fairq_skip(struct fairq *q)
{
    q->first = q->first->next;
}

void fairq_turn_back(struct fairq *q)
{
    q->first = q->first->prev;
}

void fairq_pop(struct fairq *q, size_t extra)
{
    pop(q, q->first, extra);
}

int fairq_move(struct fairq *q, struct buf *to, size_t share)
{
    struct bytes frame;
    size_t moved = 0;
    int rv;

    while (q->first) {
        frame = fairq_front(q);
        if (moved > 0 && moved + frame.size > share) {
            break;
        }
        rv = buf_append(to, frame.data, frame.size);
        if (rv < 0) {
            return rv;
        }
        moved += frame.size;
        fairq_pop(q, 0);
    }
    return 0;
}

/* --- one client's --- */

struct bytes fairq_front_of(const struct fairq *q, uint64_t generation, uint32_t client)
{
    const struct fairq_client *c = find(q, generation, client);

    return c ? front_of(c) : (struct bytes){0};
}

void fairq_pop_of(struct fairq *q, uint64_t generation, uint32_t client)
{
    struct fairq_client *c = find(q, generation, client);

    ASSERT(c); /* it has a front */
    pop(q, c, 0);
}

/* The last part of a reply acknowledges; the others are of no use. */
static void push_short(struct fairq *q, struct bytes frame)
{
    struct msg m;
    int rv = msg_decode(frame.data, frame.size, &m);

    ASSERT(rv > 0 && m.type == MSG_STORE_REPLY); /* we have encoded it */
    m.u.store_reply.body.size = 0;
    rv = m.u.store_reply.more ? 0 : fairq_push(q, &m);
    ASSERT(rv == 0); /* it is no longer than it was */
}

size_t fairq_drop_replies(struct fairq *q, uint64_t generation, uint32_t client)
{
    struct fairq_client *c = find(q, generation, client);
    size_t before = q->size;
    size_t n = c ? c->size : 0;
    struct bytes frame;

    while (n > 0) { /* once around: what is pushed comes behind what was there */
        frame = front_of(c);
        n -= frame.size;
        q->size -= frame.size; /* its place is free */
        push_short(q, frame);
        q->size += frame.size;
        c->credit += (int64_t)frame.size; /* it is not sent */
        pop(q, c, 0);
    }
    return before - q->size;
}
