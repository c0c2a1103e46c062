#include "worker/dir_lock.h"

#include "common/clock.h"
#include "common/storage.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_POLL_MS = 100, LOCK_TEXT_MAX = DIR_LOCK_OWNER_MAX + HOST_NAME_MAX + 64 };

static int fail_with(const struct dir_lock *l, int err, const char *what,
                     struct errmsg *msg)
{
    return errmsg_set(msg, err, "cannot %s %s/.lock: %s", what, l->dir, err_text(err));
}

/* The first line of the lock's text: "<cluster> <job> pid … on …". */
static void read_holder(int fd, char text[LOCK_TEXT_MAX])
{
    ssize_t n = pread(fd, text, LOCK_TEXT_MAX - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

static bool is_of_job(const char *text, const char *owner)
{
    size_t len = strlen(owner);

    return len > 0 && strncmp(text, owner, len) == 0 && text[len] == ' ';
}

/* Written over the old text, then cut: a reader never finds it empty. */
static int write_text(const struct dir_lock *l, struct errmsg *msg)
{
    char host[HOST_NAME_MAX + 1] = "";
    char text[LOCK_TEXT_MAX];
    int rv;

    (void)gethostname(host, sizeof(host) - 1);
    (void)snprintf(text, sizeof(text), "%s pid %ld on %s\n",
                   l->owner[0] ? l->owner : "one process", (long)getpid(), host);
    rv = lseek(l->fd, 0, SEEK_SET) < 0 ? -errno
                                       : storage_write_all(l->fd, text, strlen(text));
    rv = rv < 0 ? rv : storage_sync(l->fd);
    if (rv == 0 && ftruncate(l->fd, (off_t)strlen(text)) < 0) {
        rv = -errno;
    }
    return rv < 0 ? fail_with(l, rv, "write", msg) : 0;
}

/* A lock on a file that has lost its name keeps nobody out: another run makes a new
 * one. */
static int check_name(const struct dir_lock *l, struct errmsg *msg)
{
    char path[DIR_LOCK_PATH_MAX];
    struct stat ours;
    struct stat named;

    if (!str_format(path, sizeof(path), "%s/.lock", l->dir)) {
        return errmsg_set(msg, ERR_TOO_LARGE, "the path is too long: %s/.lock", l->dir);
    }
    if (fstat(l->fd, &ours) < 0) {
        return fail_with(l, -errno, "look at", msg);
    }
    if (lstat(path, &named) < 0) {
        if (errno != ENOENT && errno != ENOTDIR) {
            return fail_with(l, -errno, "look at", msg);
        }
        named = (struct stat){0};
    }
    if (ours.st_dev == named.st_dev && ours.st_ino == named.st_ino) {
        return 0;
    }
    return errmsg_set(msg, ERR_STALE,
                      "%s was moved, replaced or deleted while the run goes on: "
                      "another run may be using %s",
                      path, l->dir);
}

int dir_lock_hold(struct dir_lock *l, struct errmsg *msg)
{
    char holder[LOCK_TEXT_MAX];
    int rv;

    ASSERT(l->is_open);
    rv = check_name(l, msg);
    if (rv < 0 || l->is_held) {
        return rv;
    }
    if (flock(l->fd, LOCK_EX | LOCK_NB) == 0) {
        rv = write_text(l, msg);
        l->is_held = rv == 0; /* else the next try writes it */
        return rv;
    }
    if (errno != EWOULDBLOCK) {
        return fail_with(l, -errno, "lock", msg);
    }
    read_holder(l->fd, holder);
    if (is_of_job(holder, l->owner)) {
        return 0;
    }
    return errmsg_set(msg, ERR_BUSY,
                      "%s %s is in use by %s; stop it, or give this run %s", l->what,
                      l->dir, holder, l->remedy);
}

static int open_file(struct dir_lock *l, struct errmsg *msg)
{
    char path[DIR_LOCK_PATH_MAX];

    if (!str_format(path, sizeof(path), "%s/.lock", l->dir)) {
        return errmsg_set(msg, ERR_TOO_LARGE, "the path is too long: %s/.lock", l->dir);
    }
    l->fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (l->fd < 0 && errno == ELOOP) { /* its text would go to where it points */
        return errmsg_set(msg, ERR_INVALID, "%s is a link: delete it", path);
    }
    l->is_open = l->fd >= 0;
    return l->is_open ? 0 : fail_with(l, -errno, "open", msg);
}

int dir_lock_open(const struct dir_lock_config *config, struct dir_lock *ret,
                  struct errmsg *msg)
{
    const struct timespec pause = {.tv_nsec = LOCK_POLL_MS * 1000000L};
    uint64_t deadline = clock_ms() + (uint64_t)config->wait_ms;
    int rv;

    *ret = (struct dir_lock){.what = config->what, .remedy = config->remedy};
    if (!str_format(ret->dir, sizeof(ret->dir), "%s", config->dir)) {
        return errmsg_set(msg, ERR_TOO_LARGE, "the path is too long: %s", config->dir);
    }
    if (config->job[0] != '\0') { /* else there is no job to share it with */
        (void)snprintf(ret->owner, sizeof(ret->owner), "cluster %016llx job %s",
                       (unsigned long long)config->cluster, config->job);
    }
    rv = open_file(ret, msg);
    if (rv < 0) {
        return rv;
    }
    while ((rv = dir_lock_hold(ret, msg)) == ERR_BUSY && clock_ms() < deadline) {
        (void)nanosleep(&pause, NULL);
    }
    if (rv < 0) {
        dir_lock_close(ret);
    }
    return rv;
}

void dir_lock_close(struct dir_lock *l)
{
    if (l->is_open) {
        (void)close(l->fd); /* lets go of the lock */
        l->is_open = false;
        l->is_held = false;
    }
}
