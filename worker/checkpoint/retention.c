/* The folder of checkpoints: what is committed in it, and how the rest goes.
 *
 * A directory is renamed to trash-* before its files are deleted: so a name is
 * committed or gone, never half there, and a zombie that still writes into it meets
 * ENOENT. Several processes may do this at once (a zombie's rank 0): what is gone
 * already is fine. */

#include "worker/checkpoint/retention.h"

#include "worker/checkpoint/file.h"
#include "worker/checkpoint/manifest.h"

#include "common/mem.h"
#include "common/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char trash[] = "trash-";

enum { TRASH_TRIES = 1000, NAMES_MAX = 1 << 20, DEPTH_MAX = 32 };

/* --- names --- */

bool retention_parse(const char *name, bool tmp, uint64_t *ret_step,
                     int *ret_run_generation)
{
    char again[64];
    uint64_t step;
    uint64_t run_generation;
    char *end;

    if (!str_starts_with(name, "step-") || strlen(name) >= sizeof(again)) {
        return false;
    }
    errno = 0;
    step = strtoull(name + 5, &end, 10);
    if (errno != 0 || !str_starts_with(end, "-g")) {
        return false;
    }
    run_generation = strtoull(end + 2, &end, 10);
    if (errno != 0 || run_generation < 1 || run_generation > INT32_MAX) {
        return false;
    }
    /* written again it must be the same text: no other spelling is committed */
    if (!str_format(again, sizeof(again), "step-%08" PRIu64 "-g%" PRIu64 "%s", step,
                    run_generation, tmp ? ".tmp" : "") ||
        strcmp(again, name) != 0) {
        return false;
    }
    *ret_step = step;
    *ret_run_generation = (int)run_generation;
    return true;
}

static bool ends_with(const char *text, const char *ending)
{
    size_t len = strlen(text);
    size_t n = strlen(ending);

    return len >= n && strcmp(text + len - n, ending) == 0;
}

/* Left over from a crash. Names that are nothing of ours stay: the folder may hold a
 * person's notes and copies, and another framework's checkpoints. */
static bool is_leftover(const char *name, int keep_run_generation)
{
    uint64_t step;
    int run_generation;

    if (retention_parse(name, true, &step, &run_generation)) {
        return keep_run_generation <= 0 || run_generation < keep_run_generation;
    }
    return str_starts_with(name, trash) ||
           (str_starts_with(name, "step-") && ends_with(name, ".tmp"));
}

struct names {
    char **name; /* owned, each too */
    size_t n;
};

static void names_release(struct names *names)
{
    for (size_t i = 0; i < names->n; i++) {
        mem_free(names->name[i]);
    }
    mem_free(names->name);
    *names = (struct names){0};
}

static int compare_texts(const void *a, const void *b)
{
    const char *const *x = a;
    const char *const *y = b;

    return strcmp(*x, *y);
}

/* readdir until its end; 0 or -errno. */
static int read_names(DIR *d, struct names *ret)
{
    const struct dirent *e;

    for (;;) {
        errno = 0;
        e = readdir(d); /* NOLINT(concurrency-mt-unsafe): `d` is this thread's own */
        if (!e) {
            return -errno;
        }
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        if (ret->n == NAMES_MAX) {
            return ERR_TOO_LARGE;
        }
        if ((ret->n & (ret->n - 1)) == 0) { /* room doubles at powers of two */
            ret->name = mem_grow(ret->name, MAX(2 * ret->n, 1), sizeof(*ret->name));
        }
        ret->name[ret->n++] = mem_strdup(e->d_name);
    }
}

/* The names in a directory, sorted; none when there is no directory. */
static int list_names(const char *dir, struct names *ret, struct errmsg *msg)
{
    DIR *d = opendir(dir);
    int rv;

    *ret = (struct names){0};
    if (!d) {
        return errno == ENOENT ? 0 : file_error(msg, -errno, "list", dir);
    }
    rv = read_names(d, ret);
    (void)closedir(d); /* read only */
    if (rv < 0) {
        names_release(ret);
        return file_error(msg, rv, "list", dir);
    }
    if (ret->n > 0) {
        qsort(ret->name, ret->n, sizeof(*ret->name), compare_texts);
    }
    return 0;
}

