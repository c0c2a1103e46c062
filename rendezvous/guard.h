#ifndef RENDEZVOUS_GUARD_H
#define RENDEZVOUS_GUARD_H

/* Who may come in by the port, by what it shows. Without keys here everybody may, as
 * with torchrun; with keys whoever shows one of them, and store clients of this machine
 * (which cannot), and operators by the door (door.h). Whoever is not let in is told
 * why, where it can read it; is written down, once; and is counted. The loop's thread. */

#include "rendezvous/refusals.h"

struct connection;
struct tls_context;

struct guard {
    struct tls_context *tls; /* borrowed: outlives the connections; NULL: no keys */
    struct refusals refusals;
};

/* The first byte of a TLS client has come: TLS begins, or it is refused. */
void guard_secure(struct guard *g, struct connection *c);

/* An agent's or operator's magic has come, or a store client's first request; false: it
 * is refused, and the connection ends. */
bool guard_admits_agent(struct guard *g, struct connection *c);
bool guard_admits_store(struct guard *g, struct connection *c);

/* Writes a line, or does not; counts. */
void guard_refused(struct guard *g, const struct connection *c, enum refusal why,
                   const char *text);

#endif
