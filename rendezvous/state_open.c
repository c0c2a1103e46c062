/* Happy path: 1. the log is looked at before SQLite does; 2. the file is ours, and of
 * our version, or new; 3. SQLite's own check; 4. the identity. Each failure says what is
 * wrong with the file; what to do about it says state.c. */

#include "rendezvous/starts.h"
#include "rendezvous/state_base.h"
#include "rendezvous/state_internal.h"
#include "rendezvous/state_wal.h"

#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- the log ---- */

static int read_log(void *arg, uint64_t offset, void *data, size_t size)
{
    sqlite3_file *file = arg;
    int rc = file->pMethods->xRead(file, data, (int)size, (sqlite3_int64)offset);

    return rc == SQLITE_OK || rc == SQLITE_IOERR_SHORT_READ ? 0 : -EIO;
}

static int check_open_log(sqlite3_file *file, bool *ret_is_empty, struct errmsg *msg)
{
    struct state_wal wal = {.arg = file, .read = read_log};
    sqlite3_int64 size = 0;
    int rv = -EIO;

    if (file->pMethods->xFileSize(file, &size) == SQLITE_OK) {
        wal.size = (uint64_t)size;
        rv = state_wal_check(&wal);
    }
    *ret_is_empty = rv == 0 && wal.size == 0;
    if (rv == ERR_CORRUPT) {
        return errmsg_set(msg, rv, "its write-ahead log is damaged");
    }
    return rv < 0 ? errmsg_set(msg, rv, "its write-ahead log cannot be read: %s",
                               err_text(rv))
                  : 0;
}

/* Through SQLite's layer of files, as tests put another in its place. SQLite syncs the
 * folder with the first sync of a log that it makes, and not of one that is there: one
 * that a start has made, and got no further, it is to make anew. */
static int check_log(const struct state_db_config *config, struct errmsg *msg)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(config->vfs);
    char *path = mem_printf("%s-wal", config->path);
    sqlite3_file *file;
    bool is_empty = false;
    int exists = 0;
    int rv = 0;

    ASSERT(vfs);
    file = mem_zalloc((size_t)vfs->szOsFile);
    if (vfs->xAccess(vfs, path, SQLITE_ACCESS_EXISTS, &exists) != SQLITE_OK) {
        exists = 1; /* opening it will say why */
    }
    if (exists) {
        int flags = SQLITE_OPEN_WAL | SQLITE_OPEN_READONLY;

        if (vfs->xOpen(vfs, path, file, flags, NULL) == SQLITE_OK) {
            rv = check_open_log(file, &is_empty, msg);
            (void)file->pMethods->xClose(file); /* it was only read */
        } else {
            rv = errmsg_set(msg, -EIO, "its write-ahead log cannot be opened");
        }
    }
    if (is_empty && !config->only_looks) {
        (void)vfs->xDelete(vfs, path, 0); /* then SQLite goes on with this one */
    }
    mem_free(file);
    mem_free(path);
    return rv;
}

/* ---- the file ---- */

static int query_text(const struct state_db *d, const char *sql, char *text,
                      size_t size, struct errmsg *msg)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(d->db, sql, -1, &s, NULL);

    text[0] = '\0';
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(s);
    }
    if (rc == SQLITE_ROW) {
        (void)snprintf(text, size, "%s", (const char *)sqlite3_column_text(s, 0));
    }
    (void)sqlite3_finalize(s); /* repeats the step's error */
    return state_db_result(d, rc, sql, msg);
}

/* Exclusive before the log: then its index is in memory, and no third file is there. */
static int set_up(struct state_db *d, struct errmsg *msg)
{
    static const char *const pragmas[] = {
        "pragma locking_mode = exclusive",      "pragma synchronous = full",
        "pragma temp_store = memory",           "pragma cell_size_check = on",
        "pragma secure_delete = off", /* a full disk is no time to write zeros */
        "pragma journal_size_limit = 16777216",
    };
    int rv = 0;

    for (size_t i = 0; i < ARRAY_LEN(pragmas) && rv == 0; i++) {
        rv = state_db_query(d, pragmas[i], NULL, msg);
    }
    return rv;
}

