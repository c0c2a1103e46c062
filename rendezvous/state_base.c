#include "rendezvous/state_base.h"

#include "common/mem.h"
#include "common/table.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>

enum { BASE_SEED = 2 };

struct written { /* by one machine, and read there */
    struct state_base base;
    uint64_t check;
};

static uint64_t check_of(const struct state_base *b)
{
    return table_hash(b, sizeof(*b), BASE_SEED);
}

/* `name` must outlive the file: SQLite's own layer keeps the pointer. */
static int open_file(const char *vfs_name, const char *name, int flags,
                     sqlite3_file **ret)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(vfs_name);
    int system_error = 0;
    int rc;

    *ret = mem_zalloc((size_t)vfs->szOsFile);
    /* of a kind whose folder is synced with its first sync */
    rc = vfs->xOpen(vfs, name, *ret, flags | SQLITE_OPEN_WAL, NULL);
    if (rc != SQLITE_OK) {
        system_error = vfs->xGetLastError ? vfs->xGetLastError(vfs, 0, NULL) : 0;
        mem_free(*ret);
    }
    if (rc == SQLITE_OK) {
        return 0;
    }
    /* descriptors come back, too: it is tried again */
    return system_error == ENOSPC || system_error == EDQUOT || system_error == EMFILE ||
                   system_error == ENFILE
               ? -ENOSPC
               : -EIO;
}

static int close_file(sqlite3_file *file, int rc)
{
    int closed = file->pMethods->xClose(file);

    mem_free(file);
    return rc == SQLITE_OK ? closed : rc;
}

static int write_file(const char *vfs, const char *name, const struct state_base *b)
{
    struct written w = {*b, check_of(b)};
    sqlite3_file *file;
    int rc;
    int rv = open_file(vfs, name, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &file);

    if (rv < 0) {
        return rv;
    }
    rc = file->pMethods->xWrite(file, &w, sizeof(w), 0);
    rc = rc == SQLITE_OK ? file->pMethods->xSync(file, SQLITE_SYNC_NORMAL) : rc;
    rc = close_file(file, rc);
    if (rc == SQLITE_OK) {
        return 0;
    }
    return rc == SQLITE_FULL ? -ENOSPC : -EIO;
}

int state_base_write(const char *vfs, const char *path, const struct state_base *b)
{
    char *name = mem_printf("%s-base", path);
    int rv = write_file(vfs, name, b);

    mem_free(name);
    return rv;
}

static bool read_file(const char *vfs, const char *name, struct state_base *ret)
{
    sqlite3_file *file;
    struct written w;
    int rc;

    if (open_file(vfs, name, SQLITE_OPEN_READONLY, &file) < 0) {
        return false;
    }
    rc = close_file(file, file->pMethods->xRead(file, &w, sizeof(w), 0));
    if (rc != SQLITE_OK || w.check != check_of(&w.base)) {
        return false;
    }
    *ret = w.base;
    return true;
}

bool state_base_read(const char *vfs, const char *path, struct state_base *ret)
{
    char *name = mem_printf("%s-base", path);
    bool is_there = read_file(vfs, name, ret);

    mem_free(name);
    return is_there;
}
