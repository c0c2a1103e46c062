#ifndef LAUNCHER_RDZV_NETADDR_H
#define LAUNCHER_RDZV_NETADDR_H

/* Addresses: which are this host's, and whose process is behind one of its connections.
 * Numeric addresses are texts of IPv4 or IPv6. */

#include "common/check.h"

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

struct ifaddrs;

/* The user whose process holds the other end of a TCP connection within this host:
 * asked of the kernel (sock_diag) for the socket peer → local. ERR_MISSING: there is no
 * such socket, or nobody holds it any more; ERR_UNSUPPORTED: this kernel cannot tell,
 * whoever asks; others: it did not tell this time (-EMFILE, …). */
int netaddr_peer_uid(const struct sockaddr *peer, const struct sockaddr *local,
                     uid_t *ret) MUST_CHECK;

bool netaddr_is_loopback(const struct sockaddr *addr);

/* Whether the address is loopback or an interface of this host has it; -errno when that
 * cannot be found out. */
int netaddr_is_this_host(const struct sockaddr *addr, bool *ret) MUST_CHECK;

/* … asked once for many: `all` is getifaddrs's. */
bool netaddr_is_among(const struct sockaddr *addr, const struct ifaddrs *all);

/* An address of this host that others can reach: that of the default route, else of the
 * first interface that is up, has a carrier, and is not loopback; "" for none. IPv4
 * first. Sends nothing. */
void netaddr_public(char *ret, size_t size);

/* The numeric address, v4-mapped ones as IPv4; "" when there is none. */
void netaddr_format(const struct sockaddr *addr, char *ret, size_t size);

/* A numeric address; ERR_INVALID for other text. */
int netaddr_parse(const char *text, int port, struct sockaddr_storage *ret) MUST_CHECK;

enum { NETADDR_BACKLOG = 4096 }; /* the kernel cuts it to somaxconn */

/* A listening socket on a numeric address; port 0 picks one. */
int netaddr_listen(const char *addr, int port, int *ret_fd, int *ret_port) MUST_CHECK;

int netaddr_port(const struct sockaddr *addr); /* 0 when there is none */

#endif
