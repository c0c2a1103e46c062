#include "tests/lib/simdisk.h"

#include "common/check.h"
#include "common/mem.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { SECTOR = 512, NAME_MAX_SIZE = 64, MAX_INODES = 256 };

enum op_kind { OP_CREATE, OP_DELETE, OP_WRITE, OP_TRUNCATE, OP_SYNC, OP_SYNC_DIR };

struct op {
    enum op_kind kind;
    size_t inode;
    char name[NAME_MAX_SIZE]; /* CREATE, DELETE */
    uint64_t offset;          /* TRUNCATE: the new size */
    uint8_t *data;            /* owned */
    size_t size;
};

struct bytes_of {
    uint8_t *data; /* owned */
    size_t size, capacity;
};

struct entry {
    char name[NAME_MAX_SIZE];
    size_t inode;
};

/* A disk's files at some moment. */
struct image {
    struct bytes_of inodes[MAX_INODES];
    struct entry entries[MAX_INODES];
    size_t n_entries;
};

struct simdisk {
    struct image live;
    size_t n_inodes;
    struct op *ops; /* owned */
    size_t n_ops;
    uint64_t limit;
    bool has_failing_syncs;
    /* What is on the platters behind the first `replayed` calls, and which of these
     * calls may be lost. */
    struct image safe;
    size_t replayed;
    size_t *pending; /* owned: numbers of calls, in order */
    size_t n_pending;
};

static struct simdisk *current;

/* ---- chance ---- */

