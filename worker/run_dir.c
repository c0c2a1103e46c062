#include "worker/run_dir.h"

#include "common/storage.h"
#include "common/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail_with(struct errmsg *msg, int err, const char *what, const char *path)
{
    return errmsg_set(msg, err, "%s %s: %s", what, path, err_text(err));
}

static int fail(struct errmsg *msg, const char *what, const char *path)
{
    return fail_with(msg, -errno, what, path);
}

int run_dir_make(const char *path, struct errmsg *msg)
{
    struct stat st;
    int rv;

    if (strlen(path) >= RUN_DIR_PATH_MAX) {
        return errmsg_set(msg, ERR_TOO_LARGE, "run.dir is longer than %d bytes",
                          RUN_DIR_PATH_MAX - 1);
    }
    rv = storage_make_dirs(path);
    if (rv == -ENOTDIR || (rv == 0 && stat(path, &st) == 0 && !S_ISDIR(st.st_mode))) {
        return errmsg_set(msg, ERR_INVALID,
                          "run.dir=%s is a file, or lies in one: give this run another "
                          "run.dir or run.name, or move the file away",
                          path);
    }
    return rv < 0 ? fail_with(msg, rv, "cannot make the run directory", path) : 0;
}

static int join_path(char *ret, const char *dir, const char *name, struct errmsg *msg)
{
    if (!str_format(ret, RUN_DIR_PATH_MAX, "%s/%s", dir, name)) {
        return errmsg_set(msg, ERR_TOO_LARGE, "the path is too long: %s/%s", dir, name);
    }
    return 0;
}

static int write_whole(int fd, const char *text, const char *path, struct errmsg *msg)
{
    int rv = storage_write_all(fd, text, strlen(text));

    if (rv < 0) {
        return fail_with(msg, rv, "cannot write", path);
    }
    rv = storage_sync(fd);
    return rv < 0 ? fail_with(msg, rv, "cannot fsync", path) : 0;
}

int run_dir_write(const struct run_dir *r, const char *name, const char *text,
                  struct errmsg *msg)
{
    char path[RUN_DIR_PATH_MAX];
    char tmp[RUN_DIR_PATH_MAX];
    int rv;
    int fd;

    rv = join_path(path, r->path, name, msg);
    if (rv < 0) {
        return rv;
    }
    if (!str_format(tmp, sizeof(tmp), "%s.tmp", path)) {
        return errmsg_set(msg, ERR_TOO_LARGE, "the path is too long: %s.tmp", path);
    }
    fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return fail(msg, "cannot write", tmp);
    }
    rv = write_whole(fd, text, tmp, msg);
    (void)close(fd); /* what matters was fsynced */
    if (rv == 0 && rename(tmp, path) < 0) {
        rv = fail(msg, "cannot rename", tmp);
    }
    if (rv < 0) {
        (void)unlink(tmp); /* else the next call overwrites it */
    }
    return rv;
}

/* --- the locks --- */

static int open_lock(struct run_dir *r, const struct run_dir_owner *owner,
                     struct errmsg *msg)
{
    struct dir_lock_config config = {.dir = r->path,
                                     .what = "run directory",
                                     .remedy = "another run.name or run.dir",
                                     .cluster = owner->cluster,
                                     .job = owner->job,
                                     .wait_ms = owner->lock_wait_ms};

    return dir_lock_open(&config, &r->lock, msg);
}

static bool has(const char *dir, size_t len, const char *name)
{
    char path[PATH_MAX];

    return str_format(path, sizeof(path), "%.*s/%s", (int)len, dir, name) &&
           access(path, F_OK) == 0;
}

/* A folder in another run's directory is kept by the lock of that: `dir` becomes it. */
static void find_run_of(char *dir)
{
    char *slash = strrchr(dir, '/');
    size_t len = slash ? (size_t)(slash - dir) : 0;

    if (len > 0 && has(dir, len, ".lock") && has(dir, len, "log")) {
        *slash = '\0';
    }
}

