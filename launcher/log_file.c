#include "launcher/log_file.h"

#include "common/check.h"
#include "common/str.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LAST_BYTES = 8192 }; /* what LOG_FILE_END shows at most; a line's, mostly */

bool log_file_open(struct log_file *f, const char *path)
{
    f->older = f->now = (struct log_part){.fd = -1};
    return str_format(f->path, sizeof(f->path), "%s", path);
}

static void close_part(struct log_part *p)
{
    if (p->fd >= 0) {
        (void)close(p->fd); /* it was only read */
        p->fd = -1;
    }
}

void log_file_close(struct log_file *f)
{
    close_part(&f->older);
    close_part(&f->now);
}

/* ---- the parts ---- */

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

static int open_older(const struct log_file *f)
{
    char older[PATH_MAX + 2];

    return str_format(older, sizeof(older), "%s.1", f->path) ? open_file(older) : -1;
}

static bool are_same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

static bool are_one_file(int a, int b)
{
    struct stat left;
    struct stat right;

    return a >= 0 && b >= 0 && fstat(a, &left) == 0 && fstat(b, &right) == 0 &&
           are_same(&left, &right);
}

/* The place behind its last byte, so far. */
static uint64_t end_of(const struct log_part *p)
{
    struct stat st;

    return p->fd >= 0 && fstat(p->fd, &st) == 0 ? p->begin + (uint64_t)st.st_size
                                                : p->begin;
}

/* NAME first: what is renamed between the two is found as both, not as neither. A reader
 * that knows a later place than there is had it of another file of that name. */
static void open_first(struct log_file *f, uint64_t at)
{
    f->now.fd = open_file(f->path);
    f->older.fd = open_older(f);
    if (f->now.fd < 0 || are_one_file(f->now.fd, f->older.fd)) {
        close_part(&f->now);
        f->now.fd = f->older.fd;
        f->older.fd = -1;
    }
    f->now.begin = end_of(&f->older);
    if (at != LOG_FILE_END && at > end_of(&f->now)) {
        close_part(&f->older);
        f->now.begin = at;
    }
}

/* The file was begun anew, maybe more than once. */
static void follow_renaming(struct log_file *f)
{
    int now = open_file(f->path);
    int older = now < 0 ? -1 : open_older(f);

    if (now < 0) {
        return; /* not yet */
    }
    close_part(&f->older);
    f->older = f->now;
    if (older >= 0 && !are_one_file(older, f->older.fd) && !are_one_file(older, now)) {
        uint64_t begin = end_of(&f->older); /* nobody looked while that was written */

        close_part(&f->older);
        f->older = (struct log_part){older, begin};
    } else if (older >= 0) {
        (void)close(older); /* nothing was read */
    }
    f->now = (struct log_part){now, end_of(&f->older)};
}

static bool was_renamed(const struct log_file *f)
{
    struct stat ours;
    struct stat now;

    return fstat(f->now.fd, &ours) == 0 && stat(f->path, &now) == 0 &&
           !are_same(&ours, &now);
}

/* ---- reading ---- */

/* The beginning of the first whole line within the last `most` bytes. */
static uint64_t find_last_lines(const struct log_part *p, uint64_t most)
{
    char data[LAST_BYTES];
    uint64_t size = end_of(p) - p->begin;
    uint64_t from = size > most ? size - most : 0;
    ssize_t n = from > 0 ? pread(p->fd, data, sizeof(data), (off_t)from) : 0;
    const char *end = n > 0 ? memchr(data, '\n', (size_t)n) : NULL;

    return p->begin + (end ? from + (uint64_t)(end - data) + 1 : from);
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

static size_t read_part(const struct log_part *p, uint64_t at, bool is_final,
                        char *data, size_t size)
{
    ssize_t n = p->fd < 0 ? 0 : pread(p->fd, data, size, (off_t)(at - p->begin));
    bool is_full = n > 0 && (size_t)n == size; /* else its end was read */

    /* 0: the end of it, or it cannot be read any more */
    return n <= 0 ? 0 : cut_to_lines(data, (size_t)n, is_final && !is_full, is_full);
}

static uint64_t find_place(const struct log_file *f, uint64_t at)
{
    uint64_t first = f->older.fd >= 0 ? f->older.begin : f->now.begin;

    if (f->now.fd < 0) {
        return at == LOG_FILE_END ? 0 : at; /* what will be in it is new */
    }
    return at == LOG_FILE_END ? find_last_lines(&f->now, LAST_BYTES) : MAX(at, first);
}

static void look(struct log_file *f, uint64_t at)
{
    if (f->now.fd < 0) {
        open_first(f, at);
    } else if (was_renamed(f)) {
        follow_renaming(f);
    }
}

uint64_t log_file_skip(struct log_file *f, uint64_t at, uint64_t most)
{
    uint64_t end;

    look(f, at);
    at = find_place(f, at);
    end = end_of(&f->now);
    if (end <= at || end - at <= most) {
        return at;
    }
    return end - f->now.begin >= most || f->older.fd < 0
               ? find_last_lines(&f->now, most)
               : MAX(at, find_last_lines(&f->older, most - (end - f->now.begin)));
}

size_t log_file_read(struct log_file *f, uint64_t *at, bool is_final, char *data,
                     size_t size)
{
    size_t n = 0;

    look(f, *at);
    *at = find_place(f, *at);
    if (f->older.fd >= 0 && *at < f->now.begin) {
        n = read_part(&f->older, *at, true, data, size);
        *at = n > 0 ? *at : f->now.begin;
    }
    return n > 0 ? n : read_part(&f->now, *at, is_final, data, size);
}
