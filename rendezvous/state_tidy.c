/* What is done when there is time: history that is too old or too much goes, the journal
 * is settled, the log is copied into the database's own file. */

#include "rendezvous/state_internal.h"

enum {
    WAL_PAGES_IDLE = 64, /* the log is copied when there is time and so much of it … */
    WAL_PAGES_MAX = 4096,  /* … and in any case */
    SPARE_BYTES = 1 << 20, /* are left free by copying it */
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
