#ifndef RENDEZVOUS_OUTPUT_H
#define RENDEZVOUS_OUTPUT_H

/* What is sent on a connection, and how much of it may lie there. Output is written in
 * order, but for bulk, which waits until nothing else does; of it at most about
 * OUTPUT_BULK_AT_ONCE is between other output and the socket. The loop's thread. */

#include "rendezvous/connection.h"

enum { OUTPUT_BULK_AT_ONCE = 256 * 1024 };

void connection_send(struct connection *c, const void *data, size_t size);

/* Appends one frame. */
void connection_send_msg(struct connection *c, const struct msg *m);
void connection_send_bulk(struct connection *c, const struct msg *m);

/* Bulk that is of no use to anybody: replies to a store client that is gone. They are
 * left out at the end of the turn, for all such clients at once. */
void connection_drop_bulk(struct connection *c, uint64_t generation, uint32_t client);

bool connection_is_behind(const struct connection *c);
bool connection_is_choked(const struct connection *c);

/* True when it is behind, and its peer has taken some of its output since this was
 * asked before. */
bool connection_took(struct connection *c);

/* From `choke_at` bytes of output it is behind; past `max` it fails. */
void connection_set_limits(struct connection *c, size_t choke_at, size_t max);

/* It is read all the same until so much was put aside. */
void connection_set_max_later(struct connection *c, size_t max_later);

#endif
