#ifndef RENDEZVOUS_GATE_H
#define RENDEZVOUS_GATE_H

/* What strangers can make the service do before it knows them: open connections, and
 * have lines written about it. PURE but for the lines. */

#include "rendezvous/bucket.h"

#include "common/check.h"

struct job_event;
struct sockaddr;

struct gate {
    uint32_t accept_per_s; /* of one network */
    struct buckets accepts;
    struct bucket events;
    unsigned n_hidden;   /* lines about jobs that were not written */
    uint64_t logged_ms;  /* when a line about a peer was written … */
    unsigned n_unlogged; /* … and how many were not, since */
};

/* `seed`: secret. */
void gate_init(struct gate *g, uint64_t seed, uint32_t accept_per_s);

/* Whether a new connection may come. This machine's own may always: what they could
 * fill is bounded, and many workers start at once. */
bool gate_admits(struct gate *g, const struct sockaddr *peer, uint64_t now_ms);

/* A line about a peer, at most one each second; the others are counted. */
void gate_log_peer(struct gate *g, const char *peer, const char *what, uint64_t now_ms);

/* event_log, but whoever makes up jobs does not fill the journal with them. */
void gate_log_event(struct gate *g, const struct job_event *e, uint64_t now_ms);

#endif
