#ifndef COMMON_PORTOWNER_H
#define COMMON_PORTOWNER_H

/* Who listens on a TCP port of this machine, or is connected from it, from /proc.
 * Blocks for as long as /proc takes: for error texts at start only. */

#include <stdbool.h>
#include <stddef.h>

struct sockaddr;

/* Writes "pid 4711 (name)" and returns true when a socket that is in the way of
 * `addr` (address and port; IPv4 or IPv6) is found and its process may be looked at. */
bool portowner_find(const struct sockaddr *addr, char *text, size_t size);

#endif
