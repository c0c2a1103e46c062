#include "common/storage.h"

#include "common/fault.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int storage_write_all(int fd, const void *data, size_t size)
{
    const char *from = data;
    int rv = fault_at("storage.write");

    while (rv == 0 && size > 0) {
        ssize_t n = write(fd, from, size);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? -errno : -EIO; /* a regular file never takes nothing */
        }
        from += n;
        size -= (size_t)n;
    }
    return rv;
}

int storage_sync(int fd)
{
    int rv = fault_at("storage.fsync");

    if (rv < 0) {
        return rv;
    }
    return fsync(fd) < 0 ? -errno : 0;
}

int storage_sync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rv;

    if (fd < 0) {
        return -errno;
    }
    rv = storage_sync(fd);
    (void)close(fd); /* nothing was written through it */
    return rv;
}

/* mkdir, and the name made durable in the directory above. */
static int make_dir(char *path)
{
    char *slash = strrchr(path, '/');
    int rv;

    if (mkdir(path, 0777) < 0) {
        return errno == EEXIST ? 0 : -errno;
    }
    if (!slash) {
        return storage_sync_dir(".");
    }
    *slash = '\0';
    rv = storage_sync_dir(slash == path ? "/" : path);
    *slash = '/';
    return rv;
}

int storage_make_dirs(const char *path)
{
    char text[PATH_MAX];
    size_t len = strlen(path);
    int rv;

    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    if (!str_format(text, sizeof(text), "%.*s", (int)MIN(len, sizeof(text)), path)) {
        return -ENAMETOOLONG;
    }
    for (char *at = text + 1; *text && *at; at++) {
        if (*at != '/') {
            continue;
        }
        *at = '\0';
        rv = make_dir(text);
        *at = '/';
        if (rv < 0) {
            return rv;
        }
    }
    return make_dir(text);
}
