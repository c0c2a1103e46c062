#ifndef RENDEZVOUS_OUTPUT_H
#define RENDEZVOUS_OUTPUT_H

/* What is sent on a connection, and how much of it may lie there. Output is written in
 * order, but for bulk (replies to an agent's store clients), which waits until nothing
 * else does, and then goes in turns of its clients; of it at most about
 * OUTPUT_BULK_AT_ONCE is between other output and the socket. The loop's thread. */

#include "rendezvous/connection.h"

enum {
    OUTPUT_BULK_AT_ONCE = 256 * 1024,
    OUTPUT_SMALL = 64 * 1024, /* bulk of a client that goes on being served */
};

void connection_send(struct connection *c, const void *data, size_t size);

/* Appends one frame. */
void connection_send_msg(struct connection *c, const struct msg *m);
void connection_send_bulk(struct connection *c, const struct msg *m);

/* Bulk that is of no use to anybody, of a store client that is gone, is left out. */
void connection_drop_bulk(struct connection *c, uint64_t generation, uint32_t client);

bool connection_is_behind(const struct connection *c);
bool connection_is_choked(const struct connection *c);

/* An agent's requests are not held up by its being behind, but, each client's by
 * itself, by more than OUTPUT_SMALL of its own replies; and all, once there is twice as
 * much output as makes it behind: so much, and one reply, is what it holds at most. */
bool connection_is_full(const struct connection *c);
bool connection_owes_much(const struct connection *c, uint64_t generation,
                          uint32_t client);

/* … or some of the client's requests were put aside before: so must this one be. */
bool connection_must_wait(const struct connection *c, uint64_t generation,
                          uint32_t client);

/* True when it is behind, and its peer has taken some of its output since this was
 * asked before. */
bool connection_took(struct connection *c);

/* From `choke_at` bytes of output it is behind; past `max` it fails. */
void connection_set_limits(struct connection *c, size_t choke_at, size_t max);

/* It is read all the same until so much was put aside. */
void connection_set_max_later(struct connection *c, size_t max_later);

#endif
