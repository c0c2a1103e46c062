#include "launcher/proc_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

bool proc_file_read(pid_t pid, const char *name, char *ret, size_t size)
{
    char path[64];
    ssize_t n;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, ret, size - 1);
    if (fd >= 0) {
        (void)close(fd); /* only read */
    }
    ret[n > 0 ? n : 0] = '\0';
    return n > 0;
}
