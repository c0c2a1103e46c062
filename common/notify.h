#ifndef COMMON_NOTIFY_H
#define COMMON_NOTIFY_H

/* systemd's notification socket (sd_notify(3)) without its library. Without
 * NOTIFY_SOCKET in the environment nothing is sent, and that is no error. */

#include "common/check.h"

#include <stdbool.h>
#include <stdint.h>

/* Sends e.g. "READY=1". Returns 0 or -errno. */
int notify_send(const char *text) MUST_CHECK;

/* Whether there is anybody to send to. */
bool notify_is_heard(void);

/* The configuration is being read again, until READY=1 is sent. */
int notify_reloading(void) MUST_CHECK;

/* How often "WATCHDOG=1" has to be sent: half of what systemd waits for; 0: never. */
uint64_t notify_watchdog_ms(void);

#endif
