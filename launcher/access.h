#ifndef LAUNCHER_ACCESS_H
#define LAUNCHER_ACCESS_H

/* PURE. One rule for where workers find their store and who may come to it: those of an
 * engine, and those of a job of one node, reach their own agent over loopback; those of
 * another program on several nodes all reach group rank 0's agent at the address that
 * it has published, because some use MASTER_ADDR for sockets of their own; and in a
 * static world at the address and port that the user has given. */

#include "common/msg.h"

struct access {
    bool is_shared;          /* workers of other nodes may come */
    char addr[MSG_ADDR_MAX]; /* this node's, as it is published */
    const char *fixed_addr;  /* access_fix; NULL: not */
    int fixed_port;
};

struct access_master {
    const char *addr; /* as MASTER_ADDR; borrowed from `nodes`, or static */
    int port;
};

/* `local_addr`: --local-addr, "" for none; `own_addr`: by which the service sees us. */
void access_make(bool is_engine, uint32_t max_nodes, const char *local_addr,
                 const char *own_addr, struct access *ret);

/* In a static world: workers, unless they are engines, find the store at the endpoint,
 * as it was given (borrowed): who serves there hands them to its agent. */
void access_fix(struct access *a, bool is_engine, const char *addr, int port);

/* Where the agent listens besides loopback; "": nowhere. */
const char *access_listen_addr(const struct access *a);

/* What this node's workers are told in a round: `nodes` by group rank, `port` of the
 * own listener. */
struct access_master access_master(const struct access *a, const struct msg_node *nodes,
                                   int port);

#endif
