#ifndef LAUNCHER_STORE_RELAY_FLOW_H
#define LAUNCHER_STORE_RELAY_FLOW_H

/* PURE. One worker's store connection, as its agent relays it: requests get numbers and
 * are kept until the service has acknowledged them, so that they can be sent again, in
 * order, after a reconnect. VALIDATE and PING are answered here, a parked WAIT is
 * cancelled here: its late wake-up is dropped.
 *
 *   worker ── bytes ──► relay_flow_input ── STORE {client, seq} ──► service
 *   worker ◄── bytes ── relay_flow_reply ◄── STORE_REPLY {client, seq} ── service
 *
 * A client has a few requests with a reply outstanding (those it pipelines beyond that
 * are left unread), or a parked WAIT; a new request gives up a parked one (as the
 * service has it too). */

#include "common/buf.h"
#include "common/msg.h"

struct relay_flow;

/* So many replies one client can have on their way: a few large values at the most, so
 * that whoever asks for thousands does not fill the connection to the service, on which
 * the node's own words travel. A client of torch's asks for one at a time. */
enum { RELAY_FLOW_MAX_DUE = 4 };
enum { RELAY_FLOW_WHOLE = 1024 * 1024 }; /* bytes */

struct relay_flow_config {
    uint64_t generation;
    uint32_t client;
    size_t max_held; /* unacknowledged bytes from which on input is refused */
    void *arg;
    void (*send)(void *arg, const struct msg *m);                /* to the service */
    void (*reply)(void *arg, const uint8_t *bytes, size_t size); /* to the worker */
};

struct relay_flow *relay_flow_new(const struct relay_flow_config *config);
void relay_flow_free(struct relay_flow *f); /* NULL allowed */

/* Takes whole requests off the front of `in` until it is empty, incomplete or the flow
 * is full. ERR_PROTOCOL or ERR_TOO_LARGE: close the worker's connection. */
int relay_flow_input(struct relay_flow *f, struct buf *in) MUST_CHECK;

/* ERR_CLOSED: the request broke the protocol, and nothing is held any more; close the
 * worker's connection. */
int relay_flow_reply(struct relay_flow *f, const struct msg_store_reply *m) MUST_CHECK;

/* The same service again: everything unacknowledged, in order. ERR_CLOSED: half of a
 * reply had been passed on, which cannot be taken back (only of those above
 * RELAY_FLOW_WHOLE; others wait here until they are whole); that request is dropped, the
 * others are sent; close the worker's connection. */
int relay_flow_resend(struct relay_flow *f) MUST_CHECK;

/* The worker's connection has ended: its wait is withdrawn, its writes are not. A
 * service that was asked nothing hears nothing of it. */
void relay_flow_end(struct relay_flow *f);

bool relay_flow_is_known(const struct relay_flow *f); /* the service was asked */
size_t relay_flow_held(const struct relay_flow *f);   /* unacknowledged bytes */
bool relay_flow_is_full(const struct relay_flow *f);
bool relay_flow_is_idle(const struct relay_flow *f); /* nothing unacknowledged */

#endif