/* --- listing --- */

static int compare_entries(const void *a, const void *b)
{
    const struct checkpoint_entry *x = a;
    const struct checkpoint_entry *y = b;

    if (x->run_generation != y->run_generation) {
        return x->run_generation > y->run_generation ? -1 : 1;
    }
    return (x->step < y->step) - (x->step > y->step);
}

/* 1 for a committed directory, 0 for anything else, or -errno: one that cannot be
 * looked at now is not left out. */
static int get_entry(const char *dir, const char *name, struct checkpoint_entry *e,
                     struct errmsg *msg)
{
    struct stat st;

    if (!retention_parse(name, false, &e->step, &e->run_generation) ||
        !str_format(e->path, sizeof(e->path), "%s/%s", dir, name)) {
        return 0;
    }
    if (lstat(e->path, &st) < 0) {
        return errno == ENOENT ? 0 : file_error(msg, -errno, "look at", e->path);
    }
    return S_ISDIR(st.st_mode) ? 1 : 0;
}

int checkpoint_list(const char *dir, struct checkpoint_entry **ret, size_t *ret_n,
                    struct errmsg *msg)
{
    struct checkpoint_entry *entry;
    struct names names;
    size_t n = 0;
    int rv = list_names(dir, &names, msg);

    if (rv < 0) {
        return rv;
    }
    entry = mem_array(names.n, sizeof(*entry));
    for (size_t i = 0; i < names.n && rv >= 0; i++) {
        rv = get_entry(dir, names.name[i], &entry[n], msg);
        n += rv > 0 ? 1 : 0;
    }
    names_release(&names);
    if (rv < 0) {
        mem_free(entry);
        return rv;
    }
    if (n > 0) {
        qsort(entry, n, sizeof(*entry), compare_entries);
    }
    *ret = entry;
    *ret_n = n;
    return 0;
}

/* --- deleting --- */

/* 0, or what it failed with; gone already is success. */
static int delete_entry(const FTSENT *e)
{
    int rv;

    switch (e->fts_info) {
    case FTS_D: /* on the way down */
        return 0;
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
        return e->fts_errno == ENOENT ? 0 : -e->fts_errno;
    case FTS_DP:
        rv = rmdir(e->fts_accpath);
        break;
    default:
        rv = unlink(e->fts_accpath);
        break;
    }
    return rv < 0 && errno != ENOENT ? -errno : 0;
}

/* Whatever it is, with what is in it; links are deleted, not followed, and other file
 * systems are left alone. The first error is told, the rest goes all the same. */
static int delete_path(const char *path, struct errmsg *msg)
{
    char root[CHECKPOINT_PATH_MAX];
    char *const roots[] = {root, NULL};
    FTSENT *e;
    FTS *fts;
    int first = 0;

    if (!str_format(root, sizeof(root), "%s", path)) {
        return file_error(msg, -ENAMETOOLONG, "delete", path);
    }
    fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
    if (!fts) {
        return file_error(msg, -errno, "delete", path);
    }
    while ((e = fts_read(fts)) != NULL) {
        int rv = delete_entry(e);

        if (rv < 0 && first == 0) {
            first = file_error(msg, rv, "delete", e->fts_path);
        }
        if (e->fts_info == FTS_D && e->fts_level >= DEPTH_MAX) {
            (void)fts_set(fts, e, FTS_SKIP); /* it is not empty then, which is told */
        }
    }
    if (errno != 0 && first == 0) {
        first = file_error(msg, -errno, "delete", path);
    }
    (void)fts_close(fts); /* only read from */
    return first;
}

/* Renames DIR/NAME to a trash name that is free. */
static int to_trash(const char *dir, const char *name, char *path, size_t size,
                    struct errmsg *msg)
{
    char from[CHECKPOINT_PATH_MAX];