static uint64_t next(uint64_t *chance)
{
    uint64_t z = (*chance += 0x9e3779b97f4a7c15); /* splitmix64 */

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static bool is_lucky(uint64_t *chance, unsigned percent)
{
    return next(chance) % 100 < percent;
}

/* ---- images ---- */

static void set_size(struct bytes_of *b, uint64_t size)
{
    if (size > b->capacity) {
        size_t capacity = MAX((size_t)size, b->capacity * 2);

        b->data = mem_grow(b->data, capacity, 1);
        memset(b->data + b->capacity, 0, capacity - b->capacity);
        b->capacity = capacity;
    }
    if (size < b->size) {
        memset(b->data + size, 0, b->size - (size_t)size);
    }
    b->size = (size_t)size;
}

static void put(struct bytes_of *b, uint64_t offset, const uint8_t *data, size_t size)
{
    if (offset + size > b->size) {
        set_size(b, offset + size);
    }
    memcpy(b->data + offset, data, size);
}

static struct entry *find(struct image *m, const char *name)
{
    for (size_t i = 0; i < m->n_entries; i++) {
        if (strcmp(m->entries[i].name, name) == 0) {
            return &m->entries[i];
        }
    }
    return NULL;
}

static void apply(struct image *m, const struct op *op)
{
    struct entry *e;

    switch (op->kind) {
    case OP_CREATE:
        ASSERT(m->n_entries < MAX_INODES);
        e = find(m, op->name);
        e = e ? e : &m->entries[m->n_entries++];
        memcpy(e->name, op->name, sizeof(e->name));
        e->inode = op->inode;
        break;
    case OP_DELETE:
        e = find(m, op->name);
        if (e) {
            *e = m->entries[--m->n_entries];
        }
        break;
    case OP_WRITE:
        put(&m->inodes[op->inode], op->offset, op->data, op->size);
        break;
    case OP_TRUNCATE:
        set_size(&m->inodes[op->inode], op->offset);
        break;
    case OP_SYNC:
    case OP_SYNC_DIR:
        break;
    }
}

static void image_copy(struct image *to, const struct image *from)
{
    *to = *from;
    for (size_t i = 0; i < MAX_INODES; i++) {
        struct bytes_of *b = &to->inodes[i];

        b->capacity = b->size;
        b->data = b->size > 0 ? mem_dup(from->inodes[i].data, b->size) : NULL;
    }
}

static void image_release(struct image *m)
{
    for (size_t i = 0; i < MAX_INODES; i++) {
        mem_free(m->inodes[i].data);
    }
}

/* ---- the log ---- */

static void log_op(struct simdisk *d, const struct op *op)
{
    struct op *kept;

    d->ops = mem_grow(d->ops, d->n_ops + 1, sizeof(*d->ops));
    kept = &d->ops[d->n_ops++];
    *kept = *op;
    kept->data = op->data ? mem_dup(op->data, op->size) : NULL;
    apply(&d->live, kept);
}

size_t simdisk_calls(const struct simdisk *d)
{
    return d->n_ops;
}

static bool is_of_folder(const struct op *op)
{
    return op->kind == OP_CREATE || op->kind == OP_DELETE;
}

/* What this call makes safe is on the platters now. */
static void settle(struct simdisk *d, const struct op *sync)
{
    size_t left = 0;

    for (size_t i = 0; i < d->n_pending; i++) {
        const struct op *op = &d->ops[d->pending[i]];
        bool is_safe = sync->kind == OP_SYNC_DIR
                           ? is_of_folder(op)
                           : !is_of_folder(op) && op->inode == sync->inode;

        if (is_safe) {
            apply(&d->safe, op);
        } else {
            d->pending[left++] = d->pending[i];
        }
    }
    d->n_pending = left;
}

static void replay(struct simdisk *d, size_t n_calls)
{
    ASSERT(n_calls >= d->replayed && n_calls <= d->n_ops); /* crashes come in order */
    d->pending = mem_grow(d->pending, d->n_ops + 1, sizeof(*d->pending));
    for (; d->replayed < n_calls; d->replayed++) {
        const struct op *op = &d->ops[d->replayed];

        if (op->kind == OP_SYNC || op->kind == OP_SYNC_DIR) {
            settle(d, op);
        } else {
            d->pending[d->n_pending++] = d->replayed;
        }
    }
}

/* Each sector of a write by itself, the folder's changes up to one of them. */
static void apply_some(struct image *m, const struct op *op, uint64_t *chance,
                       unsigned percent, bool *folder_goes_on)
{
    if (op->kind != OP_WRITE) {
        bool is_there = is_lucky(chance, percent);

        if (is_of_folder(op)) {
            *folder_goes_on = *folder_goes_on && is_there;
            is_there = *folder_goes_on;
        }
        if (is_there) {
            apply(m, op);
        }
        return;
    }
    for (size_t at = 0; at < op->size;) {
        size_t n = MIN(SECTOR - (size_t)((op->offset + at) % SECTOR), op->size - at);

        if (is_lucky(chance, percent)) {
            put(&m->inodes[op->inode], op->offset + at, op->data + at, n);
        }
        at += n;
    }
}

struct simdisk *simdisk_crash(struct simdisk *d, size_t n_calls, uint64_t seed)
{
    static const unsigned percents[] = {0, 100, 50, 90};
    unsigned percent = percents[seed % ARRAY_LEN(percents)];
    struct simdisk *found = simdisk_new();
    bool folder_goes_on = true;
    uint64_t chance = seed;

    replay(d, n_calls);
    image_copy(&found->live, &d->safe);
    found->n_inodes = d->n_inodes;
    for (size_t i = 0; i < d->n_pending; i++) {
        apply_some(&found->live, &d->ops[d->pending[i]], &chance, percent,
                   &folder_goes_on);
    }
    image_copy(&found->safe, &found->live);
    return found;
}

struct simdisk *simdisk_new(void)
{
    return mem_zalloc(sizeof(struct simdisk));
}

void simdisk_free(struct simdisk *d)
{
    image_release(&d->live);
    image_release(&d->safe);
    for (size_t i = 0; i < d->n_ops; i++) {
        mem_free(d->ops[i].data);
    }
    mem_free(d->ops);
    mem_free(d->pending);
    mem_free(d);
}

void simdisk_use(struct simdisk *d)
{
    current = d;
}

void simdisk_set_limit(struct simdisk *d, uint64_t bytes)
{
    d->limit = bytes;
}

void simdisk_fail_syncs(struct simdisk *d, bool do_fail)
{
    d->has_failing_syncs = do_fail;
}

uint8_t *simdisk_bytes(struct simdisk *d, const char *name, size_t *ret_size)
{
    struct entry *e = find(&d->live, name);

    *ret_size = e ? d->live.inodes[e->inode].size : 0;
    return e ? d->live.inodes[e->inode].data : NULL;
}

/* ---- SQLite's files ---- */

struct file {
    sqlite3_file base;
    struct simdisk *disk;
    size_t inode;
    bool syncs_folder; /* with its first sync, as on Unix */
};

static int file_close(sqlite3_file *f)
{
    (void)f;
    return SQLITE_OK;
}

static int file_read(sqlite3_file *f, void *data, int size, sqlite3_int64 offset)
{
    const struct file *file = (struct file *)f;
    const struct bytes_of *b = &file->disk->live.inodes[file->inode];
    size_t there = (size_t)offset < b->size ? b->size - (size_t)offset : 0;
    size_t n = MIN(there, (size_t)size);

    memset(data, 0, (size_t)size);
    if (n > 0) {
        memcpy(data, b->data + offset, n);
    }
    return n == (size_t)size ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

static uint64_t used(const struct simdisk *d)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < d->live.n_entries; i++) {
        sum += d->live.inodes[d->live.entries[i].inode].size;
    }
    return sum;
}

static int file_write(sqlite3_file *f, const void *data, int size, sqlite3_int64 offset)
{
    const struct file *file = (struct file *)f;
    const struct bytes_of *b = &file->disk->live.inodes[file->inode];
    uint64_t end = (uint64_t)offset + (uint64_t)size;
    uint64_t more = end > b->size ? end - b->size : 0;
    struct op op = {.kind = OP_WRITE,
                    .inode = file->inode,
                    .offset = (uint64_t)offset,
                    .data = (uint8_t *)(uintptr_t)data,
                    .size = (size_t)size};

    if (more > 0 && file->disk->limit > 0 &&
        used(file->disk) + more > file->disk->limit) {
        return SQLITE_FULL;
    }
    log_op(file->disk, &op);
    return SQLITE_OK;
}

