/* What is done when there is time: history that is too old or too much goes, the journal
 * is settled, the log is copied into the database's own file. */

#include "rendezvous/state_internal.h"

#include <errno.h>

enum {
    WAL_PAGES_IDLE = 64, /* the log is copied when there is time and so much of it … */
    WAL_PAGES_MAX = 4096,  /* … and in any case */
    SPARE_BYTES = 1 << 16, /* are left free by copying it: for state.db-base */
    PRUNE_OLD = 256,       /* rows at once, for their age … */
    PRUNE_MUCH = 16,       /* … and for their number, where more would be too many */
};

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
    return state_db_drop_rows(d, kind, s, ret_n, msg);
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

int state_db_checkpoint(struct state_db *d, int how, struct errmsg *msg)
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

int state_db_copy_log(struct state_db *d, struct errmsg *msg)
{
    return state_db_checkpoint(d, SQLITE_CHECKPOINT_PASSIVE, msg);
}

int state_db_log_pages(const struct state_db *d)
{
    return d->wal_pages;
}

uint64_t state_db_growth(const struct state_db *d)
{
    sqlite3_file *file = NULL;
    sqlite3_int64 has = 0;
    uint64_t wants = 0;
    int rc = sqlite3_file_control(d->db, "main", SQLITE_FCNTL_FILE_POINTER, &file);

    if (rc == SQLITE_OK && file && file->pMethods) {
        rc = file->pMethods->xFileSize(file, &has);
    }
    if (rc == SQLITE_OK && sqlite3_step(d->pages) == SQLITE_ROW) {
        wants = (uint64_t)sqlite3_column_int64(d->pages, 0) * STATE_PAGE_SIZE;
    }
    (void)sqlite3_reset(d->pages); /* a count that is not there is none */
    return wants - MIN(wants, (uint64_t)has);
}

/* Its place is used again then: so it is worth what the database grows by, and on a full
 * disk the log would grow with each commit. */
static int copy_log_if_long(struct state_db *d, uint64_t on_disk, struct errmsg *msg)
{
    uint64_t grows = d->wal_pages >= WAL_PAGES_IDLE ? state_db_growth(d) : 0;

    if (d->wal_pages < WAL_PAGES_IDLE) {
        return 0;
    }
    if (grows > 0 && on_disk < grows + SPARE_BYTES) {
        return errmsg_set(msg, -ENOSPC, "copying the log into the database");
    }
    return state_db_copy_log(d, msg);
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
    rv = copy_log_if_long(d, on_disk, msg);
    return rv < 0 ? rv : n > 0;
}

bool state_db_is_untidy(struct state_db *d)
{
    return d->wal_pages >= WAL_PAGES_MAX || state_journal_is_long(d);
}

uint64_t state_db_free_bytes(const struct state_db *d, uint64_t on_disk)
{
    uint64_t names = state_pending_count(&d->pending);
    uint64_t owed = state_db_growth(d) + names * STATE_PAGE_SIZE;
    uint64_t pages = 0;

    if (sqlite3_step(d->free_pages) == SQLITE_ROW) {
        pages = (uint64_t)sqlite3_column_int64(d->free_pages, 0);
    }
    (void)sqlite3_reset(d->free_pages); /* a count that is not there is none */
    on_disk += pages * STATE_PAGE_SIZE;
    return on_disk - MIN(on_disk, owed);
}
