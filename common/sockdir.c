#include "common/sockdir.h"

#include "common/mem.h"
#include "common/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAX_TRIES = 64, PRIVATE = 0700, FOREIGN_BITS = 077 };

static const char suffix[] = ".sock";

/* ---- the folder ---- */

/* False: there is no such place. */
static bool name_place(char *path, size_t size, unsigned place)
{
    /* NOLINTBEGIN(concurrency-mt-unsafe): nobody sets the environment */
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    const char *only = getenv("CTRUN_SOCKET_DIR");
    /* NOLINTEND(concurrency-mt-unsafe) */

    if (only && only[0] != '\0') {
        return place == 0 && str_format(path, size, "%s", only);
    }
    if (place == 0) {
        return runtime && runtime[0] == '/' &&
               str_format(path, size, "%s/ctrun", runtime);
    }
    return str_format(path, size, "/tmp/ctrun-%u", (unsigned)geteuid());
}

static int check_private(const struct sockdir *d, struct errmsg *msg)
{
    struct stat st;

    if (fstat(d->fd, &st) < 0) {
        return ERR_MISSING;
    }
    if (st.st_uid != geteuid() || (st.st_mode & FOREIGN_BITS) != 0) {
        return errmsg_set(msg, ERR_REFUSED,
                          "%s is not this user's alone (owner %u, mode %04o), so its "
                          "sockets are not trusted: remove it, or make it mode 0700",
                          d->path, (unsigned)st.st_uid, (unsigned)st.st_mode & 07777U);
    }
    return 0;
}

int sockdir_open(struct sockdir *d, unsigned place, bool makes, struct errmsg *msg)
{
    int rv;

    d->fd = -1;
    if (!name_place(d->path, sizeof(d->path), place)) {
        return ERR_MISSING;
    }
    if (makes && mkdir(d->path, PRIVATE) < 0 && errno != EEXIST) {
        return ERR_MISSING; /* the other place will do */
    }
    d->fd = open(d->path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (d->fd < 0 && (errno == ENOTDIR || errno == ELOOP)) {
        return errmsg_set(msg, ERR_REFUSED,
                          "%s is no folder, so its sockets are not trusted: remove it",
                          d->path);
    }
    if (d->fd < 0) {
        return ERR_MISSING;
    }
    rv = check_private(d, msg);
    if (rv < 0) {
        sockdir_close(d);
    }
    return rv;
}

void sockdir_close(struct sockdir *d)
{
    if (d->fd >= 0) {
        (void)close(d->fd); /* only a handle */
        d->fd = -1;
    }
}

/* ---- its sockets ---- */

/* By the folder's descriptor: its own path may be longer than a socket's address takes,
 * or lead elsewhere by now. */
static bool address_of(const struct sockdir *d, const char *name,
                       struct sockaddr_un *ret)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    return str_format(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s",
                      d->fd, name);
}

static int open_socket(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    return fd < 0 ? -errno : fd;
}

