#include "launcher/keeper/keeper_wire.h"

#include "launcher/keeper/keeper.h"

#include "common/clock.h"
#include "common/err.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union rights {
    char bytes[CMSG_SPACE(KEEPER_MAX_FDS * sizeof(int))];
    struct cmsghdr align;
};

int keeper_send(int fd, const void *data, size_t size, const int *fds, size_t n_fds)
{
    union rights rights = {0};
    struct iovec iov = {.iov_len = size};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr *head;

    memcpy(&iov.iov_base, &data, sizeof(data)); /* sendmsg only reads it */
    ASSERT(n_fds <= KEEPER_MAX_FDS);
    if (n_fds > 0) {
        m.msg_control = rights.bytes;
        m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        head = CMSG_FIRSTHDR(&m);
        ASSERT(head); /* there is room */
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(head), fds, n_fds * sizeof(int));
    }
    if (sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        return -errno;
    }
    return 0;
}

static void take_rights(struct msghdr *m, int fds[KEEPER_MAX_FDS])
{
    struct cmsghdr *head = CMSG_FIRSTHDR(m);
    size_t size;

    if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) {
        return;
    }
    size = head->cmsg_len - CMSG_LEN(0);
    ASSERT(size <= KEEPER_MAX_FDS * sizeof(int)); /* there was no more room */
    memcpy(fds, CMSG_DATA(head), size);
}

int keeper_recv(int fd, void *data, size_t size, int fds[KEEPER_MAX_FDS])
{
    union rights rights;
    struct iovec iov = {data, size};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = rights.bytes,
                       .msg_controllen = sizeof(rights.bytes)};
    ssize_t n;

    for (size_t i = 0; i < KEEPER_MAX_FDS; i++) {
        fds[i] = -1;
    }
    n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0) {
        return errno == ECONNRESET ? ERR_CLOSED : -errno;
    }
    take_rights(&m, fds);
    return (size_t)n == size ? 0 : ERR_CLOSED;
}

enum { STAT_MAX = 512 };

/* Of /proc/<pid>/stat what is behind the name in parentheses: ") S 1 …"; NULL when it is
 * gone. */
static const char *read_stat(pid_t pid, char text[STAT_MAX])
{
    char path[64];
    const char *end;
    ssize_t n;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    n = read(fd, text, STAT_MAX - 1);
    (void)close(fd); /* only read */
    if (n <= 0) {
        return NULL;
    }
    text[n] = '\0';
    end = strrchr(text, ')');
    return end && strlen(end) > 4 ? end : NULL;
}

pid_t keeper_parent_of(pid_t pid)
{
    char text[STAT_MAX];
    const char *end = read_stat(pid, text);

    return end ? (pid_t)strtol(end + 4, NULL, 10) : 0;
}

char keeper_state_of(pid_t pid)
{
    char text[STAT_MAX];
    const char *end = read_stat(pid, text);

    if (!end) {
        return '?';
    }
    return end[2];
}

enum { FIELD_STATE = 3, FIELD_START = 22, SLACK_MS = 2 };

/* The kernel has the start in ticks since the boot, cut off: seen so, a process is rather
 * too old. */
bool keeper_has_age(pid_t pid, uint64_t age_ms)
{
    char text[STAT_MAX];
    const char *at = read_stat(pid, text);
    uint64_t now_ms = clock_boot_ms();
    double start_ms;

    for (int field = FIELD_STATE - 1; at && field < FIELD_START; field++) {
        at = strchr(at, ' ');
        at += at != NULL;
    }
    if (!at) {
        return false;
    }
    start_ms = (double)strtoull(at, NULL, 10) * 1000 / (double)sysconf(_SC_CLK_TCK);
    return (double)now_ms + SLACK_MS >= start_ms + (double)age_ms;
}

/* For kernels without /proc/…/children, and for processes with threads. */
static void each_child_by_scan(void (*visit)(pid_t pid, void *arg), void *arg)
{
    DIR *dir = opendir("/proc");
    pid_t self = getpid();
    struct dirent *entry;

    if (!dir) {
        return;
    }
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody else has this DIR */
    while ((entry = readdir(dir))) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);

        if (pid > 0 && *end == '\0' && keeper_parent_of((pid_t)pid) == self) {
            visit((pid_t)pid, arg);
        }
    }
    (void)closedir(dir);
}

void keeper_each_child(bool all_threads, void (*visit)(pid_t pid, void *arg), void *arg)
{
    char path[64];
    FILE *f;
    int pid;

    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    f = all_threads ? NULL : fopen(path, "re");
    if (!f) {
        each_child_by_scan(visit, arg);
        return;
    }
    while (fscanf(f, "%d", &pid) ==
           1) { /* NOLINT(cert-err34-c): the kernel's own digits */
        visit(pid, arg);
    }
    (void)fclose(f);
}