    if (!str_format(from, sizeof(from), "%s/%s", dir, name)) {
        return file_error(msg, -ENAMETOOLONG, "delete", dir);
    }
    for (int i = 0; i < TRASH_TRIES; i++) {
        if (!str_format(path, size, "%s/%s%s.%d", dir, trash, name, i)) {
            return file_error(msg, -ENAMETOOLONG, "delete", from);
        }
        if (renameat2(AT_FDCWD, from, AT_FDCWD, path, RENAME_NOREPLACE) == 0 ||
            errno == ENOENT) {
            return 0;
        }
        if (errno == EINVAL && access(path, F_OK) < 0 && rename(from, path) == 0) {
            return 0; /* a file system without NOREPLACE */
        }
        if (errno != EEXIST && errno != ENOTEMPTY && errno != EINVAL) {
            return file_error(msg, -errno, "rename", from);
        }
    }
    return file_error(msg, -EEXIST, "rename", from);
}

static int delete_name(const char *dir, const char *name, struct errmsg *msg)
{
    char path[CHECKPOINT_PATH_MAX];
    int rv = 0;

    if (!str_starts_with(name, trash)) {
        rv = to_trash(dir, name, path, sizeof(path), msg);
    } else if (!str_format(path, sizeof(path), "%s/%s", dir, name)) {
        rv = file_error(msg, -ENAMETOOLONG, "delete", dir);
    }
    return rv == 0 ? delete_path(path, msg) : rv;
}

int checkpoint_discard(const char *dir, uint64_t step, int run_generation,
                       struct errmsg *msg)
{
    char path[CHECKPOINT_PATH_MAX];

    checkpoint_path(path, sizeof(path), dir, step, run_generation, true);
    return delete_name(dir, strrchr(path, '/') + 1, msg);
}

/* A zombie may still write to a temporary that has kept its name. */
static bool is_dangerous(const char *dir, const char *name)
{
    char path[CHECKPOINT_PATH_MAX];
    uint64_t step;
    int run_generation;

    return retention_parse(name, true, &step, &run_generation) &&
           str_format(path, sizeof(path), "%s/%s", dir, name) &&
           access(path, F_OK) == 0;
}

int checkpoint_sweep(const char *dir, int keep_run_generation, struct errmsg *msg)
{
    struct names names;
    int rv = list_names(dir, &names, msg);
    int n_left = 0;
    int first = 0;

    if (rv < 0) {
        return rv;
    }
    for (size_t i = 0; i < names.n; i++) {
        const char *name = names.name[i];
        struct errmsg why = {""};

        rv = is_leftover(name, keep_run_generation) ? delete_name(dir, name, &why) : 0;
        if (rv == 0) {
            continue; /* the others go nevertheless */
        }
        if (first == 0 && is_dangerous(dir, name)) {
            first = errmsg_set(msg, rv, "%s", why.text);
        } else if (first == 0 && n_left == 0) {
            (void)errmsg_set(msg, rv, "%s", why.text);
        }
        n_left++;
    }
    names_release(&names);
    return first < 0 ? first : n_left;
}

/* --- what is kept --- */

/* A newer one of the same step has taken its place. */
static bool is_superseded(const struct retained *all, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (all[k].entry.step == all[i].entry.step) {
            return true;
        }
    }
    return false;
}

/* The lowest val_loss that has not been taken; of equal ones the newest. NULL: none. */
static const struct retained *find_best(const struct retained *all, size_t n,
                                        const bool *is_taken)
{
    const struct retained *best = NULL;

    for (size_t i = 0; i < n; i++) {
        if (all[i].has_val_loss && !is_taken[i] &&
            (!best || all[i].val_loss < best->val_loss)) {
            best = &all[i];
        }
    }
    return best;
}

