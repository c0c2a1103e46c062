#ifndef WORKER_COMM_TCP_H
#define WORKER_COMM_TCP_H

/* Makes the TCP connections of a group: the higher rank connects, the lower accepts.
 *
 *   connector ──► hello (magic, group, the listener's token, from, to) ──► listener
 *   connector ◄── hello (magic, group, the connector's token, from, to) ◄── listener
 *
 * Tokens are random and travel through the store alone, so each side knows that the
 * other is of this generation's group. A connection that says anything else, or nothing
 * for HELLO_LIMIT_MS, is closed; at most world_size + 16 wait for a hello. */

#include "worker/comm/shm.h"

enum { TCP_ADDRESS_MAX = 64, TCP_GROUP_MAX = 64 };

struct tcp_peer {
    char address[TCP_ADDRESS_MAX]; /* numeric */
    uint16_t port;
    uint8_t token[SHM_TOKEN_SIZE];
    bool is_wanted;
    int fd; /* the result; -1 before */
};

struct tcp_mesh {
    char group[TCP_GROUP_MAX];
    int rank, world_size;
    uint8_t token[SHM_TOKEN_SIZE]; /* the own */
    int listener;                  /* -1: none */
    struct tcp_peer *peer;         /* borrowed; world_size of them */
};

/* A listener on `address` (numeric), on any free port. */
int tcp_listen(const char *address, int *ret_fd, uint16_t *ret_port,
               struct errmsg *msg) MUST_CHECK;

/* Fills peer[].fd of all wanted peers. ERR_TIMEOUT and ERR_PEER_LOST name the rank. On
 * failure the connections made so far stay in peer[].fd. */
int tcp_mesh_connect(struct tcp_mesh *m, uint64_t deadline_ms,
                     struct errmsg *msg) MUST_CHECK;

#endif
