#ifndef RENDEZVOUS_STATE_INTERNAL_H
#define RENDEZVOUS_STATE_INTERNAL_H

/* state_db.c and state_open.c only. */

#include "rendezvous/state_db.h"
#include "rendezvous/state_schema.h"

#include <sqlite3.h>

struct state_db {
    sqlite3 *db;                   /* owned */
    struct state_db_config config; /* path and vfs: copied */
    struct state_identity identity;
    uint64_t sum;                        /* of all rows' sums */
    uint64_t history[RECORD_KIND_COUNT]; /* bytes of values */
    uint64_t
        mark_ms;   /* the service's clock will not have passed it, as the disk says */
    int wal_pages; /* of the log, since it was last copied */
    sqlite3_stmt *begin, *commit, *rollback, *mark, *free_pages;        /* owned … */
    sqlite3_stmt *statements[RECORD_KIND_COUNT][STATE_STATEMENT_COUNT]; /* … or NULL */
};

enum { STATE_MARK_AHEAD_MS = 60000, STATE_PAGE_SIZE = 4096 };

/* 0 for SQLite's successes; else an error of state_db.h, with a text that says what
 * was being done. */
int state_db_result(const struct state_db *d, int rc, const char *doing,
                    struct errmsg *msg);

/* Runs a statement that gives no rows. */
int state_db_run(const struct state_db *d, sqlite3_stmt *s, const char *doing,
                 struct errmsg *msg) MUST_CHECK;

/* Runs SQL; `*ret` (NULL: not wanted) is the first column of the first row. */
int state_db_query(const struct state_db *d, const char *sql, int64_t *ret,
                   struct errmsg *msg) MUST_CHECK;

/* Of the row of `identity`, without its own column. */
enum { STATE_IDENTITY_FIELDS = 6 };
uint64_t state_identity_check(const uint64_t fields[STATE_IDENTITY_FIELDS]);

/* Writes `identity` into the open transaction. */
int state_db_mark(struct state_db *d, uint64_t now_ms, struct errmsg *msg) MUST_CHECK;

/* `how`: SQLITE_CHECKPOINT_… */
int state_db_copy_log(struct state_db *d, int how, struct errmsg *msg) MUST_CHECK;

/* What is behind state_db_open once there is a database of the right schema. */
int state_db_prepare(struct state_db *d, struct errmsg *msg) MUST_CHECK;

#endif
