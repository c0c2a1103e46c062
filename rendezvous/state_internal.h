#ifndef RENDEZVOUS_STATE_INTERNAL_H
#define RENDEZVOUS_STATE_INTERNAL_H

/* Of the database's own files only: state_db.c, state_journal.c, state_load.c,
 * state_open.c, state_rows.c and state_tidy.c. */

#include "rendezvous/state_db.h"
#include "rendezvous/state_pending.h"
#include "rendezvous/state_schema.h"

#include <sqlite3.h>

/* What a transaction changes beside the rows, and what is so again if it fails. */
struct state_totals {
    uint64_t sum;       /* of all sums: of the rows and the journal's pieces … */
    uint64_t journal;   /* … and of these alone */
    uint64_t n_pieces;  /* of the journal */
    uint64_t n_commits; /* ever */
    uint64_t mark_ms;   /* the service's clock will not have passed it */
    uint64_t history[RECORD_KIND_COUNT]; /* bytes of values */
};

struct state_db {
    sqlite3 *db;                   /* owned */
    struct state_db_config config; /* path and vfs: copied */
    struct state_identity identity;
    struct state_totals totals;
    struct state_pending pending; /* as the journal has it */
    int wal_pages;                /* of the log, since it was last copied */
    int schema;                   /* its own, until state_db_begin */
    bool is_blank;                /* nothing is prepared */
    struct buf renewed;           /* a batch: what that writes anew of an older one */
    uint64_t n_copied; /* of the commits: that the database's own file has … */
    uint64_t n_base;   /* … and as state_base.h has it; UINT64_MAX: nobody knows */
    sqlite3_stmt *begin, *commit, *rollback, *mark, *piece; /* owned … */
    sqlite3_stmt *pages, *free_pages;
    sqlite3_stmt *statements[RECORD_KIND_COUNT][STATE_STATEMENT_COUNT]; /* … or NULL */
};

enum { STATE_MARK_AHEAD_MS = 60000, STATE_PAGE_SIZE = 4096 };

/* 0 for SQLite's successes; else an error of state_db.h, with a text that says what
 * was being done. */
int state_db_result(const struct state_db *d, int rc, const char *doing,
                    struct errmsg *msg);

/* It has no journal, nor counts its transactions. */
bool state_db_lacks_journal(const struct state_db *d);

/* Runs a statement that gives no rows. */
int state_db_run(const struct state_db *d, sqlite3_stmt *s, const char *doing,
                 struct errmsg *msg) MUST_CHECK;

/* Runs SQL; `*ret` (NULL: not wanted) is the first column of the first row. */
int state_db_query(const struct state_db *d, const char *sql, int64_t *ret,
                   struct errmsg *msg) MUST_CHECK;

/* Of the row of `identity`, without its own column. */
enum { STATE_IDENTITY_FIELDS = 8, STATE_OLD_IDENTITY_FIELDS = 6 };
uint64_t state_identity_check(const uint64_t *fields, size_t n);

/* Writes `identity` into the open transaction. */
int state_db_mark(struct state_db *d, uint64_t now_ms, struct errmsg *msg) MUST_CHECK;

/* Commits the open transaction, with what state_db_mark wrote. */
int state_db_end(struct state_db *d, struct errmsg *msg) MUST_CHECK;

/* Ends the open transaction, if there is one, which failed with `why`: returns that.
 * `before`: the totals when it began. */
int state_db_roll_back(struct state_db *d, const struct state_totals *before,
                       int why) MUST_CHECK;

sqlite3_stmt *state_db_statement(const struct state_db *d, enum record_kind kind,
                                 enum state_statement what);

/* Puts the record's row, or drops rows. */
int state_db_apply(struct state_db *d, const struct record *r, uint64_t now_ms,
                   struct errmsg *msg) MUST_CHECK;

/* Gives rows that are there, of which the batch has records, another value. */
int state_db_renew(struct state_db *d, struct bytes batch,
                   struct errmsg *msg) MUST_CHECK;

/* Runs a statement that removes rows, and says of each: sum, bytes of history. */
int state_db_drop_rows(struct state_db *d, enum record_kind kind, sqlite3_stmt *s,
                       int *ret_n, struct errmsg *msg) MUST_CHECK;

/* The journal (state_pending.h): pieces of batches, each a row that is written over in
 * place. Written while a transaction is open. */
int state_journal_create(const struct state_db *d, struct errmsg *msg) MUST_CHECK;
int state_journal_read(struct state_db *d, struct errmsg *msg) MUST_CHECK;
/* `n`: its records. */
bool state_journal_has_room(struct state_db *d, struct bytes batch, size_t n);
bool state_journal_is_long(struct state_db *d);
int state_journal_write(struct state_db *d, struct bytes batch,
                        struct errmsg *msg) MUST_CHECK;
/* Into the tables with it; state_pending_clear once that is committed. */
int state_journal_settle(struct state_db *d, struct errmsg *msg) MUST_CHECK;

/* `how`: SQLITE_CHECKPOINT_… */
int state_db_checkpoint(struct state_db *d, int how, struct errmsg *msg) MUST_CHECK;

/* What is behind state_db_open once there is a database of the right schema. */
int state_db_prepare(struct state_db *d, struct errmsg *msg) MUST_CHECK;
/* … and what a database of an older one lacks until then. */
int state_db_prepare_new(struct state_db *d, struct errmsg *msg) MUST_CHECK;

#endif