/* A file of somebody else's is not touched. */
static int check_origin(struct state_db *d, bool *ret_is_new, struct errmsg *msg)
{
    int64_t application = 0;
    int64_t version = 0;
    int64_t n_tables = 0;
    int rv;

    rv = state_db_query(d, "pragma application_id", &application, msg);
    rv = rv == 0 ? state_db_query(d, "pragma user_version", &version, msg) : rv;
    rv = rv == 0
             ? state_db_query(d, "select count(*) from sqlite_schema", &n_tables, msg)
             : rv;
    *ret_is_new = application == 0 && version == 0 && n_tables == 0;
    if (rv < 0 || *ret_is_new) {
        return rv;
    }
    if (application != STATE_APPLICATION) {
        return errmsg_set(msg, ERR_UNSUPPORTED,
                          "it is a database of another program's");
    }
    d->schema = (int)version;
    if (version < STATE_OLDEST || version > STATE_SCHEMA) {
        return errmsg_set(msg, ERR_UNSUPPORTED,
                          "it was written by %s ctrun-rendezvous (its schema is %lld, "
                          "this program's %d)",
                          version > STATE_SCHEMA ? "a newer" : "an older",
                          (long long)version, STATE_SCHEMA);
    }
    return 0;
}

static int begin_log(const struct state_db *d, struct errmsg *msg)
{
    char mode[16];
    int rv = query_text(d, "pragma journal_mode = wal", mode, sizeof(mode), msg);

    if (rv == 0 && strcmp(mode, "wal") != 0) {
        return errmsg_set(msg, ERR_UNSUPPORTED,
                          "it cannot have a write-ahead log there (mode %s)", mode);
    }
    return rv;
}

/* ---- a new one ---- */

static int create_tables(const struct state_db *d, struct errmsg *msg)
{
    char sql[STATE_SQL_MAX];
    int rv;

    rv =
        state_db_query(d,
                       "create table identity (cluster integer not null, boot integer "
                       "not null, sum integer not null, clock_ms integer not null, "
                       "clock_name integer not null, clock_offset_ms integer not null, "
                       "commits integer not null, pieces integer not null, "
                       "own_sum integer not null)",
                       NULL, msg);
    rv = rv == 0 ? state_journal_create(d, msg) : rv;
    for (int kind = RECORD_JOB; kind < RECORD_KIND_COUNT && rv == 0; kind++) {
        state_sql((enum record_kind)kind, STATE_CREATE, sql);
        rv = state_db_query(d, sql, NULL, msg);
    }
    return rv;
}

static int create(const struct state_db *d, struct errmsg *msg)
{
    const uint64_t fields[STATE_IDENTITY_FIELDS] = {
        d->config.seed, 0, 0, d->config.clock_ms, d->config.clock_name, 0, 0, 0};
    char sql[STATE_SQL_MAX];
    int rv;

    rv = state_db_query(d, "begin immediate", NULL, msg);
    rv = rv == 0 ? create_tables(d, msg) : rv;
    (void)snprintf(sql, sizeof(sql),
                   "insert into identity values (%lld, 0, 0, %lld, %lld, 0, 0, 0, "
                   "%lld)",
                   (long long)fields[0], (long long)fields[3], (long long)fields[4],
                   (long long)state_identity_check(fields, STATE_IDENTITY_FIELDS));
    rv = rv == 0 ? state_db_query(d, sql, NULL, msg) : rv;
    (void)snprintf(sql, sizeof(sql), "pragma application_id = %d", STATE_APPLICATION);
    rv = rv == 0 ? state_db_query(d, sql, NULL, msg) : rv;
    (void)snprintf(sql, sizeof(sql), "pragma user_version = %d", STATE_SCHEMA);
    rv = rv == 0 ? state_db_query(d, sql, NULL, msg) : rv;
    return rv == 0 ? state_db_query(d, "commit", NULL, msg) : rv;
}

/* ---- an old one ---- */

static int check_structure(const struct state_db *d, struct errmsg *msg)
{
    char answer[256];
    int rv = query_text(d, "pragma quick_check(1)", answer, sizeof(answer), msg);

    if (rv == 0 && strcmp(answer, "ok") != 0) {
        return errmsg_set(msg, ERR_CORRUPT, "%s", answer);
    }
    return rv;
}

/* The clock that was used is still there; or another begins where it may have been. */
static uint64_t clock_offset(const struct state_db *d, uint64_t old_name,
                             uint64_t old_offset_ms)
{
    uint64_t goes_on_ms = d->config.clock_ms + old_offset_ms;
    bool is_same = old_name != 0 && old_name == d->config.clock_name;

    if (goes_on_ms >= d->totals.mark_ms ||
        (is_same && goes_on_ms + STATE_MARK_AHEAD_MS >= d->totals.mark_ms)) {
        return old_offset_ms;
    }
    return d->totals.mark_ms - d->config.clock_ms;
}

