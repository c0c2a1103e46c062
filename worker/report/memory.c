#include "worker/report/memory.h"

#include "common/check.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STATUS_MAX = 8192 };

/* The kB behind "\n<name>:", in bytes. */
static uint64_t field(const char *status, const char *name)
{
    const char *at = strstr(status, name);

    return at ? strtoull(at + strlen(name), NULL, 10) * 1024 : 0;
}

struct memory memory_parse(const char *status)
{
    return (struct memory){.bytes = field(status, "\nVmRSS:"),
                           .peak_bytes = field(status, "\nVmHWM:")};
}

struct memory memory_read(void)
{
    char status[STATUS_MAX];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, status, sizeof(status) - 1);

    if (fd >= 0) {
        (void)close(fd); /* read only */
    }
    status[MAX(n, 0)] = '\0';
    return memory_parse(status);
}
