/* Happy path of a commit: 1. begin; 2. the batch is written into the journal, or, where
 * it has what may not wait, what the journal has and then each record is a row put or
 * dropped; 3. the sum of all rows and the clock's mark; 4. commit, which syncs the log.
 * Failures: a full disk rolls back; all others are the end (state.c). */

#include "rendezvous/state_db.h"

#include "rendezvous/state_base.h"
#include "rendezvous/state_batch.h"
#include "rendezvous/state_internal.h"

#include "common/mem.h"
#include "common/table.h"

#include <errno.h>
#include <string.h>

enum {
    WAL_PAGES_IDLE = 64, /* the log is copied when there is time and so much of it … */
    WAL_PAGES_MAX = 4096,  /* … and in any case */
    SPARE_BYTES = 1 << 20, /* are left free by copying it */
    PRUNE_OLD = 256,       /* rows at once, for their age … */
    PRUNE_MUCH = 16,       /* … and for their number, where more would be too many */
};

int state_db_result(const struct state_db *d, int rc, const char *doing,
                    struct errmsg *msg)
{
    int system_error = d->db ? sqlite3_system_errno(d->db) : 0;
    int rv = -EIO;

    switch (rc & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return 0;
    case SQLITE_FULL:
        rv = -ENOSPC;
        break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        rv = ERR_CORRUPT;
        break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        rv = ERR_BUSY;
        break;
    default:
        rv = system_error > 0 ? -system_error : -EIO;
        rv = rv == -EDQUOT ? -ENOSPC : rv;
        break;
    }
    return errmsg_set(msg, rv, "%s: %s%s%s", doing, sqlite3_errstr(rc),
                      system_error > 0 ? ": " : "",
                      system_error > 0 ? err_text(-system_error) : "");
}

int state_db_run(const struct state_db *d, sqlite3_stmt *s, const char *doing,
                 struct errmsg *msg)
{
    int rc = sqlite3_step(s);
    int rv = state_db_result(d, rc, doing, msg);

    (void)sqlite3_reset(s); /* repeats the step's error */
    return rv;
}

int state_db_query(const struct state_db *d, const char *sql, int64_t *ret,
                   struct errmsg *msg)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(d->db, sql, -1, &s, NULL);

    if (rc == SQLITE_OK) {
        rc = sqlite3_step(s);
    }
    if (rc == SQLITE_ROW && ret) {
        *ret = sqlite3_column_int64(s, 0);
    }
    (void)sqlite3_finalize(s); /* repeats the step's error */
    return state_db_result(d, rc, sql, msg);
}

/* ---- statements ---- */

sqlite3_stmt *state_db_statement(const struct state_db *d, enum record_kind kind,
                                 enum state_statement what)
{
    ASSERT(d->statements[kind][what]);
    return d->statements[kind][what];
}

static int prepare(const struct state_db *d, const char *sql, sqlite3_stmt **ret,
                   struct errmsg *msg)
{
    int rc = sqlite3_prepare_v3(d->db, sql, -1, SQLITE_PREPARE_PERSISTENT, ret, NULL);

    return state_db_result(d, rc, sql, msg);
}

static int measure_history(struct state_db *d, enum record_kind kind,
                           struct errmsg *msg)
{
    sqlite3_stmt *s = state_db_statement(d, kind, STATE_MEASURE);
    int rc = sqlite3_step(s);

    d->totals.history[kind] =
        rc == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(s, 0) : 0;
    (void)sqlite3_reset(s); /* repeats the step's error */
    return state_db_result(d, rc, "measuring the history", msg);
}

static int prepare_kind(struct state_db *d, enum record_kind kind, struct errmsg *msg)
{
    char sql[STATE_SQL_MAX];
    int rv = 0;

    for (int i = STATE_CREATE + 1; i < STATE_STATEMENT_COUNT && rv == 0; i++) {
        state_sql(kind, (enum state_statement)i, sql);
        if (sql[0] != '\0') {
            rv = prepare(d, sql, &d->statements[kind][i], msg);
        }
    }
    if (rv == 0 && state_table(kind)->is_history) {
        rv = measure_history(d, kind, msg);
    }
    return rv;
}

