#ifndef LAUNCHER_STORE_RELAY_ADMISSION_H
#define LAUNCHER_STORE_RELAY_ADMISSION_H

/* Who may come to a generation's store: loopback, and the addresses of `nodes`, those
 * that the agent knows of the round (agent.h): all on group rank 0, whose relay the
 * other nodes' workers come to, elsewhere rank 0's alone. From within this host only
 * the same user (sock_diag): where the kernel does not answer this time, nobody; where
 * it has no sock_diag, anybody; who has closed already is nobody. */

#include "common/msg.h"

#include <stdbool.h>

struct relay_admission;
struct sockaddr;

/* This host's addresses are asked for here: it takes a while. Where that fails, it says
 * so and asks again at each connection from a node; until it succeeds every node counts
 * as within this host. */
struct relay_admission *relay_admission_new(const struct msg_node *nodes, uint32_t n);
void relay_admission_free(struct relay_admission *a); /* NULL allowed */

/* Both ends of a connection that was accepted. Logs who is turned away, only the first
 * of each address (of all of loopback); of addresses that are no node's, of the first
 * few, and at its end how many connections there were. */
bool relay_admission_check(struct relay_admission *a, const struct sockaddr *peer,
                           const struct sockaddr *local);

#endif
