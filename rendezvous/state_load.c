/* All rows in order, each what was written, and what the journal has in the place of
 * some and between them. */

#include "rendezvous/record_fields.h"
#include "rendezvous/record_renew.h"
#include "rendezvous/state_batch.h"
#include "rendezvous/state_internal.h"

#include "common/mem.h"

#include <stdlib.h>

static struct state_part part_of(const struct state_column *c, sqlite3_stmt *s, int at)
{
    struct state_part part = {0};
    const char *text;

    switch (c->form) {
    case STATE_BLOB:
        part.bytes.data = sqlite3_column_blob(s, at);
        part.bytes.size = (size_t)sqlite3_column_bytes(s, at);
        break;
    case STATE_NUMBER:
        part.number = (uint64_t)sqlite3_column_int64(s, at);
        break;
    case STATE_HEX: /* another text is none of ours: the row's sum tells */
        text = (const char *)sqlite3_column_text(s, at);
        part.number = text ? strtoull(text, NULL, 16) : 0;
        break;
    }
    return part;
}

/* value, sum, job, generation, columns */
static int take_row(struct state_db *d, enum record_kind kind, struct buf *key,
                    uint64_t *sum, struct record *ret, struct errmsg *msg)
{
    const struct state_table *t = state_table(kind);
    sqlite3_stmt *s = state_db_statement(d, kind, STATE_ALL);
    uint64_t row_sum = (uint64_t)sqlite3_column_int64(s, 1);
    const char *job = (const char *)sqlite3_column_text(s, 2);

    buf_clear(key);
    for (int i = 0; i < STATE_MAX_COLUMNS && t->columns[i].name; i++) {
        const struct state_part part = part_of(&t->columns[i], s, i + 4);

        state_join(&t->columns[i], &part, key);
    }
    *ret = (struct record){
        .act = RECORD_PUT,
        .kind = kind,
        .job = job ? job : "",
        .generation = (uint64_t)sqlite3_column_int64(s, 3),
        .key = {buf_bytes(key), buf_len(key)},
        .value = {sqlite3_column_blob(s, 0), (size_t)sqlite3_column_bytes(s, 0)},
    };
    *sum ^= row_sum;
    if (state_row_sum(ret) != row_sum) {
        return errmsg_set(msg, ERR_CORRUPT,
                          "a row of %s (job %.80s, generation %llu) is not what was "
                          "written",
                          t->name, ret->job, (unsigned long long)ret->generation);
    }
    return 0;
}

/* Who takes them, and what the journal has of them, which is newer than the rows. */
struct loading {
    int (*take)(void *arg, const struct record *r, struct errmsg *msg);
    void *arg;
    const struct record **pending; /* the next one; NULL at the end */
    uint64_t sum;
};

static bool is_left(const struct loading *l, enum record_kind kind)
{
    return *l->pending && (*l->pending)->kind == kind;
}

static int take_pending(struct loading *l, struct errmsg *msg)
{
    const struct record *r = *l->pending++;

    return r->act == RECORD_PUT ? l->take(l->arg, r, msg) : 0;
}

/* A row, and what the journal has up to its name. */
static int take_in_order(struct loading *l, const struct record *row,
                         struct errmsg *msg)
{
    int order = 1;
    int rv = 0;

    while (rv == 0 && order > 0 && is_left(l, row->kind)) {
        order = record_compare(row, *l->pending);
        rv = order >= 0 ? take_pending(l, msg) : 0;
    }
    return rv == 0 && order != 0 ? l->take(l->arg, row, msg) : rv;
}

/* One that an older schema has written is given as this one has it, which
 * state_db_begin writes. */
static int renew(struct state_db *d, struct record *r, struct buf *value,
                 struct errmsg *msg)
{
    int rv;

    buf_clear(value);
    rv = d->schema <= STATE_OF_FRAMES ? record_renew(r, value) : 0;
    if (rv < 0) {
        return errmsg_set(msg, rv, "a row of %s (job %.80s) is none of schema %d",
                          state_table(r->kind)->name, r->job, d->schema);
    }
    if (rv == 1) {
        r->value = record_bytes(value);
        state_batch_add(&d->renewed, r);
    }
    return 0;
}

static int load_kind(struct state_db *d, enum record_kind kind, struct loading *l,
                     struct errmsg *msg)
{
    sqlite3_stmt *s = state_db_statement(d, kind, STATE_ALL);
    struct record r;
    struct buf key;
    struct buf value;
    int rc = sqlite3_step(s);
    int rv = 0;

    buf_init(&key, SIZE_MAX);
    buf_init(&value, SIZE_MAX);
    while (rc == SQLITE_ROW && rv == 0) {
        rv = take_row(d, kind, &key, &l->sum, &r, msg);
        rv = rv == 0 ? renew(d, &r, &value, msg) : rv;
        rv = rv == 0 ? take_in_order(l, &r, msg) : rv;
        if (rv == 0) {
            rc = sqlite3_step(s);
        }
    }
    buf_release(&key);
    buf_release(&value);
    (void)sqlite3_reset(s); /* repeats the step's error */
    rv = rv < 0 ? rv : state_db_result(d, rc, "reading the rows", msg);
    while (rv == 0 && is_left(l, kind)) {
        rv = take_pending(l, msg);
    }
    return rv;
}

int state_db_load(struct state_db *d,
                  int (*take)(void *arg, const struct record *r, struct errmsg *msg),
                  void *arg, struct errmsg *msg)
{
    const struct record **pending = state_pending_sorted(&d->pending);
    struct loading l = {take, arg, pending, d->totals.journal};
    int rv = 0;

    buf_clear(&d->renewed);
    for (int kind = RECORD_JOB; kind < state_kinds_of(d->schema) && rv == 0; kind++) {
        rv = load_kind(d, (enum record_kind)kind, &l, msg);
    }
    if (rv == 0 && l.sum != d->totals.sum) {
        rv = errmsg_set(msg, ERR_CORRUPT, "rows were lost, or are of an older state");
    }
    mem_free(pending);
    return rv;
}
