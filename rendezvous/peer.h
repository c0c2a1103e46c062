#ifndef RENDEZVOUS_PEER_H
#define RENDEZVOUS_PEER_H

/* Numeric addresses: where a connection comes from, where to listen. Never asks a name
 * server. */

#include "common/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sockaddr;
struct sockaddr_storage;

/* ERR_INVALID unless the text is a numeric address. */
int peer_parse(const char *text, struct sockaddr_storage *ret) MUST_CHECK;

bool peer_is_loopback(const struct sockaddr *addr);

/* A number for the network it is in: the /24 of an IPv4 address, the /64 of another. */
uint64_t peer_network(const struct sockaddr *addr);

/* The numeric address, an IPv4 one as such also on a dual-stack listener; "" if the
 * kernel gave none; "local" for a Unix socket. */
void peer_name(const struct sockaddr *addr, char *text, size_t size);

#endif
