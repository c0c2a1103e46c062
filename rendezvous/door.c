#include "rendezvous/door.h"

#include "rendezvous/connection.h"
#include "rendezvous/permit.h"
#include "rendezvous/stream.h"

#include "common/log.h"
#include "common/mem.h"
#include "common/sockdir.h"

#include <sys/socket.h>
#include <unistd.h>

struct door {
    struct listener *listener; /* owned until door_close */
    struct sockdir dir;
    char name[SOCKDIR_NAME_MAX];
};

static int listen_in(struct door *d, const struct listener_config *config,
                     struct errmsg *msg)
{
    int fd = sockdir_listen(&d->dir, d->name);
    int rv = fd < 0 ? fd : listener_adopt(config, fd, &d->listener);

    if (rv == 0) {
        sockdir_sweep(&d->dir);
    }
    if (rv < 0) {
        if (fd >= 0) {
            sockdir_remove(&d->dir, d->name);
        }
        return errmsg_set(msg, rv, "%s: %s", d->dir.path, err_text(rv));
    }
    return 0;
}

/* In the first place that there is. */
static int open_somewhere(struct door *d, const struct listener_config *config,
                          struct errmsg *msg)
{
    int rv = ERR_MISSING;

    for (unsigned place = 0; place < SOCKDIR_PLACES && rv != 0 && rv != ERR_REFUSED;
         place++) {
        rv = sockdir_open(&d->dir, place, true, msg);
        if (rv < 0) {
            continue;
        }
        rv = listen_in(d, config, msg);
        if (rv < 0) {
            sockdir_close(&d->dir);
        }
    }
    return rv;
}

void door_open(const struct listener_config *config, struct door **ret)
{
    struct door *d = mem_zalloc(sizeof(*d));
    struct errmsg msg = {""};
    int rv = open_somewhere(d, config, &msg);

    *ret = NULL;
    if (rv == 0) {
        *ret = d;
        return;
    }
    mem_free(d);
    if (rv == ERR_REFUSED) { /* somebody has made a folder in our name */
        log_warn("no socket for ctrun status and the like", "cause=\"%s\"", msg.text);
    } else {
        log_debug("no socket for ctrun status and the like", "cause=\"%s\"",
                  msg.text[0] != '\0' ? msg.text : "no folder for it");
    }
}

void door_close(struct door *d, void (*on_closed)(void *arg), void *arg)
{
    sockdir_remove(&d->dir, d->name);
    sockdir_close(&d->dir);
    listener_close(d->listener, on_closed, arg);
    mem_free(d);
}

static bool is_ours(const struct connection *c)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    uv_os_fd_t fd;

    return uv_fileno((const uv_handle_t *)&c->tcp, &fd) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == 0 || peer.uid == geteuid());
}

bool door_admits(const struct connection *c, bool is_insecure, const char **ret_why)
{
    const struct identity *key = stream_peer(c);

    if (key) { /* wherever it comes from */
        *ret_why =
            "the key that was shown is not an operator's, and no secret of a job";
        return permit_operator(key, NULL) == 0;
    }
    *ret_why = c->is_local ? "this server belongs to another user"
                           : "without a key operators may come from this server's own "
                             "machine only (--insecure lifts that): ask there, or give "
                             "both sides a secret (ctrun keygen)";
    return c->is_local ? is_ours(c) : c->is_loopback || is_insecure;
}
