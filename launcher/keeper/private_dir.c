#include "launcher/keeper/private_dir.h"

#include "common/check.h"
#include "common/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int private_dir_make(char *ret, size_t size)
{
    const char *tmp =
        getenv("TMPDIR"); /* NOLINT(concurrency-mt-unsafe): nobody sets it */

    if (!str_format(ret, size, "%s/ctrun-XXXXXX", tmp && *tmp ? tmp : "/tmp")) {
        return -ENAMETOOLONG;
    }
    return mkdtemp(ret) ? 0 : -errno;
}

void private_dir_remove(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!dir) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return; /* gone already, most often */
    }
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody else has this DIR */
    while ((entry = readdir(dir))) {
        (void)unlinkat(fd, entry->d_name, 0); /* fails for folders */
    }
    (void)closedir(dir);
    (void)rmdir(path);
}
