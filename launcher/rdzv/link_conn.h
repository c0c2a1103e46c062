#ifndef LAUNCHER_RDZV_LINK_CONN_H
#define LAUNCHER_RDZV_LINK_CONN_H

/* One connection to the service, TCP or TLS over it: frames in, frames out. The
 * workers' requests (STORE, STORE_CLOSE) wait until all else is with the socket, but
 * for about 256 KiB of them, and go in turns of the workers (common/fairq.h). Owned by
 * rdzv_client.c through link_conn_close or link_conn_finish, after which it frees
 * itself. Loop thread only.
 *
 * What lies here is what the relay holds unacknowledged (its bounds), once more, and
 * what the agent says for itself. */

#include "common/msg.h"

struct sockaddr;
struct tls_context;
struct uv_loop_s;
struct link_conn;

struct link_conn_config {
    struct uv_loop_s *loop;
    /* What this side shows; borrowed: outlives the connection. NULL: plain. With it the
     * connection is open when the service has said that it lets us in: it answers our
     * magic by its own. */
    struct tls_context *tls;
    void *arg;
    void (*on_open)(void *arg);
    int (*on_message)(void *arg, const struct msg *m); /* < 0: it ends */
    /* Failed to open, or ended (-errno, ERR_PROTOCOL; ERR_REFUSED: one side did not let
     * the other in, link_conn_trouble says why); the owner closes it. */
    void (*on_end)(void *arg, int status);
    void (*on_pause)(void *arg, bool is_paused); /* more than 8 MiB wait, or not */
    void (*on_closed)(void *arg); /* after close or finish; always, and last */
};

int link_conn_open(const struct link_conn_config *config, const struct sockaddr *addr,
                   struct link_conn **ret) MUST_CHECK;
/* The same on a connected Unix socket, which it takes over, on errors too. */
int link_conn_adopt(const struct link_conn_config *config, int fd,
                    struct link_conn **ret) MUST_CHECK;
bool link_conn_is_open(const struct link_conn *c);
void link_conn_send(struct link_conn *c, const struct msg *m); /* once it is open */
/* Packets may be lost for as long as that lease: that ends no connection sooner. */
void link_conn_bear_silence(struct link_conn *c, uint32_t lease_ms);
/* The end of a sentence about the service, after ERR_REFUSED. */
const char *link_conn_trouble(const struct link_conn *c);
void link_conn_local_addr(const struct link_conn *c, char *ret, size_t size);

/* At once; what was not sent is lost. Only on_closed follows. */
void link_conn_close(struct link_conn *c);

/* Sends what is queued (for a second at most), then closes. Only on_closed follows. */
void link_conn_finish(struct link_conn *c);

#endif