int state_db_prepare(struct state_db *d, struct errmsg *msg)
{
    int rv = prepare(d, "begin immediate", &d->begin, msg);

    rv = rv == 0 ? prepare(d, "commit", &d->commit, msg) : rv;
    rv = rv == 0 ? prepare(d, "rollback", &d->rollback, msg) : rv;
    rv = rv == 0 ? prepare(d, "pragma freelist_count", &d->free_pages, msg) : rv;
    for (int kind = RECORD_JOB; kind < STATE_FIRST_NEW && rv == 0; kind++) {
        rv = prepare_kind(d, (enum record_kind)kind, msg);
    }
    return rv < 0 || d->is_old ? rv : state_db_prepare_new(d, msg);
}

int state_db_prepare_new(struct state_db *d, struct errmsg *msg)
{
    int rv = prepare(d,
                     "update identity set cluster = ?1, boot = ?2, sum = ?3, clock_ms "
                     "= ?4, clock_name = ?5, clock_offset_ms = ?6, commits = ?7, "
                     "pieces = ?8, own_sum = ?9",
                     &d->mark, msg);

    rv = rv == 0 ? prepare(d, "replace into journal (id, piece) values (?1, ?2)",
                           &d->piece, msg)
                 : rv;
    for (int kind = STATE_FIRST_NEW; kind < RECORD_KIND_COUNT && rv == 0; kind++) {
        rv = prepare_kind(d, (enum record_kind)kind, msg);
    }
    return rv;
}

void state_db_close(struct state_db *d)
{
    sqlite3_stmt *s;
    int rc;

    if (!d) {
        return;
    }
    while (d->db && (s = sqlite3_next_stmt(d->db, NULL)) != NULL) {
        (void)sqlite3_finalize(s); /* repeats the last step's error */
    }
    rc = sqlite3_close(d->db); /* NULL allowed */
    ASSERT(rc == SQLITE_OK);   /* no statement is left */
    state_pending_release(&d->pending);
    mem_free((char *)(uintptr_t)d->config.path);
    mem_free((char *)(uintptr_t)d->config.vfs);
    mem_free(d);
}

/* ---- one record ---- */

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

static int put(struct state_db *d, const struct record *r, uint64_t now_ms,
               struct errmsg *msg)
{
    sqlite3_stmt *s = state_db_statement(d, r->kind, STATE_PUT);
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
    if (state_table(r->kind)->is_history) {
        rc |= sqlite3_bind_int64(s, 8, (int64_t)now_ms);
        d->totals.history[r->kind] += r->value.size;
    }
    ASSERT(rc == SQLITE_OK);
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

/* Runs a statement that removes rows, and says of each: sum, bytes of history. */
static int drop_rows(struct state_db *d, enum record_kind kind, sqlite3_stmt *s,
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
        rv = rv == 0 ? drop_rows(d, kind, s, &n, msg) : rv;
    }
    return rv;
}

int state_db_apply(struct state_db *d, const struct record *r, uint64_t now_ms,
                   struct errmsg *msg)
{
    switch (r->act) {
    case RECORD_PUT:
        return put(d, r, now_ms, msg);
    case RECORD_DROP:
        return drop(d, r, msg);
    case RECORD_DROP_GENERATION:
    case RECORD_DROP_JOB:
        return drop_many(d, r, msg);
    }
    UNREACHABLE();
}

/* ---- one transaction ---- */

uint64_t state_identity_check(const uint64_t *fields, size_t n)
{
    return table_hash(fields, n * sizeof(*fields), STATE_OLDEST);
}

