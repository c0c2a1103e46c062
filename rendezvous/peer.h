#ifndef RENDEZVOUS_PEER_H
#define RENDEZVOUS_PEER_H

/* Where a connection comes from. Never asks a name server. */

#include <stdbool.h>
#include <stddef.h>

struct sockaddr;

bool peer_is_loopback(const struct sockaddr *addr);

/* The numeric address, an IPv4 one as such also on a dual-stack listener; "" if the
 * kernel gave none. */
void peer_name(const struct sockaddr *addr, char *text, size_t size);

#endif
