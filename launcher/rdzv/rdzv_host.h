#ifndef LAUNCHER_RDZV_RDZV_HOST_H
#define LAUNCHER_RDZV_RDZV_HOST_H

/* The serving half of rdzv_client: the service in this process (embed.h), where it is
 * this node's to serve (rdzv_serving.h). Loop thread only. */

#include "launcher/rdzv/rdzv_client.h"
#include "launcher/rdzv/rdzv_trouble.h"

#include <sys/socket.h>

struct embed;

enum { RDZV_ADDRS_MAX = 8 };

/* One attempt to have a connection: where to, and what was found out. */
struct rdzv_attempt {
    struct sockaddr_storage addrs[RDZV_ADDRS_MAX];
    unsigned n_addrs, next_addr;
    char taken[256];                /* "" or that our port could not be bound … */
    char taken_addr[MSG_ADDR_MAX];  /* … at this address */
    char trouble[RDZV_TROUBLE_MAX]; /* why the last address failed */
    bool is_impossible;             /* … and this host is at fault */
    bool is_refused; /* … or by one of the addresses, for want of the right key */
};

/* Dropped where there are too many, or of another family. */
void rdzv_attempt_add(struct rdzv_attempt *a, const struct sockaddr *addr);

struct rdzv_host {
    const struct rdzv_client_config *config; /* borrowed: outlives it */
    struct embed *embed; /* owned; NULL: served elsewhere, or not yet */
    bool is_finishing;
    bool is_alone;          /* for this node only, on a port of its own */
    bool is_wildcard;       /* on all addresses */
    bool was_elsewhere;     /* another one has welcomed this node … */
    bool is_kept_elsewhere; /* … that remembers: it will be there again */
};

/* Binds where that is ours to do and not yet done. The attempt's addresses are what the
 * endpoint resolves to (with is_alone: none), then where to connect to. 0: this node
 * serves, or somebody does elsewhere or has the port (`taken`); else the attempt has the
 * trouble. */
int rdzv_host_serve(struct rdzv_host *h, struct rdzv_attempt *a) MUST_CHECK;

/* This node leaves: the others are to finish their step and go, too. */
void rdzv_host_finish(struct rdzv_host *h);

/* What it serves is not over yet; once it finishes: somebody has not gone yet. */
bool rdzv_host_is_busy(const struct rdzv_host *h);

/* False: nothing is served, and on_stopped is not called. */
bool rdzv_host_stop(struct rdzv_host *h, void (*on_stopped)(void *arg), void *arg);

#endif