/* A folder of checkpoints elsewhere may be another run's, too. */
static int open_checkpoint_lock(struct run_dir *r, const struct run_dir_owner *owner,
                                struct errmsg *msg)
{
    char dir[PATH_MAX];
    struct dir_lock_config config = {.dir = dir,
                                     .what = "checkpoint.dir",
                                     .remedy = "another checkpoint.dir",
                                     .cluster = owner->cluster,
                                     .job = owner->job,
                                     .wait_ms = owner->lock_wait_ms};
    int rv;

    if (!owner->checkpoint_dir) {
        return 0;
    }
    rv = storage_resolve(owner->checkpoint_dir, dir);
    if (rv == 0 && storage_is_in(dir, r->path)) {
        return 0;
    }
    rv = rv < 0 ? rv : storage_make_dirs(dir);
    if (rv < 0) {
        return fail_with(msg, rv, "cannot make checkpoint.dir", owner->checkpoint_dir);
    }
    find_run_of(dir);
    return dir_lock_open(&config, &r->checkpoint_lock, msg);
}

/* --- the run generation --- */

static int highest_generation(const char *log_dir, int *ret, struct errmsg *msg)
{
    const struct dirent *entry;
    uint64_t v;
    DIR *dir;

    dir = opendir(log_dir);
    if (!dir) {
        return fail(msg, "cannot read", log_dir);
    }
    /* one reader of this stream */
    while ((entry = readdir(dir)) != NULL) { /* NOLINT(concurrency-mt-unsafe) */
        if (str_parse_u64(entry->d_name, &v) == 0 && v < INT_MAX) {
            *ret = MAX(*ret, (int)v);
        }
    }
    (void)closedir(dir);
    return 0;
}

uint64_t run_dir_starts(const struct run_dir *r, int from)
{
    char path[RUN_DIR_PATH_MAX];
    const struct dirent *entry;
    uint64_t n = 0;
    uint64_t v;
    DIR *dir;

    dir = str_format(path, sizeof(path), "%s/log", r->path) ? opendir(path) : NULL;
    /* one reader of this stream */
    while (dir && (entry = readdir(dir))) { /* NOLINT(concurrency-mt-unsafe) */
        n += str_parse_u64(entry->d_name, &v) == 0 && v >= (uint64_t)from &&
             v < (uint64_t)r->run_generation;
    }
    if (dir) {
        (void)closedir(dir); /* read only */
    }
    return n;
}

static int make_generation(struct run_dir *r, uint64_t at_least, struct errmsg *msg)
{
    char dir[RUN_DIR_PATH_MAX];
    int highest = 0;
    int rv;

    rv = join_path(dir, r->path, "log", msg);
    if (rv == 0 && mkdir(dir, 0777) < 0 && errno != EEXIST) {
        rv = fail(msg, "cannot make", dir);
    }
    rv = rv < 0 ? rv : highest_generation(dir, &highest, msg);
    if (rv < 0) {
        return rv;
    }
    r->run_generation = MAX(highest + 1, (int)MIN(at_least, (uint64_t)INT_MAX / 2));
    for (;; r->run_generation++) {
        if (!str_format(r->log, sizeof(r->log), "%s/%d", dir, r->run_generation)) {
            return errmsg_set(msg, ERR_TOO_LARGE, "the path is too long: %s/%d", dir,
                              r->run_generation);
        }
        if (mkdir(r->log, 0777) == 0) {
            return 0;
        }
        if (errno != EEXIST) {
            return fail(msg, "cannot make", r->log);
        }
    }
}

static int token_path(const struct run_dir *r, char *path, struct errmsg *msg)
{
    return join_path(path, r->log, ".token", msg);
}

