#include "launcher/output/writer_file.h"

#include "launcher/path.h"

#include "common/check.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CONSOLE_CHUNK = 4096 }; /* PIPE_BUF: readers of a pipe get it in one piece */

static void say_failed(struct writer_file *file, int error)
{
    if (!file->has_failed && file->path) {
        log_warn("cannot write a log file; its lines are lost", "path=%s error=\"%s\"",
                 file->path, err_text(error));
    } else if (!file->path && !*file->is_lost && file->fd == STDOUT_FILENO) {
        log_warn("stdout takes nothing more: what the workers print goes on to their "
                 "log files only, where they have any",
                 "error=\"%s\"", err_text(error));
    }
    file->has_failed = true;
    if (!file->path) {
        *file->is_lost = true;
    }
}

void writer_file_open(struct writer_file *file)
{
    const char *slash = strrchr(file->path, '/');
    int rv = slash ? path_make_folders(file->path, (size_t)(slash - file->path)) : 0;
    struct stat st = {.st_size = 0};

    if (rv == 0) {
        file->fd = open(file->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        rv = file->fd < 0 || fstat(file->fd, &st) < 0 ? -errno : 0;
    }
    if (rv < 0) {
        say_failed(file, rv);
    } else {
        file->size = (uint64_t)st.st_size;
    }
}

/* The file becomes the older one, in the place of the one before. */
static int rotate(struct writer_file *file)
{
    char *older;
    int fd = -1;
    int rv;

    ASSERT(file->path);
    older = mem_printf("%s.1", file->path);
    rv = rename(file->path, older) < 0 && errno != ENOENT ? -errno : 0;
    mem_free(older); /* ENOENT: it has been, and the new one could not be begun then */
    if (rv == 0) {
        fd = open(file->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        rv = fd < 0 ? -errno : 0;
    }
    if (rv == 0) {
        rv = close(file->fd) < 0 ? -errno : 0;
        file->fd = fd;
        file->size = 0;
    }
    return rv;
}

static int write_all(int fd, const char *data, size_t size, _Atomic uint64_t *progress)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);

        if (n < 0 && errno == EAGAIN) { /* somebody made our console non-blocking */
            struct pollfd p = {fd, POLLOUT, 0};

            (void)poll(&p, 1, -1);
            continue;
        }
        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        data += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
        atomic_fetch_add(progress, 1);
    }
    return 0;
}

/* How much of `data` goes into one write: whole lines within a chunk, else one line. */
static size_t console_chunk(const char *data, size_t size)
{
    const char *end = size > CONSOLE_CHUNK ? memrchr(data, '\n', CONSOLE_CHUNK) : NULL;

    if (size <= CONSOLE_CHUNK) {
        return size;
    }
    end = end ? end : memchr(data, '\n', size);
    return end ? (size_t)(end - data) + 1 : size;
}

/* How much of the data still goes into a file that has `room` bytes left, so that a line
 * is in one file, and no file is larger than its bound. 0: a new file first; not for an
 * empty one. */
static size_t file_share(const char *data, size_t size, uint64_t room, bool is_empty,
                         bool is_mid_line)
{
    const char *end;

    if (size <= room) {
        return size;
    }
    end = memrchr(data, '\n', (size_t)room);
    if (end) {
        return (size_t)(end - data) + 1;
    }
    /* Not one whole line fits. One that began in this file, or is longer than a file
     * may be, is cut. */
    return is_empty || is_mid_line ? (size_t)room : 0;
}

static size_t next_chunk(const struct writer_file *file, const char *data, size_t size)
{
    if (!file->path) {
        return console_chunk(data, size);
    }
    if (file->max_size == 0) {
        return size;
    }
    return file_share(data, size,
                      file->max_size > file->size ? file->max_size - file->size : 0,
                      file->size == 0, file->is_mid_line);
}

void writer_file_append(struct writer_file *file, const char *data, size_t size,
                        _Atomic uint64_t *progress)
{
    int rv = 0;

    if (file->fd < 0 || (!file->path && *file->is_lost)) {
        return;
    }
    while (size > 0 && rv == 0) {
        size_t n = next_chunk(file, data, size);

        if (n == 0) {
            rv = rotate(file);
            file->is_mid_line = file->is_mid_line && rv == 0;
            continue;
        }
        rv = write_all(file->fd, data, n, progress);
        file->size += n;
        file->is_mid_line = data[n - 1] != '\n';
        data += n;
        size -= n;
    }
    if (rv < 0) {
        say_failed(file, rv);
    }
}

void writer_file_close(struct writer_file *file)
{
    if (file->path && file->fd >= 0 && close(file->fd) < 0) {
        say_failed(file, -errno);
    }
    mem_free(file->path);
    mem_free(file);
}
