/* Happy path: 1. the folder, and that nobody uses it; 2. the database is opened as at a
 * start, up to where that would write; 3. every row is read; 4. all is closed. */

#include "rendezvous/state_check.h"

#include "rendezvous/state.h"
#include "rendezvous/state_db.h"
#include "rendezvous/state_dir.h"

#include "common/mem.h"

#include <errno.h>

int state_blame(const struct state_dir *dir, int err, struct errmsg *msg)
{
    struct errmsg why = *msg;

    switch (err) {
    case ERR_CORRUPT:
        return errmsg_set(
            msg, err,
            "the state %.120s/state.db is damaged (%.160s), and nothing "
            "is made of it: put a copy in its place (state.db, "
            "state.db-wal and state.db-base together), or move all three "
            "away to begin anew: jobs that run now stay cut off then, and "
            "are to be ended and started again",
            dir->path, why.text);
    case ERR_UNSUPPORTED:
        return errmsg_set(msg, err,
                          "the state %.120s/state.db is not used: %.200s; install what "
                          "it belongs to, or give another --state-dir",
                          dir->path, why.text);
    case ERR_BUSY:
        return errmsg_set(msg, err,
                          "another program has the state %.160s/state.db open "
                          "(sqlite3?): end it",
                          dir->path);
    case -ENOSPC:
        return state_dir_blame_space(dir, msg);
    default:
        return errmsg_set(msg, err, "cannot use the state %.120s/state.db: %.300s",
                          dir->path, why.text);
    }
}

int state_blame_torn(const struct state_dir *dir, struct errmsg *msg)
{
    (void)errmsg_set(msg, ERR_CORRUPT,
                     "it is empty or gone, and its state.db-wal or "
                     "state.db-base is not");
    return state_blame(dir, ERR_CORRUPT, msg);
}

static int take_nothing(void *arg, const struct record *r, struct errmsg *msg)
{
    (void)arg;
    (void)r;
    (void)msg;
    return 0;
}

/* Anew each time: who had it open may have copied its log, and removed it. */
int state_open_db(struct state_dir *dir, const struct state_db_config *config,
                  struct state_db **ret, struct errmsg *msg)
{
    int rv;

    do {
        rv = state_db_open(config, ret, msg);
    } while (rv == ERR_BUSY && state_dir_wait(dir));
    return rv;
}

static int check_db(struct state_dir *dir, bool *ret_late, struct errmsg *msg)
{
    char *path = mem_printf("%s/state.db", dir->path);
    struct state_db_config config = {.path = path, .only_looks = true};
    bool has_log = state_dir_has_log(dir);
    struct state_db *db = NULL;
    int rv = state_open_db(dir, &config, &db, msg);

    if (rv == 0 && !state_db_is_blank(db)) {
        rv = state_db_load(db, take_nothing, NULL, msg);
        *ret_late = rv < 0;
    }
    state_db_close(db);
    if (!has_log) {
        state_dir_drop_empty_log(dir); /* SQLite makes one */
    }
    mem_free(path);
    return rv < 0 ? state_blame(dir, rv, msg) : 0;
}

int state_check(const char *path, bool *ret_used, bool *ret_late, struct errmsg *msg)
{
    struct state_dir dir;
    int rv = state_dir_look(&dir, path, msg);

    *ret_used = rv == ERR_BUSY;
    *ret_late = false;
    if (rv < 0) {
        return *ret_used ? 0 : rv;
    }
    dir.patience_ms = STATE_PATIENCE_MS;
    if (state_dir_is_torn(&dir)) {
        rv = state_blame_torn(&dir, msg);
    } else if (!state_dir_is_new(&dir)) {
        rv = check_db(&dir, ret_late, msg);
    }
    state_dir_close(&dir);
    return rv;
}