static int take_identity(struct state_db *d, sqlite3_stmt *s, struct errmsg *msg)
{
    int n =
        state_db_lacks_journal(d) ? STATE_OLD_IDENTITY_FIELDS : STATE_IDENTITY_FIELDS;
    uint64_t fields[STATE_IDENTITY_FIELDS] = {0};

    for (int i = 0; i < n; i++) {
        fields[i] = (uint64_t)sqlite3_column_int64(s, i);
    }
    if (state_identity_check(fields, (size_t)n) !=
        (uint64_t)sqlite3_column_int64(s, n)) {
        return errmsg_set(msg, ERR_CORRUPT, "its identity is not what was written");
    }
    d->identity.cluster = fields[0];
    d->identity.boot = fields[1] + 1;
    d->identity.start = d->config.start;
    d->totals.sum = fields[2];
    d->totals.mark_ms = fields[3];
    d->identity.clock_offset_ms = clock_offset(d, fields[4], fields[5]);
    d->totals.n_commits = fields[6];
    d->identity.found = fields[6];
    d->totals.n_pieces = fields[7];
    return 0;
}

/* The commit behind it was on the disk. */
static int check_base(const struct state_db *d, struct errmsg *msg)
{
    struct state_base base;

    if (!state_db_lacks_journal(d) &&
        state_base_read(d->config.vfs, d->config.path, &base) &&
        base.cluster == d->identity.cluster && base.commit == d->totals.n_commits) {
        return errmsg_set(msg, ERR_CORRUPT,
                          "its log state.db-wal is gone or was emptied: put that "
                          "back or, if a copy was put in state.db's place, remove "
                          "state.db-base");
    }
    return 0;
}

static int read_identity(struct state_db *d, struct errmsg *msg)
{
    sqlite3_stmt *s = NULL;
    const char *sql = state_db_lacks_journal(d)
                          ? "select cluster, boot, sum, clock_ms, clock_name, "
                            "clock_offset_ms, own_sum from identity"
                          : "select cluster, boot, sum, clock_ms, clock_name, "
                            "clock_offset_ms, commits, pieces, own_sum from "
                            "identity";
    int rc = sqlite3_prepare_v2(d->db, sql, -1, &s, NULL);
    int rv;

    if (rc == SQLITE_OK) {
        rc = sqlite3_step(s);
    }
    rv = state_db_result(d, rc, "reading the identity", msg);
    if (rc == SQLITE_ROW) {
        rv = take_identity(d, s, msg);
    } else if (rv == 0) {
        rv = errmsg_set(msg, ERR_CORRUPT, "its identity is gone");
    }
    (void)sqlite3_finalize(s); /* repeats the step's error */
    return rv;
}

/* ---- opening ---- */

static int on_log_grown(void *arg, sqlite3 *db, const char *name, int n_pages)
{
    struct state_db *d = arg;

    (void)db;
    (void)name;
    d->wal_pages = n_pages;
    return SQLITE_OK;
}

static int open_file(struct state_db *d, struct errmsg *msg)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    int rc = sqlite3_open_v2(d->config.path, &d->db, flags, d->config.vfs);

    if (!d->db) {
        return errmsg_set(msg, -ENOMEM, "it cannot be opened: out of memory");
    }
    /* closing it writes nothing: it may be damaged */
    (void)sqlite3_db_config(d->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    return state_db_result(d, rc, "opening it", msg);
}

static int open_all(struct state_db *d, struct errmsg *msg)
{
    bool is_new = false;
    int rv;

    rv = check_log(&d->config, msg);
    rv = rv == 0 ? open_file(d, msg) : rv;
    rv = rv == 0 ? set_up(d, msg) : rv;
    rv = rv == 0 ? check_origin(d, &is_new, msg) : rv;
    if (rv == 0 && is_new && d->config.only_looks) {
        d->is_blank = true;
        return 0;
    }
    rv = rv == 0 ? begin_log(d, msg) : rv;
    if (rv == 0) {
        rv = is_new ? create(d, msg) : check_structure(d, msg);
    }
    rv = rv == 0 ? read_identity(d, msg) : rv;
    rv = rv == 0 ? check_base(d, msg) : rv;
    rv = rv == 0 ? state_db_prepare(d, msg) : rv;
    rv = rv == 0 && !state_db_lacks_journal(d) ? state_journal_read(d, msg) : rv;
    if (rv == 0) { /* in place of SQLite's, which copies in the middle of a commit */
        (void)sqlite3_wal_hook(d->db, on_log_grown, d); /* the last hook's argument */
    }
    return rv;
}

int state_db_open(const struct state_db_config *config, struct state_db **ret,
                  struct errmsg *msg)
{
    struct state_db *d = mem_zalloc(sizeof(*d));
    int rv;

