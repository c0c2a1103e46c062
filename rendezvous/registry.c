#include "rendezvous/registry.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

void registry_init(struct registry *r, uint64_t seed)
{
    *r = (struct registry){.seed = seed};
    table_init(&r->by_id);
}

void registry_release(struct registry *r)
{
    for (size_t i = 0; i < r->n; i++) {
        job_free(r->entry[i]->job);
        mem_free(r->entry[i]);
    }
    table_release(&r->by_id);
    mem_free(r->entry);
}

static uint64_t hash_of(const struct registry *r, const char *id)
{
    return table_hash(id, strlen(id), r->seed);
}

struct entry *registry_find(const struct registry *r, const char *id)
{
    uint64_t hash = hash_of(r, id);
    struct table_node *n = table_bucket(&r->by_id, hash);

    for (; n; n = n->next) {
        struct entry *entry = CONTAINER_OF(n, struct entry, by_id);

        if (n->hash == hash && strcmp(entry->job->id, id) == 0) {
            return entry;
        }
    }
    return NULL;
}

struct entry *registry_add(struct registry *r, struct job *job)
{
    struct entry *entry = mem_zalloc(sizeof(*entry));

    ASSERT(r->n < REGISTRY_MAX);
    entry->job = job;
    entry->index = r->n;
    r->entry = mem_grow(r->entry, r->n + 1, sizeof(struct entry *));
    r->entry[r->n++] = entry;
    table_insert(&r->by_id, &entry->by_id, hash_of(r, job->id));
    return entry;
}

void registry_forget(struct registry *r, struct entry *entry)
{
    r->entry[entry->index] = r->entry[--r->n];
    r->entry[entry->index]->index = entry->index;
    r->n_idle -= entry->idle_since != 0;
    table_remove(&r->by_id, &entry->by_id);
    if (r->on_forget) {
        r->on_forget(entry->job);
    }
    job_free(entry->job);
    mem_free(entry);
}

static void forget_idlest(struct registry *r)
{
    struct entry *idlest = NULL;

    for (size_t i = 0; i < r->n; i++) {
        struct entry *entry = r->entry[i];

        if (entry->idle_since != 0 &&
            (!idlest || entry->idle_since < idlest->idle_since)) {
            idlest = entry;
        }
    }
    ASSERT(idlest); /* n_idle > 0 */
    registry_forget(r, idlest);
}

bool registry_make_room(struct registry *r)
{
    if (r->n == REGISTRY_MAX && r->n_idle > 0) {
        forget_idlest(r);
    }
    return r->n < REGISTRY_MAX;
}

void registry_set_idle(struct registry *r, struct entry *entry)
{
    if (entry->idle_since == 0) {
        entry->idle_since = ++r->n_idlings;
        r->n_idle++;
    }
    if (r->n_idle > REGISTRY_MAX_IDLE) {
        forget_idlest(r);
    }
}

void registry_set_busy(struct registry *r, struct entry *entry)
{
    r->n_idle -= entry->idle_since != 0;
    entry->idle_since = 0;
}

static int compare_ids(const void *a, const void *b)
{
    const struct entry *left = *(const struct entry *const *)a;
    const struct entry *right = *(const struct entry *const *)b;

    return strcmp(left->job->id, right->job->id);
}

struct entry **registry_sorted(const struct registry *r)
{
    struct entry **sorted = mem_array(MAX(r->n, 1), sizeof(struct entry *));

    for (size_t i = 0; i < r->n; i++) {
        sorted[i] = r->entry[i];
    }
    qsort(sorted, r->n, sizeof(struct entry *), compare_ids);
    return sorted;
}