static int write_token(struct run_dir *r, struct errmsg *msg)
{
    char path[RUN_DIR_PATH_MAX];
    uint64_t random[2];
    int fd;
    int rv;

    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        return errmsg_set(msg, -EIO, "no random numbers from the kernel");
    }
    (void)snprintf(r->token, sizeof(r->token), "%016llx%016llx",
                   (unsigned long long)random[0], (unsigned long long)random[1]);
    rv = token_path(r, path, msg);
    if (rv < 0) {
        return rv;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return fail(msg, "cannot write", path);
    }
    rv = write_whole(fd, r->token, path, msg);
    (void)close(fd);
    return rv;
}

static int absolute(const char *path, char *ret, struct errmsg *msg)
{
    char *real = realpath(path, NULL);
    bool fits;

    if (!real) {
        return fail(msg, "cannot find", path);
    }
    fits = str_format(ret, RUN_DIR_PATH_MAX, "%s", real);
    free(real);
    return fits ? 0 : errmsg_set(msg, ERR_TOO_LARGE, "the path is too long: %s", path);
}

static int identify(const char *path, uint64_t *device, uint64_t *inode)
{
    struct stat st;

    if (stat(path, &st) < 0) {
        return -errno;
    }
    *device = (uint64_t)st.st_dev;
    *inode = (uint64_t)st.st_ino;
    return 0;
}

int run_dir_hold(struct run_dir *r, struct errmsg *msg)
{
    uint64_t device = 0;
    uint64_t inode = 0;
    int rv;

    if (identify(r->path, &device, &inode) < 0 || device != r->device ||
        inode != r->inode) {
        return errmsg_set(
            msg, ERR_STALE,
            "run directory %s was moved or replaced while the run goes on", r->path);
    }
    rv = dir_lock_hold(&r->lock, msg); /* rank 0's */
    return rv < 0 || !r->checkpoint_lock.is_open
               ? rv
               : dir_lock_hold(&r->checkpoint_lock, msg);
}

int run_dir_open(const char *path, const struct run_dir_owner *owner,
                 struct run_dir *ret, struct errmsg *msg)
{
    int rv;

    *ret = (struct run_dir){0};
    rv = run_dir_make(path, msg);
    rv = rv < 0 ? rv : absolute(path, ret->path, msg);
    if (rv == 0 && identify(ret->path, &ret->device, &ret->inode) < 0) {
        rv = fail(msg, "cannot find", ret->path);
    }
    rv = rv < 0 ? rv : open_lock(ret, owner, msg);
    rv = rv < 0 ? rv : open_checkpoint_lock(ret, owner, msg);
    if (rv < 0) {
        run_dir_close(ret);
    }
    return rv;
}

int run_dir_claim(struct run_dir *r, uint64_t at_least, struct errmsg *msg)
{
    int rv = make_generation(r, at_least, msg);

    return rv < 0 ? rv : write_token(r, msg);
}

int run_dir_join(const char *path, int run_generation, const char *token,
                 struct run_dir *ret, struct errmsg *msg)
{
    char file[RUN_DIR_PATH_MAX] = "";
    char found[RUN_DIR_TOKEN_MAX] = "";
    ssize_t n = -1;
    int fd = -1;

    *ret = (struct run_dir){.run_generation = run_generation};
    if (absolute(path, ret->path, NULL) == 0 &&
        str_format(ret->log, sizeof(ret->log), "%s/log/%d", ret->path,
                   run_generation) &&
        token_path(ret, file, NULL) == 0) {
        fd = open(file, O_RDONLY | O_CLOEXEC);
    }
    if (fd >= 0) {
        n = read(fd, found, sizeof(found) - 1);
        (void)close(fd);
    }
    if (n <= 0 || strcmp(found, token) != 0) {
        return errmsg_set(
            msg, ERR_MISSING,
            "this node does not see rank 0's run directory at %s: run.dir "
            "must be on one file system that all nodes share",
            path);
    }
    (void)snprintf(ret->token, sizeof(ret->token), "%s", token);
    return 0;
}

void run_dir_close(struct run_dir *r)
{
    dir_lock_close(&r->checkpoint_lock);
    dir_lock_close(&r->lock);
}
