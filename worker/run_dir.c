#include "worker/run_dir.h"

#include "common/clock.h"
#include "common/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_WAIT_MS = 10000, LOCK_POLL_MS = 100, LOCK_TEXT_MAX = 512 };

static int fail(struct errmsg *msg, const char *what, const char *path)
{
    int err = -errno;

    return errmsg_set(msg, err, "%s %s: %s", what, path, err_text(err));
}

/* mkdir -p, without recursion. */
static int make_path(const char *path, struct errmsg *msg)
{
    char partial[RUN_DIR_PATH_MAX];
    size_t len = strlen(path);

    if (len >= sizeof(partial)) {
        return errmsg_set(msg, ERR_TOO_LARGE, "run.dir is longer than %d bytes",
                          RUN_DIR_PATH_MAX - 1);
    }
    for (size_t i = 1; i <= len; i++) {
        if (path[i] != '/' && path[i] != '\0') {
            continue;
        }
        memcpy(partial, path, i);
        partial[i] = '\0';
        if (mkdir(partial, 0777) < 0 && errno != EEXIST) {
            return fail(msg, "cannot make the run directory", partial);
        }
    }
    return 0;
}

static int join_path(char *ret, const char *dir, const char *name, struct errmsg *msg)
{
    if (!str_format(ret, RUN_DIR_PATH_MAX, "%s/%s", dir, name)) {
        return errmsg_set(msg, ERR_TOO_LARGE, "%s/%s: the path is too long", dir, name);
    }
    return 0;
}

static int write_whole(int fd, const char *text, const char *path, struct errmsg *msg)
{
    size_t left = strlen(text);
    ssize_t n;

    while (left > 0) {
        n = write(fd, text, left);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return fail(msg, "cannot write", path);
        }
        text += n;
        left -= (size_t)n;
    }
    return fsync(fd) < 0 ? fail(msg, "cannot fsync", path) : 0;
}

int run_dir_write(const struct run_dir *r, const char *name, const char *text,
                  struct errmsg *msg)
{
    char path[RUN_DIR_PATH_MAX];
    char tmp[RUN_DIR_PATH_MAX];
    int rv;
    int fd;

    rv = join_path(path, r->path, name, msg);
    if (rv < 0 || !str_format(tmp, sizeof(tmp), "%.1000s.tmp", path)) {
        return rv < 0 ? rv : ERR_TOO_LARGE;
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
    return rv;
}

/* --- the lock --- */

/* The holder's text: "<cluster> <job> pid … on …"; true if it is this very job. */
static bool is_same_job(int fd, const char *own, char text[LOCK_TEXT_MAX])
{
    ssize_t n = pread(fd, text, LOCK_TEXT_MAX - 1, 0);
    size_t len;

    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    len = strlen(own);
    return len > 0 && strncmp(text, own, len) == 0 && text[len] == ' ';
}

/* Without a launcher there is no job to share the lock with: "" matches nobody. */
static void format_owner(const struct run_dir_owner *owner, char *text, size_t size)
{
    text[0] = '\0';
    if (owner->job[0] != '\0') {
        (void)snprintf(text, size, "cluster %016llx job %s",
                       (unsigned long long)owner->cluster, owner->job);
    }
}

static int write_lock(int fd, const char *own, const char *path, struct errmsg *msg)
{
    char host[HOST_NAME_MAX + 1] = "";
    char text[LOCK_TEXT_MAX];

    (void)gethostname(host, sizeof(host) - 1);
    (void)snprintf(text, sizeof(text), "%.300s pid %ld on %s\n",
                   *own ? own : "one process", (long)getpid(), host);
    if (ftruncate(fd, 0) < 0) {
        return fail(msg, "cannot write", path);
    }
    return write_whole(fd, text, path, msg);
}

static int take_lock(struct run_dir *r, const struct run_dir_owner *owner,
                     struct errmsg *msg)
{
    const struct timespec pause = {.tv_nsec = LOCK_POLL_MS * 1000000L};
    uint64_t deadline = clock_ms() + LOCK_WAIT_MS;
    char path[RUN_DIR_PATH_MAX];
    char text[LOCK_TEXT_MAX];
    char own[LOCK_TEXT_MAX];
    int rv;

    format_owner(owner, own, sizeof(own));
    rv = join_path(path, r->path, ".lock", msg);
    if (rv < 0) {
        return rv;
    }
    r->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (r->lock_fd < 0) {
        return fail(msg, "cannot open", path);
    }
    while (flock(r->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        if (is_same_job(r->lock_fd, own, text)) {
            (void)close(r->lock_fd); /* a fenced rank 0 of this job: no obstacle */
            r->lock_fd = -1;
            return 0;
        }
        if (clock_ms() >= deadline) {
            (void)close(r->lock_fd);
            r->lock_fd = -1;
            return errmsg_set(
                msg, ERR_BUSY,
                "run directory %s is in use by %s; stop it, or give this run "
                "another run.name or run.dir",
                r->path, text);
        }
        (void)nanosleep(&pause, NULL);
    }
    return write_lock(r->lock_fd, own, path, msg);
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

static int claim_generation(struct run_dir *r, uint64_t at_least, struct errmsg *msg)
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
        if (!str_format(r->log, sizeof(r->log), "%.1000s/%d", dir, r->run_generation)) {
            return errmsg_set(msg, ERR_TOO_LARGE, "%s: the path is too long", dir);
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
    return fits ? 0 : errmsg_set(msg, ERR_TOO_LARGE, "%s: the path is too long", path);
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

int run_dir_check(const struct run_dir *r, struct errmsg *msg)
{
    uint64_t device = 0;
    uint64_t inode = 0;

    if (identify(r->path, &device, &inode) < 0 || device != r->device ||
        inode != r->inode) {
        return errmsg_set(
            msg, ERR_STALE,
            "run directory %s was moved or replaced while the run goes on", r->path);
    }
    return 0;
}

int run_dir_open(const char *path, const struct run_dir_owner *owner,
                 struct run_dir *ret, struct errmsg *msg)
{
    int rv;

    *ret = (struct run_dir){.lock_fd = -1};
    rv = make_path(path, msg);
    rv = rv < 0 ? rv : absolute(path, ret->path, msg);
    if (rv == 0 && identify(ret->path, &ret->device, &ret->inode) < 0) {
        rv = fail(msg, "cannot find", ret->path);
    }
    rv = rv < 0 ? rv : take_lock(ret, owner, msg);
    rv = rv < 0 ? rv : claim_generation(ret, owner->generation, msg);
    rv = rv < 0 ? rv : write_token(ret, msg);
    if (rv < 0) {
        run_dir_close(ret);
    }
    return rv;
}

int run_dir_join(const char *path, int run_generation, const char *token,
                 struct run_dir *ret, struct errmsg *msg)
{
    char file[RUN_DIR_PATH_MAX] = "";
    char found[RUN_DIR_TOKEN_MAX] = "";
    ssize_t n = -1;
    int fd = -1;

    *ret = (struct run_dir){.lock_fd = -1, .run_generation = run_generation};
    if (absolute(path, ret->path, NULL) == 0 &&
        str_format(ret->log, sizeof(ret->log), "%.900s/log/%d", ret->path,
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
    if (r->lock_fd >= 0) {
        (void)close(r->lock_fd);
        r->lock_fd = -1;
    }
}