int state_db_mark(struct state_db *d, uint64_t now_ms, struct errmsg *msg)
{
    uint64_t mark_ms = MAX(d->totals.mark_ms, now_ms + STATE_MARK_AHEAD_MS);
    const uint64_t fields[STATE_IDENTITY_FIELDS] = {
        d->identity.cluster,   d->identity.boot,
        d->totals.sum,         mark_ms,
        d->config.clock_name,  d->identity.clock_offset_ms,
        ++d->totals.n_commits, d->totals.n_pieces};
    int rc = sqlite3_bind_int64(
        d->mark, STATE_IDENTITY_FIELDS + 1,
        (int64_t)state_identity_check(fields, STATE_IDENTITY_FIELDS));

    for (int i = 0; i < STATE_IDENTITY_FIELDS; i++) {
        rc |= sqlite3_bind_int64(d->mark, i + 1, (int64_t)fields[i]);
    }
    ASSERT(rc == SQLITE_OK);
    d->totals.mark_ms = mark_ms;
    return state_db_run(d, d->mark, "writing the identity", msg);
}

/* What the log goes on from: after the first commit behind a copy of it. On a full disk
 * it is tried again after the next. */
static int write_base(struct state_db *d, struct errmsg *msg)
{
    const struct state_base base = {d->identity.cluster, d->n_copied};
    int rv = 0;

    if (d->n_base != d->n_copied && d->totals.n_commits > d->n_copied) {
        rv = state_base_write(d->config.vfs, d->config.path, &base);
        d->n_base = rv == 0 ? d->n_copied : d->n_base;
    }
    return rv == 0 || rv == -ENOSPC
               ? 0
               : errmsg_set(msg, rv, "writing state.db-base: %s", err_text(rv));
}

int state_db_end(struct state_db *d, struct errmsg *msg)
{
    int rv = state_db_run(d, d->commit, "committing", msg);

    return rv == 0 ? write_base(d, msg) : rv;
}

static int apply_all(struct state_db *d, struct bytes batch, uint64_t now_ms,
                     struct errmsg *msg)
{
    struct record r;
    int rv = 0;

    while (rv == 0 && state_batch_next(&batch, &r) == 1) {
        rv = state_db_apply(d, &r, now_ms, msg);
    }
    ASSERT(rv < 0 || batch.size == 0); /* it is our own */
    return rv;
}

static int write_rows(struct state_db *d, struct bytes batch, uint64_t now_ms,
                      struct errmsg *msg)
{
    int rv = state_journal_settle(d, msg); /* it was before */

    return rv == 0 ? apply_all(d, batch, now_ms, msg) : rv;
}

/* SQLite may have rolled back by itself: it does so when the disk is full. */
int state_db_roll_back(struct state_db *d, const struct state_totals *before, int why)
{
    struct errmsg ignored = {""};

    d->totals = *before;
    if (sqlite3_get_autocommit(d->db) != 0) {
        return why;
    }
    return state_db_run(d, d->rollback, "rolling back", &ignored) < 0 ? -EIO : why;
}

int state_db_commit(struct state_db *d, struct bytes batch, uint64_t now_ms,
                    struct errmsg *msg)
{
    const struct state_totals before = d->totals;
    bool waits = state_journal_has_room(d, batch) && state_pending_may_wait(batch);
    int rv = state_db_run(d, d->begin, "beginning", msg);

    if (rv == 0) {
        rv = waits ? state_journal_write(d, batch, msg)
                   : write_rows(d, batch, now_ms, msg);
    }
    rv = rv == 0 ? state_db_mark(d, now_ms, msg) : rv;
    rv = rv == 0 ? state_db_end(d, msg) : rv;
    if (rv < 0) {
        return state_db_roll_back(d, &before, rv);
    }
    if (waits) {
        state_pending_add(&d->pending, batch);
    } else {
        state_pending_clear(&d->pending);
    }
    return 0;
}

/* ---- tidying ---- */

/* Of all that may be kept, half is the events', a quarter the commits'. */
static uint64_t history_share(const struct state_db *d, enum record_kind kind)
{
    unsigned part = kind == RECORD_EVENT ? 2 : kind == RECORD_COMMIT ? 4 : 8;

    return d->config.history_bytes / part;
}

static int prune(struct state_db *d, enum record_kind kind, uint64_t now_ms, int *ret_n,
                 struct errmsg *msg)
{
    sqlite3_stmt *s = state_db_statement(d, kind, STATE_PRUNE);
    bool is_much = d->totals.history[kind] > history_share(d, kind);
    uint64_t oldest_ms = now_ms - MIN(now_ms, d->config.history_ms);
    int rc = sqlite3_bind_int64(s, 1, is_much ? INT64_MAX : (int64_t)oldest_ms);

