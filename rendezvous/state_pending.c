#include "rendezvous/state_pending.h"

#include "rendezvous/record_fields.h"
#include "rendezvous/state_batch.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

/* Looked into at once: the records of one batch, and what each meets in the table, are
 * far apart in memory. */
enum { DIGEST_AT = 64 * 1024 };

struct row {
    struct table_node node; /* by name */
    struct record record;   /* the last one of it */
};

void state_pending_init(struct state_pending *p, uint64_t seed)
{
    *p = (struct state_pending){.seed = seed};
    buf_init(&p->fresh, SIZE_MAX);
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
    p->job = NULL;
    buf_clear(&p->fresh);
    p->n_fresh = 0;
}

void state_pending_release(struct state_pending *p)
{
    state_pending_clear(p);
    table_release(&p->rows);
    buf_release(&p->fresh);
    mem_free(p->batches);
}

static bool is_single(const struct record *r)
{
    return r->act == RECORD_PUT || r->act == RECORD_DROP;
}

static bool is_of_waiting_kind(const struct record *r)
{
    return r->kind == RECORD_KEY || r->kind == RECORD_QUEUE || r->kind == RECORD_CLIENT;
}

static bool may_wait(const struct record *r)
{
    return is_single(r) && is_of_waiting_kind(r);
}

static bool may_pass(const struct record *r)
{
    return is_single(r) && !is_of_waiting_kind(r);
}

static bool are_all(struct bytes batch, bool (*are)(const struct record *r),
                    size_t *ret_n)
{
    struct record r;

    for (*ret_n = 0; state_batch_next(&batch, &r) == 1; (*ret_n)++) {
        if (!are(&r)) {
            return false;
        }
    }
    return batch.size == 0;
}

bool state_pending_may_wait(struct bytes batch, size_t *ret_n)
{
    return are_all(batch, may_wait, ret_n);
}

bool state_pending_may_pass(struct bytes batch)
{
    size_t n;

    return are_all(batch, may_pass, &n);
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
    if (!p->job || p->generation != r->generation || strcmp(p->job, r->job) != 0) {
        p->generation = r->generation;
        p->scope = table_hash(r->job, strlen(r->job), p->seed + r->generation);
    }
    p->job = r->job; /* the nearest */
    return p->scope;
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

/* What is fresh becomes one of the batches. */
static struct bytes keep(struct state_pending *p)
{
    struct bytes kept = {buf_bytes(&p->fresh), buf_len(&p->fresh)};

    if (p->n_batches == p->size) {
        p->size = 2 * p->size + 16;
        p->batches = mem_grow(p->batches, p->size, sizeof(*p->batches));
    }
    p->batches[p->n_batches++] = p->fresh.data;
    buf_init(&p->fresh, SIZE_MAX);
    p->n_fresh = 0;
    return kept;
}

static void digest(struct state_pending *p)
{
    struct bytes batch = keep(p);
    struct record r;

    while (state_batch_next(&batch, &r) == 1) {
        note(p, &r);
    }
    ASSERT(batch.size == 0); /* they may wait */
}

void state_pending_add(struct state_pending *p, struct bytes batch, size_t n)
{
    int rv = buf_append(&p->fresh, batch.data, batch.size);

    ASSERT(rv == 0); /* it has no ceiling */
    p->n_fresh += n;
    if (buf_len(&p->fresh) >= DIGEST_AT) {
        digest(p);
    }
}

size_t state_pending_count(const struct state_pending *p)
{
    return p->rows.count + p->n_fresh;
}

bool state_pending_are_few(struct state_pending *p, size_t many)
{
    if (p->rows.count + p->n_fresh > many && p->n_fresh > 0) {
        digest(p);
    }
    return p->rows.count + p->n_fresh <= many;
}

static int compare(const void *a, const void *b)
{
    return record_compare(*(const struct record *const *)a,
                          *(const struct record *const *)b);
}

const struct record **state_pending_sorted(struct state_pending *p)
{
    const struct record **sorted;
    size_t n = 0;

    digest(p);
    sorted = mem_array(p->rows.count + 1, sizeof(void *));
    for (struct table_node *node = table_next(&p->rows, NULL); node;
         node = table_next(&p->rows, node)) {
        sorted[n++] = &CONTAINER_OF(node, struct row, node)->record;
    }
    qsort(sorted, n, sizeof(void *), compare);
    return sorted;
}
