#ifndef RENDEZVOUS_CONNECTION_INTERNAL_H
#define RENDEZVOUS_CONNECTION_INTERNAL_H

/* connection.c and flush.c only. */

#include "rendezvous/connection.h"

/* Gives the socket what it takes at once, and the rest to libuv. */
void connection_write_out(struct connection *c);

/* Hands over what was left when the connection was choked, put aside while it was
 * behind, or held. */
void connection_take_kept(struct connection *c);

void connection_charge(struct connection *c);
void connection_close_now(struct connection *c);
void connection_free(struct connection *c); /* its handle is closed */

#endif
