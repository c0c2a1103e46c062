#ifndef RENDEZVOUS_DOOR_H
#define RENDEZVOUS_DOOR_H

/* Where operators come in (`ctrun status` …), and who may: by the server's Unix socket
 * (common/sockdir.h) this user and root; by TCP who shows a key that allows it, and
 * where none is asked for who is on this machine, or anybody if the server is insecure.
 * The loop's thread. */

#include "common/listener.h"

#include <stdbool.h>

struct connection;
struct door;

/* Makes the socket. Without one the server does as well: said once, *ret is NULL. */
void door_open(const struct listener_config *config, struct door **ret);

/* Asynchronous, as listener_close; the socket is gone at once. */
void door_close(struct door *d, void (*on_closed)(void *arg), void *arg);

/* May the other side of this connection ask and steer? False: *ret_why is a text for
 * it. */
bool door_admits(const struct connection *c, bool is_insecure, const char **ret_why);

#endif
