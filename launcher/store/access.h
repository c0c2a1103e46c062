#ifndef LAUNCHER_STORE_ACCESS_H
#define LAUNCHER_STORE_ACCESS_H

/* PURE. One rule for where workers find their store and who may come to it. Local: each
 * node's workers reach their own agent over loopback. Direct, torchrun's meaning: all
 * reach group rank 0's agent at the address that it has published, because some use
 * MASTER_ADDR for sockets of their own; in a static world at the address and port that
 * the user has given: who serves there hands them to its agent. An engine's are always
 * local. */

#include "common/msg.h"

/* --store-access; auto: direct where there may be other nodes, and no secret that would
 * be in vain where workers talk past it. */
enum store_access { STORE_ACCESS_AUTO, STORE_ACCESS_LOCAL, STORE_ACCESS_DIRECT };

struct access_config {
    enum store_access asked;
    bool is_engine;
    bool has_keys; /* the job's nodes have a secret: auto is local */
    uint32_t max_nodes;
    const char *local_addr;  /* --local-addr, "" for none */
    const char *own_addr;    /* by which the service sees us */
    const char *public_addr; /* by which others would, "" for none; looked at if … */
    const char *fixed_addr;  /* a static world's endpoint, as given (borrowed); NULL */
    int fixed_port;
};

struct access {
    bool is_shared;          /* workers of other nodes may come */
    char addr[MSG_ADDR_MAX]; /* this node's, as it is published */
    const char *fixed_addr;  /* of a static world; NULL: not */
    int fixed_port;
};

struct access_master {
    const char *addr; /* as MASTER_ADDR; borrowed from `nodes`, or static */
    int port;         /* 0: group rank 0's node lets nobody in */
};

/* … this says so: direct on one node, whose service sees it on loopback. */
bool access_wants_public(const struct access_config *c);

void access_make(const struct access_config *c, struct access *ret);

/* Where the agent listens besides loopback; "": nowhere. */
const char *access_listen_addr(const struct access *a);

/* The port to be published, of a listener on `port`; 0: other nodes may not come. */
uint16_t access_published_port(const struct access *a, int port);

/* What this node's workers are told in a round: `nodes` by group rank, `port` of the
 * own listener. */
struct access_master access_master(const struct access *a, const struct msg_node *nodes,
                                   int port);

#endif
