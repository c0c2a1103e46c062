#include "common/table.h"

#include "common/check.h"
#include "common/mem.h"

#include <endian.h>
#include <string.h>

enum { FIRST_BUCKETS = 8 };

void table_init(struct table *t)
{
    *t = (struct table){.n_buckets = FIRST_BUCKETS};
    t->buckets = mem_array(FIRST_BUCKETS, sizeof(struct table_node *));
}

void table_release(struct table *t)
{
    mem_free(t->buckets);
    t->buckets = NULL;
}

static void push(struct table *t, struct table_node *node)
{
    struct table_node **bucket = &t->buckets[table_index(t, node->hash)];

    node->next = *bucket;
    *bucket = node;
}

/* Adds one bucket: its nodes come from the bucket that stood for both until now. */
static void add_bucket(struct table *t)
{
    size_t n = t->n_buckets;
    struct table_node *chain;
    struct table_node *next;
    size_t from;

    if ((n & (n - 1)) == 0) {
        t->buckets = mem_grow(t->buckets, 2 * n, sizeof(struct table_node *));
    }
    from = table_index(t, n);
    chain = t->buckets[from];
    t->buckets[from] = NULL;
    t->buckets[n] = NULL;
    t->n_buckets = n + 1;
    for (; chain; chain = next) {
        next = chain->next;
        push(t, chain);
    }
}

void table_insert(struct table *t, struct table_node *node, uint64_t hash)
{
    if (t->count >= t->n_buckets) {
        add_bucket(t);
    }
    node->hash = hash;
    push(t, node);
    t->count++;
}

void table_remove(struct table *t, struct table_node *node)
{
    struct table_node **at = &t->buckets[table_index(t, node->hash)];

    while (*at != node) {
        ASSERT(*at);
        at = &(*at)->next;
    }
    *at = node->next;
    t->count--;
}

struct table_node *table_next(const struct table *t, const struct table_node *node)
{
    size_t i;

    if (node && node->next) {
        return node->next;
    }
    for (i = node ? table_index(t, node->hash) + 1 : 0; i < t->n_buckets; i++) {
        if (t->buckets[i]) {
            return t->buckets[i];
        }
    }
    return NULL;
}

static uint64_t rotate(uint64_t v, int bits)
{
    return v << bits | v >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

uint64_t table_hash(const void *data, size_t size, uint64_t seed)
{
    /* the published constants; the second half of the key is the seed turned around */
    uint64_t v[4] = {seed ^ 0x736f6d6570736575, ~seed ^ 0x646f72616e646f6d,
                     seed ^ 0x6c7967656e657261, ~seed ^ 0x7465646279746573};
    const uint8_t *at = data;
    uint64_t word = 0;
    size_t left = size;

    for (; left >= sizeof(word); left -= sizeof(word), at += sizeof(word)) {
        memcpy(&word, at, sizeof(word));
        word = le64toh(word);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    word = 0;
    if (left > 0) {
        memcpy(&word, at, left);
    }
    word = le64toh(word) | (uint64_t)size << 56;
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) {
        sip_round(v);
    }
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
