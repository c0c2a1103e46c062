#ifndef RENDEZVOUS_LIMITS_H
#define RENDEZVOUS_LIMITS_H

/* PURE. What peers can make the service hold and do: the defaults of what may be
 * configured, and what may not. Where each is kept, and its test: README.md. */

#include <stddef.h>
#include <stdint.h>

enum {
    LIMIT_LEASE_MS = 3000,
    LIMIT_STORE_BYTES = 1 << 30, /* of all jobs, and of all clients without one */
    LIMIT_CONNECTIONS = 20000,
    LIMIT_RANKS = 1 << 21, /* of all jobs' nodes: of the largest two (MSG_MAX_WORLD) */
    LIMIT_RESERVE = 16,    /* the part of them that store clients leave to agents */
    LIMIT_ACCEPT_PER_S = 500, /* new connections, of one network … */
    LIMIT_ACCEPT_BURST_S = 8, /* … and so many seconds' worth of them at once */
    LIMIT_GREETING_MS = 5000, /* from the first byte until we know who it is … */
    LIMIT_HELLO = 64 * 1024,  /* … and what an agent may send until then */
    LIMIT_PARTIAL_MS =
        10000,               /* between two bytes of one request; agents have a lease */
    LIMIT_WAITERS = 1 << 20, /* of the store of clients without a job */
    LIMIT_LOG_PEER_MS = 1000, /* between two lines about peers */
    LIMIT_EVENTS_PER_S = 20,  /* lines about jobs … */
    LIMIT_EVENTS_BURST = 200, /* … and at once */
    LIMIT_AGENT_CHOKED_AT = 32 * 1024 * 1024,
    LIMIT_AGENT_OUT = 512 * 1024 * 1024,
    LIMIT_AGENT_LATER = 160 * 1024 * 1024, /* more than a relay leaves unacknowledged */
};

/* Those that may change while it serves; none of them 0. */
struct server_limits {
    size_t store_max_bytes, job_max_bytes, max_connections;
    uint32_t accept_per_s;
};

/* What all connections may have buffered together. */
size_t limits_max_buffered(size_t store_max_bytes);

/* The most memory that all the bounds leave it, in bytes. */
uint64_t limits_max_memory(const struct server_limits *limits);

#endif
