#include "launcher/log_cursor.h"

#include "common/check.h"
#include "common/str.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LAST_BYTES = 8192 }; /* what LOG_CURSOR_END shows at most */

/* -1: it is not there yet, or no file. */
static int open_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;

    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
        (void)close(fd); /* nothing was read */
        return -1;
    }
    return fd;
}

/* The part that was there before the file was begun anew. */
static int open_older(const struct log_cursor *c)
{
    char older[PATH_MAX + 2];

    return str_format(older, sizeof(older), "%s.1", c->path) ? open_file(older) : -1;
}

static void open_first(struct log_cursor *c)
{
    c->fd = open_older(c);
    if (c->fd < 0) {
        c->fd = open_file(c->path);
    }
}

/* The beginning of the first whole line within the last bytes. */
static off_t find_last_lines(int fd, off_t size)
{
    char data[LAST_BYTES];
    off_t from = size > LAST_BYTES ? size - LAST_BYTES : 0;
    ssize_t n = from > 0 ? pread(fd, data, sizeof(data), from) : 0;
    const char *end = n > 0 ? memchr(data, '\n', (size_t)n) : NULL;

    return end ? from + (end - data) + 1 : from;
}

static void open_at(struct log_cursor *c, uint64_t from)
{
    struct stat st;
    off_t at;

    c->fd = open_file(c->path);
    if (c->fd < 0 || fstat(c->fd, &st) < 0) {
        c->offset = from == LOG_CURSOR_END ? 0 : from; /* what will be in it is new */
        return;
    }
    at = from == LOG_CURSOR_END         ? find_last_lines(c->fd, st.st_size)
         : from <= (uint64_t)st.st_size ? (off_t)from
                                        : 0;
    c->offset = from == LOG_CURSOR_END ? (uint64_t)at : from;
    (void)lseek(c->fd, at, SEEK_SET); /* of a file that was read from */
}

bool log_cursor_open(struct log_cursor *c, const char *path, uint64_t from)
{
    c->fd = -1;
    c->offset = 0;
    if (!str_format(c->path, sizeof(c->path), "%s", path)) {
        return false;
    }
    if (from == 0) {
        open_first(c);
    } else {
        open_at(c, from);
    }
    return true;
}

void log_cursor_close(struct log_cursor *c)
{
    if (c->fd >= 0) {
        (void)close(c->fd); /* it was only read */
        c->fd = -1;
    }
}

/* The file was begun anew: what is open is the older one now. */
static bool was_renamed(const struct log_cursor *c)
{
    struct stat ours;
    struct stat now;

    return fstat(c->fd, &ours) == 0 && stat(c->path, &now) == 0 &&
           (ours.st_ino != now.st_ino || ours.st_dev != now.st_dev);
}

/* How much of it is to be taken now; the rest is read again. */
static size_t cut_to_lines(const char *data, size_t n, bool is_last, bool is_full)
{
    const char *end = is_last ? NULL : memrchr(data, '\n', n);

    if (is_last || (is_full && !end)) {
        return n; /* half a line, or a long one */
    }
    return end ? (size_t)(end - data) + 1 : 0;
}

static size_t read_some(const struct log_cursor *c, bool is_final, char *data,
                        size_t size)
{
    ssize_t n = read(c->fd, data, size);
    bool is_full = n > 0 && (size_t)n == size; /* else its end was read */
    size_t took;

    if (n <= 0) {
        return 0; /* the end of it, or it cannot be read any more */
    }
    took = cut_to_lines(data, (size_t)n, is_final && !is_full, is_full);
    if (took < (size_t)n) {
        (void)lseek(c->fd, (off_t)took - (off_t)n, SEEK_CUR); /* as read went on */
    }
    return took;
}

size_t log_cursor_read(struct log_cursor *c, bool is_final, char *data, size_t size)
{
    size_t n;
    bool was_older;

    if (c->fd < 0) {
        c->fd = open_file(c->path);
    }
    if (c->fd < 0) {
        return 0;
    }
    was_older = was_renamed(c); /* asked first: then all of it is written */
    n = read_some(c, is_final, data, size);
    if (n == 0 && was_older) {
        n = read_some(c, true, data, size);
    }
    if (n == 0 && was_older) {
        log_cursor_close(c);
        c->fd = open_file(c->path);
        n = c->fd < 0 ? 0 : read_some(c, is_final, data, size);
    }
    c->offset += n;
    return n;
}
