#include "rendezvous/state_dir.h"

#include "rendezvous/early.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum {
    TELL_AFTER_MS = 1000,
    PATH_MAX_BYTES = 480, /* SQLite takes 512, with the names of its files */
};

static const char reserve_name[] = "reserve";

/* What is given up of it where nobody knows how much is wanted. */
enum { RESERVE_PARTS = 16, PART_MAX = 1 << 16 };

int state_dir_blame_space(const struct state_dir *d, struct errmsg *msg)
{
    return errmsg_set(msg, -ENOSPC,
                      "the disk of the state %.200s is full: make room for %llu MiB on "
                      "it, or give a --state-dir on another one",
                      d->path, (unsigned long long)(d->reserve_bytes >> 20) + 1);
}

/* The folder it is in, which the caller frees. */
static char *parent_of(const char *path)
{
    char *parent = mem_strdup(path);
    size_t n = strlen(parent);
    char *slash;

    while (n > 1 && parent[n - 1] == '/') {
        parent[--n] = '\0';
    }
    slash = strrchr(parent, '/');
    if (!slash) {
        mem_free(parent);
        return mem_strdup(".");
    }
    slash[slash == parent] = '\0';
    return parent;
}

/* Where it is, or will be: SQLite takes no longer path, and follows links. */
static size_t real_length(const char *path)
{
    char *parent = parent_of(path);
    char *real = realpath(path, NULL);
    size_t n = 0;

    if (!real) { /* it is not there yet */
        real = realpath(parent, NULL);
        n = strlen(path) - (real && strchr(path, '/') ? strlen(parent) : 0);
    }
    n += real ? strlen(real) : 0;
    free(real); /* not mem_free: it is the library's */
    mem_free(parent);
    return n;
}

static int check_length(const char *path, struct errmsg *msg)
{
    size_t n = real_length(path);

    return n > PATH_MAX_BYTES
               ? errmsg_set(msg, ERR_INVALID,
                            "the path %.80s… of the state has %zu bytes, and may have "
                            "%d: give a shorter --state-dir",
                            path, n, PATH_MAX_BYTES)
               : 0;
}

/* Root may look at what belongs to the service's user. */
static int check_folder(const struct state_dir *d, const struct stat *st, bool looks,
                        struct errmsg *msg)
{
    if (st->st_uid != geteuid() && !(looks && geteuid() == 0)) {
        return errmsg_set(
            msg, ERR_INVALID,
            "the folder %.200s is of another user (uid %u): state is kept "
            "in a folder of one's own",
            d->path, st->st_uid);
    }
    if ((st->st_mode & 077) != 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "others may enter the folder %.200s, and what jobs keep is "
                          "secret: give a --state-dir of its own, which is made, or "
                          "which only this user may enter (mode 0700)",
                          d->path);
    }
    return 0;
}

static int open_folder(struct state_dir *d, struct errmsg *msg)
{
    struct stat st;

    if (mkdir(d->path, 0700) < 0 && errno != EEXIST) {
        if (errno == ENOSPC || errno == EDQUOT) {
            return state_dir_blame_space(d, msg);
        }
        return errmsg_set(msg, ERR_INVALID, "cannot make the folder %.200s: %s%s",
                          d->path, err_text(-errno),
                          errno == ENOENT ? " (make its parent first)" : "");
    }
    d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->fd < 0 || fstat(d->fd, &st) < 0) {
        return errmsg_set(msg, ERR_INVALID, "cannot open the folder %.200s: %s",
                          d->path, err_text(-errno));
    }
    return check_folder(d, &st, false, msg);
}

/* Anything but a plain file would be waited for, or written to somewhere else. */
static int check_file(const struct state_dir *d, const char *name, struct errmsg *msg)
{
    struct stat st;
    const char *what = "no file";

    if (fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISREG(st.st_mode)) {
        return 0; /* what cannot be looked at cannot be opened: that says why */
    }
    if (S_ISDIR(st.st_mode)) {
        what = "a folder";
    } else if (S_ISLNK(st.st_mode)) {
        what = "a symbolic link";
    } else if (S_ISFIFO(st.st_mode)) {
        what = "a pipe";
    }
    return errmsg_set(msg, ERR_INVALID,
                      "%.200s/%s is %s, and must be a file of that folder: move it "
                      "away, or give another --state-dir",
                      d->path, name, what);
}