    d->config = *config;
    d->n_base = UINT64_MAX;
    d->schema = STATE_SCHEMA;
    buf_init(&d->renewed, SIZE_MAX);
    d->config.path = mem_strdup(config->path);
    d->config.vfs = config->vfs ? mem_strdup(config->vfs) : NULL;
    state_pending_init(&d->pending, config->seed);
    rv = open_all(d, msg);
    if (rv < 0) {
        state_db_close(d);
        return rv;
    }
    *ret = d;
    return 0;
}

bool state_db_is_blank(const struct state_db *d)
{
    return d->is_blank;
}

const struct state_identity *state_db_identity(const struct state_db *d)
{
    return &d->identity;
}

uint64_t state_db_kept(const struct state_db *d)
{
    return d->totals.n_commits;
}

static int add_journal(struct state_db *d, struct errmsg *msg)
{
    int rv = state_db_query(
        d, "alter table identity add column commits integer not null default 0", NULL,
        msg);

    rv = rv == 0 ? state_db_query(d,
                                  "alter table identity add column pieces integer not "
                                  "null default 0",
                                  NULL, msg)
                 : rv;
    return rv == 0 ? state_journal_create(d, msg) : rv;
}

/* What came behind its schema. */
static int add_new(struct state_db *d, struct errmsg *msg)
{
    char sql[STATE_SQL_MAX];
    int rv = state_db_lacks_journal(d) ? add_journal(d, msg) : 0;

    for (int kind = state_kinds_of(d->schema); kind < RECORD_KIND_COUNT && rv == 0;
         kind++) {
        state_sql((enum record_kind)kind, STATE_CREATE, sql);
        rv = state_db_query(d, sql, NULL, msg);
    }
    return rv == 0 ? state_db_prepare_new(d, msg) : rv;
}

/* What an older schema lacks, and its values as this one has them. */
static int write_anew(struct state_db *d, uint64_t now_ms, struct errmsg *msg)
{
    const struct bytes renewed = {buf_bytes(&d->renewed), buf_len(&d->renewed)};
    char sql[STATE_SQL_MAX];
    int rv = add_new(d, msg);

    rv = rv == 0 ? state_db_renew(d, renewed, msg) : rv;
    (void)snprintf(sql, sizeof(sql), "pragma user_version = %d", STATE_SCHEMA);
    rv = rv == 0 ? state_db_query(d, sql, NULL, msg) : rv;
    return rv == 0 ? state_db_mark(d, now_ms, msg) : rv;
}

/* Its own transaction, that is in the database's file before another follows: a log of
 * another version's database would be nobody's. */
static int upgrade(struct state_db *d, uint64_t now_ms, struct errmsg *msg)
{
    const struct state_totals before = d->totals;
    int rv = state_db_run(d, d->begin, "beginning", msg);

    rv = rv == 0 ? write_anew(d, now_ms, msg) : rv;
    rv = rv == 0 ? state_db_run(d, d->commit, "committing", msg) : rv;
    if (rv < 0) {
        return state_db_roll_back(d, &before, rv);
    }
    d->schema = STATE_SCHEMA;
    buf_release(&d->renewed);
    return state_db_checkpoint(d, SQLITE_CHECKPOINT_TRUNCATE, msg);
}

struct writing {
    struct state_db *d;
    int rv;
    struct errmsg *msg;
};

static void write_record(void *arg, const struct record *r)
{
    struct writing *w = arg;

    w->rv = w->rv == 0 ? state_db_apply(w->d, r, 0, w->msg) : w->rv; /* no history */
}

static int write_start(struct state_db *d, struct errmsg *msg)
{
    const struct start now = {d->identity.boot, d->identity.start, d->identity.found};
    struct writing w = {d, 0, msg};

    starts_save(&now, write_record, &w);
    return w.rv;
}

/* The log is emptied first: what an unfinished transaction has left in it must not be
 * taken for damage, when another has been written over its beginning. */
int state_db_begin(struct state_db *d, struct errmsg *msg)
{
    uint64_t now_ms = d->config.clock_ms + d->identity.clock_offset_ms;
    struct state_totals before;
    int rv;

    rv = state_db_checkpoint(d, SQLITE_CHECKPOINT_TRUNCATE, msg);
    rv = rv == 0 && d->schema < STATE_SCHEMA ? upgrade(d, now_ms, msg) : rv;
    before = d->totals;
    rv = rv == 0 ? state_db_run(d, d->begin, "beginning", msg) : rv;
    rv = rv == 0 ? write_start(d, msg) : rv;
    rv = rv == 0 ? state_db_mark(d, now_ms, msg) : rv;
    rv = rv == 0 ? state_db_end(d, msg) : rv;
    return rv < 0 ? state_db_roll_back(d, &before, rv) : 0;
}
