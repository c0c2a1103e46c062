#include "common/notify.h"

#include "common/clock.h"
#include "common/err.h"
#include "common/str.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int notify_send(const char *text)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment */
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t size;
    int rv = 0;
    int fd;

    if (!path) {
        return 0;
    }
    size = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || size >= sizeof(addr.sun_path)) {
        return ERR_INVALID;
    }
    memcpy(addr.sun_path, path, size);
    if (path[0] == '@') {
        addr.sun_path[0] = '\0'; /* the abstract name space */
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    if (sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&addr,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size)) < 0) {
        rv = -errno;
    }
    (void)close(fd); /* a datagram is sent or not by now */
    return rv;
}

bool notify_is_heard(void)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment */
    return getenv("NOTIFY_SOCKET") != NULL;
}

/* The time tells systemd (from 253 on, Type=notify-reload) that this is the answer to
 * its SIGHUP. */
int notify_reloading(void)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%llu",
                   (unsigned long long)clock_us());
    return notify_send(text);
}

uint64_t notify_watchdog_ms(void)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment */
    const char *usec = getenv("WATCHDOG_USEC");
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment */
    const char *pid = getenv("WATCHDOG_PID");
    uint64_t v;

    if (pid && (str_parse_u64(pid, &v) < 0 || v != (uint64_t)getpid())) {
        return 0; /* meant for another process */
    }
    return usec && str_parse_u64(usec, &v) == 0 ? v / 2000 : 0;
}
