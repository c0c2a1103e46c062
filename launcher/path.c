#include "launcher/path.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *path_base(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

void path_own_folder(char *ret, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", ret, size);
    char *slash;

    n = n == (ssize_t)size ? 0 : MAX(n, 0); /* cut is as good as unknown */
    ret[n] = '\0';
    slash = strrchr(ret, '/');
    *(slash ? slash : ret) = '\0';
}

int path_make_folders(const char *path, size_t len)
{
    char part[PATH_MAX];

    if (len >= sizeof(part)) {
        return -ENAMETOOLONG;
    }
    for (size_t i = 0; i <= len; i++) {
        bool is_end = i == len || path[i] == '/';

        part[i] = '\0';
        if (is_end && i > 0 && mkdir(part, 0777) < 0 && errno != EEXIST) {
            return -errno;
        }
        part[i] = path[i];
    }
    return 0;
}

bool path_is_same_file(int a, int b)
{
    struct stat x;
    struct stat y;

    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}