    rc |= sqlite3_bind_int64(s, 2, is_much ? PRUNE_MUCH : PRUNE_OLD);
    ASSERT(rc == SQLITE_OK);
    return drop_rows(d, kind, s, ret_n, msg);
}

static int prune_all(struct state_db *d, uint64_t now_ms, int *ret_n,
                     struct errmsg *msg)
{
    int rv = 0;

    *ret_n = 0;
    for (int kind = RECORD_JOB; kind < RECORD_KIND_COUNT && rv == 0; kind++) {
        int n = 0;

        if (state_table((enum record_kind)kind)->is_history) {
            rv = prune(d, (enum record_kind)kind, now_ms, &n, msg);
            *ret_n += n;
        }
    }
    return rv;
}

/* History goes, the journal is settled, and the clock's mark goes on, where it is time
 * for any. */
static int tidy_rows(struct state_db *d, uint64_t now_ms, int *ret_n,
                     struct errmsg *msg)
{
    bool is_due =
        now_ms + STATE_MARK_AHEAD_MS / 4 >= d->totals.mark_ms || d->totals.n_pieces > 0;
    int rv = state_db_run(d, d->begin, "beginning", msg);

    *ret_n = 0;
    rv = rv == 0 ? prune_all(d, now_ms, ret_n, msg) : rv;
    if (rv == 0 && *ret_n == 0 && !is_due) {
        return state_db_run(d, d->rollback, "ending", msg);
    }
    rv = rv == 0 ? state_journal_settle(d, msg) : rv;
    rv = rv == 0 ? state_db_mark(d, now_ms, msg) : rv;
    return rv == 0 ? state_db_end(d, msg) : rv;
}

int state_db_copy_log(struct state_db *d, int how, struct errmsg *msg)
{
    int in_log = 0;
    int copied = 0;
    int rc = sqlite3_wal_checkpoint_v2(d->db, NULL, how, &in_log, &copied);

    if (rc == SQLITE_OK && in_log == copied) {
        d->n_copied = d->totals.n_commits;
    }
    d->wal_pages = rc == SQLITE_OK ? 0 : d->wal_pages;
    return state_db_result(d, rc, "copying the log into the database", msg);
}

/* The database may grow by as much: what is left is worth more to the log. */
static bool may_copy_log(const struct state_db *d, uint64_t on_disk)
{
    uint64_t in_log = (uint64_t)d->wal_pages * STATE_PAGE_SIZE;

    return d->wal_pages >= WAL_PAGES_IDLE && on_disk >= in_log + SPARE_BYTES;
}

int state_db_tidy(struct state_db *d, uint64_t now_ms, uint64_t on_disk,
                  struct errmsg *msg)
{
    const struct state_totals before = d->totals;
    int n = 0;
    int rv = tidy_rows(d, now_ms, &n, msg);

    if (rv < 0) { /* of a full disk the next commit says more */
        return state_db_roll_back(d, &before, rv);
    }
    state_pending_clear(&d->pending);
    if (may_copy_log(d, on_disk)) {
        rv = state_db_copy_log(d, SQLITE_CHECKPOINT_PASSIVE, msg);
    }
    return rv < 0 ? rv : n > 0;
}

bool state_db_is_untidy(const struct state_db *d)
{
    return d->wal_pages >= WAL_PAGES_MAX || state_journal_is_long(d);
}

uint64_t state_db_free_bytes(const struct state_db *d, uint64_t on_disk)
{
    uint64_t in_log = (uint64_t)d->wal_pages * STATE_PAGE_SIZE;
    uint64_t pages = 0;

    if (sqlite3_step(d->free_pages) == SQLITE_ROW) {
        pages = (uint64_t)sqlite3_column_int64(d->free_pages, 0);
    }
    (void)sqlite3_reset(d->free_pages); /* a count that is not there is none */
    on_disk += pages * STATE_PAGE_SIZE;
    return on_disk - MIN(on_disk, in_log);
}
