#ifndef LAUNCHER_RDZV_RDZV_TROUBLE_H
#define LAUNCHER_RDZV_RDZV_TROUBLE_H

/* Why there is no connection to the rendezvous, for people. */

#include "launcher/agent.h"

#include <stdbool.h>
#include <stddef.h>

struct keys;
struct sockaddr;

#define RDZV_NO_ANSWER "no answer; is the host up, and does no firewall drop it?"

enum { RDZV_TROUBLE_MAX = 768 };

/* What to make of the failure to reach one address; true: there is no use in trying. */
bool rdzv_trouble(const struct sockaddr *addr, int error, char *ret, size_t size);

/* The service and this node do not let each other in. */
void rdzv_trouble_refused(const struct sockaddr *addr, const char *why,
                          const struct keys *keys, char *ret, size_t size);

/* Of a connection that was open. */
enum agent_loss rdzv_loss(int status);

/* Who serves there asks for no key: where others can come, one line tells how to close
 * the door; nothing else changes. */
void rdzv_advise(const char *addr, int port);

#endif
