#include "rendezvous/state_pending.h"

#include "rendezvous/record_fields.h"
#include "rendezvous/state_batch.h"

#include "common/err.h"
#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

struct row {
    struct table_node node; /* by name */
    struct record record;   /* the last one of it */
};

void state_pending_init(struct state_pending *p, uint64_t seed)
{
    *p = (struct state_pending){.seed = seed};
    table_init(&p->rows);
}

void state_pending_clear(struct state_pending *p)
{
    struct table_node *next;

    for (struct table_node *n = table_next(&p->rows, NULL); n; n = next) {
        next = table_next(&p->rows, n);
        table_remove(&p->rows, n);
        mem_free(CONTAINER_OF(n, struct row, node));
    }
    for (size_t i = 0; i < p->n_batches; i++) {
        mem_free(p->batches[i]);
    }
    p->n_batches = 0;
    p->scope = (struct record){.job = NULL};
}

void state_pending_release(struct state_pending *p)
{
    state_pending_clear(p);
    table_release(&p->rows);
    mem_free(p->batches);
}

static bool may_wait(const struct record *r)
{
    return (r->act == RECORD_PUT || r->act == RECORD_DROP) &&
           (r->kind == RECORD_KEY || r->kind == RECORD_QUEUE ||
            r->kind == RECORD_CLIENT);
}

bool state_pending_may_wait(struct bytes batch)
{
    struct record r;

    while (state_batch_next(&batch, &r) == 1) {
        if (!may_wait(&r)) {
            return false;
        }
    }
    return batch.size == 0;
}

static struct row *find(const struct state_pending *p, const struct record *r,
                        uint64_t hash)
{
    for (struct table_node *n = table_bucket(&p->rows, hash); n; n = n->next) {
        struct row *row = CONTAINER_OF(n, struct row, node);

        if (n->hash == hash && record_compare(&row->record, r) == 0) {
            return row;
        }
    }
    return NULL;
}

static uint64_t scope_of(struct state_pending *p, const struct record *r)
{
    bool is_same = p->scope.job && p->scope.generation == r->generation &&
                   strcmp(p->scope.job, r->job) == 0;

    if (!is_same) {
        p->scope_hash = table_hash(r->job, strlen(r->job), p->seed + r->generation);
    }
    p->scope = *r;
    return p->scope_hash;
}

static void note(struct state_pending *p, const struct record *r)
{
    uint64_t scope = scope_of(p, r);
    uint64_t hash = table_hash(r->key.data, r->key.size, scope + (uint64_t)r->kind);
    struct row *row = find(p, r, hash);

    if (!row) {
        row = mem_alloc(sizeof(*row));
        table_insert(&p->rows, &row->node, hash);
    }
    row->record = *r;
}

static uint8_t *keep(struct state_pending *p, struct bytes batch)
{
    if (p->n_batches == p->size) {
        p->size = 2 * p->size + 16;
        p->batches = mem_grow(p->batches, p->size, sizeof(*p->batches));
    }
    p->batches[p->n_batches] = mem_dup(batch.data, batch.size);
    return p->batches[p->n_batches++];
}

int state_pending_add(struct state_pending *p, struct bytes batch)
{
    struct record r;
    int rv;

    batch.data = keep(p, batch);
    while ((rv = state_batch_next(&batch, &r)) == 1) {
        if (!may_wait(&r)) {
            return ERR_CORRUPT;
        }
        note(p, &r);
    }
    return rv;
}

size_t state_pending_count(const struct state_pending *p)
{
    return p->rows.count;
}

static int compare(const void *a, const void *b)
{
    return record_compare(*(const struct record *const *)a,
                          *(const struct record *const *)b);
}

const struct record **state_pending_sorted(const struct state_pending *p)
{
    const struct record **sorted = mem_array(p->rows.count + 1, sizeof(void *));
    size_t n = 0;

    for (struct table_node *node = table_next(&p->rows, NULL); node;
         node = table_next(&p->rows, node)) {
        sorted[n++] = &CONTAINER_OF(node, struct row, node)->record;
    }
    qsort(sorted, n, sizeof(void *), compare);
    return sorted;
}