static void keep_best(struct retained *all, size_t n, const bool *is_old, size_t k)
{
    bool *is_taken = mem_array(n, sizeof(*is_taken));

    memcpy(is_taken, is_old, n * sizeof(*is_taken));
    for (const struct retained *best; k > 0 && (best = find_best(all, n, is_taken));
         k--) {
        is_taken[best - all] = true;
        all[best - all].is_kept = true;
    }
    mem_free(is_taken);
}

/* The first of its `every` steps that there is: those before the first `every` have
 * none to keep. Later ones change nothing about it. */
static bool is_first_of_every(const struct retained *all, size_t n, const bool *is_old,
                              size_t i, uint64_t every)
{
    uint64_t step = all[i].entry.step;

    if (every == 0 || step < every || is_old[i]) {
        return false;
    }
    for (size_t k = 0; k < n; k++) {
        if (!is_old[k] && all[k].entry.step < step &&
            all[k].entry.step / every == step / every) {
            return false;
        }
    }
    return true;
}

void retention_choose(struct retained *all, size_t n,
                      const struct checkpoint_retention *retention)
{
    bool *is_old = mem_array(n, sizeof(*is_old));

    for (size_t i = 0; i < n; i++) {
        is_old[i] = is_superseded(all, i);
    }
    for (size_t i = 0; i < n; i++) {
        struct retained *r = &all[i];

        r->is_kept = retention->keep == 0 || i < retention->keep ||
                     (retention->keep_best > 0 && r->is_unreadable) ||
                     is_first_of_every(all, n, is_old, i, retention->keep_every);
    }
    if (retention->keep > 0 && n > 0) {
        keep_best(all, n, is_old, retention->keep_best);
    }
    mem_free(is_old);
}

/* A damaged manifest has no val_loss; one that cannot be read now may have. */
static void read_val_loss(struct retained *r)
{
    struct manifest m = {0};
    int rv = manifest_read(r->entry.path, &m, NULL);

    r->has_val_loss = rv == 0 && m.meta.has_val_loss;
    r->val_loss = r->has_val_loss ? m.meta.val_loss : 0;
    r->is_unreadable =
        rv < 0 && rv != ERR_CORRUPT && rv != ERR_MISSING && rv != ERR_TOO_LARGE;
    manifest_release(&m);
}

int retention_list(const char *dir, const struct checkpoint_retention *retention,
                   struct retained **ret, size_t *ret_n, struct errmsg *msg)
{
    struct checkpoint_entry *entry = NULL;
    struct retained *all;
    size_t n = 0;
    int rv = checkpoint_list(dir, &entry, &n, msg);

    if (rv < 0) {
        return rv;
    }
    all = mem_array(n, sizeof(*all));
    for (size_t i = 0; i < n; i++) {
        all[i].entry = entry[i];
        if (retention->keep_best > 0) {
            read_val_loss(&all[i]);
        }
    }
    mem_free(entry);
    retention_choose(all, n, retention);
    *ret = all;
    *ret_n = n;
    return 0;
}

int retention_delete(const char *dir, const struct retained *all, size_t n,
                     void (*on_deleted)(void *arg, const char *name), void *arg,
                     struct errmsg *msg)
{
    int rv = 0;

    for (size_t i = n; i > 0 && rv == 0; i--) { /* the oldest first */
        const char *name = strrchr(all[i - 1].entry.path, '/') + 1;

        if (all[i - 1].is_kept) {
            continue;
        }
        rv = delete_name(dir, name, msg);
        if (rv == 0 && on_deleted) {
            on_deleted(arg, name);
        }
    }
    return rv;
}

int checkpoint_prune(const char *dir, const struct checkpoint_retention *retention,
                     struct errmsg *msg)
{
    struct retained *all = NULL;
    size_t n = 0;
    int rv;

    if (retention->keep == 0) {
        return 0;
    }
    rv = retention_list(dir, retention, &all, &n, msg);
    rv = rv < 0 ? rv : retention_delete(dir, all, n, NULL, NULL, msg);
    mem_free(all);
    return rv;
}
