#ifndef RENDEZVOUS_EARLY_H
#define RENDEZVOUS_EARLY_H

/* Signals that come before the loop hears them. A start may take a while: until it is
 * over SIGTERM, SIGINT and SIGHUP wait, and are then taken as by any service that runs.
 * The main thread's, before there are others. */

#include <stdbool.h>

void early_hold(void);
/* From now on they come: those that have waited at once. */
void early_let_go(void);

/* SIGTERM or SIGINT waits: what a start waits for is not worth it any more. */
bool early_is_told_to_stop(void);

#endif
