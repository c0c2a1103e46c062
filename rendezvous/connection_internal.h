#ifndef RENDEZVOUS_CONNECTION_INTERNAL_H
#define RENDEZVOUS_CONNECTION_INTERNAL_H

/* connection.c, connection_io.c, flush.c and stream.c only. */

#include "rendezvous/connection.h"

enum { CONNECTION_READ_SIZE = 256 * 1024 }; /* of one connection and turn */

/* Gives the socket what it takes at once, and the rest to libuv. */
void connection_write_out(struct connection *c);

/* Hands over what was left when the connection was choked, put aside while it was
 * behind, or held. */
void connection_take_kept(struct connection *c);

/* Whether it is not read for a while, where it is open. */
void connection_set_choked(struct connection *c, bool is_choked);
int connection_start_reading(struct connection *c) MUST_CHECK;

/* Gives the memory of one that is empty back, where that is much. */
void connection_shrink(struct buf *b);

void connection_charge(struct connection *c);
void connection_close_now(struct connection *c);
void connection_free(struct connection *c); /* its handle is closed */

#endif
