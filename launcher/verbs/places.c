#include "launcher/verbs/places.h"

#include "common/log.h"
#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct place *add(struct places *p, const char *name)
{
    struct place *place = &p->place[p->n++];

    ASSERT(p->n <= PLACES_MAX);
    place->fd = -1;
    (void)snprintf(place->name, sizeof(place->name), "%s", name); /* cut is fine */
    return place;
}

static int add_socket(struct places *p, const char *path, struct errmsg *msg)
{
    int fd = sockdir_connect_path(path);

    if (fd < 0) {
        return errmsg_set(msg, fd, "%s: %s%s", path, err_text(fd),
                          fd == -ECONNREFUSED ? ": its server is gone" : "");
    }
    add(p, path)->fd = fd;
    return 0;
}

static void add_folder(struct places *p, const struct sockdir *d)
{
    char(*names)[SOCKDIR_NAME_MAX] = mem_array(SOCKDIR_MAX_SERVERS, sizeof(*names));
    size_t n = sockdir_list(d, names, SOCKDIR_MAX_SERVERS - p->n);

    for (size_t i = 0; i < n; i++) {
        char path[PATH_MAX + SOCKDIR_NAME_MAX];
        int fd = sockdir_connect(d, names[i]);

        if (fd >= 0) {
            (void)snprintf(path, sizeof(path), "%s/%s", d->path, names[i]); /* fits */
            add(p, path)->fd = fd;
        }
    }
    mem_free(names);
}

/* One that was named may be another user's, as root names a service's. */
static int add_named_folder(struct places *p, int fd, const char *path,
                            struct errmsg *msg)
{
    struct sockdir d = {.fd = fd};
    bool fits = str_format(d.path, sizeof(d.path), "%s", path);

    ASSERT(fits); /* it was opened */
    add_folder(p, &d);
    sockdir_close(&d);
    return p->n > 0 ? 0
                    : errmsg_set(msg, ERR_MISSING,
                                 "%s: no server has its socket in this folder", path);
}

static int add_path(struct places *p, const char *path, struct errmsg *msg)
{
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? add_socket(p, path, msg) : add_named_folder(p, fd, path, msg);
}

static int add_endpoint(struct places *p, const char *endpoint, struct errmsg *msg)
{
    struct place *place;

    if (strchr(endpoint, '/')) {
        return add_path(p, endpoint, msg);
    }
    place = add(p, endpoint);
    place->port = PLACES_DEFAULT_PORT;
    if (str_parse_host_port(endpoint, place->host, sizeof(place->host), &place->port) <
        0) {
        return errmsg_set(msg, ERR_INVALID,
                          "--endpoint: expects HOST:PORT such as node0:29400, or the "
                          "path of a server's socket or of its folder, not '%.80s'",
                          endpoint);
    }
    return 0;
}

static void add_all(struct places *p)
{
    struct place *place;

    for (unsigned i = 0; i < SOCKDIR_PLACES; i++) {
        struct errmsg msg = {""};
        struct sockdir d;
        int rv = sockdir_open(&d, i, false, &msg);

        if (rv == 0) {
            add_folder(p, &d);
            sockdir_close(&d);
        } else if (rv == ERR_REFUSED) {
            log_warn(msg.text, "%s", "");
        }
    }
    place = add(p, "127.0.0.1:29400");
    (void)snprintf(place->host, sizeof(place->host), "127.0.0.1");
    place->port = PLACES_DEFAULT_PORT;
    place->is_guess = true;
}

int places_find(const char *endpoint, struct places *ret, struct errmsg *msg)
{
    struct places p = {.place = mem_array(PLACES_MAX, sizeof(*p.place))};
    int rv = 0;

    if (endpoint[0] != '\0') {
        rv = add_endpoint(&p, endpoint, msg);
    } else {
        add_all(&p);
    }
    if (rv < 0) {
        places_release(&p);
        return rv;
    }
    *ret = p;
    return 0;
}

void places_release(struct places *p)
{
    for (size_t i = 0; i < p->n; i++) {
        if (p->place[i].fd >= 0) {
            (void)close(p->place[i].fd); /* nothing was said on it */
        }
    }
    mem_free(p->place);
    *p = (struct places){0};
}
