#ifndef WORKER_STORE_CLIENT_H
#define WORKER_STORE_CLIENT_H

/* A blocking client of the job's key-value store (PyTorch's TCPStore protocol, drawn in
 * common/tcpstore.h) at MASTER_ADDR:MASTER_PORT, which for ctrun-worker is its own
 * agent. Keys are the caller's, prefixed with "/ctrun/". One thread at a time.
 *
 * A call whose connection breaks fails with ERR_CLOSED; the next one opens another. A
 * store that cannot keep a key closes the connection, behind SET, too, which is not
 * answered: the call under way hears of it, the next one does not any more. */

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

struct store_client;

/* Retries refused connections until the time-out. */
int store_client_open(const char *host, int port, int timeout_ms,
                      struct store_client **ret, struct errmsg *msg) MUST_CHECK;
void store_client_close(struct store_client *s); /* NULL allowed */

/* Of each call from now on; the one given to open holds until then. */
void store_client_set_timeout(struct store_client *s, int timeout_ms);

int store_client_set(struct store_client *s, const char *key, const void *value,
                     size_t size, struct errmsg *msg) MUST_CHECK;

/* Waits until the key exists, then fills `value` (at most `size` bytes; ERR_TOO_LARGE)
 * with its bytes. ERR_TIMEOUT names the key. */
int store_client_get(struct store_client *s, const char *key, void *value, size_t size,
                     size_t *ret_size, struct errmsg *msg) MUST_CHECK;
int store_client_add(struct store_client *s, const char *key, int64_t delta,
                     int64_t *ret, struct errmsg *msg) MUST_CHECK;

/* Makes a blocked call fail with ERR_ABORTED; from any thread. */
void store_client_abort(struct store_client *s);

#endif