static const char *const names[] = {"lock", reserve_name, "state.db", "state.db-wal",
                                    "state.db-base"};

static int check_files(const struct state_dir *d, struct errmsg *msg)
{
    int rv = 0;

    for (size_t i = 0; i < ARRAY_LEN(names) && rv == 0; i++) {
        rv = check_file(d, names[i], msg);
    }
    return rv;
}

/* Those that older versions made could be read by others, were the folder opened. */
static int close_files(const struct state_dir *d, struct errmsg *msg)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (fchmodat(d->fd, names[i], 0600, 0) < 0 && errno != ENOENT) {
            return errmsg_set(msg, ERR_INVALID, "cannot keep others off %.200s/%s: %s",
                              d->path, names[i], err_text(-errno));
        }
    }
    return 0;
}

static int blame_folder(const struct state_dir *d, struct errmsg *msg)
{
    return errmsg_set(msg, ERR_INVALID,
                      "cannot write in the folder %.200s: %s; give a --state-dir "
                      "where this user may write",
                      d->path, err_text(-errno));
}

bool state_dir_wait(struct state_dir *d)
{
    static const struct timespec moment = {.tv_nsec = 50L * 1000 * 1000};
    uint64_t now_ms = clock_ms();

    d->busy_ms = d->busy_ms ? d->busy_ms : now_ms;
    if (now_ms - d->busy_ms >= d->patience_ms || early_is_told_to_stop()) {
        return false;
    }
    if (now_ms - d->busy_ms >= TELL_AFTER_MS && !d->has_told) {
        d->has_told = true;
        log_warn("another program uses the state: waiting for it", "dir=%s wait_ms=%u",
                 d->path, d->patience_ms);
    }
    (void)nanosleep(&moment, NULL); /* shorter is as well */
    return true;
}

/* The process whose number is in the file, if it is still there; 0. */
static long holder(const struct state_dir *d)
{
    char text[16] = "";
    ssize_t n = pread(d->lock_fd, text, sizeof(text) - 1, 0);
    long pid;

    text[MAX(n, 0)] = '\0';
    pid = strtol(text, NULL, 10);
    return pid > 0 && (kill((pid_t)pid, 0) == 0 || errno == EPERM) ? pid : 0;
}

static int blame_holder(const struct state_dir *d, struct errmsg *msg)
{
    char who[32] = "";
    long pid = holder(d);

    if (flock(d->lock_fd, LOCK_SH | LOCK_NB) == 0) { /* so does who holds it */
        return errmsg_set(msg, ERR_BUSY,
                          "another program looks at the state in %.200s, and does not "
                          "end (ctrun-rendezvous --check-config?): end it",
                          d->path);
    }
    if (pid > 0) {
        (void)snprintf(who, sizeof(who), " (pid %ld)", pid);
    }
    return errmsg_set(msg, ERR_BUSY,
                      "another ctrun-rendezvous%s keeps its state in %.200s: stop "
                      "it, or give this one another --state-dir",
                      who, d->path);
}

