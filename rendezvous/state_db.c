/* Happy path of a commit: 1. begin; 2. the batch is written into the journal, or, where
 * it has what may not wait, each record is a row put or dropped, behind what the journal
 * has if that matters; 3. the sum of all rows and the clock's mark; 4. commit, which
 * syncs the log. Failures: a full disk rolls back; all others are the end (state.c). */

#include "rendezvous/state_db.h"

#include "rendezvous/state_base.h"
#include "rendezvous/state_batch.h"
#include "rendezvous/state_internal.h"

#include "common/mem.h"
#include "common/table.h"

#include <errno.h>

/* After a sync that failed nobody knows what is on the disk, and another one would not
 * say: whatever the reason, it is no full disk on which something may be done again. */
static bool is_of_sync(int extended)
{
    return extended == SQLITE_IOERR_FSYNC || extended == SQLITE_IOERR_DIR_FSYNC ||
           extended == SQLITE_IOERR_CLOSE;
}

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
        rv = d->db && is_of_sync(sqlite3_extended_errcode(d->db)) ? -EIO : rv;
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

bool state_db_lacks_journal(const struct state_db *d)
{
    return d->schema < STATE_OF_JOURNAL;
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

/* Before the one of `end`. */
static int prepare_kinds(struct state_db *d, int first, int end, struct errmsg *msg)
{
    int rv = 0;

    for (int kind = first; kind < end && rv == 0; kind++) {
        rv = prepare_kind(d, (enum record_kind)kind, msg);
    }
    return rv;
}

/* What counts transactions, and the journal's pieces. */
static int prepare_journal(struct state_db *d, struct errmsg *msg)
{
    int rv = prepare(d,
                     "update identity set cluster = ?1, boot = ?2, sum = ?3, clock_ms "
                     "= ?4, clock_name = ?5, clock_offset_ms = ?6, commits = ?7, "
                     "pieces = ?8, own_sum = ?9",
                     &d->mark, msg);

    return rv == 0 ? prepare(d, "replace into journal (id, piece) values (?1, ?2)",
                             &d->piece, msg)
                   : rv;
}

int state_db_prepare(struct state_db *d, struct errmsg *msg)
{
    int rv = prepare(d, "begin immediate", &d->begin, msg);

    rv = rv == 0 ? prepare(d, "commit", &d->commit, msg) : rv;
    rv = rv == 0 ? prepare(d, "rollback", &d->rollback, msg) : rv;
    rv = rv == 0 ? prepare(d, "pragma page_count", &d->pages, msg) : rv;
    rv = rv == 0 ? prepare(d, "pragma freelist_count", &d->free_pages, msg) : rv;
    rv = rv == 0 ? prepare_kinds(d, RECORD_JOB, state_kinds_of(d->schema), msg) : rv;
    return rv < 0 || state_db_lacks_journal(d) ? rv : prepare_journal(d, msg);
}

int state_db_prepare_new(struct state_db *d, struct errmsg *msg)
{
    int rv = state_db_lacks_journal(d) ? prepare_journal(d, msg) : 0;

    return rv == 0 ? prepare_kinds(d, state_kinds_of(d->schema), RECORD_KIND_COUNT, msg)
                   : rv;
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
    buf_release(&d->renewed);
    mem_free((char *)(uintptr_t)d->config.path);
    mem_free((char *)(uintptr_t)d->config.vfs);
    mem_free(d);
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

/* Where a batch goes: into the journal; into the tables, past what the journal has; or
 * there behind it. */
enum way { WAY_JOURNAL, WAY_PAST, WAY_BEHIND };

/* Settling writes a page for each name, at worst: what has nothing to do with it is not
 * to need as much room. */
static enum way way_of(struct state_db *d, struct bytes batch, size_t *ret_n)
{
    if (state_pending_may_wait(batch, ret_n) &&
        state_journal_has_room(d, batch, *ret_n)) {
        return WAY_JOURNAL;
    }
    return state_pending_may_pass(batch) ? WAY_PAST : WAY_BEHIND;
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

static int write_batch(struct state_db *d, enum way way, struct bytes batch,
                       uint64_t now_ms, struct errmsg *msg)
{
    int rv = 0;

    if (way == WAY_JOURNAL) {
        return state_journal_write(d, batch, msg);
    }
    if (way == WAY_BEHIND) {
        rv = state_journal_settle(d, msg); /* it was before */
    }
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
    size_t n;
    enum way way = way_of(d, batch, &n);
    int rv = state_db_run(d, d->begin, "beginning", msg);

    rv = rv == 0 ? write_batch(d, way, batch, now_ms, msg) : rv;
    rv = rv == 0 ? state_db_mark(d, now_ms, msg) : rv;
    rv = rv == 0 ? state_db_end(d, msg) : rv;
    if (rv < 0) {
        return state_db_roll_back(d, &before, rv);
    }
    if (way == WAY_JOURNAL) {
        state_pending_add(&d->pending, batch, n);
    } else if (way == WAY_BEHIND) {
        state_pending_clear(&d->pending);
    }
    return 0;
}
