#include "common/storage.h"

#include "common/fault.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
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

/* Appends what is not there yet: no links in it, so the text alone tells the way. */
static bool append_missing(char real[PATH_MAX], const char *rest)
{
    while (*rest) {
        size_t n = strcspn(rest, "/");
        size_t len = strlen(real);

        if (n == 2 && strncmp(rest, "..", 2) == 0) {
            *strrchr(real, '/') = '\0';
        } else if (n > 0 && !(n == 1 && *rest == '.') &&
                   !str_format(real + len, PATH_MAX - len, "%s%.*s", len > 1 ? "/" : "",
                               (int)n, rest)) {
            return false;
        }
        if (real[0] == '\0') {
            memcpy(real, "/", 2);
        }
        rest += n + (rest[n] == '/' ? 1 : 0);
    }
    return true;
}

int storage_resolve(const char *path, char ret[PATH_MAX])
{
    char head[PATH_MAX];
    size_t n = strlen(path);

    if (!str_format(head, sizeof(head), "%s", path)) {
        return -ENAMETOOLONG;
    }
    while (!realpath(n > 0 ? head : ".", ret)) {
        if (errno != ENOENT || n == 0) {
            return -errno;
        }
        while (n > 0 && head[n - 1] == '/') {
            n--;
        }
        while (n > 0 && head[n - 1] != '/') {
            n--;
        }
        head[n] = '\0';
    }
    return append_missing(ret, path + n) ? 0 : -ENAMETOOLONG;
}

bool storage_is_in(const char *path, const char *folder)
{
    size_t len = strlen(folder);

    return strncmp(path, folder, len) == 0 &&
           (path[len] == '/' || path[len] == '\0' || strcmp(folder, "/") == 0);
}
