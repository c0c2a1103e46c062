/* 1. /proc/net/tcp and tcp6 give the inode of the listening socket, else of one that is
 * connected from the port; 2. the process that has it open is found in /proc/<pid>/fd,
 * as far as they may be read. */

#include "common/portowner.h"

#include "common/str.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEX_ADDR = 33, LINE = 256, NAME = 64, STATE_LISTEN = 0x0A };

/* What is looked for, spelled as the kernel does: words of network order, as host
 * numbers. */
struct target {
    char v4[HEX_ADDR]; /* "" when the address is no IPv4 one */
    char v6[HEX_ADDR];
    unsigned port;
    bool is_any;
    bool listens;
};

static void describe_v4(const struct in_addr *addr, struct target *t)
{
    (void)snprintf(t->v4, sizeof(t->v4), "%08X", addr->s_addr);
    (void)snprintf(t->v6, sizeof(t->v6), "0000000000000000FFFF0000%08X", addr->s_addr);
    t->is_any = addr->s_addr == INADDR_ANY;
}

static bool describe(const struct sockaddr *addr, struct target *t)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;

    *t = (struct target){.v4 = ""};
    if (addr->sa_family == AF_INET) {
        memcpy(&v4, addr, sizeof(v4));
        describe_v4(&v4.sin_addr, t);
        t->port = ntohs(v4.sin_port);
        return true;
    }
    if (addr->sa_family != AF_INET6) {
        return false;
    }
    memcpy(&v6, addr, sizeof(v6));
    (void)snprintf(t->v6, sizeof(t->v6), "%08X%08X%08X%08X", v6.sin6_addr.s6_addr32[0],
                   v6.sin6_addr.s6_addr32[1], v6.sin6_addr.s6_addr32[2],
                   v6.sin6_addr.s6_addr32[3]);
    t->port = ntohs(v6.sin6_port);
    t->is_any = IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr);
    return true;
}

/* The n-th field of a line of /proc/net/tcp, or NULL. */
static char *field(char *line, unsigned n)
{
    char *at = line;

    for (unsigned i = 0;; i++) {
        at += strspn(at, " \t\n");
        if (*at == '\0') {
            return NULL;
        }
        if (i == n) {
            return at;
        }
        at += strcspn(at, " \t\n");
    }
}

static bool is_in_the_way(char *line, const struct target *t, bool is_v6)
{
    const char *local = field(line, 1);
    const char *state = field(line, 3);
    size_t digits = is_v6 ? 32 : 8;

    if (!local || !state || strlen(local) < digits + 5 || local[digits] != ':' ||
        (strtoul(state, NULL, 16) == STATE_LISTEN) != t->listens ||
        strtoul(local + digits + 1, NULL, 16) != t->port) {
        return false;
    }
    return t->is_any || strspn(local, "0") >= digits ||
           strncmp(local, is_v6 ? t->v6 : t->v4, digits) == 0;
}

/* 0 when there is none. */
static unsigned long find_inode(const char *path, const struct target *t, bool is_v6)
{
    char line[LINE];
    unsigned long inode = 0;
    const char *text;
    FILE *file = fopen(path, "re");

    while (file && inode == 0 && fgets(line, sizeof(line), file)) {
        if (is_in_the_way(line, t, is_v6)) {
            text = field(line, 9);
            inode = text ? strtoul(text, NULL, 10) : 0;
        }
    }
    if (file) {
        (void)fclose(file); /* it was only read */
    }
    return inode;
}

static unsigned long find_holder(struct target *t)
{
    unsigned long inode = 0;

    for (int i = 0; i < 2 && inode == 0; i++) {
        t->listens = i == 0;
        inode = find_inode("/proc/net/tcp", t, false);
        inode = inode ? inode : find_inode("/proc/net/tcp6", t, true);
    }
    return inode;
}

static bool has_open(const char *pid, const char *socket)
{
    char path[NAME + 8];
    char target[NAME];
    struct dirent *entry;
    bool found = false;
    ssize_t n;
    DIR *dir;

    dir = str_format(path, sizeof(path), "/proc/%.20s/fd", pid) ? opendir(path) : NULL;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): safe on a stream of one's own */
    while (dir && !found && (entry = readdir(dir))) {
        n = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
        target[MAX(n, 0)] = '\0';
        found = strcmp(target, socket) == 0;
    }
    if (dir) {
        (void)closedir(dir); /* it was only read */
    }
    return found;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* Writes "pid 4711 (name)"; the name is left out where it cannot be read. */
static bool name_process(const char *pid, char *text, size_t size)
{
    char path[NAME];
    char program[PATH_MAX];
    ssize_t n = -1;

    if (str_format(path, sizeof(path), "/proc/%.20s/exe", pid)) {
        n = readlink(path, program, sizeof(program) - 1);
    }
    program[MAX(n, 0)] = '\0';
    return n > 0 ? str_format(text, size, "pid %.20s (%.64s)", pid, base_name(program))
                 : str_format(text, size, "pid %.20s", pid);
}

bool portowner_find(const struct sockaddr *addr, char *text, size_t size)
{
    struct target target;
    struct dirent *entry;
    char socket[NAME];
    unsigned long inode;
    bool found = false;
    DIR *dir;

    if (!describe(addr, &target)) {
        return false;
    }
    inode = find_holder(&target);
    if (inode == 0 || !str_format(socket, sizeof(socket), "socket:[%lu]", inode)) {
        return false;
    }
    dir = opendir("/proc");
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): safe on a stream of one's own */
    while (dir && !found && (entry = readdir(dir))) {
        found = isdigit((unsigned char)entry->d_name[0]) &&
                has_open(entry->d_name, socket) &&
                name_process(entry->d_name, text, size);
    }
    if (dir) {
        (void)closedir(dir); /* it was only read */
    }
    return found;
}