/* Closes it on errors. */
static int bind_socket(int fd, const struct sockaddr_un *addr)
{
    int rv = 0;

    if (bind(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0 ||
        listen(fd, SOMAXCONN) < 0) {
        rv = -errno;
        (void)close(fd); /* nobody was heard on it */
    }
    return rv < 0 ? rv : fd;
}

static int connect_socket(const struct sockaddr_un *addr)
{
    int fd = open_socket();
    int rv;

    if (fd < 0) {
        return fd;
    }
    if (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0) {
        rv = -errno;
        (void)close(fd); /* nothing was said on it */
        return rv;
    }
    return fd;
}

/* Under a name that nobody looks at: who connects before listen would take it for one
 * that was left behind. */
static int bind_hidden(const struct sockdir *d, char *name, size_t size)
{
    struct sockaddr_un addr;
    int fd;

    if (!str_format(name, size, ".%d.new", (int)getpid()) ||
        !address_of(d, name, &addr)) {
        return -ENAMETOOLONG;
    }
    sockdir_remove(d, name); /* an older process of that number's */
    fd = open_socket();
    return fd < 0 ? fd : bind_socket(fd, &addr);
}

/* The first name that is free, or whose server is gone. */
static int publish(const struct sockdir *d, const char *hidden, char *name)
{
    int rv = -EEXIST;

    for (unsigned i = 0; i < MAX_TRIES && rv == -EEXIST; i++) {
        int other;

        if (!str_format(name, SOCKDIR_NAME_MAX, "%d-%u%s", (int)getpid(), i, suffix)) {
            return -ENAMETOOLONG;
        }
        other = sockdir_connect(d, name);
        if (other >= 0) { /* in another pid namespace, or our other server */
            (void)close(other);
            continue;
        }
        rv = renameat2(d->fd, hidden, d->fd, name, RENAME_NOREPLACE) < 0 ? -errno : 0;
    }
    return rv;
}

int sockdir_listen(const struct sockdir *d, char name[SOCKDIR_NAME_MAX])
{
    char hidden[SOCKDIR_NAME_MAX];
    int fd = bind_hidden(d, hidden, sizeof(hidden));
    int rv = fd < 0 ? fd : publish(d, hidden, name);

    if (fd >= 0 && rv < 0) {
        sockdir_remove(d, hidden);
        (void)close(fd); /* nobody was heard on it */
    }
    return rv < 0 ? rv : fd;
}

void sockdir_remove(const struct sockdir *d, const char *name)
{
    (void)unlinkat(d->fd, name, 0); /* if it is there */
}

int sockdir_connect(const struct sockdir *d, const char *name)
{
    struct sockaddr_un addr;
    int fd;

    if (!address_of(d, name, &addr)) {
        return -ENAMETOOLONG;
    }
    fd = connect_socket(&addr);
    if (fd == -ECONNREFUSED) {
        sockdir_remove(d, name);
    }
    return fd;
}

int sockdir_connect_path(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    return str_format(addr.sun_path, sizeof(addr.sun_path), "%s", path)
               ? connect_socket(&addr)
               : -ENAMETOOLONG;
}

/* ---- all of them ---- */

static bool is_socket_name(const char *name)
{
    size_t len = strlen(name);

    return len > sizeof(suffix) - 1 && len < SOCKDIR_NAME_MAX &&
           strcmp(name + len - (sizeof(suffix) - 1), suffix) == 0;
}

/* A process of that number may be in another namespace: connecting tells. */
static bool may_be_alive(const char *name)
{
    long pid = strtol(name, NULL, 10);

    return pid > 0 && pid <= INT_MAX && (kill((pid_t)pid, 0) == 0 || errno != ESRCH);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

size_t sockdir_list(const struct sockdir *d, char (*names)[SOCKDIR_NAME_MAX],
                    size_t max)
{
    int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    size_t n = 0;

    if (!dir) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return 0;
    }
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is ours */
    while (n < max && (entry = readdir(dir)) != NULL) {
        if (is_socket_name(entry->d_name)) {
            (void)snprintf(names[n++], SOCKDIR_NAME_MAX, "%.*s", SOCKDIR_NAME_MAX - 1,
                           entry->d_name);
        }
    }
    (void)closedir(dir); /* it was only read */
    qsort(names, n, sizeof(names[0]), compare_names);
    return n;
}

void sockdir_sweep(const struct sockdir *d)
{
    char(*names)[SOCKDIR_NAME_MAX] = mem_array(SOCKDIR_MAX_SERVERS, sizeof(*names));
    size_t n = sockdir_list(d, names, SOCKDIR_MAX_SERVERS);

    for (size_t i = 0; i < n; i++) {
        int fd = may_be_alive(names[i]) ? -1 : sockdir_connect(d, names[i]);

        if (fd >= 0) {
            (void)close(fd); /* it is alive, elsewhere */
        }
    }
    mem_free(names);
}
