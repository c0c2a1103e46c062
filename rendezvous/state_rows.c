/* Records as rows: put, found again by what they are about, dropped. The sum of all rows
 * and what the history takes are kept with them. */

#include "rendezvous/state_batch.h"
#include "rendezvous/state_internal.h"

static int bind_bytes(sqlite3_stmt *s, int at, struct bytes b)
{
    return b.size > 0 ? sqlite3_bind_blob64(s, at, b.data, b.size, SQLITE_STATIC)
                      : sqlite3_bind_zeroblob(s, at, 0);
}

static int bind_hex(sqlite3_stmt *s, int at, uint64_t number)
{
    char text[16];

    for (size_t i = 0; i < sizeof(text); i++) {
        text[i] = "0123456789abcdef"[number >> (60 - 4 * i) & 15];
    }
    return sqlite3_bind_text(s, at, text, sizeof(text), SQLITE_TRANSIENT);
}

static int bind_column(sqlite3_stmt *s, int at, const struct state_column *c,
                       const struct state_part *part)
{
    switch (c->form) {
    case STATE_BLOB:
        return bind_bytes(s, at, part->bytes);
    case STATE_NUMBER:
        return sqlite3_bind_int64(s, at, (int64_t)part->number);
    case STATE_HEX:
        return bind_hex(s, at, part->number);
    }
    UNREACHABLE();
}

/* ?1 job, ?2 generation, ?3 … the key's columns. */
static void bind_name(sqlite3_stmt *s, const struct record *r)
{
    const struct state_table *t = state_table(r->kind);
    struct state_part parts[STATE_MAX_COLUMNS];
    int rc = sqlite3_bind_text(s, 1, r->job, -1, SQLITE_STATIC);

    rc |= sqlite3_bind_int64(s, 2, (int64_t)r->generation);
    ASSERT(state_split(t, r->key, parts)); /* it was before */
    for (int i = 0; i < STATE_MAX_COLUMNS && t->columns[i].name; i++) {
        rc |= bind_column(s, i + 3, &t->columns[i], &parts[i]);
    }
    ASSERT(rc == SQLITE_OK);
}

/* Takes the row out of the sum of all, if it is there. */
static int forget_row(struct state_db *d, const struct record *r, struct errmsg *msg)
{
    sqlite3_stmt *s = state_db_statement(d, r->kind, STATE_FIND);
    int rc;

    bind_name(s, r);
    rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) {
        d->totals.sum ^= (uint64_t)sqlite3_column_int64(s, 0);
        if (state_table(r->kind)->is_history) {
            d->totals.history[r->kind] -= (uint64_t)sqlite3_column_int64(s, 1);
        }
    }
    (void)sqlite3_reset(s); /* repeats the step's error */
    return state_db_result(d, rc, "looking for a row", msg);
}

/* By STATE_PUT, or by STATE_RENEW, which leaves a row of history where it is, and its
 * age. */
static int put(struct state_db *d, const struct record *r, enum state_statement how,
               uint64_t now_ms, struct errmsg *msg)
{
    sqlite3_stmt *s = state_db_statement(d, r->kind, how);
    bool is_history = state_table(r->kind)->is_history;
    uint64_t sum = state_row_sum(r);
    int rc;
    int rv;

    rv = forget_row(d, r, msg);
    if (rv < 0) {
        return rv;
    }
    bind_name(s, r);
    rc = bind_bytes(s, 6, r->value);
    rc |= sqlite3_bind_int64(s, 7, (int64_t)sum);
    if (is_history && how == STATE_PUT) {
        rc |= sqlite3_bind_int64(s, 8, (int64_t)now_ms);
    }
    ASSERT(rc == SQLITE_OK);
    d->totals.history[r->kind] += is_history ? r->value.size : 0;
    d->totals.sum ^= sum;
    return state_db_run(d, s, "writing a row", msg);
}

static int drop(struct state_db *d, const struct record *r, struct errmsg *msg)
{
    sqlite3_stmt *s = state_db_statement(d, r->kind, STATE_DROP);
    int rv = forget_row(d, r, msg);

    if (rv < 0) {
        return rv;
    }
    bind_name(s, r);
    return state_db_run(d, s, "removing a row", msg);
}

int state_db_drop_rows(struct state_db *d, enum record_kind kind, sqlite3_stmt *s,
                       int *ret_n, struct errmsg *msg)
{
    int rc = sqlite3_step(s);

    for (*ret_n = 0; rc == SQLITE_ROW; (*ret_n)++) {
        d->totals.sum ^= (uint64_t)sqlite3_column_int64(s, 0);
        if (state_table(kind)->is_history) {
            d->totals.history[kind] -= (uint64_t)sqlite3_column_int64(s, 1);
        }
        rc = sqlite3_step(s);
    }
    (void)sqlite3_reset(s); /* repeats the step's error */
    return state_db_result(d, rc, "removing rows", msg);
}

static bool is_of_generation(enum record_kind kind)
{
    return kind == RECORD_END || kind == RECORD_KEY || kind == RECORD_QUEUE ||
           kind == RECORD_CLIENT;
}

static int drop_many(struct state_db *d, const struct record *r, struct errmsg *msg)
{
    bool is_all = r->act == RECORD_DROP_JOB;
    int rv = 0;

    for (int k = RECORD_JOB; k < RECORD_KIND_COUNT && rv == 0; k++) {
        enum record_kind kind = (enum record_kind)k;
        sqlite3_stmt *s = state_db_statement(
            d, kind, is_all ? STATE_DROP_JOB : STATE_DROP_GENERATION);
        int n;

        if (state_table(kind)->is_history || !(is_all || is_of_generation(kind))) {
            continue;
        }
        rv = state_db_result(d, sqlite3_bind_text(s, 1, r->job, -1, SQLITE_STATIC),
                             "removing rows", msg);
        if (rv == 0 && !is_all) {
            rv = state_db_result(d, sqlite3_bind_int64(s, 2, (int64_t)r->generation),
                                 "removing rows", msg);
        }
        rv = rv == 0 ? state_db_drop_rows(d, kind, s, &n, msg) : rv;
    }
    return rv;
}

int state_db_apply(struct state_db *d, const struct record *r, uint64_t now_ms,
                   struct errmsg *msg)
{
    switch (r->act) {
    case RECORD_PUT:
        return put(d, r, STATE_PUT, now_ms, msg);
    case RECORD_DROP:
        return drop(d, r, msg);
    case RECORD_DROP_GENERATION:
    case RECORD_DROP_JOB:
        return drop_many(d, r, msg);
    }
    UNREACHABLE();
}

int state_db_renew(struct state_db *d, struct bytes batch, struct errmsg *msg)
{
    struct record r;
    int rv = 0;

    while (rv == 0 && state_batch_next(&batch, &r) == 1) {
        rv = put(d, &r, STATE_RENEW, 0, msg);
    }
    ASSERT(rv < 0 || batch.size == 0); /* it is our own */
    return rv;
}