static int lock(struct state_dir *d)
{
    int rv;

    do {
        rv = flock(d->lock_fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
    } while (rv == -EWOULDBLOCK && state_dir_wait(d));
    return rv;
}

static int take_lock(struct state_dir *d, struct errmsg *msg)
{
    char pid[16];
    int rv;

    d->lock_fd = openat(d->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (d->lock_fd < 0 && (errno == ENOSPC || errno == EDQUOT)) {
        return state_dir_blame_space(d, msg);
    }
    if (d->lock_fd < 0) {
        return blame_folder(d, msg);
    }
    rv = lock(d);
    if (rv < 0) {
        return rv == -EWOULDBLOCK
                   ? blame_holder(d, msg)
                   : errmsg_set(msg, rv,
                                "cannot lock %.200s/lock: %s; give a --state-dir on a "
                                "disk of this machine",
                                d->path, err_text(rv));
    }
    (void)snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    if (ftruncate(d->lock_fd, 0) < 0 ||
        pwrite(d->lock_fd, pid, strlen(pid), 0) != (ssize_t)strlen(pid)) {
        return 0; /* it is for people only, and the disk may be full */
    }
    return 0;
}

int state_dir_open(struct state_dir *d, const char *path, uint64_t reserve_bytes,
                   uint32_t patience_ms, struct errmsg *msg)
{
    int rv;

    *d = (struct state_dir){.path = mem_strdup(path),
                            .fd = -1,
                            .lock_fd = -1,
                            .reserve_bytes = reserve_bytes,
                            .patience_ms = patience_ms};
    rv = check_length(path, msg);
    rv = rv == 0 ? open_folder(d, msg) : rv;
    rv = rv == 0 ? check_files(d, msg) : rv;
    rv = rv == 0 ? take_lock(d, msg) : rv;
    rv = rv == 0 ? close_files(d, msg) : rv;
    if (rv == 0) {
        rv = state_dir_make_reserve(d);
        rv = rv == -ENOSPC ? 0 : rv; /* the service begins with what there is */
        if (rv < 0) {
            (void)errmsg_set(msg, rv, "cannot make %.200s/%s: %s; %s", path,
                             reserve_name, err_text(rv),
                             rv == -EFBIG
                                 ? "raise the limit of a file's size (ulimit -f)"
                                 : "give a --state-dir where this user may write");
        }
    }
    if (rv < 0) {
        state_dir_close(d);
    }
    return rv;
}

/* ---- looking ---- */

static int check_parent(const char *path, struct errmsg *msg)
{
    char *parent = parent_of(path);
    int rv = access(parent, W_OK | X_OK) < 0 ? -errno : 0;

    mem_free(parent);
    return rv < 0 ? errmsg_set(msg, ERR_INVALID, "cannot make the folder %.200s: %s%s",
                               path, err_text(rv),
                               rv == -ENOENT ? " (make its parent first)" : "")
                  : 0;
}

static int look_at_lock(struct state_dir *d, struct errmsg *msg)
{
    if (faccessat(d->fd, ".", W_OK | X_OK, AT_EACCESS) < 0) {
        return blame_folder(d, msg);
    }
    d->lock_fd = openat(d->fd, "lock", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (d->lock_fd < 0) {
        return errno == ENOENT ? 0 : blame_folder(d, msg);
    }
    return flock(d->lock_fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK
               ? blame_holder(d, msg)
               : 0;
}

int state_dir_look(struct state_dir *d, const char *path, struct errmsg *msg)
{
    struct stat st;
    int rv;

    *d = (struct state_dir){.path = mem_strdup(path), .fd = -1, .lock_fd = -1};
    rv = check_length(path, msg);
    if (rv < 0) {
        state_dir_close(d);
        return rv;
    }
    d->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->fd < 0 && errno == ENOENT) {
        rv = check_parent(path, msg);
    } else if (d->fd < 0 || fstat(d->fd, &st) < 0) {
        rv = errmsg_set(msg, ERR_INVALID, "cannot open the folder %.200s: %s", path,
                        err_text(-errno));
    } else {
        rv = check_folder(d, &st, true, msg);
        rv = rv == 0 ? check_files(d, msg) : rv;
        rv = rv == 0 ? look_at_lock(d, msg) : rv;
    }
    if (rv < 0) {
        state_dir_close(d);
    }
    return rv;
}

void state_dir_close(struct state_dir *d)
{
    if (d->lock_fd >= 0) {
        (void)close(d->lock_fd); /* nothing was written that counts */
    }
    if (d->fd >= 0) {
        (void)close(d->fd); /* it was only read */
    }
    mem_free(d->path);
    *d = (struct state_dir){.fd = -1, .lock_fd = -1};
}

static bool is_empty(const struct state_dir *d, const char *name)
{
    struct stat st;

    return fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_size == 0;
}

bool state_dir_is_new(const struct state_dir *d)
{
    return d->fd < 0 || is_empty(d, "state.db");
}

bool state_dir_has_log(const struct state_dir *d)
{
    struct stat st;

    return fstatat(d->fd, "state.db-wal", &st, AT_SYMLINK_NOFOLLOW) == 0;
}

void state_dir_drop_empty_log(const struct state_dir *d)
{
    if (is_empty(d, "state.db-wal")) {
        (void)unlinkat(d->fd, "state.db-wal", 0); /* it may not be there at all */
    }
}

bool state_dir_is_torn(const struct state_dir *d)
{
    return is_empty(d, "state.db") &&
           !(is_empty(d, "state.db-wal") && is_empty(d, "state.db-base"));
}

int state_dir_free(const struct state_dir *d, uint64_t *ret)
{
    struct statvfs st;
    struct stat lock;

    if (fstatvfs(d->fd, &st) < 0 || fstat(d->lock_fd, &lock) < 0) {
        return -errno;
    }
    if (lock.st_nlink == 0) {
        return -ESTALE;
    }
    *ret = (uint64_t)st.f_bavail * st.f_frsize;
    return 0;
}

/* It is cut, and goes once nothing is left. */
static int cut_reserve(struct state_dir *d, uint64_t left)
{
    int fd = openat(d->fd, reserve_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    int rv = 0;

    if (fd < 0) {
        rv = errno == ENOENT || errno == EMFILE || errno == ENFILE ? 0 : -errno;
        left = 0; /* without a descriptor it goes as a whole */
    } else {
        rv = ftruncate(fd, (off_t)left) < 0 ? -errno : 0;
        (void)close(fd); /* its contents mean nothing */
    }
    if (rv == -ENOSPC || rv == -EDQUOT) {
        left = 0; /* there are file systems that cannot even cut then, but remove */
        rv = 0;
    }
    if (rv == 0 && left == 0) {
        rv = unlinkat(d->fd, reserve_name, 0) < 0 && errno != ENOENT ? -errno : 0;
    }
    d->reserve_left = left;
    return rv;
}

int state_dir_give_up(struct state_dir *d, uint64_t bytes)
{
    uint64_t part = MIN(d->reserve_bytes / RESERVE_PARTS, PART_MAX);
    uint64_t some = bytes > 0 ? bytes : part;

    if (d->reserve_left == 0) {
        return -ENOSPC;
    }
    return cut_reserve(d, d->reserve_left - MIN(d->reserve_left, some));
}

/* What was there before may be of another size: another was asked for, or a part of it
 * was given up. */
static int fill_reserve(struct state_dir *d, int fd)
{
    struct stat st;
    int rv;

    if (fstat(fd, &st) < 0) {
        return -errno;
    }
    d->reserve_left = MIN((uint64_t)st.st_size, d->reserve_bytes);
    if ((uint64_t)st.st_size > d->reserve_bytes) {
        return ftruncate(fd, (off_t)d->reserve_bytes) < 0 ? -errno : 0;
    }
    if ((uint64_t)st.st_size == d->reserve_bytes) {
        return 0;
    }
    rv = -posix_fallocate(fd, 0, (off_t)d->reserve_bytes);
    if (rv == 0) {
        d->reserve_left = d->reserve_bytes;
    }
    return rv == -EDQUOT ? -ENOSPC : rv;
}

int state_dir_make_reserve(struct state_dir *d)
{
    int fd;
    int rv;

    if (d->reserve_left == d->reserve_bytes && d->reserve_bytes > 0) {
        return 0;
    }
    fd = openat(d->fd, reserve_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return errno == EDQUOT ? -ENOSPC : -errno;
    }
    rv = fill_reserve(d, fd);
    (void)close(fd); /* its contents mean nothing */
    if (rv == -ENOSPC) {
        rv = cut_reserve(d, d->reserve_left); /* it may have grown by some */
        return rv < 0 ? rv : -ENOSPC;
    }
    return rv;
}