static int file_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    const struct file *file = (struct file *)f;

    log_op(file->disk, &(struct op){.kind = OP_TRUNCATE,
                                    .inode = file->inode,
                                    .offset = (uint64_t)size});
    return SQLITE_OK;
}

static int file_sync(sqlite3_file *f, int flags)
{
    struct file *file = (struct file *)f;

    (void)flags;
    if (file->disk->has_failing_syncs) {
        return SQLITE_IOERR_FSYNC;
    }
    log_op(file->disk, &(struct op){.kind = OP_SYNC, .inode = file->inode});
    if (file->syncs_folder) {
        log_op(file->disk, &(struct op){.kind = OP_SYNC_DIR});
        file->syncs_folder = false;
    }
    return SQLITE_OK;
}

static int file_size(sqlite3_file *f, sqlite3_int64 *ret)
{
    const struct file *file = (struct file *)f;

    *ret = (sqlite3_int64)file->disk->live.inodes[file->inode].size;
    return SQLITE_OK;
}

static int file_lock(sqlite3_file *f, int level)
{
    (void)f;
    (void)level;
    return SQLITE_OK;
}

static int file_is_reserved(sqlite3_file *f, int *ret)
{
    (void)f;
    *ret = 0;
    return SQLITE_OK;
}

static int file_control(sqlite3_file *f, int what, void *arg)
{
    (void)f;
    (void)what;
    (void)arg;
    return SQLITE_NOTFOUND;
}

static int file_sector(sqlite3_file *f)
{
    (void)f;
    return SECTOR;
}

static int file_device(sqlite3_file *f)
{
    (void)f;
    return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_lock,
    .xCheckReservedLock = file_is_reserved,
    .xFileControl = file_control,
    .xSectorSize = file_sector,
    .xDeviceCharacteristics = file_device,
};

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags,
                    int *ret_flags)
{
    struct file *file = (struct file *)f;
    struct entry *e;

    (void)vfs;
    *file = (struct file){.disk = current};
    ASSERT(name); /* no temporary files: they are in memory */
    e = find(&current->live, name);
    if (!e && !(flags & SQLITE_OPEN_CREATE)) {
        return SQLITE_CANTOPEN;
    }
    if (!e) {
        struct op op = {.kind = OP_CREATE, .inode = current->n_inodes++};

        ASSERT(op.inode < MAX_INODES);
        (void)snprintf(op.name, sizeof(op.name), "%s", name);
        log_op(current, &op);
        e = find(&current->live, name);
        file->syncs_folder =
            (flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL)) != 0;
    }
    file->inode = e->inode;
    file->base.pMethods = &methods;
    if (ret_flags) {
        *ret_flags = flags;
    }
    return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *name, int sync_folder)
{
    struct op op = {.kind = OP_DELETE};

    (void)vfs;
    if (!find(&current->live, name)) {
        return SQLITE_IOERR_DELETE_NOENT;
    }
    (void)snprintf(op.name, sizeof(op.name), "%s", name);
    log_op(current, &op);
    if (sync_folder) {
        log_op(current, &(struct op){.kind = OP_SYNC_DIR});
    }
    return SQLITE_OK;
}

static int vfs_access(sqlite3_vfs *vfs, const char *name, int flags, int *ret)
{
    (void)vfs;
    (void)flags;
    *ret = find(&current->live, name) != NULL;
    return SQLITE_OK;
}

static int vfs_full_path(sqlite3_vfs *vfs, const char *name, int size, char *ret)
{
    (void)vfs;
    (void)snprintf(ret, (size_t)size, "%s", name);
    return SQLITE_OK;
}

static int vfs_randomness(sqlite3_vfs *vfs, int size, char *ret)
{
    static uint64_t chance;

    (void)vfs;
    for (int i = 0; i < size; i++) {
        ret[i] = (char)next(&chance); /* the same in each run */
    }
    return size;
}

static int vfs_sleep(sqlite3_vfs *vfs, int us)
{
    (void)vfs;
    return us;
}

static int vfs_time(sqlite3_vfs *vfs, double *ret)
{
    (void)vfs;
    *ret = 2460000.5;
    return SQLITE_OK;
}

/* The system's, of the last call that failed: only a sync's is asked for. */
static int vfs_last_error(sqlite3_vfs *vfs, int size, char *ret)
{
    (void)vfs;
    (void)size;
    (void)ret;
    return current->has_failing_syncs ? ENOSPC : 0;
}

void simdisk_register(void)
{
    static sqlite3_vfs vfs = {
        .iVersion = 1,
        .szOsFile = sizeof(struct file),
        .mxPathname = NAME_MAX_SIZE - 8,
        .zName = "simdisk",
        .xOpen = vfs_open,
        .xDelete = vfs_delete,
        .xAccess = vfs_access,
        .xFullPathname = vfs_full_path,
        .xRandomness = vfs_randomness,
        .xSleep = vfs_sleep,
        .xCurrentTime = vfs_time,
        .xGetLastError = vfs_last_error,
    };
    int rc = sqlite3_vfs_register(&vfs, 0);

    ASSERT(rc == SQLITE_OK);
}
