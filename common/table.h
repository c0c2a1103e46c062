#ifndef COMMON_TABLE_H
#define COMMON_TABLE_H

/* PURE. Intrusive hash table that grows by one bucket per insertion (linear hashing),
 * so that no insertion pays for a rehash of everything. The owner embeds a node, hashes
 * and compares:
 *
 *   for (n = table_bucket(t, hash); n; n = n->next)
 *       if (n->hash == hash && same(CONTAINER_OF(n, …))) …
 *
 * Nodes are borrowed: the owner frees them after table_remove. */

#include <stddef.h>
#include <stdint.h>

struct table_node {
    struct table_node *next; /* in its bucket */
    uint64_t hash;
};

struct table {
    struct table_node **buckets; /* owned */
    size_t n_buckets;            /* in use; the array holds the next power of two */
    size_t count;
};

void table_init(struct table *t);
void table_release(struct table *t);

/* The first node of the bucket in which `hash` would be. */
static inline struct table_node *table_bucket(const struct table *t, uint64_t hash);
void table_insert(struct table *t, struct table_node *node, uint64_t hash);
void table_remove(struct table *t, struct table_node *node);

/* The node after `node` (NULL: the first), in no order that means anything; NULL at the
 * end. A node may be removed once the one after it is known. */
struct table_node *table_next(const struct table *t, const struct table_node *node);

/* SipHash-1-3, so that a peer who chooses keys cannot choose collisions. */
uint64_t table_hash(const void *data, size_t size, uint64_t seed);

static inline size_t table_index(const struct table *t, uint64_t hash)
{
    size_t high = (size_t)1 << (63 - __builtin_clzll(t->n_buckets)); /* ≤ n_buckets */
    size_t index = hash & (2 * high - 1);

    return index < t->n_buckets ? index : index & (high - 1);
}

static inline struct table_node *table_bucket(const struct table *t, uint64_t hash)
{
    return t->buckets[table_index(t, hash)];
}

#endif
