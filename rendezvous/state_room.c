#include "rendezvous/state_room.h"

#include "rendezvous/space.h"
#include "rendezvous/state_db.h"
#include "rendezvous/state_dir.h"

#include <errno.h>

enum { LOG_PART = 1 << 16 }; /* by which the log grows, where it must */

/* What copying the log takes, and the file system does not have. */
static uint64_t missing(const struct state_dir *dir, const struct state_db *db)
{
    uint64_t wants = state_db_growth(db);
    uint64_t on_disk = 0;

    if (state_dir_free(dir, &on_disk) < 0) {
        on_disk = 0; /* the next look at it says why */
    }
    return wants - MIN(wants, on_disk);
}

/* A copy that comes to no end takes what is left, and makes no room. */
static bool can_copy(const struct state_dir *dir, const struct state_db *db)
{
    return missing(dir, db) <= dir->reserve_left;
}

/* Others who write to this disk may be first: then it is given up once more. */
static int copy_log(struct state_dir *dir, struct state_db *db, struct errmsg *msg)
{
    int rv;

    do {
        rv = state_db_copy_log(db, msg);
    } while (rv == -ENOSPC && can_copy(dir, db) &&
             state_dir_give_up(dir, missing(dir, db)) == 0);
    return rv;
}

int state_room_make(struct state_dir *dir, struct state_db *db, uint64_t bytes,
                    struct errmsg *msg)
{
    bool has_log = db && state_db_log_pages(db) > 0;

    if (has_log && can_copy(dir, db)) {
        return copy_log(dir, db, msg);
    }
    if (has_log && bytes == 0) {
        return -ENOSPC; /* tidying can wait */
    }
    return state_dir_give_up(dir, (db && !has_log ? missing(dir, db) : 0) + bytes +
                                      LOG_PART);
}

/* With what is left of the reserve; where that cannot be made whole though there is
 * enough for it (a quota), the rest is none for us. */
static int measure(struct state_dir *dir, const struct state_db *db, uint64_t *ret)
{
    uint64_t whole = dir->reserve_bytes;
    uint64_t on_disk = 0;
    int rv = state_dir_free(dir, &on_disk);

    *ret = rv == 0 ? state_db_free_bytes(db, on_disk + dir->reserve_left) : 0;
    if (rv < 0 || dir->reserve_left == whole || on_disk < whole - dir->reserve_left ||
        *ret < space_wanted(whole, 0)) {
        return rv;
    }
    rv = state_dir_make_reserve(dir);
    if (rv == -ENOSPC) {
        *ret = state_db_free_bytes(db, dir->reserve_left);
        rv = 0;
    }
    return rv;
}

int state_room_look(struct state_dir *dir, const struct state_db *db,
                    enum durable_space before, enum durable_space *ret)
{
    uint64_t room = 0;
    int rv = measure(dir, db, &room);

    *ret = space_level(room, dir->reserve_bytes,
                       dir->reserve_left == dir->reserve_bytes, before);
    return rv;
}
